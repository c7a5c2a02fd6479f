"""What each message must be by itself: an answer, a sentence, no null, short, with whole paths."""

import json
from collections.abc import Iterator
from pathlib import PurePath

from acp_bridge.testing.rules.views import calls_in, shown, to_client
from acp_bridge.testing.transcript import Line, arr, obj, text_or_none
from acp_bridge.vocabulary import JsonValue

TITLE_CHARS_MAX = 60
"""Longest title of a call; several clients cut there. A command is shown whole to be approved."""

LINE_BYTES_MAX = 1024 * 1024
"""Longest line to a client; one known client stops reading at ten times this."""

NULL_HAS_MEANING = {"oldText", "title", "updatedAt", "exitCode", "exit_code", "signal"}
"""Members that say something by being null; a null anywhere else can fail a strict reader."""

FOREIGN_JSON = {"rawInput", "rawOutput", "_meta", "data"}
"""Members whose inside is not ACP's."""

INTERNAL_ERROR = -32603


def every_request_gets_one_answer(lines: list[Line]) -> Iterator[str]:
    """No request of the client is left without an answer."""
    asked = {
        (line.entry.run, repr(line.message.get("id"))): line
        for line in lines
        if line.kind == "request" and line.entry.to == "agent"
    }
    for line in lines:
        if line.kind == "response" and line.entry.to == "client":
            asked.pop((line.entry.run, repr(line.message.get("id"))), None)
    for line in asked.values():
        yield f"no answer to {shown(line)}"


def every_answer_has_its_request(lines: list[Line]) -> Iterator[str]:
    """No second answer, no answer to nothing."""
    for line in lines:
        if line.kind == "response" and line.request is None and line.entry.to == "client":
            yield f"a second answer, or one to nothing: {shown(line)}"


def results_are_objects(lines: list[Line]) -> Iterator[str]:
    """A result is an object, `{}` if it says nothing."""
    for line in to_client(lines, "response"):
        if "result" in line.message and not isinstance(line.message["result"], dict):
            yield f"the result of {line.method} is no object: {shown(line)}"


def errors_are_sentences(lines: list[Line]) -> Iterator[str]:
    """An error's message is one line for people; its details say the same."""
    for line in to_client(lines, "response"):
        error = obj(line.message.get("error"))
        message = text_or_none(error.get("message"))
        if not error:
            continue
        if not message or "\n" in message or "Traceback" in message:
            yield f"an error's message is no sentence: {shown(line)}"
        details = obj(error.get("data")).get("details", message)
        if details != message:
            yield f"an error's details differ from its message: {shown(line)}"
        if error.get("code") == INTERNAL_ERROR and set(obj(error.get("data"))) != {"details"}:
            yield f"an internal error's data is not exactly details: {shown(line)}"


def nothing_is_null(lines: list[Line]) -> Iterator[str]:
    """Optional members are left out, never null."""
    for line in lines:
        if line.entry.to == "client":
            body = {key: line.message.get(key, {}) for key in ("params", "result", "error")}
            for path in _nulls(body, ""):
                yield f"{path} is null: {shown(line)}"


def _nulls(value: JsonValue, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if item is None and key not in NULL_HAS_MEANING:
                yield f"{path}.{key}".lstrip(".")
            elif key not in FOREIGN_JSON:
                yield from _nulls(item, f"{path}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _nulls(item, f"{path}[{number}]")


def lines_are_short(lines: list[Line]) -> Iterator[str]:
    """Long texts are split before a client's reader gives up."""
    for line in lines:
        if line.entry.to == "client" and len(json.dumps(line.message)) > LINE_BYTES_MAX:
            yield f"a line above {LINE_BYTES_MAX} bytes: {shown(line)}"


def titles_are_one_short_line(lines: list[Line]) -> Iterator[str]:
    """Titles are one line and short; those of commands may be longer."""
    kinds: dict[JsonValue, JsonValue] = {}
    for line in lines:
        for call in calls_in(line):
            kind = kinds.setdefault(call.get("toolCallId"), call.get("kind"))
            title = text_or_none(call.get("title"))
            if title is None:
                continue
            too_long = len(title) > TITLE_CHARS_MAX and kind != "execute"
            if not title.strip() or "\n" in title or too_long:
                yield f"a title of {len(title)} characters or of several lines: {shown(line)}"


def raw_values_are_objects(lines: list[Line]) -> Iterator[str]:
    """`rawInput` and `rawOutput` are objects."""
    for line in lines:
        for call in calls_in(line):
            for key in ("rawInput", "rawOutput"):
                if key in call and not isinstance(call[key], dict):
                    yield f"{key} is no object: {shown(line)}"


def places_are_absolute(lines: list[Line]) -> Iterator[str]:
    """Locations and diffs name absolute paths, lines count from 1, diffs come first."""
    for line in lines:
        for call in calls_in(line):
            locations = [obj(item) for item in arr(call.get("locations"))]
            content = [obj(item) for item in arr(call.get("content"))]
            diffs = [item for item in content if item.get("type") == "diff"]
            for item in [*locations, *diffs]:
                if not PurePath(str(item.get("path"))).is_absolute():
                    yield f"a path is not absolute: {shown(line)}"
                if item.get("line", 1) == 0:
                    yield f"a line is 0: {shown(line)}"
            if content[: len(diffs)] != diffs:
                yield f"a diff is not first in its content: {shown(line)}"
            if any("oldText" not in diff for diff in diffs):
                yield f"a diff without oldText: {shown(line)}"
