"""Which folders and files of a store are sessions and logs; looks, and opens nothing but heads."""

import os
from pathlib import Path
from typing import Final

from acp_bridge.errors import SessionCorruptError, SessionUnsupportedError
from acp_bridge.sessions.codec import decode_header
from acp_bridge.sessions.header import FORMAT_VERSION, Header, parse_header
from acp_bridge.sessions.paths import Encoding, parse_log_name
from acp_bridge.sessions.reading import encoding_of

HEAD_BYTES: Final = 65536
"""Enough for any header: an id of 255 characters and two paths of 4096."""


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
