"""The streams of this process: carries out what the pure `Streamer` wants, each stream a task."""

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from acp_bridge.runevents.delivery import CursorStore, Delivery, EventSource
from acp_bridge.runevents.driver import Driver, Outside
from acp_bridge.runevents.model import RunId
from acp_bridge.runevents.restore import restore
from acp_bridge.runevents.streamer import (
    Close,
    ConsumerId,
    Effect,
    Open,
    Snapshot,
    Streamer,
    Undriven,
)
from acp_bridge.vocabulary import SessionId

logger = logging.getLogger(__name__)


class RunStreams:
    """Sessions' subscriptions. Every operation is synchronous; its IO happens in tasks.

    ``epoch`` is the log that the cursors are of; None until a stream has said. ``changed`` is
    called when `snapshot` may say something else, ``was_reset`` when the log is another one.
    """

    def __init__(
        self,
        tasks: TaskGroup,
        *,
        source: EventSource,
        delivery: Delivery,
        store: CursorStore,
        outside: Outside,
        changed: Callable[[], None] = lambda: None,
        was_reset: Callable[[], None] = lambda: None,
    ) -> None:
        self.core = Streamer()
        self.source = source
        self.delivery = delivery
        self.store = store
        self.outside = outside
        self.epoch: str | None = None
        self._changed = changed
        self._was_reset = was_reset
        self._tasks = tasks
        self._drivers: dict[int, Driver] = {}
        self._locks: dict[SessionId, anyio.Lock] = {}

    def register_consumer(self, session_id: SessionId, consumer: ConsumerId) -> None:
        """Somebody wants the session's events; once for each consumer."""
        self.apply(self.core.register_consumer(session_id, consumer))
        self._log_consumers("registered", session_id)

    def unregister_consumer(self, session_id: SessionId, consumer: ConsumerId) -> None:
        """That one wants them no more."""
        self.apply(self.core.unregister_consumer(session_id, consumer))
        self._log_consumers("unregistered", session_id)

    def register_child(self, parent: SessionId, run_id: RunId) -> None:
        """The session has a child of this run."""
        self.apply(self.core.register_child(parent, run_id))

    def placed_under_parent(self, session_id: SessionId) -> None:
        """The session has a parent in this process."""
        self.apply(self.core.placed_under_parent(session_id))

    def run_assigned(
        self,
        session_id: SessionId,
        run_id: RunId,
        *,
        parent_run: RunId | None = None,
        hosted_by: ConsumerId | None = None,
    ) -> None:
        """The session's run has an id: see `Streamer.run_assigned`."""
        self.apply(
            self.core.run_assigned(session_id, run_id, parent_run=parent_run, hosted_by=hosted_by)
        )

    def set_passive(self, session_id: SessionId) -> None:
        """Its events come by another stream."""
        self.apply(self.core.set_passive(session_id))

    def removed(self, session_id: SessionId) -> None:
        """The session is gone for good."""
        self.apply(self.core.removed(session_id))
        self._locks.pop(session_id, None)

    def killed(self, session_id: SessionId) -> None:
        """The session's run was killed."""
        self.apply(self.core.killed(session_id))

    def restore(self, session_ids: Iterable[SessionId]) -> None:
        """Find out where each of these sessions was: cursors, own run, children."""
        for session_id in session_ids:
            self.core.restoring(session_id)
            self._tasks.start_soon(restore, self, session_id)

    def snapshot(self) -> Snapshot:
        """What is connected and why."""
        return self.core.snapshot()

    def log_reset(self, epoch: str) -> None:
        """The log is another one: every stream starts anew in it."""
        logger.warning("the event log was reset: now %s, was %s", epoch, self.epoch)
        self.epoch = epoch
        self.apply(self.core.log_was_reset())
        self._was_reset()

    def apply(self, effects: list[Effect]) -> None:
        """Carry out what the core wants."""
        self._changed()
        for effect in effects:
            match effect:
                case Open(session_id, generation):
                    lock = self._locks.setdefault(session_id, anyio.Lock())
                    driver = Driver(self, session_id, generation, lock)
                    self._drivers[generation] = driver
                    self._tasks.start_soon(self._drive, driver, generation)
                case Close(_, generation):
                    if generation in self._drivers:
                        self._drivers[generation].stop()
                case Undriven(session_id, run_id):
                    logger.error(
                        "the run %s of %s is hosted here, but its driver was no consumer when it "
                        "got its id: register the driver first",
                        run_id,
                        session_id,
                    )

    async def _drive(self, driver: Driver, generation: int) -> None:
        try:
            await driver.run()
        finally:
            del self._drivers[generation]

    def _log_consumers(self, what: str, session_id: SessionId) -> None:
        logger.info(
            "consumer of %s %s: %s left", session_id, what, self.core.consumers_of(session_id)
        )


@asynccontextmanager
async def run_streams(
    *,
    source: EventSource,
    delivery: Delivery,
    store: CursorStore,
    outside: Outside,
    changed: Callable[[], None] = lambda: None,
    was_reset: Callable[[], None] = lambda: None,
) -> AsyncIterator[RunStreams]:
    """Streams for as long as the context is open; at its end none is left."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield RunStreams(
                tasks,
                source=source,
                delivery=delivery,
                store=store,
                outside=outside,
                changed=changed,
                was_reset=was_reset,
            )
        except Exception as error:  # noqa: BLE001  # raised again: a task group would wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
