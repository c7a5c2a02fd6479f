"""The log in one SQLite file: for one machine, and one process that serves it.

One task writes, in commits of everything that came within 3 ms, each followed by an fsync. So what
was answered survives a SIGKILL and a power cut. Reads go by a connection of their own (WAL): they
wait for no commit, and see only what is committed.
"""

import fcntl
import json
import os
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, TypeAlias, TypeVar, cast

import anyio
import anyio.to_thread

from acp_bridge.errors import BridgeError, InvalidParamsError, RunNotFoundError, StoreFailedError
from acp_bridge.runevents.log import PAGE_BYTES_MAX, PAGE_EVENTS_MAX, Page, Subscription
from acp_bridge.runevents.log.fanout import Fanout
from acp_bridge.runevents.log.grouping import GroupWriter
from acp_bridge.runevents.model import EventDraft, RunId, StoredEvent, stored_text
from acp_bridge.runevents.runs import Run, RunState, run_from_text, run_text

_SCHEMA: Final = 1
"""Kept in the file: a file of another version is refused, never changed."""

_TABLES: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE events (sequence INTEGER PRIMARY KEY, run_id TEXT NOT NULL,
        event_id TEXT NOT NULL UNIQUE, text TEXT NOT NULL)""",
    "CREATE INDEX events_of_run ON events (run_id, sequence)",
    """CREATE TABLE runs (number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, parent_id TEXT,
        state TEXT NOT NULL, text TEXT NOT NULL)""",
    "CREATE INDEX runs_of_parent ON runs (parent_id)",
    "CREATE INDEX runs_in_state ON runs (state, number)",
)

_READ: Final = (
    "SELECT sequence, run_id, text FROM events WHERE sequence IN (SELECT e.sequence"
    " FROM json_each(?) AS c CROSS JOIN events AS e ON e.run_id = c.key AND e.sequence > c.value"
    " ORDER BY e.sequence LIMIT ?) ORDER BY sequence"
)

Found = TypeVar("Found")


class _Transaction:
    """What an operation may do inside a commit."""

    def __init__(self, db: sqlite3.Connection, last: int) -> None:
        self.db = db
        self.last = last
        self.appended: list[StoredEvent] = []

    def append(self, drafts: Sequence[EventDraft]) -> list[int]:
        """All checks come first, so that a refused append has written nothing."""
        for run_id in dict.fromkeys(draft.run_id for draft in drafts):
            if not self.db.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone():
                raise RunNotFoundError(run_id)
        sequences = self._known(drafts)
        fresh = []
        for draft in drafts:
            if draft.event_id not in sequences:
                self.last += 1
                sequences[draft.event_id] = self.last
                fresh.append((self.last, draft.run_id, draft.event_id, stored_text(draft)))
        self.db.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", fresh)
        self.appended += (
            StoredEvent(sequence, run_id, text) for sequence, run_id, _, text in fresh
        )
        return [sequences[draft.event_id] for draft in drafts]

    def _known(self, drafts: Sequence[EventDraft]) -> dict[str, int]:
        """The sequences of those event ids that are there already."""
        by_id: dict[str, EventDraft] = {}
        for draft in drafts:
            if by_id.setdefault(draft.event_id, draft).run_id != draft.run_id:
                raise taken(draft)
        query = (
            "SELECT event_id, sequence, run_id FROM events"
            " WHERE event_id IN (SELECT value FROM json_each(?))"
        )
        known = {}
        for event_id, sequence, run_id in self.db.execute(query, (json.dumps(list(by_id)),)):
            if run_id != by_id[event_id].run_id:
                raise taken(by_id[event_id])
            known[event_id] = sequence
        return known

    def change_run(self, run_id: RunId, change: Callable[[Run | None], Run]) -> Run:
        known = _run(self.db, run_id)
        run = change(known)
        if known is None:
            self.db.execute(
                "INSERT INTO runs (run_id, parent_id, state, text) VALUES (?, ?, ?, ?)",
                (run_id, run.parent_id, run.state, run_text(run)),
            )
        elif run != known:
            # A new number when the state changes: those longest in a state come first.
            self.db.execute(
                "UPDATE runs SET state = ?, text = ?, number = CASE state WHEN ? THEN number"
                " ELSE (SELECT max(number) + 1 FROM runs) END WHERE run_id = ?",
                (run.state, run_text(run), run.state, run_id),
            )
        return run

    def prune(self, run_id: RunId, before: int) -> None:
        self.db.execute(
            "DELETE FROM events WHERE run_id = ? AND sequence < ? AND EXISTS"
            " (SELECT 1 FROM events WHERE run_id = ? AND sequence = ?)",
            (run_id, before, run_id, before),
        )


_Operation: TypeAlias = Callable[[_Transaction], object]


class SqliteEventLog:
    """An `EventLog` in a file; made by `open_sqlite_log`."""

    def __init__(self, writer: sqlite3.Connection, reader: sqlite3.Connection, path: Path) -> None:
        self.epoch: str = writer.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()[
            0
        ]
        self._writer = writer
        self._reader = reader
        self._path = path
        self._reading = anyio.Lock()
        self._fanout = Fanout()
        self._last: int = writer.execute("SELECT ifnull(max(sequence), 0) FROM events").fetchone()[
            0
        ]
        self.group: GroupWriter[_Operation, object] = GroupWriter(self._commit)

    async def append(self, drafts: Sequence[EventDraft]) -> list[int]:
        """See `EventLog`."""
        return await self._write(lambda transaction: transaction.append(drafts))

    async def change_run(self, run_id: RunId, change: Callable[[Run | None], Run]) -> Run:
        """See `EventLog`."""
        return await self._write(lambda transaction: transaction.change_run(run_id, change))

    async def prune(self, run_id: RunId, before: int) -> None:
        """See `EventLog`."""
        await self._write(lambda transaction: transaction.prune(run_id, before))

    async def read(self, cursors: Mapping[RunId, int], limit: int = PAGE_EVENTS_MAX) -> Page:
        """See `EventLog`."""
        return await self._ask(lambda db: _page(db, cursors, limit))

    def subscribe(self, cursors: Mapping[RunId, int]) -> AbstractContextManager[Subscription]:
        """See `EventLog`."""
        return self._fanout.subscribe(cursors, self.read)

    async def last_sequence(self) -> int:
        """See `EventLog`."""
        return self._last

    async def run(self, run_id: RunId) -> Run | None:
        """See `EventLog`."""
        return await self._ask(lambda db: _run(db, run_id))

    async def children(self, run_id: RunId) -> list[RunId]:
        """See `EventLog`."""
        query = "SELECT run_id FROM runs WHERE parent_id = ? ORDER BY number"
        return await self._ask(lambda db: [row[0] for row in db.execute(query, (run_id,))])

    async def runs_in(self, state: RunState, limit: int) -> list[Run]:
        """See `EventLog`."""
        query = "SELECT text FROM runs WHERE state = ? ORDER BY number LIMIT ?"
        return await self._ask(
            lambda db: [run_from_text(row[0]) for row in db.execute(query, (state, limit))]
        )

    async def _write(self, operation: Callable[[_Transaction], Found]) -> Found:
        outcome = await self.group.submit(operation)
        return cast("Found", outcome)  # that of this very operation

    async def _ask(self, question: Callable[[sqlite3.Connection], Found]) -> Found:
        def ask() -> Found:
            with _told(self._path):
                return question(self._reader)

        async with self._reading:
            return await anyio.to_thread.run_sync(ask)

    async def _commit(self, operations: Sequence[_Operation]) -> Sequence[object | BridgeError]:
        transaction = _Transaction(self._writer, self._last)
        # The thread cannot be stopped: leaving before it ends would give its connection to two.
        with anyio.CancelScope(shield=True):
            outcomes = await anyio.to_thread.run_sync(self._in_thread, transaction, operations)
        self._last = transaction.last
        self._fanout.offer(transaction.appended)
        return outcomes

    def _in_thread(
        self, transaction: _Transaction, operations: Sequence[_Operation]
    ) -> list[object | BridgeError]:
        outcomes: list[object | BridgeError] = []
        with _told(self._path), _committed(self._writer):
            for operation in operations:
                try:
                    outcomes.append(operation(transaction))
                except BridgeError as error:
                    outcomes.append(error)
        return outcomes


def taken(draft: EventDraft) -> InvalidParamsError:
    """What is said of an event id that another run's event has."""
    return InvalidParamsError(
        f"The event_id {draft.event_id} is of another run's event: make a new one for each event.",
        field="event_id",
    )


