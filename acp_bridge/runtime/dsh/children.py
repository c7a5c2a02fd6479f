"""The subagents of one root session: told as they work, found in the store, seen to their end."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import attrs

from acp_bridge.errors import BridgeError, PeerError, PeerGoneError
from acp_bridge.runtime.dsh.client import event_of
from acp_bridge.runtime.dsh.delegations import Delegations
from acp_bridge.runtime.dsh.host import Host
from acp_bridge.runtime.dsh.logs import until_stored
from acp_bridge.runtime.dsh.tree import edge_of
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.query import SessionQuery
from acp_bridge.sessions.store import SessionStore
from acp_bridge.subagents.tree import descendants
from acp_bridge.vocabulary import Descendant, Event, RuntimeEvent, SessionId, StreamDelta
from acp_bridge.wire.messages import Notification

logger = logging.getLogger(__name__)

STOP_WAIT_S: Final = 8.0
"""How long the end of what works may take: a command that ignores SIGTERM is killed after 3 s."""


class Children:
    """``header`` and ``events`` are the root's; ``tell`` takes what its consumers are told."""

    def __init__(
        self,
        header: Header,
        events: Sequence[Event],
        store: SessionStore,
        tell: Callable[[RuntimeEvent], None],
    ) -> None:
        self._root = header
        self._root_id = SessionId(header.session_id)
        self._store = store
        self._tell = tell
        self._fold = Delegations(self._root_id, events)

    def has(self, child_id: SessionId) -> bool:
        """Whether a child works now."""
        return child_id in self._fold.running()

    @property
    def working(self) -> bool:
        """Whether any child works now."""
        return bool(self._fold.running())

    def note(self, event: Event) -> None:
        """Take a row of the root itself, which has been told already."""
        self._tell_all(self._fold.row(self._root_id, event))

    def hear(self, notification: Notification) -> None:
        """Take what the wire tells of the root's tree, but for the root's own rows."""
        params = notification.params
        if not isinstance(params, dict):
            return
        told: Sequence[RuntimeEvent] = ()
        match notification.method:
            case "session.event" if params.get("sessionId") != self._root_id:
                child_id = SessionId(str(params.get("sessionId")))
                event = event_of(notification, child_id)
                told = () if event is None else self._fold.row(child_id, event)
            case "subagent.started" if (edge := edge_of(params)) is not None:
                child_id, parent_id = map(SessionId, edge)
                told = [self._fold.started(parent_id, child_id, self._cwd_of(child_id))]
            case "subagent.finished" if (edge := edge_of(params)) is not None:
                child_id, parent_id = map(SessionId, edge)
                told = self._fold.finished(parent_id, child_id)
        self._tell_all(told)

    def stream(self, child_id: SessionId, delta: StreamDelta) -> None:
        """Take a piece of a child's answer."""
        self._tell_all(self._fold.delta(child_id, delta))

    async def descendants(self) -> Sequence[Descendant]:
        """As `ports.LiveSession.descendants`, each with all that was told of it.

        Raises:
            SessionQueryError: the store cannot be read.
        """
        for child_id, seq in self._fold.last_seqs.items():
            try:
                await until_stored(self._store, child_id, max(seq, 0))
            except BridgeError as failure:
                logger.info("subagent %s: %s", child_id, failure.details)
        query = SessionQuery(self._store)
        found = await anyio.to_thread.run_sync(descendants, query, self._root_id)
        return [attrs.evolve(one, is_running=self.has(one.session_id)) for one in found]

    async def cancel(self, session_id: SessionId, host: Host) -> None:
        """End a child's turn, or all of the root's tree; what goes wrong is logged, not told."""
        if host.control is None or not host.usable:
            logger.warning("session %s cannot be stopped without the plugin", session_id)
            return
        try:
            with anyio.fail_after(STOP_WAIT_S):
                await host.control.cancel(session_id)
        except (PeerError, PeerGoneError, TimeoutError):
            logger.exception("session %s was not stopped", session_id)

    async def settle(self) -> None:
        """The process let go of the tree: tell the rest of those who worked, and their ends."""
        for child_id in reversed(self._fold.running()):
            stored: Sequence[Event] = ()
            try:
                log = await anyio.to_thread.run_sync(self._store.read, child_id)
                stored = log.events
            except BridgeError as failure:
                logger.warning("subagent %s: %s", child_id, failure.details)
            self._tell_all(self._fold.lost(child_id, stored))

    def _cwd_of(self, child_id: SessionId) -> Path:
        """By its header, which the runtime has on the disk before it tells of a child."""
        try:
            cwd = self._store.read_header(child_id).cwd
        except BridgeError:
            cwd = None
        return Path(cwd or self._root.cwd or "/")

    def _tell_all(self, told: Sequence[RuntimeEvent]) -> None:
        for event in told:
            self._tell(event)
