"""`SubagentService`: starts, messages, interrupts, lists and ends subagents.

An activation begins when the child's log durably holds what it is to do, and runs in a task of the
runtime's, so that no caller's cancel ends it; it is over when the child is idle, is owed nothing,
and its parent was told. The table of activations is changed between awaits only, so every check on
it holds until the next await.
"""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Protocol

import anyio
import anyio.to_thread
import attrs

from acp_bridge.errors import BridgeError, SessionConflictError
from acp_bridge.harness.choosing import stored_choices
from acp_bridge.harness.desk import Choices
from acp_bridge.harness.inbox import Target
from acp_bridge.harness.memory import SessionMemory
from acp_bridge.harness.modes import delegated_rows
from acp_bridge.harness.session import HarnessSession
from acp_bridge.ports import Client, ModelCatalog
from acp_bridge.sessions import Header, LogWriter, SessionQuery, SessionStore
from acp_bridge.sessions.query import LiveLog
from acp_bridge.subagents import refusals
from acp_bridge.subagents.activation import Activation, Activations, ChildSession, Work
from acp_bridge.subagents.asking import ChildClient
from acp_bridge.subagents.catalog import Child, Diagnostic, complete_child, list_children
from acp_bridge.subagents.delegation import Delegation, birth_rows
from acp_bridge.subagents.descriptor import Descriptor
from acp_bridge.subagents.elsewhere import Elsewhere, PendingRun, RemoteSession
from acp_bridge.subagents.limits import Limits
from acp_bridge.subagents.messages import relay_message, task_message
from acp_bridge.subagents.places import Places, place_among_listed
from acp_bridge.subagents.providers import PROVIDERS, REMOTE, Birth, Provider
from acp_bridge.subagents.tree import CATALOG_ROW, descendants
from acp_bridge.vocabulary import (
    Abort,
    CallId,
    ChildMessaged,
    Descendant,
    Draft,
    JsonObject,
    SessionId,
)

logger = logging.getLogger(__name__)


