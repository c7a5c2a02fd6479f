"""The store: finding, reading, listing, creating and opening sessions under one root folder.

Every answer about a bad log is one of five errors, never mixed up: not found, unsupported, corrupt,
misplaced, conflict; and none of them changes a byte.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs

from acp_bridge.errors import (
    BridgeError,
    LocalProtocolError,
    SessionConflictError,
    SessionCorruptError,
    SessionMisplacedError,
    SessionNotFoundError,
    SessionUnsupportedError,
    StoreFailedError,
)
from acp_bridge.sessions.codec import decode_header
from acp_bridge.sessions.header import FORMAT_VERSION, Header, dump_header, parse_header
from acp_bridge.sessions.logfile import LogFile, disk_error, disk_reason, take_lock
from acp_bridge.sessions.paths import (
    Encoding,
    parse_log_name,
    project_folder,
    session_folder,
)
from acp_bridge.sessions.reading import Loaded, StoredLog, encoding_of, load, stamp_of
from acp_bridge.sessions.surface import title
from acp_bridge.sessions.validation import LogState
from acp_bridge.sessions.writer import LogWriter
from acp_bridge.vocabulary import BadSession, SessionId, SessionSummary


@attrs.frozen(slots=True)
class Listing:
    """Every stored session, the good and the bad ones; in no particular order."""

    sessions: list[SessionSummary]
    bad: list[BadSession]


# Inside the class, ``list`` is its method.
_BadSessions: TypeAlias = list[BadSession]
_Paths: TypeAlias = list[Path]
_Locks: TypeAlias = list[int]


class SessionStore:
    """All sessions under ``root`` (which need not exist). Blocking; call it from threads.

    ``clock`` gives milliseconds since the epoch. ``durable=False`` leaves the moment of writing to
    the operating system: a power cut may then lose rows that were told.
    """

    def __init__(self, root: Path, *, clock: Callable[[], int], durable: bool = True) -> None:
        self._root = root
        self._clock = clock
        self._durable = durable

    # --- reading ------------------------------------------------------------------------------

    def read(self, session_id: str) -> StoredLog:
        """The whole log of a session, validated. Takes no lock, writes and repairs nothing.

        Raises:
            SessionNotFoundError: no session has this id.
            SessionCorruptError: the log is damaged.
            SessionUnsupportedError: the log is of another generation, or holds newer rows.
            SessionMisplacedError: the log lies in a folder that is not its own.
            StoreFailedError: the disk refused.
        """
        return load(self._find(session_id), session_id).log

    def list(self) -> Listing:
        """A summary of every session, subagents included, and the logs that cannot be shown.

        Reads and validates every log; a bad one never fails the list.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        sessions: list[SessionSummary] = []
        bad: list[BadSession] = []
        folders = list(self._session_folders(bad))
        copies = Counter(folder.name for folder in folders)
        for folder in folders:
            where = folder
            try:
                path = _current_log(folder, folder.name)
                if path is None:
                    continue
                where = path
                if copies[folder.name] > 1:
                    self._find_by_folder(folder.name)
                sessions.append(_summary(load(path, None).log))
            except BridgeError as error:
                bad.append(BadSession(where, error.details))
            except OSError as error:
                bad.append(BadSession(where, disk_error(folder.name, "read", error).details))
        return Listing(sessions, bad)

    def delete(
        self, session_id: str, check: Callable[[Header], None] = lambda _header: None
    ) -> None:
        """Remove a session, and the subagents' sessions below it; an unknown id is fine.

        All of them are locked before the first is removed. ``check`` may refuse it by its header;
        one that is too damaged to have a header is removed.

        Raises:
            Whatever ``check`` raises.
            SessionConflictError: one of them is open for writing.
            StoreFailedError: the disk refused.
        """
        try:
            path = self._find(session_id)
        except SessionNotFoundError:
            return
        headers = list(self._headers())
        for header, _ in headers:
            if header.session_id == session_id:
                check(header)
        children = [(h.session_id, p) for h, p in _below(session_id, headers)]
        locks: _Locks = []
        try:
            for one, log in [(session_id, path), *children]:
                lock = take_lock(log.parent, one, create=True)
                assert lock is not None
                locks.append(lock)
            # The parent last: what a crash leaves can still be found and deleted by its id.
            for _, log in [*children, (session_id, path)]:
                log.unlink(missing_ok=True)  # from here on it is gone; what follows tidies up
                shutil.rmtree(log.parent)
        except FileNotFoundError:
            pass  # somebody else deleted it
        except OSError as error:
            raise disk_error(session_id, "deleted", error) from error
        finally:
            for lock in locks:
                os.close(lock)

    def session_ids(self) -> Sequence[SessionId]:
        """The ids of all sessions whose header can be read; decodes nothing but headers."""
        return [SessionId(header.session_id) for header, _ in self._headers()]

    def _headers(self) -> Iterator[tuple[Header, Path]]:
        """Every header that can be read, with its log's path."""
        for folder in self._session_folders([]):
            try:
                path = _current_log(folder, folder.name)
                if path is None:
                    continue
                with path.open("rb") as file:
                    head = file.read(_HEAD_BYTES)
                header = parse_header(decode_header(head, encoding_of(path)))
            except (BridgeError, OSError):
                continue
            if session_folder(header.session_id) == folder.name:
                yield header, path

    def _projects(self) -> _Paths:
        try:
            return _folders(self._root)
        except OSError as error:
            raise StoreFailedError(
                f"The sessions in {self._root} could not be read: {disk_reason(error)}."
            ) from error

    def _session_folders(self, bad: _BadSessions) -> Iterator[Path]:
        """Every folder that could hold a session; project folders that cannot be read go to bad."""
        for project in self._projects():
            try:
                yield from _folders(project)
            except OSError as error:
                bad.append(BadSession(project, disk_error(project.name, "read", error).details))

    def _find(self, session_id: str) -> Path:
        """The log file of this id, of the generation that can be read."""
        name = session_folder(session_id)
        path = None
        if name is not None:
            try:
                folder = self._find_by_folder(name)
                path = None if folder is None else _current_log(folder, session_id)
            except OSError as error:
                raise disk_error(session_id, "read", error) from error
        if path is None:
            raise SessionNotFoundError(session_id)
        return path

    def _find_by_folder(self, name: str) -> Path | None:
        found: _Paths = []
        trouble: OSError | None = None
        for project in self._projects():
            folder = project / name
            try:
                if _logs_in(folder):
                    found.append(folder)
            except OSError as error:  # one closed folder must not hide what lies in the others
                trouble = error
        if trouble is not None and not found:
            raise trouble
        if len(found) > 1:
            raise SessionMisplacedError(
                f"Session {name} lies in two folders, {found[0].parent.name} and"
                f" {found[1].parent.name}; move one of them out of the store."
            )
        return found[0] if found else None

    # --- writing ------------------------------------------------------------------------------

    def create(self, header: Header) -> LogWriter:
        """A new session's writer. Nothing is on the disk before its first append.

        Raises:
            LocalProtocolError: no log can have this header.
        """
        folder_name = session_folder(header.session_id)
        if folder_name is None or not _survives(header):
            raise LocalProtocolError(
                f"No log can have the header of session {header.session_id:.100}."
            )
        folder = self._root / project_folder(header.cwd) / folder_name

        def publish(lines: bytes) -> LogFile:
            self._refuse_known(header.session_id)
            return LogFile.create(
                folder,
                header.session_id,
                self._root_encoding(),
                [dump_header(header), lines],
                durable=self._durable,
            )

        return LogWriter(LogState(header), [], clock=self._clock, file=publish)

    def open(
        self, session_id: str, check: Callable[[Header], None] = lambda _header: None
    ) -> LogWriter:
        """A stored session, locked for writing; a torn tail is cut and an open turn is closed.

        The whole log is validated before anything is changed, so a refusal changes nothing; and
        ``check`` may refuse it by its header.

        Raises:
            Whatever ``check`` raises.
            SessionConflictError: it is already open for writing.
            SessionNotFoundError, SessionCorruptError, SessionUnsupportedError,
            SessionMisplacedError, StoreFailedError: as for `read`; the last also if the disk
            takes no lock or no row.
        """
        loaded, lock = self._load_locked(session_id, check)
        log = loaded.log
        try:
            file = LogFile.open(
                log.path, session_id, log.encoding, lock, loaded.good_length, durable=self._durable
            )
        except OSError as error:
            os.close(lock)
            raise disk_error(session_id, "written", error) from error
        writer = LogWriter(loaded.state, log.events, clock=self._clock, file=file)
        try:
            writer.repair()
        except BaseException:
            writer.close()
            raise
        return writer

    def _load_locked(self, session_id: str, check: Callable[[Header], None]) -> tuple[Loaded, int]:
        """A sound log and its lock. A lock file that is missing is made only for a sound log."""
        path = self._find(session_id)
        lock = None
        try:
            lock = take_lock(path.parent, session_id, create=False)
            loaded = load(path, session_id)
            check(loaded.log.header)
            if lock is None:
                lock = take_lock(path.parent, session_id, create=True)
                if stamp_of(path.stat()) != loaded.stamp:
                    loaded = load(path, session_id)
        except BaseException as error:
            if lock is not None:
                os.close(lock)
            if isinstance(error, OSError):
                raise disk_error(session_id, "written", error) from error
            raise
        assert lock is not None
        return loaded, lock

    def _refuse_known(self, session_id: str) -> None:
        try:
            self._find(session_id)
        except SessionNotFoundError:
            return
        except (SessionMisplacedError, SessionCorruptError, SessionUnsupportedError):
            pass
        raise SessionConflictError(f"Session {session_id} exists already.")

    def _root_encoding(self) -> Encoding:
        """The encoding of the first log found: dsh refuses a root that mixes two."""
        for folder in self._session_folders([]):
            for _, encoding, _ in _logs_in(folder):
                return encoding
        return "zstd"


