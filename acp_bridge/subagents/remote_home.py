"""The home of remote children: who of this process is subscribed, and where events end up.

Every root session that is open here is a consumer of its own events from its opening to its end,
whoever drives it: an editor, the SDK's wire, a language server. Events of its children go to their
`RemoteChild`, those of its own into its log's inbox, keyed by their event ids.
"""

import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from acp_bridge.errors import (
    BridgeError,
    EventServiceError,
    InvalidParamsError,
    SessionConflictError,
    StoreFailedError,
)
from acp_bridge.harness.session import HarnessSession
from acp_bridge.runevents.backoff import Backoff
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.driver import Outside
from acp_bridge.runevents.model import CANCEL, NEW_MESSAGE, ROWS, RunEvent, RunId, checked_id
from acp_bridge.runevents.streamer import ConsumerId, Snapshot
from acp_bridge.runevents.streaming import RunStreams, run_streams
from acp_bridge.sessions import LogWriter, SessionStore
from acp_bridge.subagents import refusals
from acp_bridge.subagents.activation import Activation
from acp_bridge.subagents.descriptor import DESCRIPTOR_ROW, Descriptor, descriptor_from_data
from acp_bridge.subagents.elsewhere import PendingRun
from acp_bridge.subagents.ledger import Ledger
from acp_bridge.subagents.limits import Limits
from acp_bridge.subagents.messages import relay_message
from acp_bridge.subagents.remote_child import HOME, RemoteChild
from acp_bridge.subagents.remote_payloads import (
    Cancel,
    Item,
    Relayed,
    RowItem,
    addressed,
    cancel_json,
    items_from_payload,
    message_from_json,
)
from acp_bridge.subagents.tree import CATALOG_ROW, UNNAMED
from acp_bridge.vocabulary import CallId, JsonObject, JsonValue, SessionId

logger = logging.getLogger(__name__)

TELL_S: Final = 15.0
"""How often the service is told what is open here; it forgets after three times as long."""

GOODBYE_S: Final = 0.5
"""How long the end of a process waits to say so; unsaid, the service finds out by itself."""

GATHER_S: Final = 0.1
"""Changes that come together are told together."""


class Adopter(Protocol):
    """Who gives a child an activation: the `SubagentService`."""

    async def adopt(self, root: HarnessSession, run: PendingRun) -> None:
        """A child that is at work elsewhere, seen from here again."""

    async def relay(self, root: HarnessSession, child_id: SessionId, message: JsonObject) -> bool:
        """A message of another agent to a child of this root; False: not now."""


@attrs.define(eq=False)
class _Root:
    """An open root; ``ready`` once what was pending of it is at work again."""

    session: HarnessSession
    ready: anyio.Event = attrs.field(factory=anyio.Event)


