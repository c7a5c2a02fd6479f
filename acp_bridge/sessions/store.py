"""The store: finding, reading, listing, creating and opening sessions under one root folder.

Every answer about a bad log is one of five errors, never mixed up: not found, unsupported, corrupt,
misplaced, conflict; and none of them changes a byte.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from acp_bridge.errors import (
    LocalProtocolError,
    SessionConflictError,
    SessionCorruptError,
    SessionMisplacedError,
    SessionNotFoundError,
    SessionUnsupportedError,
)
from acp_bridge.sessions.codec import encode_batch
from acp_bridge.sessions.deleting import delete
from acp_bridge.sessions.finding import Finder, header_of
from acp_bridge.sessions.fork import Fork, Shape, forked_header, next_title, own_rows
from acp_bridge.sessions.forking import Cut, cut_of, pieces_of
from acp_bridge.sessions.header import Header, dump_header, parse_header
from acp_bridge.sessions.known import Details, Entry, Relations
from acp_bridge.sessions.listing import Catalog, Judged, Listing, Order, Page
from acp_bridge.sessions.logfile import LogFile, disk_error, take_lock
from acp_bridge.sessions.paths import Encoding, project_folder, session_folder
from acp_bridge.sessions.reading import (
    Loaded,
    Stamp,
    StoredLog,
    encoding_of,
    load,
    refusal,
    stamp_of,
)
from acp_bridge.sessions.seeking import seek, seek_descriptor
from acp_bridge.sessions.validation import LogState
from acp_bridge.sessions.writer import LogWriter
from acp_bridge.vocabulary import Event, SessionId


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
        self._finder = Finder(root)
        self._catalog = Catalog(self._finder, index=index, wall_ns=wall_ns)

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
        return load(self._finder.find(session_id), session_id).log

    def read_header(self, session_id: str, *, at: Path | None = None) -> Header:
        """The header of a session, from the beginning of its log alone.

        ``at`` is the log's path if the caller has just found it: looking takes a look at every
        project.

        Raises:
            As `read`; what follows the header is not looked at.
        """
        path = self._found(session_id, at)
        try:
            return header_of(path)
        except OSError as error:
            raise disk_error(session_id, "read", error) from error
        except (SessionCorruptError, SessionUnsupportedError) as error:
            raise refusal(session_id, error) from None

    def read_event(
        self, session_id: str, seq: int, *, at: Path | None = None
    ) -> tuple[Header, Event | None]:
        """The header and one row, None if the log has no such row.

        With an index that knows the log as it is, only the frames near the row are decoded. ``at``
        is as for `read_header`.

        Raises:
            As `read`.
        """
        if at is not None:
            entry = self._catalog.remembered(at)
            if entry is not None and entry.session_id == session_id:
                found = seek_descriptor(at, entry, seq)
                if found is not None:
                    return found
        path = self._found(session_id, at)
        known = self._catalog.details(path)
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
        return self._catalog.details(self._finder.find(session_id))

    def descriptor_seqs(self, session_id: str, *, at: Path | None = None) -> Sequence[int] | None:
        """Where the ``subagent/descriptor`` rows of a session's own range are.

        None: only a whole reading can tell. ``at`` is as for `read_header`.

        Raises:
            SessionNotFoundError and the like: as for `read`, but no log is opened.
        """
        if at is not None:
            entry = self._catalog.remembered(at)
            if entry is not None and entry.session_id == session_id and _is_still(at, entry.stamp):
                places = entry.descriptors
                if places is not None:
                    return places[::4]
        details = self._catalog.details(self._found(session_id, at))
        return None if details is None else [one.seq for one in details.digest.descriptors]

    def _found(self, session_id: str, at: Path | None) -> Path:
        return at if at is not None and at.exists() else self._finder.find(session_id)

    def path_of(self, entry: Entry) -> Path | None:
        """Where the log of an entry lies; None if its folder holds none."""
        if entry.log is None:
            return None
        return self._root / entry.project / entry.folder / entry.log

    def session_ids(self) -> Sequence[SessionId]:
        """The ids of all sessions whose header can be read; decodes nothing but headers."""
        return self._finder.session_ids()

    def encoding(self) -> Encoding:
        """How the logs here are encoded, as the first one found is; what a new one must be too."""
        return self._finder.encoding()

    def list(self) -> Listing:
        """A summary of every session, subagents included, and the logs that cannot be shown.

        Every log has been validated, now or when the index last saw it change; a bad one never
        fails the list.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        return self._catalog.list()

    def judged(self) -> Sequence[Judged]:
        """What is to be said of every log, with its header, title and last activity: see `list`.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        return self._catalog.judged()

    def summaries(
        self, *, cwd: Path | None = None, after: Order | None = None, limit: int = 100
    ) -> Page:
        """Roots and forks in order, a page at a time: see `Catalog.summaries`.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        return self._catalog.summaries(cwd=cwd, after=after, limit=limit)

    def relations(self, at_hand: Callable[[Relations], Iterable[Entry]]) -> Relations:
        """All headers; and of the sessions ``at_hand`` among them, all that their logs say now.

        Raises:
            StoreFailedError: the root or a folder in it cannot be read, so some are not known.
        """
        return self._catalog.relations(at_hand)

    def entries(self) -> Sequence[Entry]:
        """What is known of every session folder, sound or not: headers first of all.

        Raises:
            StoreFailedError: the root or a folder in it cannot be read, so some are not known.
        """
        return self._catalog.entries()

    # --- writing ------------------------------------------------------------------------------

    def create(self, header: Header) -> LogWriter:
        """A new session's writer. Nothing is on the disk before its first append.

        Raises:
            LocalProtocolError: no log can have this header.
        """
        folder = self._new_folder(header)

        def publish(lines: bytes) -> LogFile:
            self.check_unused(header.session_id)
            encoding = self._finder.encoding()
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
        as_child: bool = False,
    ) -> Fork:
        """Make an ordinary fork of a stored session, and leave the source as it is.

        It is cut after row ``at_seq`` (-1: nothing is copied), or else after the last completed
        turn on the disk and what was set since then (mode, model, a compaction). ``cwd`` gives it
        another working folder. A fork with nothing copied is not stored: see `Fork`. ``as_child``
        makes a subagent's session of it, whose parent the source is.

        Raises:
            InvalidParamsError: ``at_seq`` is no row, or lies inside a turn.
            SessionConflictError: ``new_id`` exists already, or the source was replaced meanwhile.
            LocalProtocolError: no log can have the new header.
            SessionNotFoundError, SessionCorruptError, SessionUnsupportedError,
            SessionMisplacedError, StoreFailedError: as for `read`; the last also if the disk takes
                no new log, which then does not exist.
        """
        path = self._finder.find(source_id)
        cut = cut_of(path, source_id, at_seq, self._catalog.details(path))
        source = cut.digest.header
        header = forked_header(
            source,
            new_id=new_id,
            created_at_ms=created_at_ms,
            cwd=cwd,
            is_seeded=cut.boundary is not None,
            as_child=as_child,
        )
        folder = self._new_folder(header)
        self.check_unused(new_id)
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
        self,
        session_id: str,
        check: Callable[[Header], None] = lambda _header: None,
        *,
        repairs: bool = True,
    ) -> LogWriter:
        """A stored session, locked for writing; a torn tail is cut and an open turn is closed.

        The whole log is validated before anything is changed, so a refusal changes nothing; and
        ``check`` may refuse it by its header. Without ``repairs`` its open turn stays open: whoever
        runs it elsewhere goes on with it.

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
        if repairs:
            try:
                writer.repair()
            except BaseException:
                writer.close()
                raise
        return writer

    def _load_locked(self, session_id: str, check: Callable[[Header], None]) -> tuple[Loaded, int]:
        """A sound log and its lock. A lock file that is missing is made only for a sound log."""
        path = self._finder.find(session_id)
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
        delete(self._finder, session_id, check)

    def check_unused(self, session_id: str) -> None:
        """Refuse an id that a stored session has, sound or not.

        Raises:
            SessionConflictError: one has it.
            StoreFailedError: the disk refused.
        """
        try:
            self._finder.find(session_id)
        except SessionNotFoundError:
            return
        except (SessionMisplacedError, SessionCorruptError, SessionUnsupportedError):
            pass
        raise SessionConflictError(
            f"Session {session_id:.100} exists already: resume it, or take another id."
        )


def _is_still(path: Path, stamp: Stamp) -> bool:
    try:
        return stamp_of(path.stat()) == stamp
    except OSError:
        return False


def _survives(header: Header) -> bool:
    """Whether the header reads back as what it is."""
    try:
        return parse_header(dump_header(header)) == header
    except (SessionCorruptError, TypeError, ValueError):
        return False