_HEAD_BYTES = 65536
"""Enough for any header: an id of 255 characters and two paths of 4096."""


def _below(session_id: str, headers: Sequence[tuple[Header, Path]]) -> list[tuple[Header, Path]]:
    """The subagents' sessions below a session, children of children included, each once."""
    found: dict[str, tuple[Header, Path]] = {}
    parents = [session_id]
    while parents:
        parent = parents.pop()
        for header, path in headers:
            is_child = header.origin == "subagent" and header.parent_session == parent
            if is_child and header.session_id not in {session_id, *found}:
                found[header.session_id] = (header, path)
                parents.append(header.session_id)
    return list(found.values())


def _folders(root: Path) -> list[Path]:
    """The folders right below ``root``, sorted; none if there is no such folder.

    Raises:
        OSError: ``root`` cannot be read.
    """
    try:
        with os.scandir(root) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _logs_in(folder: Path) -> list[tuple[int, Encoding, Path]]:
    """Generation, encoding and path of every log in a session's folder."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(*kind, folder / name) for name in names if (kind := parse_log_name(name)) is not None]


def _current_log(folder: Path, shown: str) -> Path | None:
    """The log that counts in a session's folder: the only one of the highest generation."""
    logs = _logs_in(folder)
    if not logs:
        return None
    newest = max(generation for generation, _, _ in logs)
    if newest != FORMAT_VERSION:
        raise SessionUnsupportedError(
            f"Session {shown} is stored in log format version {newest}; this program reads"
            f" version {FORMAT_VERSION}."
        )
    paths = [path for generation, _, path in logs if generation == newest]
    if len(paths) > 1:
        raise SessionCorruptError(
            f"Session {shown} has two logs, {paths[0].name} and {paths[1].name}; move one of them"
            " out of the store."
        )
    return paths[0]


def _survives(header: Header) -> bool:
    """Whether the header reads back as what it is."""
    try:
        return parse_header(dump_header(header)) == header
    except (SessionCorruptError, TypeError, ValueError):
        return False


def _summary(log: StoredLog) -> SessionSummary:
    header = log.header
    return SessionSummary(
        session_id=SessionId(header.session_id),
        cwd=None if header.cwd is None else Path(header.cwd),
        title=title(log.events),
        created_at_ms=header.created_at_ms,
        updated_at_ms=log.events[-1].time_ms if log.events else header.created_at_ms,
        origin=header.origin,
        parent_session=header.parent_session,
    )
