"""The script of a scripted model: JSON lines, one model call each, read and checked.

A line is ``{"agent": "1", "stream": [ITEM…], "for": "compact"?}``; an optional first line is
``{"context_window": N}``. An error names the line and the item, because a script is written by
hand. Nothing here waits or streams: `scripted` plays what this module read.
"""

import json
from collections.abc import Callable
from typing import Literal, TypeAlias

import attrs

from acp_bridge.errors import ConfigError
from acp_bridge.vocabulary import JsonObject, JsonValue

CONTEXT_WINDOW_DEFAULT = 128_000
"""Tokens; the window of a script that does not name one."""

Purpose: TypeAlias = Literal["turn", "compact"]
StopReason: TypeAlias = Literal["end_turn", "max_tokens", "refusal"]


@attrs.frozen(slots=True)
class Say:
    """Text or reasoning in ``repeat`` equal deltas."""

    kind: Literal["text", "reasoning"]
    text: str
    repeat: int


@attrs.frozen(slots=True)
class Call:
    """A tool call whose raw arguments arrive in ``split`` deltas."""

    call_id: str
    name: str
    arguments_text: str
    split: int


@attrs.frozen(slots=True)
class Pause:
    """Let time pass."""

    delay_ms: int


@attrs.frozen(slots=True)
class Wait:
    """Hold the stream until a scenario step releases ``name``."""

    name: str


@attrs.frozen(slots=True)
class Usage:
    """Token counts."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int


@attrs.frozen(slots=True)
class Stop:
    """The answer's end, when it is not what its content says."""

    reason: StopReason


@attrs.frozen(slots=True)
class Fail:
    """The provider's error answer."""

    status: int
    message: str
    retry_after_s: float | None


@attrs.frozen(slots=True)
class Disconnect:
    """The stream is cut off."""


Item: TypeAlias = Say | Call | Pause | Wait | Usage | Stop | Fail | Disconnect


@attrs.frozen(slots=True)
class Script:
    """A whole script: answers by agent place and purpose, in order."""

    context_window: int
    answers: dict[tuple[str, Purpose], list[tuple[Item, ...]]]


