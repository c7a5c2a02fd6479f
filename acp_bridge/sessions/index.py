"""What earlier sweeps found, kept in SQLite beside the store and shared between processes.

Derived, never an authority: deleting, damaging or losing this file changes no result, only time.
So nothing here raises. Whatever SQLite refuses, the index does without, until the next sweep.

Trust: SQLite does not notice a changed byte in a page. Each record therefore carries its key and a
checksum, and no result depends on what SQLite sorts, counts or leaves out: all records are read,
those that do not prove themselves count as unknown, and the sweep reads their logs again.
"""

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acp_bridge.sessions.digestjson import details_from_json, json_from_details
from acp_bridge.sessions.jsontext import dumps, loads
from acp_bridge.sessions.sweep import Changes, Details, Entry, Key, Known, Project
from acp_bridge.vocabulary import JsonValue

_SCHEMA: Final = 1
"""Raised whenever a record's members or meaning change: another number means another index."""

_COLUMNS: Final = (
    "(project BLOB, folder BLOB, record BLOB, PRIMARY KEY (project, folder)) WITHOUT ROWID"
)
_BUSY_S: Final = 0.25
"""How long a list waits for another process that writes; then it does without."""

_DAMAGED: Final = frozenset(
    {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_MISMATCH}
)
"""Answers after which the file is made anew."""

_FAULTS: Final = (sqlite3.Error, ValueError, TypeError, OverflowError)
"""What a damaged file raises: messages about a broken schema may not even be UTF-8."""

_PASSING: Final = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY}
)
"""Answers that say nothing against the file."""

_PROJECT_ROW: Final = b""
"""The folder name under which a project's own record stands; no folder has it."""

_TOKEN_KEY: Final = (b"", b"")
"""Where the token of the last writer stands: whoever knows it knows all records."""

_CHECK_BYTES: Final = 4


