"""Which sessions are subscribed to which runs: entries, the one predicate, operations. Pure.

Every operation may come at any time, in any order and more than once. It changes an entry, then
`_reevaluate` compares what should be connected with what is, and the answer is a list of effects
for whoever does the IO (`streaming`). A connection has a generation; what a stream of another
generation says counts for nothing, unless that stream is still being drained.

Why draining cannot reorder: each stream brings a run's events in order and without a gap from a
cursor that was the run's at the time, and cursors only rise. So whichever stream has an event
above the cursor has brought, or seen skipped, all before it.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, Literal, NewType, TypeAlias

import attrs

from acp_bridge.runevents.model import (
    ASK,
    CANCEL,
    CHILD_STARTED,
    NEW_MESSAGE,
    PROGRESS,
    ROWS,
    SETTLEMENTS,
    RunEvent,
    RunId,
)
from acp_bridge.vocabulary import SessionId

ConsumerId = NewType("ConsumerId", str)
"""Whoever wants a session's events. Opaque: what kind it is nobody here looks at."""

TOMBSTONES_MAX: Final = 1024
"""More runs than are killed while an event of one of them can still be under way."""


@attrs.frozen(slots=True)
class Open:
    """Effect: open a stream for the session; `Streamer.cursors` says from where."""

    session_id: SessionId
    generation: int


@attrs.frozen(slots=True)
class Close:
    """Effect: read no more. ``drain``: hand over what was received; else drop it."""

    session_id: SessionId
    generation: int
    drain: bool


@attrs.frozen(slots=True)
class Undriven:
    """Effect: tell the log that a hosted run got its id before its driver was a consumer."""

    session_id: SessionId
    run_id: RunId


Effect: TypeAlias = Open | Close | Undriven


class Handling(Enum):
    """What becomes of an event that a stream brought."""

    STALE = auto()
    """The stream does not count any more: stop."""
    SKIP = auto()
    """Seen before, of a run that is not watched, or of no concern: its cursor has moved."""
    DELIVER = auto()
    """To be made durable; then `Streamer.handled`."""
    SHOW = auto()
    """To be shown and forgotten; then `Streamer.handled`."""
    CHILD = auto()
    """A child of the session was registered: `Streamer.register_child`, then `handled`."""


@attrs.define
class _Connection:
    generation: int
    watched: frozenset[RunId]


@attrs.define
class _Entry:
    """A session's state; see ``orchestration.md``, "State per session"."""

    run_id: RunId | None = None
    parent_run: RunId | None = None
    has_parent_here: bool = False
    is_passive: bool = False
    watched: dict[RunId, int] = attrs.field(factory=dict)
    consumers: set[ConsumerId] = attrs.field(factory=set)
    connection: _Connection | None = None
    draining: set[int] = attrs.field(factory=set)

    @property
    def is_child(self) -> bool:
        return self.has_parent_here or self.parent_run is not None

    @property
    def has_child(self) -> bool:
        return any(run_id != self.run_id for run_id in self.watched)


@attrs.frozen
class EntrySnapshot:
    """One session for `Streamer.snapshot`: counts and ids, no payloads."""

    session_id: SessionId
    run_id: RunId | None
    role: Literal["solo", "child", "parent", "parent and child"]
    consumers: int
    watched: Mapping[RunId, int]
    generation: int | None
    is_passive: bool


@attrs.frozen
class Snapshot:
    """What is connected and why, for people who look for a fault."""

    open_connections: int
    watching_entries: int
    watched_ids: int
    tombstones: int
    entries: tuple[EntrySnapshot, ...]