class Host(Protocol):
    """What opens sessions: the runtime."""

    def root(self, session_id: SessionId) -> HarnessSession | None:
        """The session that a client has open under this id."""

    def start_child(
        self,
        writer: LogWriter,
        *,
        choices: Choices,
        client: Client,
        memory: SessionMemory,
        place: str,
        root: HarnessSession,
    ) -> HarnessSession:
        """A session on this log, served until it is closed. ``place`` counts if it has none.

        It has the tools of ``root``, those of MCP servers included.
        """

    def run(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run ``work`` in a task of the runtime's own."""


class SubagentService:
    """Implements `ports.ChildRunner`, and is what the control tools ask.

    ``query`` None: nothing can be listed. ``clock`` and ``new_id`` are as in `harness.desk.World`.
    ``elsewhere`` lets children work in other processes; None: all work here.
    """

    def __init__(
        self,
        host: Host,
        *,
        store: SessionStore,
        query: SessionQuery | None,
        catalog: ModelCatalog,
        clock: Callable[[], int],
        new_id: Callable[[], str],
        limits: Limits = Limits(),  # noqa: B008  # frozen
        providers: Mapping[str, Provider] = PROVIDERS,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._host = host
        self._store = store
        self._query = query
        self._catalog = catalog
        self._clock = clock
        self._new_id = new_id
        self._limits = limits
        self._providers = providers
        self._elsewhere = elsewhere
        self._working = Activations(new_id)
        self._places = Places()
        self._created_at_ms = 0

    # --- what sessions ask (`ports.ChildRunner`) ------------------------------------------------

    def owes(self, parent_id: SessionId) -> bool:
        """Whether a child of it works, or has ended and its parent was not told yet."""
        return bool(self._working.owed(parent_id))

    def cancel_below(self, parent_id: SessionId, why: Abort) -> None:
        """End what runs below it, deepest first: each child ends its own before itself."""
        for one in self._working.owed(parent_id):
            one.stop("disposed" if why == "disposed" else "parent", is_quiet=True)

    async def settled(self, parent_id: SessionId) -> None:
        """Wait until it is owed nothing."""
        while owed := self._working.owed(parent_id):
            await owed[0].gone.wait()

    async def descendants(self, root_id: SessionId) -> Sequence[Descendant]:
        """As `ports.LiveSession.descendants`.

        Raises:
            SessionQueryError: the store cannot be read.
        """
        if self._query is None:
            return ()
        return await anyio.to_thread.run_sync(descendants, self._query, root_id)

    def cancel_child(self, root_id: SessionId, child_id: SessionId) -> None:
        """As `ports.LiveSession.cancel_child`."""
        one = self._working.get(child_id)
        if one is not None:
            if one.root.session_id == root_id:
                one.stop("user", is_quiet=False)
            return
        for remote in self._remote():
            if remote.header.parent_session == root_id and remote.cancel_below(child_id, "user"):
                return

    async def give_mode(self, parent_id: SessionId) -> None:
        """As `ports.ChildRunner.give_mode`: a child never has more rights than its parent."""
        for one in self._working.owed(parent_id):
            await one.begun.wait()
            if one.session is None or one.closed.is_set():
                continue
            try:
                await one.session.take_mode(one.parents_mode)
            except BridgeError as failure:
                logger.warning(
                    "session %s: subagent %s is ended, since it cannot take a new mode: %s",
                    parent_id,
                    one.child_id,
                    failure.details,
                )
                one.stop("parent", is_quiet=False)

    # --- what the runtime asks ------------------------------------------------------------------

    def sessions(self) -> Sequence[LiveLog]:
        """The children that are live, here or elsewhere: published, and not closed yet."""
        here = [one.session for one in self._working.live() if one.session is not None]
        return [*here, *(log for remote in self._remote() for log in remote.below())]

    def _remote(self) -> Sequence[RemoteSession]:
        live = [one.elsewhere for one in self._working.live()]
        return [session for session in live if session is not None]

    def is_live(self, session_id: SessionId) -> bool:
        """Whether the session is a child at work here, or told of here."""
        return any(log.header.session_id == session_id for log in self.sessions()) or (
            self._working.get(session_id) is not None
        )

    async def pick_up(self, root: HarnessSession) -> None:
        """Let the children of a reopened root go on that were at work elsewhere meanwhile."""
        elsewhere = self._elsewhere
        if elsewhere is None:
            return
        with anyio.CancelScope(shield=True):
            try:
                for run in await elsewhere.pending(root):
                    try:
                        await self.adopt(root, run)
                    except BridgeError as failure:
                        await elsewhere.cannot_adopt(run, failure)
            except BridgeError as failure:
                logger.warning("session %s: %s", root.session_id, failure.details)
            elsewhere.ready(root)

    async def adopt(self, root: HarnessSession, run: PendingRun) -> None:
        """A child that is at work elsewhere, seen from here again; its log stays as it is.

        Raises:
            SubagentRefusedError: it is no child of this root.
            BridgeError: its log cannot be opened.
        """
        assert self._elsewhere is not None

        def check(header: Header) -> None:
            if header.origin != "subagent" or header.parent_session != root.session_id:
                raise refusals.not_yours(run.child_id)

        activation = Activation(run.child_id, root, root, run.label, run.mode, run.call_id)
        with self._working.admitted(activation):
            opens = partial(self._store.open, run.child_id, check, repairs=False)
            writer = await anyio.to_thread.run_sync(opens)
            activation.first_seq = run.first_seq
            session = await self._elsewhere.child(activation, writer, run)
            activation.elsewhere = session
            self._begin(activation, session, task=run.task)
        if run.mode == "one-shot":
            activation.stop("parent", is_quiet=True)  # nobody waits for its answer any more

    # --- what the tools ask ---------------------------------------------------------------------

    async def delegate(self, ask: Delegation) -> Activation:
        """Set a new child to work; it is accepted and durable when this returns.

        Raises:
            SubagentRefusedError: no such caller, a limit, or no such provider.
            BridgeError: the child could not be stored.
        """
        parent = self._caller(ask.caller_id)
        async with self._places.lock(parent):
            return await self._delegate(ask, parent)

    async def _delegate(self, ask: Delegation, parent: HarnessSession) -> Activation:
        provider = self._provider(ask.provider)
        is_remote = self.delegates_elsewhere(parent.session_id)
        if is_remote and self._elsewhere is not None:
            self._elsewhere.check_parent(parent.session_id)
        self._check_room(parent)
        self._created_at_ms = max(self._clock(), self._created_at_ms + 1)
        birth = Birth(SessionId(self._new_id()), parent.header, self._created_at_ms, ask.cwd)
        place = self._places.next(parent)
        root = self._working.root_of(parent)
        activation = Activation(birth.child_id, parent, root, ask.label, ask.mode, ask.call_id)
        with anyio.CancelScope(shield=True), self._working.admitted(activation):
            writer = await anyio.to_thread.run_sync(provider, self._store, birth)
            memory, choices = SessionMemory(writer.events), parent.choices
            named = attrs.evolve(ask, provider=REMOTE) if is_remote else ask
            rows = birth_rows(named, choices, before=memory.mode)
            assigned = _Assignment(place, ask.task, is_remote=is_remote)
            session = await self._opened(activation, writer, choices, memory, assigned)
            message = task_message(ask.task, message_id=self._new_id())
            await _receive(session, rows, message, "next-turn")
            await self._list_in_parent(activation, birth)
            self._begin(activation, session, task=ask.task)
        return activation

    def delegates_elsewhere(self, caller_id: SessionId | None) -> bool:
        """Whether its children begin in another process: a root's may, a child's work beside it."""
        elsewhere = self._elsewhere
        is_root = caller_id is not None and self._host.root(caller_id) is not None
        return elsewhere is not None and elsewhere.delegates and is_root

    async def list_children(self, caller_id: SessionId | None) -> Sequence[Child | Diagnostic]:
        """The direct continuable children of a session: see `catalog`.

        Raises:
            SubagentRefusedError: there is no query, or no such caller.
            SessionQueryError: as `catalog.list_children`.
        """
        query = self.query()
        parent = self._caller(caller_id)
        return await anyio.to_thread.run_sync(list_children, query, parent.session_id)

    def query(self) -> SessionQuery:
        """What lists children.

        Raises:
            SubagentRefusedError: there is none.
        """
        if self._query is None:
            raise refusals.query_unavailable()
        return self._query

    async def send_message(
        self, caller_id: SessionId | None, call_id: CallId, child_id: SessionId, text: str
    ) -> bool:
        """Steer a running child (True), or wake a complete one (False); durable on return.

        Raises:
            SubagentRefusedError: the caller may not, or the child cannot take it.
            BridgeError: the child's log cannot be opened or written.
        """
        caller = self._caller(caller_id)
        message = relay_message(text, sender=caller.session_id, message_id=self._new_id())
        while (one := self._working.get(child_id)) is not None:
            if not self._working.is_above(caller, one):
                raise refusals.not_yours(child_id)
            if one.mode == "one-shot":
                raise refusals.not_continuable(child_id)
            one.calls[str(message["id"])] = call_id
            if one.session is None:
                await one.begun.wait()
            elif await one.session.steer(message):
                one.root.tell(ChildMessaged(caller.session_id, child_id, call_id, text))
                return True
            else:
                await one.closed.wait()  # it ends just now, and is woken then
        await self._wake(caller, call_id, child_id, text, message)
        return False

    async def _after(self, activation: Activation) -> None:
        """Messages that came too late for a child set it to work again."""
        session = activation.elsewhere
        parent = activation.parent
        if session is None or not session.late or not activation.is_told:
            return
        if activation.abort is not None or parent.cancelling:
            return
        last = session.late[-1]
        try:
            await self._wake(parent, last.call_id, activation.child_id, last.text, None)
        except BridgeError as failure:
            # They are in its log: whatever wakes it next runs them.
            logger.warning(
                "session %s: subagent %s got a message too late and cannot be woken: %s",
                parent.session_id,
                activation.child_id,
                failure.details,
            )

    def interrupt(self, caller_id: SessionId | None, child_id: SessionId) -> None:
        """End a running child's current turn; what waits for it stays in its log.

        Raises:
            SubagentRefusedError: the caller may not, or no turn of it runs.
        """
        caller = self._caller(caller_id)
        one = self._working.get(child_id)
        if one is not None and not self._working.is_above(caller, one):
            raise refusals.not_yours(child_id)
        if one is None or one.session is None or not one.session.interrupt("parent"):
            raise refusals.not_running(child_id)

    # --- how an activation begins ---------------------------------------------------------------

    async def _wake(
        self,
        caller: HarnessSession,
        call_id: CallId,
        child_id: SessionId,
        text: str,
        message: JsonObject | None,
    ) -> None:
        """Open a complete child again; a refusal is decided before a byte of it changes.

        ``message`` None: its inbox holds what it is to do.
        """
        if self._host.root(child_id) is not None:
            raise refusals.not_yours(child_id)
        self._check_room(caller)
        root = self._working.root_of(caller)
        activation = Activation(child_id, caller, root, child_id, "continuable", call_id)
        with anyio.CancelScope(shield=True), self._working.admitted(activation):
            looks = partial(complete_child, self._store, caller.session_id, child_id)
            found = await anyio.to_thread.run_sync(looks)
            self._check_provider(found, child_id)
            activation.label = found.label
            if found.provider == REMOTE and self._elsewhere is not None:
                await self._elsewhere.check_idle(child_id)
            try:
                writer = await anyio.to_thread.run_sync(self._store.open, child_id)
            except SessionConflictError as error:
                raise refusals.conflict(child_id, error.details) from error
            memory = SessionMemory(writer.events)
            try:
                choices, notice = stored_choices(self._catalog, memory, caller.choices.mode)
            except BaseException:
                await anyio.to_thread.run_sync(writer.close)
                raise
            # The parent's permission of now: what it had when the child was made may be too much.
            choices.mode = caller.choices.mode
            is_same = memory.mode == choices.mode
            rows = [] if is_same else delegated_rows(choices.mode, before=memory.mode)
            place = memory.place or place_among_listed(caller, child_id)
            assigned = _Assignment(place, text, is_remote=found.provider == REMOTE)
            session = await self._opened(activation, writer, choices, memory, assigned)
            if notice is not None and isinstance(session, HarnessSession):
                session.note(notice)
            await _receive(session, rows, message, "next-step")
            self._begin(activation, session, task=text)

    async def _opened(
        self,
        activation: Activation,
        writer: LogWriter,
        choices: Choices,
        memory: SessionMemory,
        assigned: "_Assignment",
    ) -> ChildSession:
        """The child's session, unless it was stopped meanwhile."""
        if activation.abort is not None:
            await anyio.to_thread.run_sync(writer.close)
            raise refusals.caller_ending()
        activation.first_seq = len(writer.events)
        if assigned.is_remote:
            assert self._elsewhere is not None
            run = PendingRun(
                child_id=activation.child_id,
                parent_id=activation.parent.session_id,
                label=activation.label,
                mode=activation.mode,
                call_id=activation.call_id,
                task=assigned.task,
                place=assigned.place,
                model_id=choices.model_id,
                effort=choices.effort,
                first_seq=activation.first_seq,
            )
            activation.elsewhere = await self._elsewhere.child(activation, writer, run)
            return activation.elsewhere
        client = ChildClient(activation.root.client, activation.child_id)
        return self._host.start_child(
            writer,
            choices=choices,
            client=client,
            memory=memory,
            place=assigned.place,
            root=activation.root,
        )

    async def _list_in_parent(self, activation: Activation, birth: Birth) -> None:
        """The parent's row about its child: for the other harness, which goes by it."""
        row: JsonObject = {
            "version": 0,
            "childId": activation.child_id,
            "childCreatedAt": birth.created_at_ms,
            "mode": activation.mode,
            "label": activation.label,
        }
        try:
            await activation.parent.append([Draft(CATALOG_ROW, row)])
        except BridgeError as failure:
            # The child is durable, and its header says whose it is.
            logger.warning(
                "session %s: no catalog row of subagent %s: %s",
                activation.parent.session_id,
                activation.child_id,
                failure.details,
            )

    def _begin(self, activation: Activation, session: ChildSession, *, task: str) -> None:
        work = activation.begin(session, task=task)
        self._host.run(partial(self._see_to_end, activation, work))

    async def _see_to_end(self, activation: Activation, work: Work) -> None:
        await self._working.see_to_end(activation, work, self._after)

    # --- who may, and how many ------------------------------------------------------------------

    def _caller(self, caller_id: SessionId | None) -> HarnessSession:
        one = self._working.get(caller_id)
        session = one.session if one is not None else None
        # One that works elsewhere calls nothing here.
        found = session if isinstance(session, HarnessSession) else None
        if one is None and caller_id is not None:
            found = self._host.root(caller_id)
        if found is None:
            raise refusals.caller_missing()
        return found

    def _provider(self, name: str) -> Provider:
        provider = self._providers.get(name)
        if provider is None:
            raise refusals.no_provider(name)
        return provider

    def _check_provider(self, found: Descriptor, child_id: SessionId) -> None:
        if found.provider != REMOTE:
            self._provider(found.provider)
        elif self._elsewhere is None:
            raise refusals.no_events_home(child_id)

    def _check_room(self, parent: HarnessSession) -> None:
        depth = parent.header.delegation_depth + 1
        if depth > self._limits.depth_max:
            raise refusals.too_deep(depth, self._limits.depth_max)
        root = self._working.root_of(parent)
        if sum(one.root is root for one in self._working.live()) >= self._limits.live_max:
            raise refusals.too_many(self._limits.live_max)
        if parent.cancelling:
            raise refusals.caller_ending()


@attrs.frozen(slots=True)
class _Assignment:
    """Where a child works, and what it is told to do there."""

    place: str
    task: str
    is_remote: bool = attrs.field(kw_only=True)


async def _receive(
    session: ChildSession, rows: Sequence[Draft], message: JsonObject | None, target: Target
) -> None:
    """Put what a child is to do into its log; one that cannot take it is closed again."""
    try:
        await session.receive(rows, message, target)
    except BaseException:
        await session.close()
        raise
