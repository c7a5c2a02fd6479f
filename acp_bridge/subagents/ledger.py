"""What a home keeps of its remote children over restarts: pending runs, and the streams' cursors.

One SQLite file in the home folder, outside the store; several processes may share it. It is no
authority on what a child is: logs are. Without it every event comes again, and what the logs hold
already is recognised.
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import anyio.to_thread
import attrs

from acp_bridge.errors import StoreFailedError
from acp_bridge.runevents.delivery import StoredCursors
from acp_bridge.runevents.model import RunId
from acp_bridge.subagents.elsewhere import LateMessage, PendingRun
from acp_bridge.vocabulary import CallId, JsonObject, SessionId

LEDGER_NAME: Final = "runs.sqlite3"

BUSY_S: Final = 5.0
"""How long another process may hold the file."""

T = TypeVar("T")

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS run (
    child TEXT PRIMARY KEY, parent TEXT NOT NULL, pending INTEGER NOT NULL, data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS run_parent ON run (parent);
CREATE TABLE IF NOT EXISTS cursors (session TEXT PRIMARY KEY, data TEXT NOT NULL) WITHOUT ROWID;
"""

_PUT: Final = """
INSERT INTO run VALUES (?, ?, ?, ?)
ON CONFLICT (child) DO UPDATE SET pending = excluded.pending, data = excluded.data
"""
"""The row keeps its place, so that the oldest come first."""


class Ledger:
    """Implements `runevents.delivery.CursorStore`. Opened by its first use; methods use threads.

    Every method raises `StoreFailedError` when the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    # --- pending runs --------------------------------------------------------------------------

    async def put(self, run: PendingRun) -> None:
        """Keep the run instead of what was kept of it; durable on return."""
        pending = run.settled_by is None
        row = (run.child_id, run.parent_id, pending, json.dumps(_run_json(run)))
        await self._do(lambda db: db.execute("INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?)", row))

    async def told(self, run: PendingRun, event_id: str) -> None:
        """The parent was told of the end of this task; if it has another one by now, that stays."""

        def tell(db: sqlite3.Connection) -> None:
            row = db.execute("SELECT data FROM run WHERE child = ?", (run.child_id,)).fetchone()
            if row is not None and json.loads(row[0])["task_id"] == run.task_id:
                done = attrs.evolve(run, settled_by=event_id)
                db.execute(_PUT, (run.child_id, run.parent_id, 0, json.dumps(_run_json(done))))

        await self._do(tell)

    async def find(self, child_id: SessionId) -> PendingRun | None:
        """What is kept of a child; None: nothing."""
        query = "SELECT data FROM run WHERE child = ?"
        row = await self._do(lambda db: db.execute(query, (child_id,)).fetchone())
        return None if row is None else _run_from_json(json.loads(row[0]))

    async def pending(self, parent_id: SessionId) -> Sequence[PendingRun]:
        """The children of a session whose end was not told to it yet."""
        query = "SELECT data FROM run WHERE parent = ? AND pending ORDER BY rowid"
        rows = await self._do(lambda db: db.execute(query, (parent_id,)).fetchall())
        return [_run_from_json(json.loads(row[0])) for row in rows]

    async def forget_family(self, parent_id: SessionId) -> None:
        """Drop all that is kept of a session and its children."""

        def drop(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM run WHERE parent = ?", (parent_id,))
            db.execute("DELETE FROM cursors WHERE session = ?", (parent_id,))

        await self._do(drop)

    # --- cursors -------------------------------------------------------------------------------

    async def save(self, session_id: SessionId, stored: StoredCursors) -> None:
        """As `CursorStore.save`."""
        data = json.dumps(
            {"epoch": stored.epoch, "run_id": stored.run_id, "cursors": dict(stored.cursors)}
        )
        await self._do(
            lambda db: db.execute(
                "INSERT OR REPLACE INTO cursors VALUES (?, ?)", (session_id, data)
            )
        )

    async def load(self, session_id: SessionId) -> StoredCursors:
        """As `CursorStore.load`."""
        query = "SELECT data FROM cursors WHERE session = ?"
        row = await self._do(lambda db: db.execute(query, (session_id,)).fetchone())
        if row is None:
            return StoredCursors()
        data = json.loads(row[0])
        cursors = {RunId(run): int(cursor) for run, cursor in data["cursors"].items()}
        return StoredCursors(data["epoch"], data["run_id"], cursors)

    # --- the file ------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the file."""

        def close() -> None:
            with self._mutex:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None

        await anyio.to_thread.run_sync(close)

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await anyio.to_thread.run_sync(self._locked, work)

    def _locked(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._mutex:
            try:
                if self._connection is None:
                    self._connection = self._open()
                with self._connection:  # a transaction
                    return work(self._connection)
            except (sqlite3.Error, OSError) as fault:
                raise StoreFailedError(
                    f"{self._path} cannot be used: {fault}. Delete it if it is damaged; remote "
                    "children are then told of anew."
                ) from fault

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=BUSY_S, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_SCHEMA)
        return connection


def _run_json(run: PendingRun) -> JsonObject:
    data: JsonObject = attrs.asdict(run)
    return data


def _run_from_json(data: JsonObject) -> PendingRun:
    """Our own JSON, back; members that a newer program added are left out."""
    known = {name: data[name] for name in _MEMBERS if name in data}
    messages = known.pop("messages", None)
    late = [
        LateMessage(one["message"], one["text"], CallId(one["call_id"]))  # type: ignore[index,call-overload,arg-type]  # we wrote it
        for one in (messages if isinstance(messages, list) else ())
    ]
    return PendingRun(**known, messages=tuple(late))  # type: ignore[arg-type]  # we wrote it


_MEMBERS: Final = tuple(field.name for field in attrs.fields(PendingRun))
