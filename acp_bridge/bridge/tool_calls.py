"""How a tool call looks to a person: title, kind, place, input and output. Pure.

Names and arguments are those of the log, which both runtimes share. The rules are those that all
clients take well (clients: section 10): titles of one line with the point first, paths in
backticks, one absolute location, objects for raw input and output, errors in the content.
"""

import json
import os.path
import re
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from acp_bridge.acp.types import Content, Diff, TextContent, ToolCallContent, ToolCallLocation
from acp_bridge.vocabulary import FileDiff, JsonObject, JsonValue

Kind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"
]

TITLE_CHARS_MAX = 60
"""Longer titles are cut by clients anyway; a command's title is whole, since people approve it."""

LABEL_CHARS_MAX = 32
"""Of a subagent's name in a title: what it does has to fit behind it."""

CONTENT_CHARS_MAX = 150_000
"""Keeps a line of the wire below 1 MiB whatever the text escapes to."""

RAW_TEXT_CHARS_MAX = 4_000
"""Raw output is for machines that want a glance; the content has the whole text."""

LINE_MAX = 2**31
"""Beyond this a number is no line, and above 2**32 clients refuse it."""

_SUCCESS = "[exit code: 0]"
"""What a model is told of a command that went well; people see that by its mark."""

ASKING = "ask_user_question"
"""The tool that puts questions to the user."""

_TITLES = {
    "todo_write": "Update the plan",
    "list_agents": "List subagents",
    "send_message": "Message a subagent",
    "interrupt_agent": "Interrupt a subagent",
    ASKING: "Ask the user",
}

DELEGATING = frozenset({"subagent", "subagent_fork"})
"""The tools that start a subagent."""

_MCP_TOOL = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)")
_EXIT_CODE = re.compile(r"\n?\[exit code: -?\d+\]$")

_KINDS: dict[str, Kind] = {
    "read": "read",
    "read_image": "read",
    "write": "edit",
    "edit": "edit",
    "glob": "search",
    "grep": "search",
    "bash": "execute",
    "todo_write": "think",
    "subagent": "think",
    "subagent_fork": "think",
    "list_agents": "think",
    "send_message": "think",
    "interrupt_agent": "think",
    "web_fetch": "fetch",
    "web_search": "fetch",
}


@attrs.frozen(slots=True)
class CallLook:
    """A call before it has a result."""

    title: str
    kind: Kind
    raw_input: JsonObject
    locations: list[ToolCallLocation]


def look_of(name: str, arguments_text: str, cwd: Path) -> CallLook:
    """How a call of this tool with these raw arguments is announced."""
    arguments = arguments_of(arguments_text)
    if arguments is None or (name == "bash" and not isinstance(arguments.get("command"), str)):
        # Some clients fail on a command that is no text.
        return CallLook(_plain_title(name), _kind(name), {"arguments": arguments_text}, [])
    return CallLook(_title(name, arguments, cwd), _kind(name), arguments, _place(arguments, cwd))


def _kind(name: str) -> Kind:
    return _KINDS.get(name, "other")


def _title(name: str, arguments: JsonObject, cwd: Path) -> str:
    path = _path_title(arguments, cwd)
    match name:
        case "read" | "read_image":
            return f"Read {path}{_range(arguments)}"
        case "write":
            return f"Write {path}"
        case "edit":
            return f"Edit {path}"
        case "glob":
            return f"Find {_code(arguments.get('pattern'))}"
        case "grep":
            return f"Search {_code(arguments.get('pattern'))}"
        case "bash":
            return " ↵ ".join(str(arguments["command"]).strip().splitlines()) or "bash"
        case "subagent" | "subagent_fork":
            return subagent_title(str(arguments.get("description", "")))
        case _:
            return _TITLES.get(name) or _plain_title(name)


def subagent_title(label: str, progress: str = "") -> str:
    """The title of a subagent's work, with what it does now behind its name if there is room."""
    title = f"Subagent {short_label(label)}".rstrip()
    return _cut(f"{title}: {progress}" if progress else title, TITLE_CHARS_MAX)


def short_label(label: str) -> str:
    """A subagent's name for titles: one line, without Markdown's ticks."""
    return _cut(" ".join(label.replace("`", "'").split()), LABEL_CHARS_MAX)


def owned_title(title: str, kind: Kind, label: str) -> str:
    """The title of a subagent's call where its owner does not show: the name is added.

    A command stays whole behind the name; of any other title the end gives way.
    """
    owner = short_label(label)
    if not owner:
        return title
    if kind == "execute":
        return f"{owner} $ {title}"
    return f"{_cut(title, TITLE_CHARS_MAX - len(owner) - len(' ()'))} ({owner})"


def _plain_title(name: str) -> str:
    if (foreign := _MCP_TOOL.fullmatch(name)) is not None:
        name = f"{foreign['tool']} ({foreign['server']})"
    return _cut(" ".join(name.split()) or "Tool call", TITLE_CHARS_MAX)


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def _path_title(arguments: JsonObject, cwd: Path) -> str:
    path = arguments.get("file_path")
    if not isinstance(path, str):
        return "a file"
    full = os.path.normpath(cwd / path)
    inside = os.path.relpath(full, cwd)
    return _code(full if inside.startswith("..") else inside)