@asynccontextmanager
async def open_sqlite_log(path: str) -> AsyncIterator[SqliteEventLog]:
    """The log in a file, made if need be, for this process alone.

    Raises:
        StoreFailedError: it cannot be opened, is none, is newer, or another process has it.
    """
    file = Path(path)
    with _locked(file), _connected(file) as writer:
        with _told(file):
            _prepare(writer, file)
        with _connected(file) as reader:
            log = SqliteEventLog(writer, reader, file)
            failure: Exception | None = None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(log.group.run)
                try:
                    yield log
                except Exception as error:  # noqa: BLE001  # raised again: the group would wrap it
                    failure = error
                finally:
                    log.group.close()
            if failure is not None:
                raise failure


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Keep every other process out: it would never be told of our events, nor we of its."""
    lock = file.with_name(f"{file.name}.lock")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        why = (fault.strerror or type(fault).__name__).lower()
        raise StoreFailedError(f"The event log {file} cannot be opened: {why}.") from fault
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            raise StoreFailedError(
                f"Another process serves the event log {file}: stop it, or use its address."
            ) from fault
        yield
    finally:
        os.close(fd)


@contextmanager
def _connected(file: Path) -> Iterator[sqlite3.Connection]:
    with _told(file):
        # Events hold what people wrote; SQLite would make the file readable for everybody.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    try:
        yield db
    finally:
        db.close()


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """SQLite's and the disk's refusals as ours, without their words."""
    try:
        yield
    except (sqlite3.Error, OSError) as fault:
        name = getattr(fault, "sqlite_errorname", None) or type(fault).__name__
        raise StoreFailedError(
            f"The event log {file} cannot be used ({name}): look at the disk and the file."
        ) from fault


@contextmanager
def _committed(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _prepare(db: sqlite3.Connection, file: Path) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version not in {0, _SCHEMA}:
        raise StoreFailedError(
            f"The event log {file} is of version {version}, not {_SCHEMA}: a newer program made "
            "it. Update this one, or name another file."
        )
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    if version == 0:
        with _committed(db):
            for table in _TABLES:
                db.execute(table)
            db.execute("INSERT INTO meta VALUES ('epoch', ?)", (uuid.uuid4().hex,))
            db.execute(f"PRAGMA user_version = {_SCHEMA}")


def _run(db: sqlite3.Connection, run_id: RunId) -> Run | None:
    row = db.execute("SELECT text FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else run_from_text(row[0])


def _page(db: sqlite3.Connection, cursors: Mapping[RunId, int], limit: int) -> Page:
    events: list[StoredEvent] = []
    size = 0
    for row in db.execute(_READ, (json.dumps(dict(cursors)), limit)):
        events.append(StoredEvent(*row))
        size += len(events[-1].text)
        if size > PAGE_BYTES_MAX:
            return Page(events, is_last=False)
    return Page(events, is_last=len(events) < limit)
