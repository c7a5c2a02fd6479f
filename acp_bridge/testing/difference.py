"""How files differ from those that are pinned, told by line and member: for a person to read."""

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from acp_bridge.testing.normal import Files
from acp_bridge.testing.transcript import obj
from acp_bridge.vocabulary import JsonObject, JsonValue

TOLD_MAX = 40
"""How many differences are told; the first ones say what went wrong."""

TEXT_SHOWN_MAX = 400
"""How much of a value or line is shown."""

_NOTHING = object()


def differences(folder: Path, files: Files) -> list[str]:
    """Each difference between ``files`` and what lies in ``folder``; [] if there is none."""
    now = dict(_flat(files))
    pinned = {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }
    found: list[str] = []
    for name in sorted(set(now) | set(pinned)):
        if name not in now:
            found.append(f"{name} is pinned, and nothing of it came")
        elif name not in pinned:
            found.append(f"{name} is not pinned: " + _cut(now[name].strip()))
        elif now[name] != pinned[name]:
            found += [f"{name}, {told}" for told in _lines(pinned[name], now[name])]
    left = len(found) - TOLD_MAX
    return [*found[:TOLD_MAX], f"and {left} more"] if left > 0 else found


def _flat(files: Mapping[str, "str | Files"], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in files.items():
        if isinstance(value, str):
            yield above + name, value
        else:
            yield from _flat(value, f"{above}{name}/")


def _lines(pinned: str, now: str) -> Iterator[str]:
    """The differences of two files of JSON lines; line numbers are those of the pinned one."""
    before, after = pinned.splitlines(), now.splitlines()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, start, end, start_now, end_now in matcher.get_opcodes():
        if tag == "equal":
            continue
        old, new = before[start:end], after[start_now:end_now]
        for at, (line, line_now) in enumerate(zip(old, new, strict=False)):
            yield from _members(f"line {start + at + 1}", line, line_now)
        for at, line in enumerate(old[len(new) :], start=start + len(new) + 1):
            yield f"line {at} did not come{_named(line)}:\n    - {_cut(line)}"
        for line in new[len(old) :]:
            yield f"after line {end} came more{_named(line)}:\n    + {_cut(line)}"


def _members(where: str, line: str, now: str) -> Iterator[str]:
    """What differs between two lines: single members where both are of one kind."""
    try:
        before, after = json.loads(line), json.loads(now)
    except ValueError:
        before, after = line, now
    if _kind(before) != _kind(after):
        yield f"{where} is another message:\n    - {_cut(line)}\n    + {_cut(now)}"
        return
    for path, old, new in _unequal(before, after, ""):
        told = "".join(
            f"\n    {sign} {_cut(json.dumps(value, ensure_ascii=False))}"
            for sign, value in (("-", old), ("+", new))
            if value is not _NOTHING
        )
        yield f"{where}{_named(line)}: {path or 'all of it'}{told}"


def _kind(value: JsonValue) -> object:
    message = obj(value)
    update = obj(obj(message.get("params")).get("update"))
    members = ("method", "type", "agent", "path")
    return [update.get("sessionUpdate"), *(message.get(name) for name in members)]


def _named(line: str) -> str:
    """What the message of a line is, as " (session/update tool_call)"."""
    try:
        message: JsonObject = obj(json.loads(line))
    except ValueError:
        return ""
    update = obj(obj(message.get("params")).get("update"))
    words = [message.get("method") or message.get("type"), update.get("sessionUpdate")]
    if words[0] is None and "id" in message:
        words = [f"answer to {message['id']}"]
    told = " ".join(str(word) for word in words if word is not None)
    return f" ({told})" if told else ""


def _unequal(before: object, after: object, path: str) -> Iterator[tuple[str, object, object]]:
    """The deepest members that differ, as dotted paths, with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            below = f"{path}.{name}" if path else name
            yield from _unequal(before.get(name, _NOTHING), after.get(name, _NOTHING), below)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _unequal(old, new, f"{path}.{number}" if path else str(number))
    elif before != after or type(before) is not type(after):
        yield path, before, after


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_SHOWN_MAX else f"{text[:TEXT_SHOWN_MAX]}…"
