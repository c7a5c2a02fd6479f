"""A tool call's arguments: raw text from a model to an object that fits the tool's schema."""

import json
import math
from collections.abc import Mapping
from typing import NoReturn

from acp_bridge.ports import ToolResult
from acp_bridge.vocabulary import JsonObject, JsonValue

_MISSING = object()


def parse_arguments(raw: str) -> JsonObject | str:
    """The object in ``raw``, or what is wrong with it, worded for `invalid_arguments`.

    Nothing but white space is an empty object: models leave arguments out for a call that needs
    none. Of a repeated key the last one counts.
    """
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        return f"not valid JSON at character {error.pos} of {len(raw)}"
    except (ValueError, RecursionError):
        return "not valid JSON: a number or the nesting is out of range"
    if not isinstance(value, dict):
        return f"must be a JSON object, not {_kind(value)}"
    if _has_lone_surrogate(raw, value):
        return "a string holds half of a surrogate pair (\\ud800 to \\udfff), which is no text"
    return value


def check_arguments(parameters: JsonObject, arguments: JsonObject) -> ToolResult | None:
    """None if ``arguments`` fit the schema ``parameters``; else the result to answer with."""
    problem = _problem(arguments, parameters, "")
    return None if problem is None else invalid_arguments(problem)


def invalid_arguments(problem: str) -> ToolResult:
    """The result of a call that cannot be made as asked; ``problem`` has no full stop."""
    return ToolResult(
        text=f"Error: invalid arguments: {problem}",
        is_error=True,
        error_name="ToolArgsError",
        error_code="INVALID_ARGS",
    )


def required_text(arguments: JsonObject, name: str) -> str:
    """A required string of arguments that were checked."""
    value = arguments[name]
    assert isinstance(value, str)
    return value


def optional_text(arguments: JsonObject, name: str) -> str | None:
    """An optional string of arguments that were checked; null and "" count as left out."""
    value = arguments.get(name)
    assert value is None or isinstance(value, str)
    return value or None


def flag(arguments: JsonObject, name: str) -> bool:
    """An optional boolean of arguments that were checked; left out: False."""
    return arguments.get(name) is True


def whole_number(arguments: JsonObject, name: str, default: int) -> int | None:
    """An optional whole number of arguments that were checked; None if it has a fraction."""
    value = arguments.get(name)
    if value is None:
        return default
    assert isinstance(value, int | float)
    return int(value) if value == int(value) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _has_lone_surrogate(raw: str, value: JsonObject) -> bool:
    # Only an escape or a broken decoder can bring one in; the check is not paid for by all others.
    if "\\u" not in raw and raw.isascii():
        return False
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _problem(value: object, schema: Mapping[str, JsonValue], place: str) -> str | None:
    expected = schema.get("type")
    if isinstance(expected, str) and not _is_a(value, expected):
        return f"{_named(place)} must be {_article(expected)}, not {_kind(value)}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        shown = ", ".join(json.dumps(choice) for choice in choices)
        return f"{_named(place)} must be one of {shown}"
    if isinstance(value, dict):
        return _object_problem(value, schema, place)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        problems = (_problem(item, items, f"{place}[{at}]") for at, item in enumerate(value))
        return next(filter(None, problems), None)
    return None


def _object_problem(
    value: dict[str, object], schema: Mapping[str, JsonValue], place: str
) -> str | None:
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    inside = f"{place}." if place else ""
    for name in names:
        if value.get(str(name), _MISSING) is _MISSING:
            return f'missing required property "{inside}{name}"'
    properties = schema.get("properties")
    for name, rule in (properties if isinstance(properties, dict) else {}).items():
        given = value.get(name, _MISSING)
        # Models write null for "left out"; for an optional property nothing else can be meant.
        if given is _MISSING or (given is None and name not in names):
            continue
        problem = _problem(given, rule, inside + name) if isinstance(rule, dict) else None
        if problem is not None:
            return problem
    return None


def _is_a(value: object, expected: str) -> bool:
    match expected:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "number" | "integer":
            if isinstance(value, bool) or not isinstance(value, int | float):
                return False
            if isinstance(value, float) and not math.isfinite(value):
                return False
            return expected == "number" or value == int(value)
        case _:  # "null", or whatever else a foreign schema says: its tool knows better
            return True


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case _:
            return "an object"


def _article(expected: str) -> str:
    return f"an {expected}" if expected[0] in "aeiou" else f"a {expected}"


def _named(place: str) -> str:
    return f'property "{place}"' if place else "the arguments"