class RemoteHome:
    """Implements `elsewhere.Elsewhere`, `delivery.Delivery`, and is the children's `Office`.

    ``delegates``: new children of roots begin elsewhere. ``home_id`` names this process at the
    service. To be used inside `running`.
    """

    def __init__(
        self,
        client: EventClient,
        ledger: Ledger,
        *,
        outside: Outside,
        new_id: Callable[[], str],
        home_id: str,
        delegates: bool,
    ) -> None:
        self.client = client
        self.ledger = ledger
        self.limits = Limits()
        self._outside = outside
        self._new_id = new_id
        self._home_id = home_id
        self._delegates = delegates
        self._roots: dict[SessionId, _Root] = {}
        self._children: dict[SessionId, RemoteChild] = {}
        self._changed = anyio.Event()
        self._was_told = False
        self._streams: RunStreams | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._adopter: Adopter | None = None
        self._store: SessionStore | None = None

    def bind(self, adopter: Adopter, store: SessionStore, limits: Limits) -> None:
        """Who gives children activations, where their logs go, and what bounds them."""
        self._adopter, self._store, self.limits = adopter, store, limits

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The streams, for as long as the context is open; its sessions must be closed by then."""
        try:
            async with (
                self.client,
                run_streams(
                    source=self.client,
                    delivery=self,
                    store=self.ledger,
                    outside=self._outside,
                    changed=self._tell_changed,
                    was_reset=self._was_reset,
                ) as self._streams,
                anyio.create_task_group() as self._tasks,
            ):
                self._tasks.start_soon(self._tell_service)
                yield
                self._tasks.cancel_scope.cancel()
                with anyio.move_on_after(GOODBYE_S if self._was_told else 0, shield=True):
                    await self._tell({})
        finally:
            with anyio.CancelScope(shield=True):
                await self.ledger.close()

    # --- consumers -----------------------------------------------------------------------------

    def opened(self, session: HarnessSession, *, is_new: bool) -> None:
        """A root session is open here: it wants its events. ``is_new``: nothing is pending."""
        root = self._roots[session.session_id] = _Root(session)
        if is_new:
            root.ready.set()
        self.streams.register_consumer(session.session_id, _consumer(session.session_id))

    def closed(self, session_id: SessionId) -> None:
        """It is closed; what comes for it waits in the service's log."""
        if (root := self._roots.pop(session_id, None)) is not None:
            root.ready.set()
            self.streams.unregister_consumer(session_id, _consumer(session_id))

    async def deleted(self, session_id: SessionId) -> None:
        """It is gone for good, and so are its children: whoever executes one may stop.

        Raises:
            StoreFailedError: the disk refused.
        """
        self.streams.removed(session_id)
        for run in await self.ledger.pending(session_id):
            self.start(partial(self._stop, run, self._new_id()))
        await self.ledger.forget_family(session_id)

    # --- what the subagent service asks (`elsewhere.Elsewhere`) ---------------------------------

    @property
    def delegates(self) -> bool:
        """Whether new children of roots begin elsewhere."""
        return self._delegates

    def check_parent(self, parent_id: SessionId) -> None:
        """As `Elsewhere.check_parent`."""
        try:
            checked_id(parent_id, "run_id")
        except InvalidParamsError as fault:
            raise refusals.bad_run_id(parent_id) from fault

    async def child(
        self, activation: Activation, writer: LogWriter, run: PendingRun
    ) -> RemoteChild:
        """As `Elsewhere.child`."""
        if not run.task_id and (last := await self.ledger.find(run.child_id)) is not None:
            run = attrs.evolve(run, items_until=last.items_until, before=last.ended_by)
        child = RemoteChild(self, activation, writer, run)
        await child.restore()
        return child

    async def pending(self, root: HarnessSession) -> Sequence[PendingRun]:
        """As `Elsewhere.pending`; and its streams go on from where they were.

        A session whose log names no child is not asked about: it makes no connection.
        """
        parent_id = root.session_id
        if not any(event.type == CATALOG_ROW for event in root.events):
            return ()
        self._assign(parent_id)
        self.streams.restore([parent_id])
        return await self.ledger.pending(parent_id)

    def ready(self, root: HarnessSession) -> None:
        """As `Elsewhere.ready`."""
        if (found := self._roots.get(root.session_id)) is not None:
            found.ready.set()

    async def cannot_adopt(self, run: PendingRun, why: BridgeError) -> None:
        """As `Elsewhere.cannot_adopt`; while another process has its log, its events wait."""
        logger.warning("subagent %s cannot be followed: %s", run.child_id, why.details)
        if not isinstance(why, SessionConflictError | StoreFailedError):
            await self.ledger.told(run, HOME)

    async def check_idle(self, child_id: SessionId) -> None:
        """As `Elsewhere.check_idle`."""
        run = await self.ledger.find(child_id)
        if run is not None and run.settled_by is None and run.ended_by is None:
            raise refusals.conflict(
                child_id, "it works on another machine; load this session again to follow it."
            )

    # --- what a remote child asks (`remote_child.Office`) --------------------------------------

    @property
    def streams(self) -> RunStreams:
        """The streams of this process."""
        assert self._streams is not None, "use `running`"
        return self._streams

    @property
    def store(self) -> SessionStore:
        """Where the children's logs go."""
        assert self._store is not None, "use `bind`"
        return self._store

    def start(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run it in a task of the home."""
        assert self._tasks is not None, "use `running`"
        self._tasks.start_soon(work)

    def watch(self, child: RemoteChild) -> None:
        """Bring the events of its run from now on."""
        self._children[child.session_id] = child
        self._assign(child.parent_id)
        self.streams.register_child(child.parent_id, RunId(child.session_id))

    def _assign(self, parent_id: SessionId) -> None:
        consumer = _consumer(parent_id)
        self.streams.run_assigned(parent_id, RunId(parent_id), hosted_by=consumer)

    def unwatch(self, child: RemoteChild) -> None:
        """Bring them no more; the run stays subscribed, since it may be continued."""
        if self._children.get(child.session_id) is child:
            del self._children[child.session_id]

    def new_id(self) -> str:
        """A fresh id."""
        return self._new_id()

    def backoff(self) -> Backoff:
        """Waits between tries."""
        return Backoff(self._outside.chance)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._outside.sleep(seconds)

    # --- where events end up (`delivery.Delivery`) ----------------------------------------------

    async def deliver(self, session_id: SessionId, event: RunEvent) -> bool:
        """As `Delivery.deliver`."""
        root = self._roots.get(session_id)
        if root is None:
            return False
        await root.ready.wait()
        if root.session.closing:
            return False
        if event.run_id == RunId(session_id):
            return await self._deliver_own(root.session, event)
        child_id = SessionId(event.run_id)
        message = _relayed(event) if event.event_type == NEW_MESSAGE else None
        if event.event_type == NEW_MESSAGE and message is None:
            return True  # the home's own, or of no use
        child = self._children.get(child_id)
        if child is None:
            is_taken_up = await self._take_up(root.session, child_id, event)
            child = self._children.get(child_id)
            if is_taken_up and child is None:
                return False
        if message is not None:
            return await self._relay(root.session, child_id, message)
        return child is None or await child.take(event)

    async def _deliver_own(self, root: HarnessSession, event: RunEvent) -> bool:
        if event.event_type == CANCEL:
            root.cancel("user")
        if event.event_type != NEW_MESSAGE or root.has_message(event.event_id):
            return True
        message = _relayed(event)
        if message is None:
            logger.warning("message %s is not taken", event.event_id)
            return True
        return await root.notify(message, wakes=True)

    async def _relay(self, root: HarnessSession, child_id: SessionId, message: JsonObject) -> bool:
        assert self._adopter is not None, "use `bind`"
        try:
            return await self._adopter.relay(root, child_id, message)
        except (SessionConflictError, StoreFailedError) as failure:
            logger.warning("subagent %s: a message waits: %s", child_id, failure.details)
            return False
        except BridgeError as failure:
            logger.warning("subagent %s takes no message: %s", child_id, failure.details)
            return True

    async def _take_up(self, root: HarnessSession, child_id: SessionId, event: RunEvent) -> bool:
        """Follow a child that nobody here follows yet; False: the event is of no concern."""
        run = await self.ledger.find(child_id)
        if run is None:
            run = await self._unkept(root, child_id, event)
        if run is None or run.settled_by is not None or self._adopter is None:
            return False
        try:
            await self._adopter.adopt(root, run)
        except BridgeError as failure:
            await self.cannot_adopt(run, failure)
            return isinstance(failure, SessionConflictError | StoreFailedError)
        return True

    async def _unkept(
        self, root: HarnessSession, child_id: SessionId, event: RunEvent
    ) -> PendingRun | None:
        """A child that the ledger lost, by its log alone; None: the event tells nothing new.

        Raises:
            EventServiceError: the service does not say what the child's task is.
        """
        if root.has_message(event.event_id):
            return None
        try:
            log = await anyio.to_thread.run_sync(self.store.read, child_id)
            items = items_from_payload(event.payload) if event.event_type == ROWS else None
        except BridgeError as failure:
            logger.warning("run %s is not followed: %s", child_id, failure.details)
            return None
        found = [descriptor_from_data(row.data) for row in log.events if row.type == DESCRIPTOR_ROW]
        label = found[-1].label if found and isinstance(found[-1], Descriptor) else None
        if items is None and label is None:
            return None  # the end of a one-shot child, for which nobody waits any more
        if items is not None and await anyio.to_thread.run_sync(self._has_rows, items):
            return None
        kept = await self.client.run(event.run_id)
        if event.event_type == NEW_MESSAGE and kept.state not in {"waiting", "claimed"}:
            return None  # it is complete, and the message wakes it
        return PendingRun(
            child_id=child_id,
            parent_id=root.session_id,
            label=label or UNNAMED,
            mode="one-shot" if label is None else "continuable",
            call_id=CallId(""),
            task="",
            place="",
            model_id="",
            effort=None,
            task_id=kept.task_id or "",
            first_seq=len(log.events),
            is_registered=True,
        )

    def _has_rows(self, items: Sequence[Item]) -> bool:
        """Whether the logs hold all rows among these. Blocking."""
        lengths: dict[str, int] = {}
        for item in items:
            if isinstance(item, RowItem):
                session_id = item.session_id
                if session_id not in lengths:
                    try:
                        lengths[session_id] = len(self.store.read(session_id).events)
                    except BridgeError:
                        return False
                if item.event.seq >= lengths[session_id]:
                    return False
        return True

    def show(self, session_id: SessionId, event: RunEvent) -> None:
        """As `Delivery.show`: on the child that the event is of."""
        logger.info("run %s of %s: %s", event.run_id, session_id, event.event_type)
        if (child := self._children.get(SessionId(event.run_id))) is not None:
            child.show(event)

    def gave_up(self, session_id: SessionId, details: str) -> None:
        """Its children are heard of no more: they have failed, as far as can be told here."""
        for child in list(self._children.values()):
            if child.parent_id == session_id:
                self.start(partial(_fail, child, details))

    async def _stop(self, run: PendingRun, event_id: str) -> None:
        payload = addressed(cancel_json(Cancel("user")), run.task_id)
        try:
            await self.client.cancel(
                RunId(run.child_id), event_id=event_id, payload=payload, task_id=run.task_id
            )
        except EventServiceError as error:
            # Its worker goes on for nobody, until it is done.
            logger.warning("run %s was not stopped: %s", run.child_id, error.details)

    # --- the service -----------------------------------------------------------------------------

    def _was_reset(self) -> None:
        for child in list(self._children.values()):
            self.start(partial(_check, child))

    def _tell_changed(self) -> None:
        self._changed.set()

    async def _tell_service(self) -> None:
        """Let ``acp-bridge events status`` show what is open here, while there is something."""
        while True:
            await self.sleep(GATHER_S)
            self._changed = anyio.Event()
            snapshot = self.streams.snapshot()
            if snapshot.watching_entries or self._was_told:
                self._was_told = bool(snapshot.watching_entries)
                await self._tell(snapshot_json(snapshot))
            with anyio.move_on_after(TELL_S if self._was_told else None):
                await self._changed.wait()

    async def _tell(self, snapshot: JsonObject) -> None:
        try:
            await self.client.tell_home(self._home_id, snapshot)
        except EventServiceError as error:
            logger.info("the service was not told what is open: %s", error.details)


def snapshot_json(snapshot: Snapshot) -> JsonObject:
    """What is connected and why, as the service shows it."""
    sessions: list[JsonValue] = [
        {
            "session_id": entry.session_id,
            "role": entry.role,
            "consumers": entry.consumers,
            "watched_ids": len(entry.watched),
            "is_connected": entry.generation is not None,
        }
        for entry in snapshot.entries
    ]
    return {
        "open_connections": snapshot.open_connections,
        "watching_entries": snapshot.watching_entries,
        "watched_ids": snapshot.watched_ids,
        "consumers": sum(entry.consumers for entry in snapshot.entries),
        "sessions": sessions,
    }


def _consumer(session_id: SessionId) -> ConsumerId:
    """A session is open at most once in a process."""
    return ConsumerId(f"open:{session_id}")


def _relayed(event: RunEvent) -> JsonObject | None:
    """What another agent says, as a message of the log; None: it is none of another's."""
    try:
        told = message_from_json(event.payload)
    except InvalidParamsError as fault:
        logger.warning("message %s cannot be used: %s", event.event_id, fault.details)
        return None
    if not isinstance(told, Relayed):
        return None
    sender = SessionId(event.ref_id or "unknown")
    return relay_message(told.text, sender=sender, message_id=event.event_id)


async def _fail(child: RemoteChild, details: str) -> None:
    await child.fail(details)


async def _check(child: RemoteChild) -> None:
    details = await child.check_known()
    if details is not None:
        await child.fail(details)
