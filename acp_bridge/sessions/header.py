"""The header: line 1 of a log, written once and never changed (``dsh.md`` section 3).

Refusals name what is wrong and leave the sentence to `store`.
"""

from typing import Final, Literal

import attrs

from acp_bridge.errors import SessionCorruptError, SessionUnsupportedError
from acp_bridge.sessions.jsontext import dumps, loads
from acp_bridge.vocabulary import JsonObject, JsonValue

FORMAT_VERSION: Final = 4
"""The only generation of the log format that is read and written here."""

COUNT_MAX: Final = 2**53 - 1
"""JavaScript's largest safe integer: the runtime refuses anything above."""

_REQUIRED = frozenset({"type", "version", "id", "createdAt", "isSeeded", "delegationDepth"})
_KEYS = _REQUIRED | {"cwd", "parentSession", "origin", "agentPreset"}


@attrs.frozen(slots=True)
class Header:
    """What a log says about its session as a whole.

    ``created_at_ms`` is milliseconds since the epoch; ``cwd`` an absolute path; ``is_seeded`` says
    that leading rows were copied from another session; ``delegation_depth`` counts delegations
    from 0; ``parent_session`` is a subagent's creator (older forks name their source there);
    ``origin`` alone tells a subagent from an ordinary session.
    """

    session_id: str
    created_at_ms: int
    cwd: str | None = None
    is_seeded: bool = False
    delegation_depth: int = 0
    parent_session: str | None = None
    origin: Literal["subagent"] | None = None
    agent_preset: str | None = None


def count(value: JsonValue) -> int | None:
    """The value as an integer of 0..2^53-1, or None; ``1.0`` counts as 1 and ``true`` does not."""
    if type(value) is int:
        return value if 0 <= value <= COUNT_MAX else None
    if type(value) is float and value.is_integer() and 0 <= value <= COUNT_MAX:
        return int(value)
    return None


def parse_header(line: bytes) -> Header:
    """Line 1, with or without its newline.

    Raises:
        SessionUnsupportedError: it is of another format version.
        SessionCorruptError: it is no header.
    """
    try:
        row = loads(line)
    except ValueError:
        raise SessionCorruptError("the first line is not JSON") from None
    if type(row) is not dict:
        raise SessionCorruptError("the first line is not a session header")
    version = row.get("version")
    if type(version) in {int, float} and version != FORMAT_VERSION:
        # Before the shape: a header of another version may well look different.
        raise SessionUnsupportedError(f"it is of log format version {version!r:.20}")
    fault = _header_fault(row)
    if fault is not None:
        raise SessionCorruptError(f"the first line is not a session header ({fault})")
    return _header_from_row(row)


def _header_fault(row: JsonObject) -> str | None:
    missing = _REQUIRED - row.keys()
    if missing:
        return f"it lacks {min(missing)}"
    extra = row.keys() - _KEYS
    if extra:
        return f"unknown key {min(extra)!r:.60}"
    cwd = row.get("cwd", "/")
    checks = {
        "type": row["type"] == "session",
        "version": type(row["version"]) in {int, float},
        "id": type(row["id"]) is str and row["id"] != "",
        "createdAt": count(row["createdAt"]) is not None,
        "isSeeded": type(row["isSeeded"]) is bool,
        "delegationDepth": count(row["delegationDepth"]) is not None,
        "cwd": type(cwd) is str and cwd.startswith("/"),
        "parentSession": type(row.get("parentSession", "")) is str,
        "origin": row.get("origin", "subagent") == "subagent",
        "agentPreset": type(row.get("agentPreset", "")) is str,
    }
    return next((f"bad {name}" for name, good in checks.items() if not good), None)


def _header_from_row(row: JsonObject) -> Header:
    def text(name: str) -> str | None:
        value = row.get(name)
        return value if type(value) is str else None

    return Header(
        session_id=text("id") or "",
        created_at_ms=count(row["createdAt"]) or 0,
        cwd=text("cwd"),
        is_seeded=row["isSeeded"] is True,
        delegation_depth=count(row["delegationDepth"]) or 0,
        parent_session=text("parentSession"),
        origin="subagent" if "origin" in row else None,
        agent_preset=text("agentPreset"),
    )


def dump_header(header: Header) -> bytes:
    """Line 1 with its newline, keys in the runtime's order."""
    row: JsonObject = {
        "type": "session",
        "version": FORMAT_VERSION,
        "id": header.session_id,
        "createdAt": header.created_at_ms,
    }
    if header.cwd is not None:
        row["cwd"] = header.cwd
    if header.parent_session is not None:
        row["parentSession"] = header.parent_session
    row["isSeeded"] = header.is_seeded
    if header.origin is not None:
        row["origin"] = header.origin
    row["delegationDepth"] = header.delegation_depth
    if header.agent_preset is not None:
        row["agentPreset"] = header.agent_preset
    return dumps(row) + b"\n"
