"""One log file from the disk to a validated log: never locks, writes or repairs.

The order of verdicts is that of ``dsh-events`` section 2: damage first, then a wrong place, then
rows of a newer reader.
"""

import contextlib
import gc
import os
from bisect import bisect_right
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple, Protocol

import attrs

from acp_bridge.errors import (
    SessionCorruptError,
    SessionMisplacedError,
    SessionUnsupportedError,
)
from acp_bridge.sessions.codec import Frames, contents, refuse_open_row
from acp_bridge.sessions.events import event_from_row
from acp_bridge.sessions.header import Header, parse_header
from acp_bridge.sessions.jsontext import loads
from acp_bridge.sessions.logfile import disk_error
from acp_bridge.sessions.paths import Encoding, parse_log_name, project_folder, session_folder
from acp_bridge.sessions.validation import LogState
from acp_bridge.vocabulary import Event


@attrs.frozen(slots=True)
class StoredLog:
    """A sound log as it lies on the disk; ``torn`` says that an incomplete tail was left out."""

    header: Header
    events: list[Event]
    encoding: Encoding
    path: Path
    torn: bool


class Stamp(NamedTuple):
    """What tells that a file changed: equal stamps mean equal bytes, times apart."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


@attrs.frozen(slots=True)
class Places:
    """Which frame of a log file, or piece of a plain one, holds a row.

    ``ends`` are the frames' ends as file offsets, the header's first; ``rows`` is how many rows
    have ended by then. Both rise. ``spans`` says that some row goes on in the next frame, ``torn``
    that an incomplete tail follows.
    """

    ends: list[int]
    rows: list[int]
    spans: bool
    torn: bool

    def frame_of(self, seq: int) -> tuple[int, int, int]:
        """Start and end of the frame in which row ``seq`` ends, and the rows that ended before."""
        index = bisect_right(self.rows, seq)
        return self.ends[index - 1], self.ends[index], self.rows[index - 1]

    def ends_frame(self, seq: int) -> bool:
        """Whether a frame certainly ends with row ``seq``."""
        return not self.spans and self.rows[bisect_right(self.rows, seq)] == seq + 1


@attrs.frozen(slots=True)
class Loaded:
    """A stored log with what opening, forking and indexing it need.

    ``good_length`` is where a torn tail begins, in bytes; ``stamp`` tells whether the file changed
    since.
    """

    log: StoredLog
    state: LogState
    places: Places
    good_length: int
    stamp: Stamp


def load(path: Path, session_id: str | None) -> Loaded:
    """Read and validate one file. Without a session id the folder says which one it must be.

    Raises:
        SessionCorruptError, SessionUnsupportedError, SessionMisplacedError: whole sentences.
        StoreFailedError: the disk refused.
    """
    shown = session_id or path.parent.name
    try:
        with path.open("rb") as file:
            # First the stamp: what is appended while we read must make it look old, not new.
            stamp = stamp_of(os.fstat(file.fileno()))
            return _loaded(path, file, session_id, stamp)
    except OSError as error:
        raise disk_error(shown, "read", error) from error
    except (SessionCorruptError, SessionUnsupportedError) as error:
        raise refusal(shown, error) from None


def reread(path: Path, stamp: Stamp) -> StoredLog | None:
    """A log that was found sound when it had this stamp, its rows not judged again.

    None if it changed, or cannot be read: `load` has the words for what is wrong then.
    """
    encoding = encoding_of(path)
    try:
        with path.open("rb") as file:
            if stamp_of(os.fstat(file.fileno())) != stamp:
                return None
            frames = Frames(file.read, encoding)
            header = parse_header(frames.header_line())
            events, places = fold_rows(frames, encoding, _Unjudged())
    except (OSError, SessionCorruptError, SessionUnsupportedError):
        return None
    return StoredLog(header, events, encoding, path, places.torn)


def refusal(
    shown: str, error: SessionCorruptError | SessionUnsupportedError
) -> SessionCorruptError | SessionUnsupportedError:
    """The sentence for what is wrong with a log."""
    if isinstance(error, SessionCorruptError):
        return SessionCorruptError(
            f"Session {shown} cannot be opened because its log is damaged ({error.details});"
            " the file was left as it is."
        )
    return SessionUnsupportedError(
        f"Session {shown} needs a newer version of this program: {error.details}."
    )


def _loaded(path: Path, file: BufferedReader, session_id: str | None, stamp: Stamp) -> Loaded:
    encoding = encoding_of(path)
    frames = Frames(file.read, encoding)
    try:
        header = parse_header(frames.header_line())
        state = LogState(header)
        events, places = fold_rows(frames, encoding, state)
    except SessionUnsupportedError:
        # Damage anywhere is the better answer: look into every frame.
        file.seek(0)
        for window in Frames(file.read, encoding):
            for _ in contents(window, encoding):
                pass
        raise
    _check_place(path, header, session_id)
    state.require_supported()
    log = StoredLog(header, events, encoding, path, frames.torn)
    return Loaded(log, state, places, frames.good_length, stamp)


def encoding_of(path: Path) -> Encoding:
    """The encoding that a log's name promises."""
    kind = parse_log_name(path.name)
    assert kind is not None
    return kind[1]


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of an open or found file."""
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """No garbage collection meanwhile.

    Reading makes no garbage, and each pass would walk all that was read so far: a third of the
    time that a large log or a large index takes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Judge(Protocol):
    """What rows are shown to, one after the other; `LogState` in all but a second reading."""

    @property
    def next_seq(self) -> int:
        """The seq of the first row to come."""

    def apply(self, event: Event) -> None:
        """Take one row, or refuse it."""

    def settle(self) -> None:
        """Take note that no row follows."""


