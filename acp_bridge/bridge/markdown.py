"""ACP updates to a Markdown transcript that grows at its end: a pure fold, for faces without a UI.

Text is never taken back, so a tool call is written when it is known and its result when it is in.
"""

import difflib
from typing import Final

from acp_bridge.acp.types import (
    AgentMessageChunk,
    AgentThoughtChunk,
    Content,
    Diff,
    Plan,
    SessionInfoUpdate,
    SessionUpdate,
    TextContent,
    ToolCall,
    ToolCallContent,
    ToolCallUpdate,
    UserMessageChunk,
)

RESULT_CHARS_MAX: Final = 4_000
"""A transcript is read by people; the log holds all of it."""

_MARKS: Final = {"completed": "x", "in_progress": "-", "pending": " "}


class MarkdownFold:
    """Gives the text that each update adds."""

    def __init__(self) -> None:
        self._message: tuple[str, str] | None = None
        self._titles: dict[str, str] = {}
        self._told: dict[str, list[ToolCallContent]] = {}

    def prompt(self, text: str) -> str:
        """What the user asks for."""
        self._message = None
        return f"\n\n## You\n\n{text.strip()}\n"

    def note(self, text: str) -> str:
        """A line about the conversation itself."""
        self._message = None
        return f"\n\n*{text}*\n"

    def add(self, update: SessionUpdate) -> str:
        """The text that an update adds; "" for one that people need not read."""
        match update:
            case UserMessageChunk(content=TextContent(text=text)):
                return self._say("You", str(update.message_id), text)
            case AgentMessageChunk(content=TextContent(text=text)):
                return self._say("Agent", str(update.message_id), text)
            case AgentThoughtChunk(content=TextContent(text=text)):
                return self._say("Thought", str(update.message_id), text)
            case ToolCall():
                self._titles[update.tool_call_id] = update.title
                return self._content(update.tool_call_id, update.content)
            case ToolCallUpdate():
                return self._call(update)
            case Plan(entries=entries):
                self._message = None
                lines = [f"- [{_MARKS.get(e.status, ' ')}] {e.content}" for e in entries]
                return "\n\n### Plan\n\n" + "\n".join(lines) + "\n"
            case SessionInfoUpdate(title=str(title)):
                self._message = None
                return f"\n\n# {title}\n"
            case _:
                return ""

    def _say(self, speaker: str, message_id: str, text: str) -> str:
        if self._message == (speaker, message_id):
            return text
        self._message = (speaker, message_id)
        return f"\n\n## {speaker}\n\n{text}"

    def _call(self, update: ToolCallUpdate) -> str:
        call_id = update.tool_call_id
        text = ""
        if isinstance(update.content, list):
            text = self._content(call_id, update.content)
        if update.status in {"completed", "failed"}:
            self._message = None
            text += f"\n\n**{self._titles.get(call_id, call_id)}**: {update.status}\n"
        return text

    def _content(self, call_id: str, content: object) -> str:
        if not isinstance(content, list) or self._told.get(call_id) == content:
            return ""
        self._told[call_id] = content
        parts = [part for item in content if (part := _shown(item))]
        if not parts:
            return ""
        self._message = None
        return f"\n\n### {self._titles.get(call_id, call_id)}\n\n" + "\n\n".join(parts) + "\n"


def _shown(item: ToolCallContent) -> str:
    match item:
        case Content(content=TextContent(text=text)):
            return text if len(text) <= RESULT_CHARS_MAX else text[:RESULT_CHARS_MAX] + "\n…"
        case Diff():
            return _fenced(unified(item), "diff")
        case _:
            return ""


def unified(diff: Diff) -> str:
    """A change as people read one: three lines around it."""
    old = (diff.old_text or "").splitlines()
    new = diff.new_text.splitlines()
    return "\n".join(difflib.unified_diff(old, new, diff.path, diff.path, lineterm=""))


def _fenced(text: str, kind: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{kind}\n{text}\n{fence}"
