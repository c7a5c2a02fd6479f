"""The logs of a remote child and of its own subagents, written from what its worker tells.

Rows go on where a log ends: older ones are known already, a gap is an error. What is told of the
subagents is what a local child's would tell, to the root's consumers.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import anyio.to_thread
import attrs

from acp_bridge.errors import BridgeError, InvalidParamsError, SessionNotFoundError
from acp_bridge.harness.committer import Committer
from acp_bridge.sessions import Header, LogWriter, SessionStore
from acp_bridge.subagents.remote_payloads import (
    ChildFinishedItem,
    ChildMessagedItem,
    ChildStartedItem,
    Item,
    RowItem,
    TransientItem,
    item_json,
    items_from_payload,
)
from acp_bridge.vocabulary import (
    ChildFinished,
    ChildMessaged,
    ChildSaid,
    ChildStarted,
    Draft,
    Event,
    JsonObject,
    OwnEvent,
    RuntimeEvent,
    SessionId,
    StreamDelta,
    TurnEnd,
)

logger = logging.getLogger(__name__)

_BEGINS_ANEW: Final = frozenset({"step/start", "assistant/message", "assistant/attempt"})
"""Rows behind which a stream's pieces belong to an answer whose beginning was told."""


@attrs.define(eq=False)
class Nested:
    """A subagent of the child: a `sessions.query.LiveLog` while it works."""

    started: ChildStartedItem
    committer: Committer
    works: bool = True

    @property
    def header(self) -> Header:
        """Its header."""
        return self.started.header

    @property
    def events(self) -> Sequence[Event]:
        """Its log so far."""
        return self.committer.told


