"""`SessionQuery`: questions about many sessions, the live ones before the stored ones.

A header never changes, so a live session and its stored log must have the same one; where they
differ anywhere among the sessions that an answer rests on, there is no answer. Relations are those
of subagents alone: an older fork that names its source in ``parentSession`` is nobody's child.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NoReturn, Protocol

import attrs

from acp_bridge.errors import BridgeError, SessionNotFoundError, SessionQueryError
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.known import Entry, Relations, relations_of
from acp_bridge.sessions.store import SessionStore
from acp_bridge.sessions.surface import title
from acp_bridge.sessions.verdict import BAD
from acp_bridge.vocabulary import Event

SESSION_NOT_FOUND: Final = "SESSION_QUERY_SESSION_NOT_FOUND"
EVENT_NOT_FOUND: Final = "SESSION_QUERY_EVENT_NOT_FOUND"
PERSISTENCE_FAILED: Final = "SESSION_QUERY_PERSISTENCE_FAILED"
HEADER_CONFLICT: Final = "SESSION_QUERY_HEADER_CONFLICT"
INVALID_WINDOW: Final = "SESSION_QUERY_INVALID_WINDOW"


class LiveLog(Protocol):
    """A session that is open here, such as a `LogWriter`."""

    @property
    def header(self) -> Header:
        """Its header."""

    @property
    def events(self) -> Sequence[Event]:
        """Its log so far."""


@attrs.frozen(slots=True, kw_only=True)
class SessionRecord:
    """One session as a query knows it.

    ``title``, ``updated_at_ms`` and ``event_count`` are None for a stored log that cannot be
    opened; its header could be read all the same. ``path`` is where a stored log was found.
    """

    header: Header
    is_live: bool
    title: str | None = None
    updated_at_ms: int | None = None
    event_count: int | None = None
    path: Path | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen(slots=True)
class Trace:
    """A session among its relations; both lists by creation time, then id.

    ``ancestors`` ends where a parent is not there; ``children`` are the direct ones.
    """

    record: SessionRecord
    ancestors: Sequence[SessionRecord]
    children: Sequence[SessionRecord]


@attrs.frozen(slots=True, kw_only=True)
class RecordFilter:
    """Which records are wanted; a member that is None asks for nothing.

    ``parent`` is a subagent's creator. The times bound the creation, both ends included.
    """

    session_ids: frozenset[str] | None = None
    cwd: str | None = None
    kind: Literal["ordinary", "subagent"] | None = None
    parent: str | None = None
    is_live: bool | None = None
    created_from_ms: int | None = None
    created_until_ms: int | None = None


_EVERYTHING: Final = RecordFilter()


class SessionQuery:
    """Reads only. Blocking; call it from threads. ``live`` gives what is open at this moment."""

    def __init__(
        self, store: SessionStore, live: Callable[[], Iterable[LiveLog]] = lambda: ()
    ) -> None:
        self._store = store
        self._live = live

    def trace(self, session_id: str) -> Trace:
        """The session with its ancestors and direct children. Opens no log that did not change.

        Raises:
            SessionQueryError: not found, header conflict, or persistence failed.
        """
        live = self._live_by_id()

        def at_hand(relations: Relations) -> Iterable[Entry]:
            return _Corpus(relations, live, self._store.path_of).at_hand(session_id)

        corpus = self._corpus(live, lambda: self._store.relations(at_hand))
        record = corpus.get(session_id)
        if record is None:
            _not_found(session_id)
        return Trace(record, corpus.ancestors(record), corpus.children(session_id))

    def records(self, wanted: RecordFilter = _EVERYTHING) -> Sequence[SessionRecord]:
        """The sessions that fit, by creation time, then id.

        Raises:
            SessionQueryError: invalid window, header conflict, or persistence failed.
        """
        first, last = wanted.created_from_ms, wanted.created_until_ms
        if first is not None and last is not None and first > last:
            raise SessionQueryError(
                f"No session was created from {first} until {last}: the window ends before it"
                " begins.",
                query_code=INVALID_WINDOW,
            )
        corpus = self._corpus(self._live_by_id(), lambda: relations_of(self._store.entries()))
        return _in_order(one for one in corpus.records() if _fits(one, wanted))

    def list_events(
        self, session_id: str, *, from_seq: int = 0, limit: int | None = None
    ) -> Sequence[Event]:
        """The rows of a session from ``from_seq`` on, at most ``limit``.

        Raises:
            SessionQueryError: invalid window, not found, header conflict, or persistence failed.
        """
        if from_seq < 0 or (limit is not None and limit < 1):
            raise SessionQueryError(
                f"Session {session_id:.100} has no rows in that window: it must begin at 0 or"
                " later and hold at least one row.",
                query_code=INVALID_WINDOW,
            )
        live = self._live_log(session_id)
        events = self._read(session_id) if live is None else live.events
        return list(events[from_seq : None if limit is None else from_seq + limit])

    def read_event(
        self, session_id: str, seq: int, *, at: Path | None = None
    ) -> tuple[Header, Event]:
        """One row and the header of its session; ``at`` is its record's path, if there is one.

        Raises:
            SessionQueryError: session or event not found, header conflict, or persistence failed.
        """
        live = self._live_log(session_id, at)
        if live is not None:
            if 0 <= seq < len(live.events):
                return live.header, live.events[seq]
            _no_event(session_id, seq)
        try:
            header, event = self._store.read_event(session_id, seq, at=at)
        except BridgeError as error:
            _refuse(session_id, error)
        if event is None:
            _no_event(session_id, seq)
        return header, event

    def descriptor_seqs(self, session_id: str, *, at: Path | None = None) -> Sequence[int]:
        """Where the ``subagent/descriptor`` rows of a session's own range are.

        An index that knows the log as it is answers without opening it. ``at`` is as for
        `read_event`.

        Raises:
            SessionQueryError: not found, header conflict, or persistence failed.
        """
        live = self._live_log(session_id, at)
        if live is not None:
            return _descriptor_seqs(live.events)
        try:
            seqs = self._store.descriptor_seqs(session_id, at=at)
        except BridgeError as error:
            _refuse(session_id, error)
        return _descriptor_seqs(self._read(session_id)) if seqs is None else seqs

    def _read(self, session_id: str) -> Sequence[Event]:
        try:
            return self._store.read(session_id).events
        except BridgeError as error:
            _refuse(session_id, error)

    def _live_log(self, session_id: str, at: Path | None = None) -> LiveLog | None:
        """The session if it is live, after a look whether its stored header is the same."""
        for log in self._live():
            if log.header.session_id == session_id:
                try:
                    stored = self._store.read_header(session_id, at=at)
                except SessionNotFoundError:
                    return log  # nothing is stored before its first prompt
                except BridgeError as error:
                    _refuse(session_id, error)
                if stored != log.header:
                    _conflict(session_id)
                return log
        return None

    def _live_by_id(self) -> Mapping[str, LiveLog]:
        return {log.header.session_id: log for log in self._live()}

    def _corpus(self, live: Mapping[str, LiveLog], stored: Callable[[], Relations]) -> "_Corpus":
        try:
            corpus = _Corpus(stored(), live, self._store.path_of)
        except BridgeError as error:
            raise SessionQueryError(error.details, query_code=PERSISTENCE_FAILED) from error
        for entry in corpus.conflicts():
            _conflict(entry.session_id or "")
        return corpus


class _Corpus:
    """All sessions as they are at one moment, the live ones before the stored ones.

    Ten thousand entries are gone through by their plain fields, and only those that an answer
    needs are made records.
    """

    def __init__(
        self,
        relations: Relations,
        live: Mapping[str, LiveLog],
        path_of: Callable[[Entry], Path | None],
    ) -> None:
        self._relations = relations
        self._live = live
        self._path_of = path_of

    def at_hand(self, session_id: str) -> Iterable[Entry]:
        """The stored logs that the trace of a session is about, and those that contradict it.

        Of a live session only the header counts.
        """
        ids = {session_id, *self._names_of_children(session_id)}
        record = self.get(session_id)
        if record is not None:
            ids |= {one.header.session_id for one in self._ancestors(record)}
        for one in ids - self._live.keys():
            yield from self._relations.by_id.get(one, ())
        yield from self.conflicts()

    def conflicts(self) -> Iterable[Entry]:
        """The stored logs of live sessions that have another header."""
        for session_id, log in self._live.items():
            stored = self._stored(session_id)
            if stored is not None and stored.header != log.header:
                yield stored

    def _stored(self, session_id: str) -> Entry | None:
        """The log with this id that lies where it belongs."""
        for one in self._relations.by_id.get(session_id, ()):
            if one.at_home:
                return one
        return None

    def get(self, session_id: str) -> SessionRecord | None:
        """The session's record, if there is such a session."""
        log, stored = self._live.get(session_id), self._stored(session_id)
        # Where one of its folders has to be told from another, whoever reads it has to look.
        is_plain = stored is not None and stored.folder not in self._relations.twins
        path = self._path_of(stored) if stored is not None and is_plain else None
        if log is not None:
            return _live_record(log, path)
        return None if stored is None else _stored_record(stored, path)

    def records(self) -> Iterable[SessionRecord]:
        """Every session, in no particular order."""
        found = (self.get(session_id) for session_id in {*self._relations.by_id, *self._live})
        return (record for record in found if record is not None)

    def children(self, parent_id: str) -> Sequence[SessionRecord]:
        """The subagents that a session created itself, by creation time, then id."""
        return _in_order(
            record
            for record in map(self.get, self._names_of_children(parent_id))
            if record is not None
            and record.header.origin == "subagent"
            and record.header.parent_session == parent_id
        )

    def _names_of_children(self, parent_id: str) -> Collection[str]:
        """Those that could be."""
        live = self._live.items()
        own = (session_id for session_id, log in live if log.header.parent_session == parent_id)
        return {*self._relations.by_parent.get(parent_id, ()), *own}

    def ancestors(self, record: SessionRecord) -> Sequence[SessionRecord]:
        """Up to the root, or to where a parent is not there; by creation time, then id."""
        return _in_order(self._ancestors(record))

    def _ancestors(self, record: SessionRecord) -> Sequence[SessionRecord]:
        found: list[SessionRecord] = []
        seen = {record.header.session_id}
        while record.header.origin == "subagent":
            parent = self.get(record.header.parent_session or "")
            if parent is None or parent.header.session_id in seen:
                break
            seen.add(parent.header.session_id)
            found.append(parent)
            record = parent
        return found


