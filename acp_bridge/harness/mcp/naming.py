"""Names of servers' tools: safe for every model, unique in a session, the same every time. Pure.

A name is ``mcp__SERVER__TOOL``. The part of a server never holds ``__`` and never begins or ends
with ``_``, so that no two servers' tools can meet. What had to be changed to fit, or is there
twice, ends in a few digits of a hash of what it was.
"""

import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

NAME_CHARS_MAX: Final = 64
"""What model providers take as the name of a tool."""

SERVER_CHARS_MAX: Final = 24
"""Of a server, so that its tools have room for theirs."""

SHOWN_CHARS_MAX: Final = 60

_HASH_CHARS: Final = 6


def server_parts(names: Sequence[str]) -> list[str]:
    """The part of each server in the names of its tools; ``names`` differ from each other."""
    safe = [_safe_server(name) for name in names]
    counts = Counter(part.lower() for part in safe)
    return [
        part
        if counts[part.lower()] == 1 and part == name
        else _marked(part, name, SERVER_CHARS_MAX)
        for part, name in zip(safe, names, strict=True)
    ]


def tool_names(server_part: str, tools: Sequence[str]) -> list[str]:
    """The full name of each tool of one server; ``tools`` differ from each other."""
    prefix = f"mcp__{server_part}__"
    room = NAME_CHARS_MAX - len(prefix)
    safe = [_safe(tool)[:room] for tool in tools]
    return [
        prefix + (part if part == tool else _marked(part, tool, room))
        for part, tool in zip(safe, tools, strict=True)
    ]


def shown(name: str) -> str:
    """A foreign name for people: one line, short."""
    line = "".join(char if char.isprintable() else " " for char in name)
    line = " ".join(line.split())
    return line if len(line) <= SHOWN_CHARS_MAX else line[: SHOWN_CHARS_MAX - 1] + "…"


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)


def _safe_server(name: str) -> str:
    part = re.sub(r"_{2,}", "_", _safe(name)).strip("_")
    return part[:SERVER_CHARS_MAX].rstrip("_") or "server"


def _marked(part: str, text: str, room: int) -> str:
    mark = sha256(text.encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{part[: room - len(mark) - 1].rstrip('_-')}-{mark}"
