"""The `read` tool: a window of a text file, with line numbers."""

import codecs
from pathlib import Path
from typing import ClassVar

import attrs
from anyio import to_thread

from acp_bridge.harness.tools.arguments import (
    invalid_arguments,
    required_text,
    whole_number,
)
from acp_bridge.harness.tools.paths import absolute_path, resolved_path, shown_path
from acp_bridge.harness.tools.results import NoPreview, failure, io_failure
from acp_bridge.ports import Access, ToolContext, ToolResult
from acp_bridge.vocabulary import JsonObject, JsonValue

LINES_DEFAULT = 2000
"""Lines shown when the model names no limit: a whole source file, nearly always."""

LINE_CHARS_MAX = 2000
"""A longer line is cut: minified files would fill the context with nothing to read."""

OUTPUT_BYTES_MAX = 256 * 1024
"""The text of one window; it is stored twice in the log, as content and as ``meta``."""

_SCAN_BYTES = 1024 * 1024


class ReadTool(NoPreview):
    """Show lines of a text file."""

    name: ClassVar[str] = "read"
    description: ClassVar[str] = (
        f"Read a text file (UTF-8). Lines come numbered as `N: text`; the number and colon are not "
        f"part of the file. Shows up to {LINES_DEFAULT} lines from `offset` and at most 256 KiB; "
        f"lines over {LINE_CHARS_MAX} characters are cut. A note at the end says whether more "
        "follows and with which offset to go on. Binary files and folders are refused: list a "
        "folder with glob."
    )
    parameters: ClassVar[JsonObject] = {
        "type": "object",
        "properties": {
            "file_path": {
                "type": "string",
                "description": "Absolute, or relative to the working folder.",
            },
            "offset": {
                "type": "number",
                "description": "First line to show, counted from 1. Default 1.",
            },
            "limit": {
                "type": "number",
                "description": f"How many lines to show. Default {LINES_DEFAULT}.",
            },
        },
        "required": ["file_path"],
    }

    def access(self, arguments: JsonObject, cwd: Path) -> Access:
        """The file."""
        path = absolute_path(required_text(arguments, "file_path"), cwd)
        return Access(reads=(resolved_path(path),))

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """``meta``: path, offset, totalLines and the lines as shown, number and text."""
        path = absolute_path(required_text(arguments, "file_path"), context.cwd)
        offset = whole_number(arguments, "offset", 1)
        limit = whole_number(arguments, "limit", LINES_DEFAULT)
        if offset is None or offset < 0:
            return invalid_arguments('property "offset" must be a line number, counted from 1')
        if limit is None or limit < 1:
            return invalid_arguments('property "limit" must be a whole number from 1')
        try:
            if await to_thread.run_sync(path.is_dir):
                return failure(f"{shown_path(path)} is a folder. List its files with glob.")
            data = await context.files.read_bytes(path)
        except (OSError, ValueError) as error:
            return io_failure("read", path, error)
        window = await to_thread.run_sync(window_of, data, max(offset, 1), limit)
        return _result(path, window)


@attrs.frozen(slots=True)
class Window:
    """Lines of a file as shown; ``first`` is the first one's number, wished for if there is none.

    ``bad_at`` is the byte where a file stops being text, None for text; ``cut`` says that the byte
    limit, not the wish, ended the window.
    """

    first: int
    lines: tuple[str, ...]
    total: int
    cut: bool = False
    bad_at: int | None = None


def window_of(data: bytes, first: int, limit: int) -> Window:
    """Up to ``limit`` lines of ``data`` from line ``first``; no copy of the whole is made."""
    bad_at = _first_bad_byte(data)
    if bad_at is not None:
        return Window(first, (), 0, bad_at=bad_at)
    total = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    if first > max(total, 1):
        return Window(first, (), total)
    start = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    for _ in range(first - 1):
        start = data.index(b"\n", start) + 1
    lines: list[str] = []
    room = OUTPUT_BYTES_MAX
    while start < len(data) and len(lines) < limit:
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line = _shown_line(data, start, end)
        room -= len(line.encode()) + len(f"{first + len(lines)}: \n")
        if room < 0:
            return Window(first, tuple(lines), total, cut=True)
        lines.append(line)
        start = end + 1
    return Window(first, tuple(lines), total)


def _shown_line(data: bytes, start: int, end: int) -> str:
    # The CR of a CRLF is a part of the line end; any other one is a character of the line.
    if end > start and end < len(data) and data[end - 1 : end] == b"\r":
        end -= 1
    # A character has at most four bytes, so this much holds the part that is shown.
    text = data[start : min(end, start + 4 * LINE_CHARS_MAX + 4)].decode("utf-8", "ignore")
    if len(text) <= LINE_CHARS_MAX:
        return text
    return f"{text[:LINE_CHARS_MAX]}… (cut: the line has {end - start} bytes)"


def _first_bad_byte(data: bytes) -> int | None:
    nul_at = data.find(b"\0")
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data), _SCAN_BYTES):
        final = start + _SCAN_BYTES >= len(data)
        pending = len(decoder.getstate()[0])
        try:
            decoder.decode(data[start : start + _SCAN_BYTES], final)
        except UnicodeDecodeError as error:
            bad_at = start - pending + error.start
            return bad_at if nul_at < 0 else min(bad_at, nul_at)
    return None if nul_at < 0 else nul_at


def _result(path: Path, window: Window) -> ToolResult:
    shown = shown_path(path)
    if window.bad_at is not None:
        return failure(
            f"{shown} is not a UTF-8 text file (byte {window.bad_at} is no text). "
            "Look at it with bash, for example with `file` or `xxd`."
        )
    if window.first > max(window.total, 1):
        return failure(
            f"offset {window.first} is past the end of {shown}, which has {window.total} lines."
        )
    last = window.first + len(window.lines) - 1
    numbered = [f"{window.first + at}: {line}" for at, line in enumerate(window.lines)]
    if last < window.total:
        why = " (cut at 256 KiB)" if window.cut else ""
        note = (
            f"(Lines {window.first}-{last} of {window.total} shown{why}. "
            f"Go on with offset={last + 1}.)"
        )
    else:
        note = f"(End of file - total {window.total} lines)"
    body = "".join(f"{line}\n" for line in numbered)
    lines: list[JsonValue] = [
        {"number": window.first + at, "text": line} for at, line in enumerate(window.lines)
    ]
    return ToolResult(
        text=f"<path>{shown}</path>\n<type>file</type>\n<content>\n{body}\n{note}\n</content>",
        meta={
            "path": shown,
            "offset": window.first,
            "lines": lines,
            "totalLines": window.total,
        },
    )
