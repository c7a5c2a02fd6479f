"""Folder and file names of a store, as the runtime makes them (``dsh.md`` section 3, Layout).

``<root>/--<project>--/<session>/session.v4.jsonl[.zstd]`` beside ``session.lock``. Every character
that could mean something to a file system is escaped, so no id and no cwd can leave the store.
"""

import re
from typing import Final, Literal, TypeAlias

from acp_bridge.sessions.header import FORMAT_VERSION

Encoding: TypeAlias = Literal["plain", "zstd"]
"""How a log's bytes are packed."""

LOCK_NAME: Final = "session.lock"
PENDING_NAME: Final = "pending.tmp"
"""A new log before it is published: a name that no reader takes for a log."""

INDEX_NAME: Final = "index.sqlite3"
"""What remembers lists, in the home beside ``sessions/``."""

NAME_BYTES_MAX: Final = 255
"""The longest file name that common file systems take."""

_SUFFIXES: Final[dict[Encoding, str]] = {"plain": ".jsonl", "zstd": ".jsonl.zstd"}
_LOG_NAME = re.compile(r"session(?:\.v([1-9][0-9]{0,8}))?\.jsonl(\.zstd)?")
_SEPARATORS = re.compile(r"[/\\:]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_PROJECT_MAX = NAME_BYTES_MAX - 4
_NO_CWD = "_no-cwd"


def _escape_char(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"~{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def session_folder(session_id: str) -> str | None:
    """The folder name of an id; None for an id that can have none (empty, or too long)."""
    if not session_id or len(session_id) > NAME_BYTES_MAX:
        return None
    if session_id in {".", ".."}:
        return session_id.replace(".", "~002E")
    name = _UNSAFE.sub(_escape_char, session_id)
    return name if len(name) <= NAME_BYTES_MAX else None


def project_folder(cwd: str | None) -> str:
    """The folder name for the sessions of a working folder."""
    if cwd is None:
        return _NO_CWD
    key = _UNSAFE.sub(_escape_char, _SEPARATORS.sub("-", cwd)).lstrip("-")
    return f"--{key[:_PROJECT_MAX]}--"


def log_name(encoding: Encoding) -> str:
    """The file name of a log of the current generation."""
    return f"session.v{FORMAT_VERSION}{_SUFFIXES[encoding]}"


def parse_log_name(name: str) -> tuple[int, Encoding] | None:
    """Generation and encoding of a log's file name; None for any other file."""
    match = _LOG_NAME.fullmatch(name)
    if match is None:
        return None
    return int(match[1] or 0), "zstd" if match[2] else "plain"