def _range(arguments: JsonObject) -> str:
    offset, limit = _line(arguments.get("offset")), _line(arguments.get("limit"))
    if offset is None:
        return ""
    return f" from line {offset}" if limit is None else f" lines {offset}-{offset + limit - 1}"


def _line(value: JsonValue) -> int | None:
    """A line number or count from a model's arguments, if it is one."""
    if isinstance(value, int | float) and 1 <= value <= LINE_MAX:
        return int(value)
    return None


def _code(value: JsonValue) -> str:
    text = " ".join(str(value if value is not None else "?").replace("`", "'").split())
    room = TITLE_CHARS_MAX - len("Search ``")
    if len(text) > room:
        text = "…" + text[-room + 1 :]  # a path's end says more than its start
    return f"`{text}`"


def _place(arguments: JsonObject, cwd: Path) -> list[ToolCallLocation]:
    path = arguments.get("file_path", arguments.get("path"))
    if not isinstance(path, str) or not path:
        return []
    line = _line(arguments.get("offset"))
    return [ToolCallLocation(path=os.path.normpath(cwd / path), line=line)]


def diffs_content(diffs: list[FileDiff]) -> list[ToolCallContent]:
    """Diffs as content, full texts."""
    return [Diff(path=d.path, old_text=d.old_text, new_text=d.new_text) for d in diffs]


def diff_place(diff: FileDiff) -> ToolCallLocation:
    """Where a diff begins: the first line that differs, from 1."""
    old = (diff.old_text or "").splitlines()
    new = diff.new_text.splitlines()
    line = 1
    for before, after in zip(old, new, strict=False):
        if before != after:
            break
        line += 1
    return ToolCallLocation(path=diff.path, line=min(line, max(1, len(new))))


def meta_diffs(meta: JsonValue) -> list[FileDiff]:
    """The diffs that a result row's ``meta`` holds."""
    found: list[FileDiff] = []
    diffs = meta.get("diffs") if isinstance(meta, dict) else None
    for diff in diffs if isinstance(diffs, list) else []:
        if isinstance(diff, dict):
            path, old, new = diff.get("path"), diff.get("oldText"), diff.get("newText")
            if isinstance(path, str) and isinstance(new, str) and isinstance(old, str | None):
                found.append(FileDiff(path, old, new))
    return found


def text_content(text: str) -> ToolCallContent:
    """A text as content, cut where a line of the wire would get too long."""
    if len(text) > CONTENT_CHARS_MAX:
        text = text[:CONTENT_CHARS_MAX] + "\n… (cut)"
    return Content(content=TextContent(text=text))


def result_content(
    name: str, text: str, meta: JsonValue, *, is_error: bool
) -> list[ToolCallContent]:
    """What a finished call shows: its diffs, or its text, as code where it is that."""
    if is_error:
        return [text_content(text)]
    diffs = meta_diffs(meta)
    if diffs:
        return diffs_content(diffs)
    match name:
        case "read":
            return [text_content(_fenced(_read_text(meta, text)))]
        case "bash":
            shown = text.removesuffix(_SUCCESS)
            return [text_content(_fenced(shown))] if shown.strip() else []
        case "grep" | "glob":
            return [text_content(_fenced(text))]
        case "ask_user_question":
            return [text_content(_answers_text(text))]
        case _:
            return [text_content(text)] if text else []


def terminal_text(text: str) -> str:
    """What a command wrote, as a display terminal had it: its exit code is told apart."""
    return _EXIT_CODE.sub("", text)


def raw_output(text: str, meta: JsonValue, *, is_error: bool) -> JsonObject:
    """A result for machines: what is small of ``meta``, and the start of the text."""
    output: JsonObject = {}
    if isinstance(meta, dict):
        output = {key: value for key, value in meta.items() if key not in {"diffs", "lines"}}
    output["text"] = text[:RAW_TEXT_CHARS_MAX]
    if is_error:
        output["isError"] = True
    return output


def _read_text(meta: JsonValue, text: str) -> str:
    lines = meta.get("lines") if isinstance(meta, dict) else None
    if not isinstance(lines, list):
        return text
    return "\n".join(str(line.get("text", "")) for line in lines if isinstance(line, dict))


def _answers_text(text: str) -> str:
    """Answers to questions, one a line; as the model has them where they are of another shape."""
    answers = (arguments_of(text) or {}).get("answers")
    lines = []
    for answer in answers if isinstance(answers, list) else []:
        if not isinstance(answer, dict):
            return text
        selected = answer.get("selected")
        given = [*(selected if isinstance(selected, list) else ()), answer.get("custom")]
        said = ", ".join(str(one) for one in given if one is not None)
        lines.append(f"{answer.get('id')}: {said or '(skipped)'}\n")
    return "".join(lines) or text


def _fenced(text: str) -> str:
    ticks = max((len(run) for run in re.findall(r"`{3,}", text)), default=2) + 1
    fence = "`" * ticks
    return f"{fence}\n{text.rstrip()}\n{fence}\n"


def arguments_of(text: str) -> JsonObject | None:
    """A call's arguments as the model wrote them; None where that is no JSON object."""
    try:
        value: JsonValue = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
