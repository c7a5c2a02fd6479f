"""Looking at a whole store from outside: every log that is there, and what is wrong with it.

For people who look after a store; a client's list is `SessionStore.list`. Takes no lock, writes
nothing, repairs nothing, and says of each log what opening it would say.
"""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs

from acp_bridge.errors import (
    BridgeError,
    SessionCorruptError,
    SessionMisplacedError,
    SessionUnsupportedError,
    StoreFailedError,
)
from acp_bridge.sessions.finding import header_of
from acp_bridge.sessions.header import FORMAT_VERSION, Header
from acp_bridge.sessions.logfile import disk_error, disk_reason
from acp_bridge.sessions.paths import parse_log_name
from acp_bridge.sessions.reading import StoredLog, load
from acp_bridge.sessions.verdict import Status, status_of, verdict_on

Kind: TypeAlias = Literal["session", "fork", "subagent"]


_ESCAPED: Final = re.compile(r"(?:~[0-9A-F]{4})+")


@attrs.frozen(slots=True)
class FoundLog:
    """A log file that counts, not yet read. ``trouble`` is what its surroundings say against it.

    A log of an older generation beside a newer one does not count: the runtime leaves it there
    when it migrates a session.
    """

    path: Path
    trouble: BridgeError | None = None

    @property
    def folder(self) -> Path:
        """The folder that it lies in: itself, for a folder that could not be read."""
        return self.path if parse_log_name(self.path.name) is None else self.path.parent


@attrs.frozen(slots=True)
class Verdict:
    """One log, examined. ``reason`` is a sentence, None for a sound log.

    ``header`` is None where there is none that can be read; ``log`` where opening would refuse.
    """

    path: Path
    session_id: str
    status: Status
    reason: str | None
    header: Header | None = None
    log: StoredLog | None = None


def find_logs(root: Path) -> list[FoundLog]:
    """Every log under a store's root, in the order of their paths; opens no log.

    Raises:
        StoreFailedError: the root itself cannot be read.
    """
    found: list[FoundLog] = []
    try:
        projects = _folders(root)
    except OSError as error:
        raise _unread(root, error) from error
    folders: list[Path] = []
    for project in projects:
        try:
            folders += _folders(project)
        except OSError as error:
            found.append(FoundLog(project, disk_error(project.name, "read", error)))
    counted: list[Path] = []
    for folder in folders:
        try:
            logs = _counting(folder)
        except OSError as error:
            found.append(FoundLog(folder, disk_error(folder.name, "read", error)))
            continue
        counted += [folder] if logs else []
        trouble = _two_logs(logs) if len(logs) > 1 else None
        found += [FoundLog(path, trouble) for path in logs]
    copies = Counter(folder.name for folder in counted)
    return sorted((_placed(one, copies) for one in found), key=lambda one: one.path)


def find_ids(root: Path, prefix: str) -> list[str]:
    """The ids under a store's root that begin so, sorted, by their folders; opens no log.

    Raises:
        StoreFailedError: the root itself cannot be read.
    """
    folders = [
        folder for folder in _in_projects(root) if id_of_folder(folder.name).startswith(prefix)
    ]
    return sorted({id_of_folder(folder.name) for folder in folders if _may_hold_a_log(folder)})


def _in_projects(root: Path) -> Iterator[Path]:
    """All folders that could be sessions; a project that cannot be read hides no other."""
    try:
        projects = _folders(root)
    except OSError as error:
        raise _unread(root, error) from error
    for project in projects:
        with contextlib.suppress(OSError):
            yield from _folders(project)


def _may_hold_a_log(folder: Path) -> bool:
    try:
        return bool(_counting(folder))
    except OSError:
        return True  # whoever reads it says what is wrong


def _unread(root: Path, error: OSError) -> StoreFailedError:
    return StoreFailedError(f"The sessions in {root} could not be read: {disk_reason(error)}.")


def examine(found: FoundLog) -> Verdict:
    """Read and validate one log. Never raises for what is wrong with it."""
    path = found.path
    header = read_header(path)
    session_id = header.session_id if header else id_of_folder(found.folder.name)
    try:
        if found.trouble is not None:
            raise found.trouble
        loaded = load(path, None)
    except BridgeError as error:
        return Verdict(path, session_id, status_of(error), error.details, header)
    status, reason = verdict_on(torn=loaded.log.torn, is_open=loaded.state.turn is not None)
    return Verdict(path, session_id, status, reason, loaded.log.header, loaded.log)


def read_header(path: Path) -> Header | None:
    """A log's header, without the rest; None if there is none that can be read."""
    if parse_log_name(path.name) is None:
        return None
    try:
        return header_of(path)
    except (BridgeError, OSError):
        return None


def kind_of(header: Header) -> Kind:
    """What a session is: forks are ordinary sessions that began with another one's rows."""
    if header.origin == "subagent":
        return "subagent"
    return "fork" if header.is_seeded else "session"


def id_of_folder(name: str) -> str:
    """The session id that a folder's name stands for."""

    def unescape(match: re.Match[str]) -> str:
        units = bytes.fromhex(match.group().replace("~", ""))
        return units.decode("utf-16-be", "replace")

    return _ESCAPED.sub(unescape, name)


def _folders(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _counting(folder: Path) -> list[Path]:
    """The logs of the highest generation in a session's folder."""
    kinds = {path: parse_log_name(path.name) for path in folder.iterdir()}
    newest = max((kind[0] for kind in kinds.values() if kind), default=0)
    return sorted(path for path, kind in kinds.items() if kind and kind[0] == newest)


def _two_logs(logs: list[Path]) -> BridgeError:
    return SessionCorruptError(
        f"Session {logs[0].parent.name} has two logs, {logs[0].name} and {logs[1].name}; move one"
        " of them out of the store."
    )


def _placed(found: FoundLog, copies: Counter[str]) -> FoundLog:
    """The log with what its generation and its namesakes say against it."""
    kind = parse_log_name(found.path.name)
    if kind is None:
        return found  # a folder that could not be read
    name = found.path.parent.name
    if kind[0] != FORMAT_VERSION:
        error: BridgeError = SessionUnsupportedError(
            f"Session {name} is stored in log format version {kind[0]}; this program reads version"
            f" {FORMAT_VERSION}."
        )
        return FoundLog(found.path, error)
    if copies[name] > 1 and found.trouble is None:
        error = SessionMisplacedError(
            f"Session {name} lies in {copies[name]} folders of the store; move the others out of"
            " it."
        )
        return FoundLog(found.path, error)
    return found
