"""What a conversation looks like on a terminal: `demo` prints it live, ``sessions show`` replayed.

Colour only on a terminal that did not ask to be spared (NO_COLOR). Nothing that a model, a tool or
a file name holds reaches the terminal as a control sequence.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from acp_bridge.vocabulary import JsonObject, JsonValue

MARKS = {"pending": "○", "in_progress": "◐", "completed": "●", "failed": "✗"}
"""How far something is."""

DIFF_LINES_MAX = 20_000
"""Comparing is quadratic at worst; longer texts are only counted."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_FENCE = re.compile(r"(`{3,})[^\n`]*\n(.*?)\n?\1\s*", re.DOTALL)


def plain(text: str) -> str:
    """The text with control characters made visible: none of them acts on what shows it."""
    return _CONTROLS.sub(_picture, text.replace("\r\n", "\n"))


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    return chr(0x2400 + code) if code < 0x20 else "�"  # noqa: PLR2004 - Unicode's own table


def unfenced(text: str) -> str:
    """The text without the code fence around all of it, if there is one."""
    match = _FENCE.fullmatch(text)
    return match[2] if match else text.strip("\n")


def unified_diff(path: str, old: str | None, new: str) -> list[str]:
    """The rows of a unified diff with three lines of context; ``old`` None is a new file."""
    import difflib

    before, after = (old or "").splitlines(), new.splitlines()
    if len(before) + len(after) > DIFF_LINES_MAX:
        return [f"(from {len(before):,} to {len(after):,} lines: too long to compare)"]
    source = "/dev/null" if old is None else path
    rows = list(difflib.unified_diff(before, after, source, path, lineterm=""))
    return rows or [f"(no line of {path} differs)"]


class Screen:
    """Prints updates as they come: text flows, everything else has a line of its own.

    Of an output it shows at most ``rows_max`` lines (None: all). Not ``live``, a call that has
    ended already is not announced first.
    """

    def __init__(self, out: TextIO, *, rows_max: int | None = 12, live: bool = True) -> None:
        self._out = out
        self._colour = out.isatty() and not os.environ.get("NO_COLOR")
        self._rows_max = rows_max
        self.closed = False
        """Whether nobody reads any more (``acp-bridge demo | head``); what is printed is lost."""
        self._message: str | None = None
        self._held = ""
        """Newlines that a message ends with so far: shown if it goes on."""
        self._titles: dict[str, str] = {}
        self._compared: set[str] = set()
        self._live = live
        self._unfinished: dict[str, str] = {}

    def line(self, text: str, style: str = "") -> None:
        """Print a line, after ending the text before it."""
        self.end_text()
        self._print(self._styled(plain(text), style) + "\n")

    def end_text(self) -> None:
        """End the text before, if there is one that still may go on."""
        if self._message is not None:
            self._print("\n")
            self._message, self._held = None, ""

    def show(self, update: JsonObject) -> None:
        """Print one ``session/update``."""
        match update.get("sessionUpdate"):
            case "user_message_chunk":
                self._text(update, "1", lead="you: ")
            case "agent_message_chunk":
                self._text(update, "")
            case "agent_thought_chunk":
                self._text(update, "2;3")
            case "tool_call":
                call_id, title = str(update["toolCallId"]), str(update["title"])
                self._titles[call_id] = title
                row = f"  {MARKS[str(update['status'])]} {title}"
                if self._live:
                    self.line(row, "36")
                else:
                    self._unfinished[call_id] = row
            case "tool_call_update":
                self._progress(update)
            case "plan":
                entries = update["entries"]
                assert isinstance(entries, list)
                for entry in entries:
                    assert isinstance(entry, dict)
                    mark = MARKS[str(entry["status"])]
                    self.line(f"    {mark} {entry['content']}", "33")
            case "session_info_update":
                self.line(f"  (title: {update.get('title')})", "2")
            case "usage_update":
                self.line(f"  (context: {update['used']} of {update['size']} tokens)", "2")
            case _:
                pass

    def settle(self) -> None:
        """Print the calls that never ended; for a replay, where a turn or the log is over."""
        for row in self._unfinished.values():
            self.line(row, "36")
        self._unfinished.clear()

    def _text(self, update: JsonObject, style: str, lead: str = "  ") -> None:
        message = str(update.get("messageId"))
        told = plain(content_text(update["content"]))
        if message != self._message:
            if self._message is not None:
                self._print("\n")
            self._print(self._styled(lead, style) if lead.strip() else lead)
            self._message, self._held = message, ""
        text = (self._held + told).rstrip("\n")
        self._held = (self._held + told)[len(text) :]
        self._print(self._styled(text.replace("\n", "\n  "), style))

    def _progress(self, update: JsonObject) -> None:
        status, call_id = str(update["status"]), str(update["toolCallId"])
        if status in {"completed", "failed"}:
            self._unfinished.pop(call_id, None)
            title = self._titles.get(call_id, "")
            self.line(f"  {MARKS[status]} {title}", "32" if status == "completed" else "31")
        content = update.get("content")
        every = content if isinstance(content, list) else []
        parts = [part for part in every if isinstance(part, dict)]
        diffs = [part for part in parts if part.get("type") == "diff"]
        if call_id not in self._compared:  # a result repeats what was shown before the question
            for part in diffs:
                self._compared.add(call_id)
                self._diff(part)
        for part in parts:
            if "content" in part:
                self._rows(unfenced(content_text(part["content"])).splitlines())

    def _diff(self, part: JsonObject) -> None:
        old = part.get("oldText")
        rows = unified_diff(
            str(part.get("path")),
            old if isinstance(old, str) else None,
            str(part.get("newText") or ""),
        )
        self._rows(rows, {"+": "32", "-": "31", "@": "36"})

    def _rows(self, rows: list[str], styles: dict[str, str] | None = None) -> None:
        most = len(rows) if self._rows_max is None else self._rows_max
        for row in rows[:most]:
            style = (styles or {}).get(row[:1], "2")
            self.line(f"      {row}", style)
        if len(rows) > most:
            self.line(f"      … {len(rows) - most:,} more lines", "2")

    def _print(self, text: str) -> None:
        if self.closed:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            self.closed = True
            # What is buffered would be written again at exit, and fail again, on stderr.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour and style else text


def content_text(block: JsonValue) -> str:
    """A content block as text: what it says, or what it is."""
    if not isinstance(block, dict):
        return ""
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio":
            return f"[{block['type']}: {block.get('mimeType')}]"
        case "resource_link":
            return f"[{block.get('name')}: {block.get('uri')}]"
        case "resource":
            resource = block.get("resource")
            return f"[{resource.get('uri') if isinstance(resource, dict) else 'a resource'}]"
        case _:
            return ""
