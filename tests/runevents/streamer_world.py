"""A world around the pure streamer: a log, streams that lose their connection, restarts, an oracle.

Everything that happens is chosen by a `random.Random`, so a seed is a schedule. The oracle knows
only what was asked for, never what the streamer made of it.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

from acp_bridge.runevents.delivery import StoredCursors
from acp_bridge.runevents.model import RunEvent, RunId
from acp_bridge.runevents.streamer import Close, ConsumerId, Effect, Handling, Open, Streamer
from acp_bridge.vocabulary import SessionId

SESSIONS = tuple(SessionId(name) for name in ("s0", "s1", "s2", "s3"))
CONSUMERS = tuple(ConsumerId(name) for name in ("editor", "driver", "other"))
TYPES = ("new_message", "run_in_progress", "run_succeeded", "unknown_type")
OF_OWN = {"new_message"}
OF_CHILD = {"new_message", "run_in_progress", "run_succeeded"}


def run_event(
    run_id: str, sequence: int, event_type: str = "run_succeeded", **more: str
) -> RunEvent:
    return RunEvent(
        event_type=event_type,
        run_id=RunId(run_id),
        event_id=f"e{sequence}",
        occurred_at="2026-11-30T12:00:00Z",
        sequence=sequence,
        ref_id=more.get("ref_id"),
    )


@dataclass
class Wanted:
    """What was asked for a session."""

    consumers: set[ConsumerId] = field(default_factory=set)
    run: RunId | None = None
    kids: set[RunId] = field(default_factory=set)
    is_child: bool = False
    is_passive: bool = False

    def open_set(self) -> set[RunId]:
        if not self.consumers or self.is_passive or not (self.is_child or self.kids):
            return set()
        return self.kids | ({self.run} if self.run else set())


@dataclass
class Stream:
    """A connection: what it may still fetch of the log, and what it has fetched."""

    session_id: SessionId
    generation: int
    cursors: dict[RunId, int]
    position: int = 0
    is_closed: bool = False
    buffer: list[RunEvent] = field(default_factory=list)


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.core = Streamer()
        self.log: list[RunEvent] = []
        self.runs: list[RunId] = []
        self.wanted: dict[SessionId, Wanted] = {}
        self.streams: list[Stream] = []
        self.store: dict[SessionId, StoredCursors] = {}
        self.buried: set[RunId] = set()  # killed or removed, ever
        self.silenced: set[RunId] = set()  # the same in this process
        self.inbox: dict[tuple[SessionId, RunId], list[int]] = defaultdict(list)
        self.seen_by_core: dict[tuple[SessionId, RunId], int] = {}
        self.high: dict[tuple[SessionId, RunId], int] = {}

    # --- what can happen -------------------------------------------------------------------------

    def step(self) -> None:
        happen = self.chance.choices(
            (
                self.publish,
                self.fetch,
                self.handle,
                self.lose,
                self.consumer_comes,
                self.consumer_leaves,
                self.child_comes,
                self.run_comes,
                self.placed,
                self.passive,
                self.remove,
                self.kill,
                self.save,
                self.restart,
            ),
            weights=(12, 10, 14, 4, 6, 4, 6, 5, 2, 1, 1, 1, 3, 1),
        )[0]
        happen()
        self.check()

    def publish(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            if self.runs:
                sequence = len(self.log) + 1
                run, kind = self.chance.choice(self.runs), self.chance.choice(TYPES)
                self.log.append(run_event(run, sequence, kind))

    def fetch(self) -> None:
        if open_streams := [stream for stream in self.streams if not stream.is_closed]:
            stream = self.chance.choice(open_streams)
            for _ in range(self.chance.randint(1, 5)):
                self._fetch(stream)

    def _fetch(self, stream: Stream) -> None:
        if stream.position < len(self.log):
            event = self.log[stream.position]
            stream.position += 1
            if event.sequence > stream.cursors.get(event.run_id, 1 << 60):
                stream.buffer.append(event)

    def handle(self) -> None:
        if self.streams:
            # The lock of a session: whoever has it hands over all that it holds, or a part.
            stream = self.chance.choice(self.streams)
            for _ in range(self.chance.randint(1, 4)):
                if stream in self.streams:
                    self._handle(stream)

    def _handle(self, stream: Stream) -> None:
        if not stream.buffer:
            if stream.is_closed:
                self.core.drained(stream.session_id, stream.generation)
                self.streams.remove(stream)
            return
        event = stream.buffer.pop(0)
        handling = self.core.received(stream.session_id, stream.generation, event)
        key = (stream.session_id, event.run_id)
        if handling is Handling.STALE:
            self.streams.remove(stream)
        elif handling is not Handling.SKIP:
            assert event.sequence > self.seen_by_core.get(key, 0), "handled twice, or out of order"
            self.seen_by_core[key] = event.sequence
            assert event.run_id not in self.silenced, "of a killed run"
            if event.sequence not in self.inbox[key]:  # it recognises event ids
                self.inbox[key].append(event.sequence)
            self.core.handled(stream.session_id, event)

    def lose(self) -> None:
        """A stream's connection is lost, or its time is over; what it holds may be lost as well."""
        if open_streams := [stream for stream in self.streams if not stream.is_closed]:
            stream = self.chance.choice(open_streams)
            if self.chance.random() < 0.5:
                stream.buffer.clear()
            while stream in self.streams and stream.buffer:
                self._handle(stream)
            if stream in self.streams and not stream.is_closed:
                self.streams.remove(stream)
                self._reopen(stream)

    def _reopen(self, stream: Stream) -> None:
        self.apply(self.core.reopen(stream.session_id, stream.generation))
        cursors = self.core.cursors(stream.session_id, stream.generation)
        if cursors is not None:
            self.streams.append(Stream(stream.session_id, stream.generation, cursors))

    def consumer_comes(self) -> None:
        session_id, consumer = self._session(), self.chance.choice(CONSUMERS)
        self._want(session_id).consumers.add(consumer)
        self.apply(self.core.register_consumer(session_id, consumer))

    def consumer_leaves(self) -> None:
        session_id, consumer = self._session(), self.chance.choice(CONSUMERS)
        if session_id in self.wanted:
            self.wanted[session_id].consumers.discard(consumer)
        self.apply(self.core.unregister_consumer(session_id, consumer))

    def child_comes(self) -> None:
        session_id = self._session()
        wanted = self.wanted.get(session_id)
        others = [
            run for run in self.runs if not run.startswith(session_id) and run not in self.buried
        ]
        if others:
            run = self.chance.choice(others)
            wanted = self._want(session_id)
            wanted.kids.add(run)
            self.apply(self.core.register_child(session_id, run))

    def run_comes(self) -> None:
        session_id = self._session()
        wanted = self._want(session_id)
        if wanted.run is None or self.chance.random() < 0.2:
            wanted.run = RunId(f"{session_id}-r{len(self.runs)}")
            self.runs.append(wanted.run)
        parent = RunId("far-away") if self.chance.random() < 0.3 else None
        wanted.is_child |= parent is not None
        self.apply(self.core.run_assigned(session_id, wanted.run, parent_run=parent))

    def placed(self) -> None:
        session_id = self._session()
        self._want(session_id).is_child = True
        self.apply(self.core.placed_under_parent(session_id))

    def passive(self) -> None:
        session_id = self._session()
        self._want(session_id).is_passive = True
        self.apply(self.core.set_passive(session_id))

    def remove(self) -> None:
        session_id = self._session()
        gone = self.wanted.pop(session_id, None)
        if gone is not None:
            if gone.run is not None:
                self._bury(gone.run)
                for other in self.wanted.values():
                    other.kids.discard(gone.run)
            self.store.pop(session_id, None)
            for key in [key for key in self.high if key[0] == session_id or key[1] == gone.run]:
                del self.high[key]
            for key in [key for key in self.seen_by_core if key[0] == session_id]:
                del self.seen_by_core[key]
        self.apply(self.core.removed(session_id))

    def kill(self) -> None:
        session_id = self._session()
        if session_id in self.wanted and (run := self.wanted[session_id].run):
            self._bury(run)
            # It gets another run at once, else it would have a killed one of its own.
            self.apply(self.core.killed(session_id))
            self.wanted[session_id].run = None
            self.run_comes_to(session_id)

    def _bury(self, run: RunId) -> None:
        self.buried.add(run)
        self.silenced.add(run)

    def run_comes_to(self, session_id: SessionId) -> None:
        run = self.wanted[session_id].run = RunId(f"{session_id}-r{len(self.runs)}")
        self.runs.append(run)
        self.apply(self.core.run_assigned(session_id, run))

    def save(self) -> None:
        for session_id in self.wanted:
            self.store[session_id] = StoredCursors(
                "epoch", self.core.run_of(session_id), self.core.watched_by(session_id)
            )

    def restart(self) -> None:
        """The process ends without a word; another one restores what was stored."""
        self.core, self.streams = Streamer(), []
        self.seen_by_core, self.high, self.silenced = {}, {}, set()
        for session_id, wanted in self.wanted.items():
            wanted.consumers.clear()
            stored = self.store.get(session_id, StoredCursors())
            self.core.restoring(session_id)
            gone = self.buried
            kept = {run: cursor for run, cursor in stored.cursors.items() if run not in gone}
            run_id = stored.run_id if stored.run_id not in gone else None
            core, s, kids = self.core, session_id, tuple(wanted.kids)
            again = [partial(core.restored, s, cursors=kept, run_id=run_id, children=kids)]
            if wanted.run is not None:
                again.append(partial(core.run_assigned, s, wanted.run))
            if wanted.is_child:
                again.append(partial(core.placed_under_parent, s))
            if wanted.is_passive:
                again.append(partial(core.set_passive, s))
            self.chance.shuffle(again)
            for operation in again:
                self.apply(operation())

    # --- what must hold --------------------------------------------------------------------------

    def check(self) -> None:
        snapshot = {entry.session_id: entry for entry in self.core.snapshot().entries}
        for session_id, wanted in self.wanted.items():
            entry = snapshot[session_id]
            watched = set()
            if entry.generation is not None:
                watched = set(self.core.cursors(session_id, entry.generation) or ())
            assert watched == wanted.open_set(), session_id
            for run, cursor in entry.watched.items():
                assert cursor >= self.high.get((session_id, run), 0), "a cursor fell"
                self.high[session_id, run] = cursor
        open_streams = {
            (stream.session_id, stream.generation)
            for stream in self.streams
            if not stream.is_closed
        }
        assert open_streams == {
            (entry.session_id, entry.generation)
            for entry in snapshot.values()
            if entry.generation is not None
        }
        assert len(open_streams) == self.core.snapshot().open_connections

    def come_to_rest(self) -> None:
        """Let every stream bring all that there is; then compare with the log."""
        while any(
            stream.buffer or stream.is_closed or stream.position < len(self.log)
            for stream in self.streams
        ):
            for stream in list(self.streams):
                if not stream.is_closed:
                    self._fetch(stream)
                self._handle(stream)
        self.check()
        for session_id, wanted in self.wanted.items():
            for run in wanted.open_set() - self.buried:
                concern = OF_OWN if run == wanted.run else OF_CHILD
                expected = [
                    event.sequence
                    for event in self.log
                    if event.run_id == run and event.event_type in concern
                ]
                assert self.inbox[session_id, run] == expected, (session_id, run)

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Open(session_id, generation):
                    cursors = self.core.cursors(session_id, generation)
                    assert cursors is not None
                    self.streams.append(Stream(session_id, generation, cursors))
                case Close(session_id, generation, drain):
                    for stream in self.streams:
                        if (stream.session_id, stream.generation) == (session_id, generation):
                            stream.is_closed = True
                            if not drain and self.chance.random() < 0.5:
                                stream.buffer.clear()

    def _session(self) -> SessionId:
        return self.chance.choice(SESSIONS)

    def _want(self, session_id: SessionId) -> Wanted:
        return self.wanted.setdefault(session_id, Wanted())
