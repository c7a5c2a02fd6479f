"""One log file from the disk to a validated log: never locks, writes or repairs.

The order of verdicts is that of ``dsh-events`` section 2: damage first, then a wrong place, then
rows of a newer reader.
"""

import contextlib
import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from acp_bridge.errors import (
    SessionCorruptError,
    SessionMisplacedError,
    SessionUnsupportedError,
)
from acp_bridge.sessions.codec import decode
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


@attrs.frozen(slots=True)
class Loaded:
    """A stored log with what opening it for writing needs.

    ``good_length`` is where a torn tail begins, in bytes; ``stamp`` tells whether the file changed
    since.
    """

    log: StoredLog
    state: LogState
    good_length: int
    stamp: tuple[int, int, int]


def load(path: Path, session_id: str | None) -> Loaded:
    """Read and validate one file. Without a session id the folder says which one it must be.

    Raises:
        SessionCorruptError, SessionUnsupportedError, SessionMisplacedError: whole sentences.
        StoreFailedError: the disk refused.
    """
    shown = session_id or path.parent.name
    try:
        with path.open("rb") as file:
            data = file.read()
            status = os.fstat(file.fileno())
    except OSError as error:
        raise disk_error(shown, "read", error) from error
    encoding = encoding_of(path)
    try:
        decoded = decode(data, encoding)
        header = parse_header(decoded.header_line)
        state = LogState(header)
        with _paused_gc():
            events = _fold(decoded.lines, state)
        _check_place(path, header, session_id)
        state.require_supported()
    except SessionCorruptError as error:
        raise SessionCorruptError(
            f"Session {shown} cannot be opened because its log is damaged ({error.details});"
            " the file was left as it is."
        ) from None
    except SessionUnsupportedError as error:
        raise SessionUnsupportedError(
            f"Session {shown} needs a newer version of this program: {error.details}."
        ) from None
    log = StoredLog(header, events, encoding, path, decoded.torn)
    return Loaded(log, state, decoded.good_length, stamp_of(status))


def encoding_of(path: Path) -> Encoding:
    """The encoding that a log's name promises."""
    kind = parse_log_name(path.name)
    assert kind is not None
    return kind[1]


def stamp_of(status: os.stat_result) -> tuple[int, int, int]:
    """Inode, size and mtime: equal stamps mean equal bytes."""
    return (status.st_ino, status.st_size, status.st_mtime_ns)


@contextlib.contextmanager
def _paused_gc() -> Iterator[None]:
    """No garbage collection meanwhile.

    Reading a log makes no garbage, and each pass would walk all rows so far: a third of the time
    that a large log takes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _fold(lines: Sequence[bytes], state: LogState) -> list[Event]:
    """The events of all rows, each sound where it stands."""
    events: list[Event] = []
    apply = state.apply
    for seq, line in enumerate(lines):
        try:
            row = loads(line)
        except ValueError:
            raise SessionCorruptError(f"seq {seq}: the row is not JSON") from None
        event = event_from_row(row, seq)
        apply(event)
        events.append(event)
    state.settle()
    return events


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
