"""One connection of one session: open, read, hand over, open again. The IO around `streamer`.

The driver reads one batch at a time and hands it over event by event, under the session's lock, so
that a batch of a closed stream and one of its successor never mix. What it is told by `stop` ends
its reading at once; a batch in hand is handed over first if it is to be drained.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final, Protocol

import anyio
import attrs

from acp_bridge.errors import BridgeError, EventLogResetError, EventServiceError
from acp_bridge.runevents.backoff import LIFE_S, Backoff
from acp_bridge.runevents.delivery import (
    CursorStore,
    Delivery,
    EventSource,
    EventStream,
    StoredCursors,
)
from acp_bridge.runevents.model import RunEvent, RunId
from acp_bridge.runevents.streamer import Effect, Handling, Streamer
from acp_bridge.vocabulary import SessionId

logger = logging.getLogger(__name__)

REOPEN_S: Final = 14 * 60.0
"""The longest life of a stream: common proxies cut one after 15 minutes."""

STORE_S: Final = 2.0
"""How long storing may take when the stream ends meanwhile; without it events come again."""


@attrs.frozen
class Outside:
    """Clock, sleep and chance of the streams: ``now_s`` is monotonic seconds, ``chance`` 0 to 1."""

    now_s: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    chance: Callable[[], float]


class Home(Protocol):
    """What a driver needs of the streams that it belongs to."""

    core: Streamer
    source: EventSource
    delivery: Delivery
    store: CursorStore
    outside: Outside
    epoch: str | None

    def apply(self, effects: list[Effect]) -> None:
        """Carry out what the core wants."""

    def log_reset(self, epoch: str) -> None:
        """The log is another one."""


class _NotAcceptedError(Exception):
    """An event is not durable: this stream must bring it again."""


class Driver:
    """The connection of a session in one generation. ``lock`` is the session's."""

    def __init__(
        self, home: Home, session_id: SessionId, generation: int, lock: anyio.Lock
    ) -> None:
        self._home = home
        self._session_id = session_id
        self._generation = generation
        self._lock = lock
        self._scope: anyio.CancelScope | None = None
        self._has_batch = False
        self._stopped = False
        self._is_due = False
        self._backoff = Backoff(home.outside.chance)

    def stop(self) -> None:
        """Read no more. What is in hand is still handed over, as far as the core wants it."""
        self._stopped = True
        self._cut()

    async def run(self) -> None:
        """Keep the stream open until it is stopped or hopeless."""
        home, session_id, generation = self._home, self._session_id, self._generation
        try:
            while not self._stopped:
                home.apply(home.core.reopen(session_id, generation))
                cursors = home.core.cursors(session_id, generation)
                if cursors is None or self._stopped:
                    return
                wait_s = await self._once(cursors)
                if wait_s is None:
                    return
                if wait_s > 0 and not self._stopped:
                    with anyio.CancelScope() as self._scope:
                        await home.outside.sleep(wait_s)
        finally:
            home.core.drained(session_id, generation)
            logger.info("stream of %s torn down, generation %s", session_id, generation)

    def _cut(self) -> None:
        """End what waits, but for a batch that is being handed over."""
        if self._scope is not None and not self._has_batch:
            self._scope.cancel()

    async def _once(self, cursors: dict[RunId, int]) -> float | None:
        """One stream from its opening to its end: seconds to wait, or None: that was the last."""
        home = self._home
        started_s = home.outside.now_s()
        self._is_due = False
        status: int | None = None
        why = "the stream ended"
        try:
            await self._stream(cursors)
        except EventLogResetError as error:
            if home.core.cursors(self._session_id, self._generation) is not None:
                home.log_reset(error.epoch)
            return None
        except EventServiceError as error:
            status, why = error.status, error.details
        except _NotAcceptedError:
            why = "an event was not accepted"
        if self._stopped or self._is_due:
            return 0.0
        if home.outside.now_s() - started_s >= LIFE_S:
            self._backoff.lived()
        wait_s = self._backoff.failed(status)
        logger.warning("stream of %s, generation %s: %s", self._session_id, self._generation, why)
        if wait_s is None:
            self._give_up(why)
        return wait_s

    def _give_up(self, why: str) -> None:
        details = f"{why} Session {self._session_id} hears nothing of its remote runs any more."
        logger.error("%s", details)
        try:
            self._home.delivery.gave_up(self._session_id, details)
        except Exception:
            logger.exception("the end of the stream of %s was not taken", self._session_id)

    async def _stream(self, cursors: dict[RunId, int]) -> None:
        home = self._home
        failure: BridgeError | _NotAcceptedError | None = None
        with anyio.CancelScope() as self._scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._expire)
                try:
                    async with home.source.open(cursors, epoch=home.epoch) as stream:
                        home.epoch = stream.epoch
                        logger.info(
                            "stream of %s opened, generation %s, cursors %s",
                            self._session_id,
                            self._generation,
                            cursors,
                        )
                        await self._read(stream)
                except (BridgeError, _NotAcceptedError) as error:
                    failure = error  # kept, since a task group would wrap it
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _expire(self) -> None:
        await self._home.outside.sleep(REOPEN_S)
        self._is_due = True
        self._cut()

    async def _read(self, stream: EventStream) -> None:
        async with aclosing(stream.batches()) as batches:
            async for batch in batches:
                self._has_batch = True
                try:
                    async with self._lock:
                        await self._hand_over(batch)
                finally:
                    self._has_batch = False
                self._backoff.lived()
                if self._stopped or self._is_due:
                    return

    async def _hand_over(self, batch: list[RunEvent]) -> None:
        home, session_id = self._home, self._session_id
        before = home.core.watched_by(session_id)
        try:
            for event in batch:
                handling = home.core.received(session_id, self._generation, event)
                if handling is Handling.STALE:
                    return
                if handling is Handling.SKIP:
                    continue
                await self._handle(handling, event)
                home.core.handled(session_id, event)
        finally:
            after = home.core.watched_by(session_id)
            if after and after != before:
                with anyio.CancelScope(shield=True), anyio.move_on_after(STORE_S):
                    await self._store(after)

    async def _handle(self, handling: Handling, event: RunEvent) -> None:
        home, session_id = self._home, self._session_id
        if handling is Handling.CHILD:
            assert event.ref_id is not None
            home.apply(home.core.register_child(session_id, RunId(event.ref_id)))
        elif handling is Handling.SHOW:
            try:
                home.delivery.show(session_id, event)
            except Exception:
                # What is shown may be missed; the stream goes on.
                logger.exception("event %s of %s not shown", event.event_id, event.run_id)
        else:
            try:
                accepted = await home.delivery.deliver(session_id, event)
            except Exception as fault:
                logger.exception("event %s of %s not taken", event.event_id, event.run_id)
                raise _NotAcceptedError from fault
            if not accepted:
                raise _NotAcceptedError

    async def _store(self, cursors: dict[RunId, int]) -> None:
        home = self._home
        stored = StoredCursors(home.epoch, home.core.run_of(self._session_id), cursors)
        try:
            await home.store.save(self._session_id, stored)
        except Exception:
            # The next batch stores them again; until then a restart redelivers.
            logger.exception("cursors of %s not stored", self._session_id)
