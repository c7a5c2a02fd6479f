"""How a scenario's session differs from the one that it was recorded from, as a load shows both."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from acp_bridge.cli.transcript import replayed
from acp_bridge.sessions.reading import StoredLog
from acp_bridge.testing.normal import RANDOM_ID
from acp_bridge.testing.recording.paths import OUTSIDE
from acp_bridge.testing.replay import Drawn
from acp_bridge.testing.transcript import obj
from acp_bridge.vocabulary import JsonObject, JsonValue

TEXT_SHOWN_MAX = 70
"""How much of a text a sentence quotes: enough to know it again."""

CALLS_NAMED_MAX = 3

UNKNOWN_TOOL = "Error: unknown tool "
"""How the harness answers a call of a tool that it has not."""

_CALL = "call "

_SPOKEN = re.compile(r"message (\d+)\.")
_KINDS = {
    "message compaction.": "what is told of a summary",
    "message command.": "a command's answer",
    "compaction ": "a summary",
    "between ": "a message between sessions",
    "subagent ": "a subagent's session",
}


def updates_of(
    log: StoredLog, home: Path, place: Callable[[JsonValue], JsonValue]
) -> list[JsonObject]:
    """What `session/load` sends of a log, with its paths placed."""
    return [obj(place(update)) for _, updates in replayed(log, home) for update in updates]


def named(value: JsonValue, names: Mapping[str, str]) -> JsonValue:
    """The value with each of the names in its texts replaced, where it stands as a word."""
    if isinstance(value, str):
        return _pattern(tuple(names)).sub(lambda one: names[one[0]], value) if names else value
    if isinstance(value, list):
        return [named(item, names) for item in value]
    if isinstance(value, dict):
        return {key: named(item, names) for key, item in value.items()}
    return value


@cache
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    def word(name: str) -> str:
        before = r"(?<![\w-])" if name[0].isalnum() else ""
        return before + re.escape(name) + (r"(?![\w-])" if name[-1].isalnum() else "")

    return re.compile("|".join(word(name) for name in sorted(names, key=len, reverse=True)))


MOVED = {"{{cwd}}/" + OUTSIDE + "/": "/", OUTSIDE + "/": "/"}
"""A path outside of the workspace is the same wherever it stands now."""


def unlike(before: Iterable[JsonObject], now: Iterable[JsonObject]) -> list[str]:
    """Each difference as a short sentence, equal ones once; [] if a client would show the same."""
    old, old_said = _drawn(before)
    new, new_said = _drawn(now)
    found = [
        *_told(
            (("your prompt", _text(one)) for one in old_said),
            (("your prompt", _text(one)) for one in new_said),
        ),
        *_told(_messages(old), _messages(new)),
        *_calls(old.items, new.items),
    ]
    if not found and (_order(old) != _order(new) or old_said != new_said):
        found.append("all is there, in another order")
    if old.plan != new.plan:
        found.append("the plan is another one")
    times = Counter(found)
    return [one if times[one] == 1 else f"{times[one]} times: {one}" for one in times]


def _order(drawn: Drawn) -> list[str]:
    return [name if name.startswith(_CALL) else _text(one) for name, one in drawn.items.items()]


def _messages(drawn: Drawn) -> Iterator[tuple[str, str]]:
    """What is no call: what it is, and its text. Which turn it is in may move."""
    for name, item in drawn.items.items():
        if (spoken := _SPOKEN.match(name)) is not None:
            verb = "thought" if item.get("kind") == "agent_thought_chunk" else "said"
            yield f"what the agent {verb} in turn {spoken[1]}", _text(item)
        elif not name.startswith(_CALL):
            kind = next((word for start, word in _KINDS.items() if name.startswith(start)), name)
            yield kind, _text(item)


def _told(before: Iterable[tuple[str, str]], now: Iterable[tuple[str, str]]) -> Iterator[str]:
    """What only one of two lists of (what, text) has, wherever it stands in it."""
    old, new = list(before), list(now)
    texts, texts_now = Counter(text for _, text in old), Counter(text for _, text in new)
    lost, more = _only(old, texts - texts_now), _only(new, texts_now - texts)
    for what, text in lost:
        again = next((one for one in more if one[0] == what), None)
        if again is None:
            yield f"{what} is not there in the scenario: {_quoted(text)}"
            continue
        more.remove(again)
        yield f"{what} was {_quoted(text, again[1])}, in the scenario {_quoted(again[1], text)}"
    for what, text in more:
        yield f"{what} is there in the scenario alone: {_quoted(text)}"


def _only(found: Sequence[tuple[str, str]], left: Counter[str]) -> list[tuple[str, str]]:
    made = []
    for what, text in found:
        if left[text] > 0:
            left[text] -= 1
            made.append((what, text))
    return made


def _calls(old: Mapping[str, JsonObject], new: Mapping[str, JsonObject]) -> Iterator[str]:
    """One sentence for all calls of a tool that differ in one way; the first is its example."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    unknown: dict[str, None] = {}
    for name in [one for one in {**old, **new} if one.startswith(_CALL)]:
        tool = str((old.get(name) or new[name]).get("name") or "a tool")
        if _text(new.get(name, {}).get("rawOutput")).startswith(UNKNOWN_TOOL):
            unknown[tool] = None
            continue
        for what, example in _call(old.get(name), new.get(name)):
            found[tool, what].append((name.removeprefix(_CALL), example))
    if unknown:
        yield f"the harness has no such tools, so their calls fail: {', '.join(unknown)}"
    for (tool, what), calls in found.items():
        names = ", ".join(call for call, _ in calls[:CALLS_NAMED_MAX])
        left = len(calls) - CALLS_NAMED_MAX
        names += f" and {left} more" if left > 0 else ""
        yield f"{tool} {what} ({names}){calls[0][1]}"