class Index(Known):
    """`Known` that outlives the process. Not safe for use by two threads at a time.

    ``path`` is the database file; its folder must exist, else there is no index. It is open only
    from `refresh` to `keep`: in between sweeps another program may do to it what it likes, and
    SQLite's shared memory under an open file does not survive everything.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._token = b""
        self._doubtful: set[tuple[bytes, bytes]] = set()
        self._unsaved = Changes()

    def refresh(self) -> None:
        """Take over what other processes found, and everything at the first call."""
        if self._take_over_failed():
            self._take_over_failed()  # of a file made anew

    def keep(self, changes: Changes) -> None:
        """Remember what a sweep found, and let go of the file."""
        unsaved = self._unsaved
        unsaved.entries.update(changes.entries)
        unsaved.projects.update(changes.projects)
        try:
            if self._db is not None and (unsaved.entries or unsaved.projects or self._doubtful):
                self._save(self._db, unsaved)
        except _FAULTS as error:
            self._give_up(error)
        self.close()

    def _save(self, db: sqlite3.Connection, unsaved: Changes) -> None:
        token = os.urandom(8)
        gone = [*self._doubtful, *_gone(unsaved)]
        with self._transaction(db):
            db.executemany("DELETE FROM facts WHERE project = ? AND folder = ?", gone)
            db.executemany("DELETE FROM details WHERE project = ? AND folder = ?", gone)
            db.executemany("REPLACE INTO facts VALUES (?, ?, ?)", _facts(unsaved))
            db.executemany("REPLACE INTO details VALUES (?, ?, ?)", _details(unsaved))
            db.execute("REPLACE INTO facts VALUES (?, ?, ?)", (*_TOKEN_KEY, token))
        self._token = token
        self._doubtful.clear()
        self._unsaved = Changes()

    def details(self, key: Key) -> Details | None:
        """What is known of this log beyond its entry."""
        names = (os.fsencode(key[0]), os.fsencode(key[1]))
        query = "SELECT record FROM details WHERE project = ? AND folder = ?"
        was_open = self._db is not None
        try:
            db = self._connect()
            row = None if db is None else db.execute(query, names).fetchone()
        except _FAULTS as error:
            self._give_up(error)
            row = None
        if not was_open:
            self.close()
        value = None if row is None else _opened(row[0], _salt(b"details", *names))
        return None if value is None else details_from_json(value)

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
        self._db = None

    def _connect(self) -> sqlite3.Connection | None:
        """The open file, made if need be; None: there cannot be one."""
        if self._db is not None:
            return self._db
        try:
            # Titles are private, and SQLite would make the file readable for everybody. Only ever
            # for a new file: closing a file drops all locks that the process has on it.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            pass
        except OSError:
            return None
        db = sqlite3.connect(
            self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        self._db = db
        db.text_factory = bytes
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA synchronous = OFF")  # a power cut may cost the index, never a session
        self._prepare(db)
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Make the tables.

        Raises:
            sqlite3.Error: among others, it is of another version.
        """
        if _version_of(db) == _SCHEMA:
            return
        db.execute("PRAGMA journal_mode = WAL")
        with self._transaction(db):
            if _version_of(db) == _SCHEMA:  # another process was faster
                return
            if db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                raise sqlite3.DatabaseError("of another version")
            db.execute(f"CREATE TABLE facts {_COLUMNS}")
            db.execute(f"CREATE TABLE details {_COLUMNS}")
            db.execute(f"PRAGMA user_version = {_SCHEMA}")

    @contextlib.contextmanager
    def _transaction(self, db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
            db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise

    def _take_over_failed(self) -> bool:
        """Whether it failed and trying again with a new file may help."""
        try:
            db = self._connect()
            if db is not None:
                self._take_over(db)
        except _FAULTS as error:
            return self._give_up(error)
        return False

    def _take_over(self, db: sqlite3.Connection) -> None:
        """Everything that is recorded, unless nobody has written since we did or read it."""
        query = "SELECT record FROM facts WHERE project = ? AND folder = ?"
        row = db.execute(query, _TOKEN_KEY).fetchone()
        token = b"" if row is None else row[0]
        if token and token == self._token:
            return
        rows = db.execute("SELECT project, folder, record FROM facts").fetchall()
        self._token = token
        self.projects, self.entries = {}, {}
        for project, folder, record in rows:
            if (project, folder) == _TOKEN_KEY:
                continue
            try:
                self._take(project, folder, record)
            except (TypeError, ValueError):
                if isinstance(project, bytes) and isinstance(folder, bytes):
                    self._doubtful.add((project, folder))

    def _take(self, project: bytes, folder: bytes, record: bytes) -> None:
        """One record.

        Raises:
            TypeError, ValueError: it does not prove itself.
        """
        value = _opened(record, _salt(b"facts", project, folder))
        if not isinstance(value, list):
            raise TypeError
        name = os.fsdecode(project)
        if folder == _PROJECT_ROW:
            settled, inode, mtime_ns, *folders = value
            names = tuple(str(one) for one in folders)
            self.projects[name] = Project(settled is True, _int(inode), _int(mtime_ns), names)
        else:
            entry = Entry._make(value)
            self.entries[entry.project, entry.folder] = entry

    def _give_up(self, error: Exception) -> bool:
        """Do without for now. True: the file was damaged or of another version, and was removed."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _PASSING:
            return False
        self.close()
        if code not in _DAMAGED:
            return False
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                Path(f"{self._path}{suffix}").unlink()
        return True


def _version_of(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _int(value: JsonValue) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _salt(table: bytes, project: bytes, folder: bytes) -> int:
    """Where the checksum starts: a record that strayed to another place does not prove itself."""
    return zlib.crc32(b"/".join((table, project, folder)))


def _sealed(value: JsonValue, salt: int) -> bytes:
    text = dumps(value)
    return zlib.crc32(text, salt).to_bytes(_CHECK_BYTES, "big") + text


def _opened(record: object, salt: int) -> JsonValue:
    """The value of a record; None if it does not prove itself."""
    if not isinstance(record, bytes):
        return None
    text = record[_CHECK_BYTES:]
    if zlib.crc32(text, salt) != int.from_bytes(record[:_CHECK_BYTES], "big"):
        return None
    return loads(text)


def _gone(changes: Changes) -> Iterator[tuple[bytes, bytes]]:
    for (project, folder), entry in changes.entries.items():
        if entry is None or entry[1] is None:
            yield os.fsencode(project), os.fsencode(folder)
    for name, project_now in changes.projects.items():
        if project_now is None:
            yield os.fsencode(name), _PROJECT_ROW


def _facts(changes: Changes) -> Iterator[tuple[bytes, bytes, bytes]]:
    for (project, folder), change in changes.entries.items():
        if change is not None:
            yield _record(b"facts", project, os.fsencode(folder), list(change[0]))
    for name, now in changes.projects.items():
        if now is not None:
            yield _record(b"facts", name, _PROJECT_ROW, [*now[:3], *now.folders])


def _details(changes: Changes) -> Iterator[tuple[bytes, bytes, bytes]]:
    for (project, folder), change in changes.entries.items():
        if change is not None and change[1] is not None:
            yield _record(b"details", project, os.fsencode(folder), json_from_details(change[1]))


def _record(
    table: bytes, project: str, folder: bytes, value: JsonValue
) -> tuple[bytes, bytes, bytes]:
    name = os.fsencode(project)
    return name, folder, _sealed(value, _salt(table, name, folder))
