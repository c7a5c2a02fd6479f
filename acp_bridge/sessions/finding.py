"""Which folders and files of a store are sessions and logs; looks, and opens nothing but heads."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from acp_bridge.errors import (
    BridgeError,
    SessionCorruptError,
    SessionMisplacedError,
    SessionNotFoundError,
    SessionUnsupportedError,
    StoreFailedError,
)
from acp_bridge.sessions.codec import decode_header
from acp_bridge.sessions.header import FORMAT_VERSION, Header, parse_header
from acp_bridge.sessions.logfile import disk_error, disk_reason
from acp_bridge.sessions.paths import Encoding, parse_log_name, session_folder
from acp_bridge.sessions.reading import encoding_of
from acp_bridge.vocabulary import BadSession, SessionId

HEAD_BYTES: Final = 65536
"""Enough for any header: an id of 255 characters and two paths of 4096."""


class Finder:
    """The folders and files of the store under ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def projects(self) -> list[Path]:
        """The project folders, sorted.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        try:
            return folders(self.root)
        except OSError as error:
            raise self.root_error(error) from error

    def root_error(self, error: OSError) -> StoreFailedError:
        """The sentence for a root that cannot be read."""
        return StoreFailedError(
            f"The sessions in {self.root} could not be read: {disk_reason(error)}."
        )

    def session_folders(self, bad: list[BadSession]) -> Iterator[Path]:
        """Every folder that could hold a session; project folders that cannot be read go to bad."""
        for project in self.projects():
            try:
                yield from folders(project)
            except OSError as error:
                bad.append(BadSession(project, disk_error(project.name, "read", error).details))

    def find(self, session_id: str) -> Path:
        """The log file of this id, of the generation that can be read.

        Raises:
            SessionNotFoundError, SessionMisplacedError, SessionCorruptError,
            SessionUnsupportedError, StoreFailedError: it has none, two, or one that is too new.
        """
        name = session_folder(session_id)
        path = None
        if name is not None:
            try:
                folder = self.find_by_folder(name)
                path = None if folder is None else current_log(folder, session_id)
            except OSError as error:
                raise disk_error(session_id, "read", error) from error
        if path is None:
            raise SessionNotFoundError(session_id)
        return path

    def find_by_folder(self, name: str) -> Path | None:
        """The one session folder of this name that holds logs.

        Raises:
            SessionMisplacedError: two of them do.
            OSError: the only one cannot be read.
        """
        found: list[Path] = []
        trouble: OSError | None = None
        for project in self.projects():
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

    def session_ids(self) -> Sequence[SessionId]:
        """The ids of all sessions whose header can be read; decodes nothing but headers."""
        return [SessionId(header.session_id) for header, _ in self.headers()]

    def headers(self) -> Iterator[tuple[Header, Path]]:
        """Every header that can be read and lies in a folder of its id, with its log's path."""
        for folder in self.session_folders([]):
            try:
                path = current_log(folder, folder.name)
                if path is None:
                    continue
                header = header_of(path)
            except (BridgeError, OSError):
                continue
            if session_folder(header.session_id) == folder.name:
                yield header, path

    def encoding(self) -> Encoding:
        """The encoding of the first log found: dsh refuses a root that mixes two."""
        for folder in self.session_folders([]):
            for _, encoding, _ in logs_in(folder):
                return encoding
        return "zstd"


def folders(root: Path) -> list[Path]:
    """The folders right below ``root``, sorted; none if there is no such folder.

    Raises:
        OSError: ``root`` cannot be read.
    """
    try:
        with os.scandir(root) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def logs_in(folder: Path) -> list[tuple[int, Encoding, Path]]:
    """Generation, encoding and path of every log in a session's folder."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(*kind, folder / name) for name in names if (kind := parse_log_name(name)) is not None]


def current_log(folder: Path, shown: str) -> Path | None:
    """The log that counts in a session's folder: the only one of the highest generation."""
    logs = logs_in(folder)
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


def header_of(path: Path) -> Header:
    """The header of a log, from the beginning of its file alone.

    Raises:
        SessionCorruptError, SessionUnsupportedError: it is no header of this version.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return parse_header(decode_header(head, encoding_of(path)))
