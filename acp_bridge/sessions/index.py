"""What earlier sweeps found, kept in SQLite beside the store and shared between processes.

Derived, never an authority: deleting, damaging or losing this file changes no result, only time.
So nothing here raises. Whatever SQLite refuses, the index does without, until the next sweep.

Trust: SQLite does not notice a changed byte in a page. Each record therefore says itself what it is
about and stands beside its checksum, and no result depends on what SQLite sorts, counts or leaves
out: all records are read, those that do not prove themselves count as unknown, and the sweep reads
their logs again.
"""

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from acp_bridge.sessions.digestjson import details_from_json, json_from_details
from acp_bridge.sessions.jsontext import dumps, loads
from acp_bridge.sessions.known import Changes, Details, Entry, Key, Known, Project
from acp_bridge.sessions.shelf import Shelf, shelf_of
from acp_bridge.vocabulary import JsonValue

_SCHEMA: Final = 4
"""Kept in the file and raised whenever a record's members or their meaning change."""

_BY_FOLDER: Final = (
    "CREATE TABLE {} (project BLOB, folder BLOB, record BLOB, checksum INTEGER,"
    " PRIMARY KEY (project, folder)) WITHOUT ROWID"
)
_TABLES: Final = (
    "CREATE TABLE birth (token BLOB)",
    "CREATE TABLE projects (project BLOB PRIMARY KEY, record BLOB, checksum INTEGER) WITHOUT ROWID",
    "CREATE TABLE shelves (project BLOB PRIMARY KEY, record BLOB, checksum INTEGER) WITHOUT ROWID",
    _BY_FOLDER.format("entries"),
    _BY_FOLDER.format("details"),
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

_key: Final[Callable[[Entry], Key]] = itemgetter(0, 1)

_Row: TypeAlias = tuple[bytes, int]
"""A record's JSON and its checksum."""

_new_entry: Final = cast("Callable[[Iterable[Any]], Entry]", partial(tuple.__new__, Entry))
"""Quicker than `Entry._make`, which counts the members again."""

_ENTRY: Final = zlib.crc32(b"entry")
_PROJECT: Final = zlib.crc32(b"project")
_DETAILS: Final = zlib.crc32(b"details")
_SHELF: Final = zlib.crc32(b"shelf")
"""Where checksums start: a record that strayed into another table does not prove itself."""


class Index(Known):
    """`Known` that outlives the process. Not safe for use by two threads at a time.

    ``path`` is the database file; its folder must exist, else there is no index. It is open only
    from `refresh` to `keep`: in between sweeps another program may do to it what it likes, and
    SQLite's shared memory under an open file does not survive everything.
    """

    keeps_details = True

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._birth: bytes | None = None
        self._is_whole = False
        self._is_doubtful = False
        self._unsaved = Changes()

    def refresh(self) -> None:
        """Open the file; at the first call take over everything that it holds."""
        if self._take_over_failed():
            self._take_over_failed()  # of a file made anew

    def keep(self, changes: Changes) -> None:
        """Remember what a sweep found, and let go of the file."""
        if self._db is None:
            self._unsaved = Changes()  # without a file they would only pile up
            self._is_doubtful = True
            return
        unsaved = self._unsaved
        unsaved.entries.update(changes.entries)
        unsaved.projects.update(changes.projects)
        try:
            if unsaved.entries or unsaved.projects or self._is_doubtful:
                self._save(self._db, unsaved)
        except _FAULTS as error:
            self._give_up(error)
        self.close()

    def _save(self, db: sqlite3.Connection, unsaved: Changes) -> None:
        with _transaction(db):
            if self._is_doubtful:
                db.execute("DELETE FROM entries")
                db.execute("DELETE FROM projects")
                unsaved.projects.update(self.projects)
                db.executemany(
                    "REPLACE INTO entries VALUES (?, ?, ?, ?)", map(_row, self.entries.values())
                )
            gone = [
                (os.fsencode(project), os.fsencode(folder))
                for (project, folder), change in unsaved.entries.items()
                if change is None or change[1] is None
            ]
            db.executemany("DELETE FROM entries WHERE project = ? AND folder = ?", gone)
            db.executemany("DELETE FROM details WHERE project = ? AND folder = ?", gone)
            changed = [change for change in unsaved.entries.values() if change is not None]
            db.executemany(
                "REPLACE INTO entries VALUES (?, ?, ?, ?)", [_row(entry) for entry, _ in changed]
            )
            db.executemany(
                "REPLACE INTO details VALUES (?, ?, ?, ?)",
                [_details_row(entry, more) for entry, more in changed if more is not None],
            )
            for name, project in unsaved.projects.items():
                if project is None:
                    db.execute("DELETE FROM projects WHERE project = ?", (os.fsencode(name),))
                else:
                    db.execute(
                        "REPLACE INTO projects VALUES (?, ?, ?)", _project_row(name, project)
                    )
            for name in {*unsaved.projects, *(project for project, _ in unsaved.entries)}:
                self._save_shelf(db, name)
        self._is_doubtful = False
        self._unsaved = Changes()

    def _save_shelf(self, db: sqlite3.Connection, name: str) -> None:
        project = self.projects.get(name)
        shelf = None
        if project is not None:
            entries = [self.entries.get((name, folder)) for folder in project.folders]
            shelf = shelf_of(name, project, entries)
        db.execute("DELETE FROM shelves WHERE project = ?", (os.fsencode(name),))
        if shelf is not None:
            value = cast("JsonValue", list(shelf))
            row = (os.fsencode(name), *_sealed(value, _SHELF))
            db.execute("INSERT INTO shelves VALUES (?, ?, ?)", row)

    @property
    def is_loaded(self) -> bool:
        """Whether everything was taken over already."""
        return self._birth is not None

    def shelves(self) -> list[Shelf]:
        """The shelves that there are; not that of every project folder has to be among them."""
        try:
            db = self._connect()
            if db is None:
                return []
            rows = db.execute("SELECT record, checksum FROM shelves").fetchall()
            return [*map(Shelf._make, _values(rows, _SHELF))]
        except _FAULTS as error:
            self._give_up(error)
            return []
        finally:
            self.close()

    def entries_of(self, keys: Sequence[Key]) -> list[Entry]:
        """Some of the entries in the file, in this order; without those that are not there."""
        query = "SELECT record, checksum FROM entries WHERE project = ? AND folder = ?"
        try:
            db = self._connect()
            if db is None:
                return []
            found = [db.execute(query, tuple(map(os.fsencode, key))).fetchone() for key in keys]
            rows = [row for row in found if row is not None]
            return [*map(_new_entry, _values(rows, _ENTRY))]
        except _FAULTS as error:
            self._give_up(error)
            return []
        finally:
            self.close()

    def details(self, key: Key) -> Details | None:
        """What is known of this log beyond its entry."""
        names = (os.fsencode(key[0]), os.fsencode(key[1]))
        query = "SELECT record, checksum FROM details WHERE project = ? AND folder = ?"
        was_open = self._db is not None
        try:
            db = self._connect()
            if db is None:
                return None
            rows = db.execute(query, names).fetchall()
        except _FAULTS as error:
            self._give_up(error)
            return None
        finally:
            if not was_open:
                self.close()
        start = zlib.crc32(b"/".join(names), _DETAILS)
        for value in _values(rows, start):
            return details_from_json(value)
        if self.entries.pop(key, None) is not None:  # so that the next sweep makes them again
            self.outdate(key[0])
            self.revision += 1
        return None

    def recall(self, key: Key) -> Entry | None:
        """What another process has found since we took over everything."""
        if self._db is None or self._is_whole:
            return None
        names = (os.fsencode(key[0]), os.fsencode(key[1]))
        query = "SELECT record, checksum FROM entries WHERE project = ? AND folder = ?"
        try:
            rows = self._db.execute(query, names).fetchall()
            found = next(map(_new_entry, _values(rows, _ENTRY)), None)
        except _FAULTS as error:
            self._give_up(error)
            return None
        return found if found is not None and found[:2] == key else None

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
        with _transaction(db):
            if _version_of(db) == _SCHEMA:  # another process was faster
                return
            if db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                raise sqlite3.DatabaseError("of another version")
            for table in _TABLES:
                db.execute(table)
            db.execute("INSERT INTO birth VALUES (?)", (os.urandom(8),))
            db.execute(f"PRAGMA user_version = {_SCHEMA}")

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
        row = db.execute("SELECT token FROM birth").fetchone()
        birth, known = (None if row is None else row[0]), self._birth
        self._birth = birth
        self._is_whole = known is None
        if known is not None:
            # A file made anew does not hold what we know.
            self._is_doubtful = self._is_doubtful or birth != known
            return
        projects = db.execute("SELECT record, checksum FROM projects").fetchall()
        rows = db.execute("SELECT record, checksum FROM entries").fetchall()
        self.projects = {
            str(name): Project(bool(settled), inode, mtime_ns, tuple(folders))
            for name, settled, inode, mtime_ns, folders in _values(projects, _PROJECT)
        }
        entries = [*map(_new_entry, _values(rows, _ENTRY))]
        self.entries = dict(zip(map(_key, entries), entries, strict=True))
        self.looks, self.unnamed = {}, {}
        for entry in entries:
            if entry.settled:
                self.looks.setdefault(entry.project, []).append(entry)
        self.revision += 1
        self._is_doubtful = (len(self.projects), len(self.entries)) != (len(projects), len(rows))

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


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _version_of(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _sealed(value: JsonValue, start: int) -> _Row:
    text = dumps(value)
    return text, zlib.crc32(text, start)


def _values(rows: Iterable[tuple[object, object]], start: int) -> Iterator[Any]:
    """The values of all records that prove themselves, made one by one as they are taken.

    Ten thousand at once would be as many lists, in memory that nothing has touched before.
    """
    crc32 = zlib.crc32
    return (
        loads(text)
        for text, checksum in rows
        if isinstance(text, bytes) and crc32(text, start) == checksum
    )


def _row(entry: Entry) -> tuple[bytes, bytes, bytes, int]:
    return (
        os.fsencode(entry.project),
        os.fsencode(entry.folder),
        *_sealed(cast("JsonValue", list(entry)), _ENTRY),
    )


def _details_row(entry: Entry, details: Details) -> tuple[bytes, bytes, bytes, int]:
    names = (os.fsencode(entry.project), os.fsencode(entry.folder))
    return *names, *_sealed(json_from_details(details), zlib.crc32(b"/".join(names), _DETAILS))


def _project_row(name: str, project: Project) -> tuple[bytes, bytes, int]:
    value: JsonValue = [name, *project[:3], list(project.folders)]
    return os.fsencode(name), *_sealed(value, _PROJECT)
