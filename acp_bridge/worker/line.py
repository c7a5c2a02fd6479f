"""The line to the home: sends an outbox through the event service, again until it is accepted.

Also what every call of an execution has in common: which refusals pass by themselves, which say
that the run is another's, and how long to wait between tries.
"""

import logging
from typing import Final

import anyio

from acp_bridge.errors import EventServiceError
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.model import RunId
from acp_bridge.subagents.remote_payloads import Item, item_json
from acp_bridge.worker.forwarding import Batch, Outbox

logger = logging.getLogger(__name__)

TRY_S: Final = 10.0
"""How long one request may take: a line that takes longer for a batch is dead."""

DELAYS_S: Final = (0.1, 0.2, 0.5, 1.0)
"""Waits between tries, the last one again and again: short, since the lease runs meanwhile."""

PIECES_S: Final = 0.05
"""How long pieces of a stream wait for more: each request is a durable event at the service, and
nobody reads faster than twenty times a second."""

_GONE: Final = frozenset({404, 409, 410})
_PASSING: Final = frozenset({401, 403, 408, 425, 429})


def says_gone(error: EventServiceError) -> bool:
    """Whether it says that the run is not this execution's any more."""
    return error.status in _GONE


def may_pass(error: EventServiceError) -> bool:
    """Whether asking again may help: the service is away, restarts, or gets its token."""
    status = error.status
    return status is None or status >= 500 or status in _PASSING  # noqa: PLR2004


async def wait_after(failures: int) -> None:
    """Wait before the next try; ``failures`` counts from 1."""
    await anyio.sleep(DELAYS_S[min(failures, len(DELAYS_S)) - 1])


class Line:
    """The way of one execution's items to its home. `send` runs in a task beside the work."""

    def __init__(self, client: EventClient, run_id: RunId, execution_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._execution_id = execution_id
        self._outbox = Outbox(execution_id)
        self._news = anyio.Event()
        self._moved = anyio.Event()

    def put(self, item: Item) -> None:
        """Send an item after all before it; synchronous.

        Raises:
            EventServiceError: it can never be sent.
        """
        self._outbox.put(item)
        self._news.set()

    async def flow(self) -> None:
        """Wait while more is told than the line takes."""
        while self._outbox.is_full:
            await self._moved.wait()

    async def flushed(self) -> None:
        """Wait until the service has accepted everything that was put before this call."""
        position = self._outbox.position
        while self._outbox.accepted_position < position:
            await self._moved.wait()

    async def send(self) -> None:
        """Send what is put, until cancelled.

        Raises:
            EventServiceError: the service will never take it; see `says_gone`.
        """
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            if not self._outbox.is_urgent and not self._outbox.is_full:
                await self._gather()
            while (batch := self._outbox.batch()) is not None:
                await self._deliver(batch)
                self._outbox.accepted(batch)
                moved, self._moved = self._moved, anyio.Event()
                moved.set()

    async def _gather(self) -> None:
        """Let pieces of a stream become more; anything else ends the wait."""
        with anyio.move_on_after(PIECES_S):
            while not self._outbox.is_urgent:
                await self._news.wait()
                self._news = anyio.Event()

    async def _deliver(self, batch: Batch) -> None:
        failures = 0
        rows = [item_json(item) for item in batch.items]
        while True:
            try:
                with anyio.fail_after(TRY_S):
                    await self._client.rows(
                        self._run_id,
                        execution_id=self._execution_id,
                        event_id=batch.event_id,
                        rows=list(rows),
                    )
            except TimeoutError:
                why = "no answer in time"
            except EventServiceError as error:
                if not may_pass(error):
                    raise
                why = error.details
            else:
                return
            failures += 1
            if failures == 1:
                logger.warning("run %s: %s is sent again: %s", self._run_id, batch.event_id, why)
            await wait_after(failures)
