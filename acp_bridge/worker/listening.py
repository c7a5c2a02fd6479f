"""What the home says of a run while it is worked on: messages, modes, cancels."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final, TypeAlias

import attrs

from acp_bridge.errors import EventLogResetError, EventServiceError, InvalidParamsError
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.model import CANCEL, NEW_MESSAGE, RunEvent, RunId
from acp_bridge.subagents.remote_payloads import (
    Cancel,
    Message,
    cancel_from_json,
    is_for,
    message_from_json,
)
from acp_bridge.worker.line import wait_after

logger = logging.getLogger(__name__)

Order: TypeAlias = Message | Cancel

TYPES: Final = (CANCEL, NEW_MESSAGE)
"""All that is listened to: else every row would come back."""


@attrs.frozen
class Listener:
    """Hears of one execution. ``since`` is the sequence at which it began.

    What names this task counts from its registration on; what names none only from ``since`` on,
    since it may have been said to an earlier execution.
    """

    client: EventClient
    run_id: RunId
    task_id: str | None
    since: int
    obey: Callable[[Order], Awaitable[None]]

    async def listen(self) -> None:
        """Hear and obey, each order once, until cancelled; a log that was reset ends it."""
        cursor, failures = 0, 0
        epoch: str | None = None
        while True:
            try:
                async with self.client.open(
                    {self.run_id: cursor}, epoch=epoch, types=TYPES
                ) as stream:
                    epoch = stream.epoch
                    async with aclosing(stream.batches()) as batches:
                        async for batch in batches:
                            failures = 0
                            for event in batch:
                                await self._hear(event)
                                cursor = max(cursor, event.sequence)
            except EventLogResetError as error:
                logger.warning("run %s: %s", self.run_id, error.details)
                return  # the lease says what became of the run
            except EventServiceError as error:
                logger.warning("run %s: not heard: %s", self.run_id, error.details)
            failures += 1
            await wait_after(failures)

    async def _hear(self, event: RunEvent) -> None:
        order = self._order_of(event)
        if order is not None:
            logger.info("run %s: %s %s", self.run_id, event.event_type, event.event_id)
            await self.obey(order)

    def _order_of(self, event: RunEvent) -> Order | None:
        payload = event.payload
        if not is_for(payload, self.task_id):
            return None
        if "task_id" not in payload and event.sequence <= self.since:
            return None
        try:
            if event.event_type == CANCEL:
                return cancel_from_json(payload)
            return message_from_json(payload)
        except InvalidParamsError as fault:
            logger.warning("run %s: %s: %s", self.run_id, event.event_id, fault.details)
            return None