class RemoteFamily:
    """``own`` is the child's log; ``tell`` tells the root's consumers of what is below it."""

    def __init__(
        self, own: Committer, tell: Callable[[RuntimeEvent], None], store: SessionStore
    ) -> None:
        self._own_id = SessionId(own.writer.header.session_id)
        self._own = own
        self._tell = tell
        self._store = store
        self._nested: dict[SessionId, Nested] = {}
        self._muted: set[SessionId] = set()
        """Sessions whose present answer began before anybody here listened: its pieces would show
        its end alone, and its message shows it whole."""

    async def restore(self, kept: Mapping[str, JsonObject]) -> None:
        """Open the logs again of those that were at work; one that cannot be had is left out."""
        if self._own.writer.state.step is not None:
            self._muted.add(self._own_id)
        for child_id, item in kept.items():
            try:
                (started,) = items_from_payload({"rows": [item]})
                assert isinstance(started, ChildStartedItem)
                await self._open(started)
                self._muted.add(started.child_id)
            except BridgeError as failure:
                logger.warning("subagent %s cannot be followed: %s", child_id, failure.details)

    def tell_restored(self) -> None:
        """Say again who is at work."""
        for one in self._nested.values():
            self._tell_started(one.started)

    def working(self) -> Sequence[Nested]:
        """Those at work, each behind its parent."""
        return [one for one in self._nested.values() if one.works]

    def works(self, session_id: SessionId | None) -> bool:
        """Whether it is a subagent of the child, and at work."""
        return session_id is not None and any(
            one.started.child_id == session_id for one in self.working()
        )

    @property
    def kept(self) -> dict[str, JsonObject]:
        """What `restore` needs."""
        return {one.started.child_id: item_json(one.started) for one in self.working()}

    async def take(self, items: Sequence[Item], *, is_old: bool) -> Sequence[Event]:
        """Rows of one log, or one other item; the rows that are new, durable and told.

        ``is_old``: what the items say of subagents was taken before; their rows may be known.

        Raises:
            InvalidParamsError: they do not fit what was told before.
            LocalProtocolError: a row would make a log unsound.
            StoreFailedError: the disk refused.
        """
        first = items[0]
        match first:
            case RowItem():
                rows = [item.event for item in items if isinstance(item, RowItem)]
                return await self._rows(first.session_id, rows, is_old=is_old)
            case TransientItem():
                self._transient(first)
            case ChildStartedItem() if not is_old:
                await self._started(first)
            case ChildMessagedItem() if not is_old:
                if self.works(first.child_id):
                    self._tell(
                        ChildMessaged(first.parent_id, first.child_id, first.call_id, first.text)
                    )
            case ChildFinishedItem() if not is_old:
                self._finished(first)
            case _:
                pass
        return ()

    async def _rows(
        self, session_id: SessionId, rows: Sequence[Event], *, is_old: bool
    ) -> Sequence[Event]:
        committer = self._log_of(session_id)
        if committer is None:
            if is_old:
                return ()
            raise InvalidParamsError(
                f"rows came of session {session_id:.100}, which was not told to have begun.",
                field="session_id",
            )
        known = len(committer.told)
        new = [row for row in rows if row.seq >= known]
        for seq, row in enumerate(new, known):
            if row.seq != seq:
                raise InvalidParamsError(
                    f"row {seq} of session {session_id:.100} is missing: row {row.seq} came.",
                    field="seq",
                )
        if not new:
            return ()
        told = await committer.commit([_draft(row) for row in new])
        if any(row.type in _BEGINS_ANEW for row in new):
            self._muted.discard(session_id)
        return told

    def _transient(self, item: TransientItem) -> None:
        if item.session_id in self._muted and isinstance(item.event, StreamDelta):
            return
        committer = self._log_of(item.session_id)
        if committer is not None:  # else it is of one that has ended: nothing to be shown
            committer.emit(item.event)

    def _log_of(self, session_id: SessionId) -> Committer | None:
        if session_id == self._own_id:
            return self._own
        nested = self._nested.get(session_id)
        return None if nested is None else nested.committer

    async def _started(self, item: ChildStartedItem) -> None:
        if self.works(item.child_id):
            return
        await self._open(item)
        self._tell_started(item)

    async def _open(self, item: ChildStartedItem) -> None:
        header = item.header
        is_known = item.parent_id == self._own_id or item.parent_id in self._nested
        is_child = header.origin == "subagent" and header.parent_session == item.parent_id
        if not is_known or not is_child or header.session_id != item.child_id:
            raise InvalidParamsError(
                f"session {item.child_id:.100} began, but is no subagent of the child.",
                field="header",
            )
        before = self._nested.pop(item.child_id, None)
        if before is not None:
            committer = before.committer
        else:
            committer = Committer(await anyio.to_thread.run_sync(self._writer, header))
            committer.attach(self._teller(item.child_id))
        self._nested[item.child_id] = Nested(item, committer)

    def _writer(self, header: Header) -> LogWriter:
        """Its log, new or as it was left. Blocking."""

        def check(found: Header) -> None:
            if found != header:
                raise InvalidParamsError(
                    f"session {header.session_id:.100} is another one here.", field="header"
                )

        try:
            return self._store.open(header.session_id, check, repairs=False)
        except SessionNotFoundError:
            return self._store.create(header)

    def _teller(self, child_id: SessionId) -> Callable[[RuntimeEvent], None]:
        def said(event: RuntimeEvent) -> None:
            if isinstance(event, OwnEvent):
                self._tell(ChildSaid(child_id, event))

        return said

    def _tell_started(self, item: ChildStartedItem) -> None:
        self._tell(
            ChildStarted(
                parent_id=item.parent_id,
                child_id=item.child_id,
                label=item.label,
                task=item.task,
                call_id=item.call_id,
                cwd=item.cwd,
            )
        )

    def _finished(self, item: ChildFinishedItem) -> None:
        nested = self._nested.get(item.child_id)
        if nested is None or not nested.works:
            return
        nested.works = False
        parent_id = nested.started.parent_id
        self._tell(ChildFinished(parent_id, item.child_id, item.end, item.answer))

    async def close(self, *, repairs: bool) -> None:
        """Release the logs of the subagents, and tell of the end of those at work, deepest first.

        ``repairs``: nobody goes on with them, so a turn that is open is closed.

        Raises:
            StoreFailedError: the disk refused; they are released all the same.
        """
        failure: BridgeError | None = None
        for nested in reversed(self._nested.values()):
            try:
                if repairs:
                    await nested.committer.repair()
            except BridgeError as error:
                failure = error
            if nested.works:
                nested.works = False
                started = nested.started
                end = TurnEnd("aborted")
                self._tell(ChildFinished(started.parent_id, started.child_id, end, None))
            await anyio.to_thread.run_sync(nested.committer.writer.close)
        self._nested.clear()
        if failure is not None:
            raise failure


def portions(items: Sequence[Item], start: int) -> Iterator[int]:
    """Where the portions end that are taken at once: rows of one log, else one item."""
    at = start
    while at < len(items):
        first, at = items[at], at + 1
        if isinstance(first, RowItem):
            while at < len(items) and _is_same_log(first, items[at]):
                at += 1
        yield at


def _is_same_log(row: RowItem, other: Item) -> bool:
    return isinstance(other, RowItem) and other.session_id == row.session_id


def _draft(row: Event) -> Draft:
    return Draft(row.type, row.data, row.surface_op, row.source_event_seqs, row.ignorable)
