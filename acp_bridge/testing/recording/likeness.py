"""How a scenario's session differs from the one that it was recorded from, as a load shows both."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

from acp_bridge.cli.transcript import replayed
from acp_bridge.sessions.reading import StoredLog
from acp_bridge.testing.normal import RANDOM_ID
from acp_bridge.testing.recording.paths import OUTSIDE
from acp_bridge.testing.replay import Drawn
from acp_bridge.testing.transcript import obj
from acp_bridge.vocabulary import JsonObject, JsonValue

VALUE_SHOWN_MAX = 200

_MESSAGE = re.compile(r"message (\d+)\.(\d+)\.")


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
    """Each difference as a sentence; [] if a client would show the same."""
    old, old_said = _drawn(before)
    new, new_said = _drawn(now)
    found: list[str] = []
    if old_said != new_said:
        found.append(f"the user said {_cut(old_said)}, in the scenario {_cut(new_said)}")
    for name, item in old.items.items():
        again = new.items.get(name)
        if again is None:
            found.append(f"{_name(name, item)} is not there in the scenario: {_cut(item)}")
            continue
        found += [
            f"{_name(name, item)}: {member} was {_cut(item.get(member))}, "
            f"in the scenario it is {_cut(again.get(member))}"
            for member in sorted(set(item) | set(again))
            if item.get(member) != again.get(member)
            and not (member == "content" and item.get("rawOutput") != again.get("rawOutput"))
        ]
    found += [
        f"{_name(name, item)} is there in the scenario alone: {_cut(item)}"
        for name, item in new.items.items()
        if name not in old.items
    ]
    if not found and list(old.items) != list(new.items):
        found.append("all is there, in another order")
    if old.plan != new.plan:
        found.append(f"the plan was {_cut(old.plan)}, in the scenario it is {_cut(new.plan)}")
    return found


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


def _name(name: str, item: JsonObject) -> str:
    if (found := _MESSAGE.match(name)) is not None:
        return f"what the agent said in turn {found[1]}, step {found[2]}"
    title = item.get("title")
    return f"{name} ({title})" if title else name


def _cut(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_SHOWN_MAX else f"{text[:VALUE_SHOWN_MAX]}…"
