"""The store: finding, reading, listing, creating and opening sessions under one root folder.

Every answer about a bad log is one of five errors, never mixed up: not found, unsupported, corrupt,
misplaced, conflict; and none of them changes a byte.
"""

import os
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

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
from acp_bridge.sessions.codec import encode_batch
from acp_bridge.sessions.finding import current_log, folders, header_of, logs_in
from acp_bridge.sessions.fork import Fork, Shape, forked_header, next_title, own_rows
from acp_bridge.sessions.forking import Cut, cut_of, pieces_of
from acp_bridge.sessions.header import Header, dump_header, parse_header
from acp_bridge.sessions.logfile import LogFile, disk_error, disk_reason, take_lock
from acp_bridge.sessions.paths import Encoding, project_folder, session_folder
from acp_bridge.sessions.reading import Loaded, StoredLog, encoding_of, load, stamp_of
from acp_bridge.sessions.seeking import seek
from acp_bridge.sessions.sweep import Details, Entry, Known, sweep
from acp_bridge.sessions.validation import LogState
from acp_bridge.sessions.writer import LogWriter
from acp_bridge.vocabulary import BadSession, Event, SessionId, SessionSummary

if TYPE_CHECKING:
    from acp_bridge.sessions.index import Index

Order: TypeAlias = tuple[int, str]
"""A session's place in a list: newest activity first (its time negated), then the id."""


@attrs.frozen(slots=True)
class Listing:
    """Every stored session, the good and the bad ones; in no particular order."""

    sessions: list[SessionSummary]
    bad: list[BadSession]


@attrs.frozen(slots=True)
class Page:
    """Some sessions in order, every bad one, and the place after which the next page begins.

    ``after`` is None on the last page.
    """

    sessions: list[SessionSummary]
    bad: list[BadSession]
    after: Order | None


# Inside the class, ``list`` is its method.
_Entries: TypeAlias = list[Entry]
_Ranked: TypeAlias = list[tuple[Order, Entry]]
_BadSessions: TypeAlias = list[BadSession]
_Paths: TypeAlias = list[Path]