def _stored_record(entry: Entry, path: Path | None) -> SessionRecord:
    header = entry.header
    assert header is not None
    if entry.status in BAD:
        return SessionRecord(header=header, is_live=False, path=path)
    return SessionRecord(
        header=header,
        is_live=False,
        title=entry.title,
        updated_at_ms=entry.updated_at_ms,
        event_count=entry.event_count,
        path=path,
    )


def _live_record(log: LiveLog, path: Path | None) -> SessionRecord:
    events = log.events
    updated_at_ms = events[-1].time_ms if events else log.header.created_at_ms
    return SessionRecord(
        header=log.header,
        is_live=True,
        title=title(events),
        updated_at_ms=updated_at_ms,
        event_count=len(events),
        path=path,
    )


def _in_order(records: Iterable[SessionRecord]) -> list[SessionRecord]:
    return sorted(records, key=lambda one: (one.header.created_at_ms, one.header.session_id))


def _fits(record: SessionRecord, wanted: RecordFilter) -> bool:
    header = record.header
    is_child = header.origin == "subagent"
    return (
        (wanted.session_ids is None or header.session_id in wanted.session_ids)
        and (wanted.cwd is None or header.cwd == wanted.cwd)
        and (wanted.kind is None or is_child == (wanted.kind == "subagent"))
        and (wanted.parent is None or (is_child and header.parent_session == wanted.parent))
        and (wanted.is_live is None or record.is_live == wanted.is_live)
        and (wanted.created_from_ms is None or header.created_at_ms >= wanted.created_from_ms)
        and (wanted.created_until_ms is None or header.created_at_ms <= wanted.created_until_ms)
    )


def _descriptor_seqs(events: Sequence[Event]) -> list[int]:
    """Those after the inherited marker; what stands before it tells about another session."""
    found: list[int] = []
    for event in events:
        if event.type == "subagent/descriptor":
            found.append(event.seq)
        elif event.type == "session/end-seed" and event.data == {"inherited": True}:
            found.clear()
    return found


def _not_found(session_id: str) -> NoReturn:
    raise SessionQueryError(f"Session not found: {session_id:.100}", query_code=SESSION_NOT_FOUND)


def _no_event(session_id: str, seq: int) -> NoReturn:
    raise SessionQueryError(
        f"Session {session_id:.100} has no row with seq {seq}.", query_code=EVENT_NOT_FOUND
    )


def _conflict(session_id: str) -> NoReturn:
    raise SessionQueryError(
        f"Session {session_id:.100} is open with another header than its stored log has.",
        query_code=HEADER_CONFLICT,
    )


def _refuse(session_id: str, error: BridgeError) -> NoReturn:
    if isinstance(error, SessionNotFoundError):
        _not_found(session_id)
    raise SessionQueryError(error.details, query_code=PERSISTENCE_FAILED) from error
