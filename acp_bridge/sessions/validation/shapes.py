"""Small checks of JSON shapes: each takes a value and says what is wrong with it, or None."""

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from acp_bridge.sessions.header import COUNT_MAX, count
from acp_bridge.vocabulary import JsonValue

Shape: TypeAlias = Callable[[JsonValue], str | None]


def text(value: JsonValue) -> str | None:
    """A string."""
    return None if type(value) is str else "is no text"


def nestr(value: JsonValue) -> str | None:
    """A string with at least one character."""
    return None if type(value) is str and value else "is no text, or empty"


def boolean(value: JsonValue) -> str | None:
    """``true`` or ``false``."""
    return None if type(value) is bool else "is no boolean"


def number(value: JsonValue) -> str | None:
    """A finite number that JavaScript can hold exactly enough."""
    if type(value) is float and math.isfinite(value):
        return None
    return None if type(value) is int and abs(value) <= COUNT_MAX else "is no finite number"


def integer(value: JsonValue) -> str | None:
    """An integer that JavaScript holds exactly."""
    return None if type(value) is int and abs(value) <= COUNT_MAX else "is no integer"


def natural(value: JsonValue) -> str | None:
    """An integer from 0."""
    return None if count(value) is not None else "is no count"


def positive(value: JsonValue) -> str | None:
    """An integer from 1."""
    return None if count(value) else "is no number from 1"


def anything(value: JsonValue) -> str | None:  # noqa: ARG001
    """Any JSON."""
    return None


def one_of(*allowed: JsonValue) -> Shape:
    """One of a few scalars; ``1`` and ``true`` are different."""
    kinds = {(type(one), one) for one in allowed if not isinstance(one, list | dict)}

    def check(value: JsonValue) -> str | None:
        if isinstance(value, list | dict) or (type(value), value) not in kinds:
            return f"is none of {', '.join(map(repr, allowed))}"
        return None

    return check


def either(first: Shape, second: Shape) -> Shape:
    """One of two shapes."""

    def check(value: JsonValue) -> str | None:
        fault = first(value)
        if fault is None or (other := second(value)) is None:
            return None
        return f"{fault}, and {other}"

    return check


TRUE: Final = one_of(True)  # noqa: FBT003


def array(member: Shape) -> Shape:
    """A list whose members all fit."""

    def check(value: JsonValue) -> str | None:
        if type(value) is not list:
            return "is no array"
        for index, item in enumerate(value):
            fault = member(item)
            if fault is not None:
                return f"[{index}]{fault}" if fault[0] in ".[" else f"[{index}] {fault}"
        return None

    return check


def texts(value: JsonValue) -> str | None:
    """A list of texts, checked quickly: a long answer has thousands."""
    if type(value) is not list or not set(map(type, value)) <= {str}:
        return "is no array of texts"
    return None


def integers(value: JsonValue) -> str | None:
    """A list of integers, checked quickly."""
    if type(value) is not list or not set(map(type, value)) <= {int}:
        return "is no array of integers"
    return None


def obj(
    required: Mapping[str, Shape] | None = None,
    optional: Mapping[str, Shape] | None = None,
    *,
    is_open: bool = False,
) -> Shape:
    """An object with these members and, unless ``is_open``, no others."""
    needed = dict(required or {})
    known = {**needed, **(optional or {})}

    def check(value: JsonValue) -> str | None:
        if type(value) is not dict:
            return "is no object"
        for name in needed:
            if name not in value:
                return f"lacks {name!r}"
        for name, item in value.items():
            shape = known.get(name)
            if shape is None:
                if not is_open:
                    return f"has the unknown member {name!r:.60}"
                continue
            fault = shape(item)
            if fault is not None:
                return f".{name} {fault}" if fault[0] not in ".[" else f".{name}{fault}"
        return None

    return check


def tagged(tag: str, variants: Mapping[str, Shape]) -> Shape:
    """An object whose ``tag`` member chooses its shape."""

    def check(value: JsonValue) -> str | None:
        if type(value) is not dict:
            return "is no object"
        kind = value.get(tag)
        shape = variants.get(kind) if type(kind) is str else None
        return f"has the unknown {tag} {kind!r:.60}" if shape is None else shape(value)

    return check


any_object: Final = obj(is_open=True)