class SessionStore:
    """All sessions under ``root`` (which need not exist). Blocking; call it from threads.

    ``clock`` gives milliseconds since the epoch. ``durable=False`` leaves the moment of writing to
    the operating system: a power cut may then lose rows that were told. ``index`` is the file that
    remembers what lists found (`index`), outside ``root``; without one every list reads every log.
    ``wall_ns`` is the clock that files get their times from, in nanoseconds since the epoch.
    """

    def __init__(
        self,
        root: Path,
        *,
        clock: Callable[[], int],
        durable: bool = True,
        index: Path | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        assert index is None or root not in index.parents, "a store holds sessions only"
        self._root = root
        self._clock = clock
        self._durable = durable
        self._index_path = index
        self._index: Index | None = None
        self._index_lock = threading.Lock()
        self._wall_ns = wall_ns
        self._ranked: tuple[int | None, _Ranked, _BadSessions] | None = None

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

        Every log has been validated, now or when the index last saw it change; a bad one never
        fails the list.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        entries, bad, _ = self._swept()
        good, more = self._sorted_out(entries)
        return Listing([entry.summary() for entry in good], [*bad, *more])

    def summaries(
        self, *, cwd: Path | None = None, after: Order | None = None, limit: int = 100
    ) -> Page:
        """Roots and forks in order, a page at a time; subagents and sessions without a cwd never.

        ``cwd`` asks for one working folder. ``after`` is what the page before gave: what is new
        since then neither repeats nor skips a session that stayed where it was.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        assert limit > 0
        ranked, bad = self._judged()
        if cwd is not None:
            # Few working folders have many sessions: look at each of them once.
            wanted = os.path.normpath(cwd)
            here = {one for one in {each.cwd for _, each in ranked} if _is_same(one, wanted)}
            ranked = [one for one in ranked if one[1].cwd in here]
        first = 0 if after is None else bisect_right(ranked, after, key=lambda one: one[0])
        page = ranked[first : first + limit]
        is_last = first + limit >= len(ranked)
        return Page([entry.summary() for _, entry in page], bad, None if is_last else page[-1][0])

    def entries(self) -> Sequence[Entry]:
        """What is known of every session folder, sound or not: headers first of all.

        Raises:
            StoreFailedError: the root or a folder in it cannot be read, so some are not known.
        """
        entries, bad, _ = self._swept()
        if bad:
            raise StoreFailedError(bad[0].reason)
        return entries

    def read_header(self, session_id: str) -> Header:
        """The header of a session, from the beginning of its log alone.

        Raises:
            As `read`; what follows the header is not looked at.
        """
        path = self._find(session_id)
        try:
            return header_of(path)
        except OSError as error:
            raise disk_error(session_id, "read", error) from error

    def read_event(self, session_id: str, seq: int) -> tuple[Header, Event | None]:
        """The header and one row, None if the log has no such row.

        With an index that knows the log as it is, only the frames near the row are decoded.

        Raises:
            As `read`.
        """
        path = self._find(session_id)
        known = self._known_details(path)
        if known is not None and known.digest.header.session_id == session_id:
            event = seek(path, known, seq)
            if event is not None:
                return known.digest.header, event
        log = load(path, session_id).log
        return log.header, log.events[seq] if 0 <= seq < len(log.events) else None

    def details(self, session_id: str) -> Details | None:
        """What the index knows of a log as it lies there now; None: only a whole reading can tell.

        Raises:
            SessionNotFoundError and the like: as for `read`, but no log is opened.
        """
        return self._known_details(self._find(session_id))

    def _judged(self) -> tuple[_Ranked, _BadSessions]:
        """What pages are cut from, in order, and the bad sessions; made once a revision."""
        entries, bad, revision = self._swept()
        if revision is None or self._ranked is None or self._ranked[0] != revision:
            good, more = self._sorted_out(entries)
            ranked = [
                ((-entry.updated_at_ms, entry.session_id or ""), entry)
                for entry in good
                if entry.origin is None and entry.cwd is not None
            ]
            ranked.sort()
            self._ranked = (revision, ranked, more)
        return self._ranked[1], [*bad, *self._ranked[2]]

    def _sorted_out(self, entries: _Entries) -> tuple[_Entries, _BadSessions]:
        """The sound sessions, and why the others are none."""
        bad: _BadSessions = []
        copies = Counter(entry.folder for entry in entries if entry.has_logs)
        good: _Entries = []
        for entry in entries:
            reason = entry.reason
            if entry.log is not None and copies[entry.folder] > 1:
                reason = self._why_misplaced(entry.folder) or reason
            if reason is not None:
                where = self._root / entry.project / entry.folder / (entry.log or "")
                bad.append(BadSession(where, reason))
            elif entry.log is not None:
                good.append(entry)
        return good, bad

    def _why_misplaced(self, name: str) -> str | None:
        try:
            self._find_by_folder(name)
        except BridgeError as error:
            return error.details
        except OSError:
            pass
        return None

    def _swept(self) -> tuple[_Entries, _BadSessions, int | None]:
        """All entries, the unreadable project folders, and the revision of what is remembered."""
        with self._index_lock:
            index = self._open_index()
            known: Known = Known() if index is None else index
            now_ns = self._wall_ns()
            if index is not None:
                index.refresh()
            try:
                changes = sweep(self._root, known, now_ns)
            except OSError as error:
                raise self._root_error(error) from error
            if index is not None:
                index.keep(changes)
            revision = None if index is None else known.revision
            return [*known.entries.values()], changes.bad, revision

    def _open_index(self) -> "Index | None":
        if self._index is None and self._index_path is not None:
            from acp_bridge.sessions.index import Index

            self._index = Index(self._index_path)
        return self._index

    def _known_details(self, path: Path) -> Details | None:
        """The details of a log, if the index has them for the file as it is now."""
        with self._index_lock:
            index = self._open_index()
            details = (
                None
                if index is None
                else index.details((path.parent.parent.name, path.parent.name))
            )
        if details is None or not details.settled:
            return None
        try:
            return details if stamp_of(path.stat()) == details.stamp else None
        except OSError:
            return None

    def session_ids(self) -> Sequence[SessionId]:
        """The ids of all sessions whose header can be read; decodes nothing but headers."""
        ids: list[SessionId] = []
        for folder in self._session_folders([]):
            try:
                path = current_log(folder, folder.name)
                if path is None:
                    continue
                header = header_of(path)
            except (BridgeError, OSError):
                continue
            if session_folder(header.session_id) == folder.name:
                ids.append(SessionId(header.session_id))
        return ids

    def _projects(self) -> _Paths:
        try:
            return folders(self._root)
        except OSError as error:
            raise self._root_error(error) from error

    def _root_error(self, error: OSError) -> StoreFailedError:
        return StoreFailedError(
            f"The sessions in {self._root} could not be read: {disk_reason(error)}."
        )

    def _session_folders(self, bad: _BadSessions) -> Iterator[Path]:
        """Every folder that could hold a session; project folders that cannot be read go to bad."""
        for project in self._projects():
            try:
                yield from folders(project)
            except OSError as error:
                bad.append(BadSession(project, disk_error(project.name, "read", error).details))

    def _find(self, session_id: str) -> Path:
        """The log file of this id, of the generation that can be read."""
        name = session_folder(session_id)
        path = None
        if name is not None:
            try:
                folder = self._find_by_folder(name)
                path = None if folder is None else current_log(folder, session_id)
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
                if logs_in(folder):
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
        folder = self._new_folder(header)

        def publish(lines: bytes) -> LogFile:
            self._refuse_known(header.session_id)
            encoding = self._root_encoding()
            return LogFile.create(
                folder,
                header.session_id,
                encoding,
                [encode_batch(part, encoding) for part in (dump_header(header), lines)],
                durable=self._durable,
            )

        return LogWriter(LogState(header), [], clock=self._clock, file=publish)

    def fork(
        self,
        source_id: str,
        *,
        new_id: str,
        created_at_ms: int,
        cwd: str | None = None,
        at_seq: int | None = None,
        shape: Shape = "current",
        title_increment: bool = True,
    ) -> Fork:
        """Make an ordinary fork of a stored session, and leave the source as it is.

        It is cut after row ``at_seq`` (-1: nothing is copied), or else after the last completed
        turn on the disk and what was set since then (mode, model, a compaction). ``cwd`` gives it
        another working folder. A fork with nothing copied is not stored: see `Fork`.

        Raises:
            InvalidParamsError: ``at_seq`` is no row, or lies inside a turn.
            SessionConflictError: ``new_id`` exists already, or the source was replaced meanwhile.
            LocalProtocolError: no log can have the new header.
            SessionNotFoundError, SessionCorruptError, SessionUnsupportedError,
            SessionMisplacedError, StoreFailedError: as for `read`; the last also if the disk takes
                no new log, which then does not exist.
        """
        path = self._find(source_id)
        cut = cut_of(path, source_id, at_seq, self._known_details(path))
        source = cut.digest.header
        header = forked_header(
            source,
            new_id=new_id,
            created_at_ms=created_at_ms,
            cwd=cwd,
            is_seeded=cut.boundary is not None,
        )
        folder = self._new_folder(header)
        self._refuse_known(new_id)
        old_title = cut.digest.title
        new_title = next_title(old_title) if old_title and title_increment else None
        if cut.boundary is None:
            return Fork(header, 0, new_title)
        own = own_rows(
            cut.boundary,
            created_at_ms=created_at_ms,
            title=new_title,
            cwd=header.cwd if cwd else None,
        )
        self._publish_fork(cut, header, folder, own, shape)
        return Fork(header, cut.boundary.seq + 1, new_title)

    def _publish_fork(
        self, cut: Cut, header: Header, folder: Path, own: Sequence[Event], shape: Shape
    ) -> None:
        source_id = cut.digest.header.session_id
        try:
            source = os.open(cut.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise disk_error(source_id, "read", error) from error
        try:
            pieces = [*pieces_of(cut, header, own, source, shape)]
            LogFile.create(
                folder,
                header.session_id,
                encoding_of(cut.path),
                pieces,
                durable=self._durable,
            ).close()
        except OSError as error:  # of the source: `create` has sentences of its own
            raise disk_error(source_id, "read", error) from error
        finally:
            os.close(source)

    def _new_folder(self, header: Header) -> Path:
        """Where the log of a new session goes.

        Raises:
            LocalProtocolError: no log can have this header.
        """
        folder_name = session_folder(header.session_id)
        if folder_name is None or not _survives(header):
            raise LocalProtocolError(
                f"No log can have the header of session {header.session_id:.100}."
            )
        return self._root / project_folder(header.cwd) / folder_name

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
            for _, encoding, _ in logs_in(folder):
                return encoding
        return "zstd"


def _survives(header: Header) -> bool:
    """Whether the header reads back as what it is."""
    try:
        return parse_header(dump_header(header)) == header
    except (SessionCorruptError, TypeError, ValueError):
        return False


def _is_same(cwd: str | None, wanted: str) -> bool:
    return cwd is not None and os.path.normpath(cwd) == wanted