class _Unjudged:
    """Takes every row: they were judged before."""

    next_seq = 0

    def apply(self, event: Event) -> None:
        pass

    def settle(self) -> None:
        pass


def fold_rows(frames: Frames, encoding: Encoding, state: Judge) -> tuple[list[Event], Places]:
    """The events of all rows in these frames, each sound where it stands.

    One frame is decoded at a time, so that no copy of the whole text is held.

    Raises:
        SessionCorruptError, SessionUnsupportedError: what is wrong, without a sentence.
        OSError: the file cannot be read.
    """
    events: list[Event] = []
    seq = state.next_seq
    ends, rows = [frames.start], [seq]
    spans = False
    apply = state.apply
    with paused_gc():
        for end, lines, is_whole in _lines(frames, encoding):
            for line in lines:
                try:
                    row = loads(line)
                except ValueError:
                    raise SessionCorruptError(f"seq {seq}: the row is not JSON") from None
                event = event_from_row(row, seq)
                apply(event)
                events.append(event)
                seq += 1
            ends.append(end)
            rows.append(seq)
            spans = spans or not is_whole
    state.settle()
    return events, Places(ends, rows, spans, frames.torn)


def _lines(frames: Frames, encoding: Encoding) -> Iterator[tuple[int, list[bytes], bool]]:
    """For each frame its end, the lines that end in it, and whether it ends with the last one."""
    begun: list[bytes] = []  # the pieces of a line that goes on in the next frame
    for window in frames:
        ends = iter(window.cuts[1:])
        for text in contents(window, encoding):
            lines = text.split(b"\n")
            if begun and len(lines) > 1:
                lines[0] = b"".join([*begun, lines[0]])
            rest = lines.pop()
            if lines:
                begun.clear()
            if rest:
                begun.append(rest)
            yield window.base + next(ends), lines, not begun
    if begun:
        refuse_open_row()


def _check_place(path: Path, header: Header, session_id: str | None) -> None:
    """The folders must be those of the header's id and cwd, and the id the one asked for."""
    folder = path.parent
    own = (
        folder.parent.parent
        / project_folder(header.cwd)
        / (session_folder(header.session_id) or "")
    )
    if folder != own or session_id not in {None, header.session_id}:
        raise SessionMisplacedError(
            f"The log in {folder} belongs to session {header.session_id:.100}, whose folder is"
            f" {own}; move it there."
        )