def script_from_text(text: str, *, name: str) -> Script:
    """Read a script; ``name`` stands in errors.

    Raises:
        ConfigError: a line is no JSON or no answer; says which line and item.
    """
    window = CONTEXT_WINDOW_DEFAULT
    answers: dict[tuple[str, Purpose], list[tuple[Item, ...]]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"scripted model {name}, line {number}"
        entry = _object(_parsed(line, where), where)
        if "context_window" in entry and "stream" not in entry:
            window = _integer(entry, "context_window", where, least=1)
            continue
        unknown = entry.keys() - {"agent", "stream", "for"}
        if unknown:
            raise ConfigError(f"{where}: unknown key {min(unknown)!r}")
        agent = entry.get("agent", "1")
        if not isinstance(agent, str) or not agent:
            raise ConfigError(f'{where}: "agent" must be a place such as "1" or "1/1"')
        purpose: Purpose = "turn"
        if "for" in entry:
            if entry["for"] != "compact":
                raise ConfigError(f'{where}: "for" can only be "compact"')
            purpose = "compact"
        stream = entry.get("stream")
        if not isinstance(stream, list):
            raise ConfigError(f'{where}: "stream" must be a list of items')
        items = items_from_json(stream, where)
        answers.setdefault((agent, purpose), []).append(items)
    return Script(context_window=window, answers=answers)


def items_from_json(stream: list[JsonValue], where: str) -> tuple[Item, ...]:
    """Read one answer's items; ``where`` opens each error."""
    return tuple(
        _item(_object(raw, f"{where}, item {n}"), f"{where}, item {n}")
        for n, raw in enumerate(stream, start=1)
    )


def _item(raw: JsonObject, where: str) -> Item:
    for key, read in _READERS.items():
        if key in raw:
            unknown = raw.keys() - {key, *_EXTRAS.get(key, ())}
            if unknown:
                raise ConfigError(f"{where}: unknown key {min(unknown)!r} beside {key!r}")
            return read(raw, where)
    raise ConfigError(f"{where}: expected one of {', '.join(_READERS)}")


def _say(kind: Literal["text", "reasoning"]) -> Callable[[JsonObject, str], Say]:
    def read(raw: JsonObject, where: str) -> Say:
        repeat = _integer(raw, "repeat", where, least=1) if "repeat" in raw else 1
        return Say(kind=kind, text=_string(raw, kind, where), repeat=repeat)

    return read


def _call(raw: JsonObject, where: str) -> Call:
    call = _object(raw["tool_call"], f"{where}, tool_call")
    unknown = call.keys() - {"id", "name", "arguments", "arguments_text", "split"}
    if unknown:
        raise ConfigError(f"{where}: unknown key {min(unknown)!r} in tool_call")
    if "arguments_text" in call:
        text = _string(call, "arguments_text", where)
    else:
        text = json.dumps(call.get("arguments", {}), ensure_ascii=False)
    split = call.get("split", raw.get("split", 1))
    if isinstance(split, bool) or not isinstance(split, int) or split < 1:
        raise ConfigError(f'{where}: "split" must be a whole number from 1')
    return Call(
        call_id=_string(call, "id", where),
        name=_string(call, "name", where),
        arguments_text=text,
        split=split,
    )


def _pause(raw: JsonObject, where: str) -> Pause:
    return Pause(delay_ms=_integer(raw, "delay_ms", where, least=0))


def _wait(raw: JsonObject, where: str) -> Wait:
    name = _string(raw, "wait", where)
    if not name or "/" in name or name in {".", ".."}:
        raise ConfigError(f'{where}: "wait" must be a plain name')
    return Wait(name=name)


def _usage(raw: JsonObject, where: str) -> Usage:
    usage = _object(raw["usage"], f"{where}, usage")
    names = ("input_tokens", "output_tokens", "cache_read_tokens")
    counts = [_integer(usage, n, where, least=0) if n in usage else 0 for n in names]
    return Usage(*counts)


def _stop(raw: JsonObject, where: str) -> Stop:
    match raw["stop"]:
        case "end_turn":
            return Stop("end_turn")
        case "max_tokens":
            return Stop("max_tokens")
        case "refusal":
            return Stop("refusal")
        case _:
            raise ConfigError(f'{where}: "stop" must be end_turn, max_tokens or refusal')


def _fail(raw: JsonObject, where: str) -> Fail:
    error = _object(raw["error"], f"{where}, error")
    after = error.get("retry_after_s")
    if after is not None and (isinstance(after, bool) or not isinstance(after, int | float)):
        raise ConfigError(f'{where}: "retry_after_s" must be a number of seconds')
    return Fail(
        status=_integer(error, "status", where, least=100),
        message=_string(error, "message", where),
        retry_after_s=after,
    )


def _disconnect(_raw: JsonObject, _where: str) -> Disconnect:
    return Disconnect()


_READERS: dict[str, Callable[[JsonObject, str], Item]] = {
    "text": _say("text"),
    "reasoning": _say("reasoning"),
    "tool_call": _call,
    "delay_ms": _pause,
    "wait": _wait,
    "usage": _usage,
    "stop": _stop,
    "error": _fail,
    "disconnect": _disconnect,
}


_EXTRAS = {"text": ("repeat",), "reasoning": ("repeat",), "tool_call": ("split",)}
"""What may stand beside an item's own key."""


def _parsed(line: str, where: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(line)
    except ValueError as fault:
        raise ConfigError(f"{where}: this is no JSON") from fault
    return value


def _object(value: JsonValue, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected a JSON object")
    return value


def _string(raw: JsonObject, key: str, where: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str):
        raise ConfigError(f'{where}: "{key}" must be a string')
    return value


def _integer(raw: JsonObject, key: str, where: str, *, least: int) -> int:
    value = raw.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f'{where}: "{key}" must be a whole number from {least}')
    return value