def _call(item: JsonObject | None, again: JsonObject | None) -> Iterator[tuple[str, str]]:
    """How a call differs: in words that others may share, and in its own."""
    if item is None or again is None:
        yield ("is not there in the scenario" if item else "is there in the scenario alone"), ""
        return
    texts = _text(item.get("rawOutput")), _text(again.get("rawOutput"))
    example = ""
    if texts[0] != texts[1]:
        example = f": it was {_quoted(*texts)}, in the scenario {_quoted(*reversed(texts))}"
    if item.get("status") != again.get("status"):
        yield f"{item.get('status')} in the session, {again.get('status')} in the scenario", example
    elif texts[0] != texts[1]:
        yield "has another result", example
    elif item.get("rawOutput") != again.get("rawOutput"):
        yield "has other details beside its result", ""
    elif item.get("content") != again.get("content"):
        yield "shows its result otherwise", ""
    names = [
        one for one in ("title", "kind", "name", "rawInput") if item.get(one) != again.get(one)
    ]
    if names:
        yield f"has another {' and '.join(names)}", ""


def _drawn(updates: Iterable[JsonObject]) -> tuple[Drawn, list[JsonValue]]:
    drawn, said = Drawn(), list[JsonValue]()
    ids: dict[str, str] = {}
    for told in updates:
        text = json.dumps(named(told, MOVED), ensure_ascii=False)
        text = RANDOM_ID.sub(lambda one: ids.setdefault(one[0], f"id {len(ids) + 1}"), text)
        update = obj(json.loads(text))
        drawn.draw(update)
        if update.get("sessionUpdate") == "user_message_chunk":
            said.append(update.get("content"))
    return drawn, said


def _text(value: JsonValue) -> str:
    """What a value says: its text, if it has one."""
    members = obj(value)
    told = members.get("text", members.get("summary"))
    return told if isinstance(told, str) else json.dumps(value, ensure_ascii=False)


def _quoted(text: str, other: str = "") -> str:
    """A text in quotes, cut to where it begins to differ from the other."""
    same = next((at for at, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
    start = max(0, same - TEXT_SHOWN_MAX // 3) if len(text) > TEXT_SHOWN_MAX else 0
    shown = " ".join(text[start : start + TEXT_SHOWN_MAX].split())
    return f'"{"…" if start else ""}{shown}{"…" if start + TEXT_SHOWN_MAX < len(text) else ""}"'