class Streamer:
    """The entries of every session of a process. Not for two threads."""

    def __init__(self) -> None:
        self._entries: dict[SessionId, _Entry] = {}
        self._generation = 0
        self._tombstones: dict[RunId, None] = {}

    # --- operations ----------------------------------------------------------------------------

    def register_consumer(self, session_id: SessionId, consumer: ConsumerId) -> list[Effect]:
        """Somebody wants the session's events from now on."""
        self._entry(session_id).consumers.add(consumer)
        return self._reevaluate(session_id)

    def unregister_consumer(self, session_id: SessionId, consumer: ConsumerId) -> list[Effect]:
        """That one wants them no more. Watched runs and cursors are kept."""
        entry = self._entries.get(session_id)
        if entry is None:
            return []
        entry.consumers.discard(consumer)
        return self._reevaluate(session_id)

    def register_child(self, parent: SessionId, run_id: RunId) -> list[Effect]:
        """The session has a child of this run, watched from its first event on."""
        if run_id in self._tombstones:
            return []
        entry = self._entry(parent)
        if run_id != entry.run_id:
            entry.watched.setdefault(run_id, 0)
        return self._reevaluate(parent)

    def placed_under_parent(self, session_id: SessionId) -> list[Effect]:
        """The session has a parent in this process."""
        self._entry(session_id).has_parent_here = True
        return self._reevaluate(session_id)

    def run_assigned(
        self,
        session_id: SessionId,
        run_id: RunId,
        *,
        parent_run: RunId | None = None,
        hosted_by: ConsumerId | None = None,
    ) -> list[Effect]:
        """The session's run has an id now: a first one, or another since it was continued.

        ``parent_run`` is the parent's as its driver stamped it. ``hosted_by`` is the driver of a
        run that is hosted here; it must be a consumer by now.
        """
        entry = self._entry(session_id)
        self._tombstones.pop(run_id, None)
        if entry.run_id not in {None, run_id}:
            # The earlier run's id would count as a child's.
            assert entry.run_id is not None
            entry.watched.pop(entry.run_id, None)
        entry.run_id = run_id
        entry.parent_run = parent_run or entry.parent_run
        effects: list[Effect] = []
        if hosted_by is not None and hosted_by not in entry.consumers:
            effects.append(Undriven(session_id, run_id))
        return effects + self._reevaluate(session_id)

    def set_passive(self, session_id: SessionId) -> list[Effect]:
        """The session stands for a run that is hosted elsewhere, or is a shared view."""
        self._entry(session_id).is_passive = True
        return self._reevaluate(session_id)

    def removed(self, session_id: SessionId) -> list[Effect]:
        """The session is gone for good; nobody watches its run any more."""
        entry = self._entries.pop(session_id, None)
        if entry is None:
            return []
        effects: list[Effect] = []
        if entry.connection is not None:
            effects.append(Close(session_id, entry.connection.generation, drain=False))
        if entry.run_id is not None:
            self._bury(entry.run_id)
            for other, watching in self._entries.items():
                if watching.watched.pop(entry.run_id, None) is not None:
                    effects += self._reevaluate(other)
        return effects

    def killed(self, session_id: SessionId) -> list[Effect]:
        """The session's run was killed: what it still says is dropped."""
        entry = self._entries.get(session_id)
        if entry is None:
            return []
        if entry.run_id is not None:
            self._bury(entry.run_id)
        return self._reevaluate(session_id)

    def restoring(self, session_id: SessionId) -> None:
        """The session is known from before: unless it is removed, `restored` comes later."""
        self._entry(session_id)

    def restored(
        self,
        session_id: SessionId,
        *,
        cursors: Mapping[RunId, int],
        run_id: RunId | None = None,
        children: Iterable[RunId] = (),
    ) -> list[Effect]:
        """What was stored of the session, and what the service says of its children. By max.

        ``run_id`` is the run that was the session's own when ``cursors`` were stored. Nothing
        happens to a session that was removed meanwhile, nor does a removed child come back.
        """
        entry = self._entries.get(session_id)
        if entry is None:
            return []
        if entry.run_id is None:
            entry.run_id = run_id
        found = {**dict.fromkeys(children, 0), **cursors}
        if run_id is not None and entry.run_id != run_id:
            found.pop(run_id, None)  # of an earlier run: it would count as a child's
        for watched, cursor in found.items():
            if watched not in self._tombstones:
                entry.watched[watched] = max(entry.watched.get(watched, 0), cursor)
        return self._reevaluate(session_id)

    def log_was_reset(self) -> list[Effect]:
        """The log is another one: cursors of the old one mean nothing, every stream starts anew."""
        effects: list[Effect] = []
        for session_id, entry in self._entries.items():
            entry.watched = dict.fromkeys(entry.watched, 0)
            if entry.connection is not None:
                effects.append(Close(session_id, entry.connection.generation, drain=False))
                entry.connection = None
            entry.draining.clear()
            effects += self._reevaluate(session_id)
        return effects

    # --- what streams say ----------------------------------------------------------------------

    def reopen(self, session_id: SessionId, generation: int) -> list[Effect]:
        """Before a stream is opened again, for whatever reason: is it still the right one?"""
        entry = self._entries.get(session_id)
        if entry is None or not _is_current(entry, generation):
            return []
        return self._reevaluate(session_id)

    def cursors(self, session_id: SessionId, generation: int) -> dict[RunId, int] | None:
        """Where the connection's stream is to begin; None: it is none any more."""
        entry = self._entries.get(session_id)
        if entry is None or entry.connection is None or not _is_current(entry, generation):
            return None
        return {run_id: entry.watched[run_id] for run_id in entry.connection.watched}

    def received(self, session_id: SessionId, generation: int, event: RunEvent) -> Handling:
        """What to do with an event that the stream of this generation brought."""
        entry = self._entries.get(session_id)
        if entry is None or not (_is_current(entry, generation) or generation in entry.draining):
            return Handling.STALE
        cursor = entry.watched.get(event.run_id)
        if cursor is None or event.sequence <= cursor:
            return Handling.SKIP
        handling = Handling.SKIP
        if event.run_id not in self._tombstones:
            handling = _handling(event, is_own=event.run_id == entry.run_id)
        if handling is Handling.SKIP:
            entry.watched[event.run_id] = event.sequence
        return handling

    def handled(self, session_id: SessionId, event: RunEvent) -> None:
        """The event is durable, or shown: its run's cursor may move, and only upwards."""
        entry = self._entries.get(session_id)
        if entry is not None and event.run_id in entry.watched:
            entry.watched[event.run_id] = max(entry.watched[event.run_id], event.sequence)

    def drained(self, session_id: SessionId, generation: int) -> None:
        """A closed stream has handed over all that it had."""
        entry = self._entries.get(session_id)
        if entry is not None:
            entry.draining.discard(generation)

    # --- questions -----------------------------------------------------------------------------

    def knows(self, session_id: SessionId) -> bool:
        """Whether the session has an entry: it was not removed."""
        return session_id in self._entries

    def consumers_of(self, session_id: SessionId) -> int:
        """How many consumers the session has."""
        entry = self._entries.get(session_id)
        return 0 if entry is None else len(entry.consumers)

    def run_of(self, session_id: SessionId) -> RunId | None:
        """The session's own run, if it has an id."""
        entry = self._entries.get(session_id)
        return None if entry is None else entry.run_id

    def watched_by(self, session_id: SessionId) -> dict[RunId, int]:
        """Every run that the session watches, with its cursor: what is to be stored."""
        entry = self._entries.get(session_id)
        return {} if entry is None else dict(entry.watched)

    def snapshot(self) -> Snapshot:
        """The whole state, for the debug log and for tests."""
        entries = tuple(
            EntrySnapshot(
                session_id=session_id,
                run_id=entry.run_id,
                role=_role(entry),
                consumers=len(entry.consumers),
                watched=dict(entry.watched),
                generation=entry.connection.generation if entry.connection else None,
                is_passive=entry.is_passive,
            )
            for session_id, entry in self._entries.items()
        )
        return Snapshot(
            open_connections=sum(entry.generation is not None for entry in entries),
            watching_entries=sum(bool(entry.watched) for entry in entries),
            watched_ids=len({run_id for entry in entries for run_id in entry.watched}),
            tombstones=len(self._tombstones),
            entries=entries,
        )

    # --- the one place that opens and closes ----------------------------------------------------

    def _reevaluate(self, session_id: SessionId) -> list[Effect]:
        entry = self._entries[session_id]
        self._watch_self(entry)
        wanted = frozenset(entry.watched) if self._eligible(entry) else frozenset()
        connection = entry.connection
        if wanted == (frozenset() if connection is None else connection.watched):
            return []
        effects: list[Effect] = []
        if connection is not None:
            entry.draining.add(connection.generation)
            effects.append(Close(session_id, connection.generation, drain=True))
            entry.connection = None
        if wanted:
            self._generation += 1
            entry.connection = _Connection(self._generation, wanted)
            effects.append(Open(session_id, self._generation))
        return effects

    def _eligible(self, entry: _Entry) -> bool:
        """The one predicate. Connected are the eligible that have a run to watch."""
        return (
            bool(entry.consumers) and not entry.is_passive and (entry.is_child or entry.has_child)
        )

    def _watch_self(self, entry: _Entry) -> None:
        """A run's own id is watched once the session has a role."""
        if entry.run_id is not None and (entry.is_child or entry.has_child):
            entry.watched.setdefault(entry.run_id, 0)

    def _entry(self, session_id: SessionId) -> _Entry:
        return self._entries.setdefault(session_id, _Entry())

    def _bury(self, run_id: RunId) -> None:
        self._tombstones[run_id] = None
        while len(self._tombstones) > TOMBSTONES_MAX:
            del self._tombstones[next(iter(self._tombstones))]


def _is_current(entry: _Entry, generation: int) -> bool:
    return entry.connection is not None and entry.connection.generation == generation


def _role(entry: _Entry) -> Literal["solo", "child", "parent", "parent and child"]:
    if entry.has_child:
        return "parent and child" if entry.is_child else "parent"
    return "child" if entry.is_child else "solo"


_OF_CHILD: Final = frozenset({ROWS, ASK, NEW_MESSAGE})
"""What a child is told concerns its parent too: whoever keeps the child's log has its inbox."""


def _handling(event: RunEvent, *, is_own: bool) -> Handling:
    """What an event means: to its own session, or to that of its parent."""
    kind = event.event_type
    if is_own:
        if kind == CHILD_STARTED and event.ref_id is not None:
            return Handling.CHILD
        return Handling.DELIVER if kind in {NEW_MESSAGE, CANCEL} else Handling.SKIP
    if kind in PROGRESS:
        return Handling.SHOW
    return Handling.DELIVER if kind in SETTLEMENTS or kind in _OF_CHILD else Handling.SKIP
