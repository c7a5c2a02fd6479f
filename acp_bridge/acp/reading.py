"""Strict readers of JSON values, and the sentence that says why one was refused.

A reader takes a JSON value and gives a Python one, or raises `Refusal`. Readers that hold others
put their own place in front of an inner refusal's path, so that its sentence names the member.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from acp_bridge.acp.base import IntRange, Unknown
from acp_bridge.errors import InvalidParamsError
from acp_bridge.vocabulary import JsonValue

Reader: TypeAlias = Callable[[Any], Any]

MISSING: Final = object()
"""Stands for a value that is not there."""


class Refusal(Exception):  # noqa: N818 - never leaves the room
    """A value cannot be used: what was expected in its place, and the path to it so far."""

    def __init__(self, expected: str, got: object) -> None:
        super().__init__(expected)
        self.expected = expected
        self.got = got
        self.path: list[str | int] = []

    def under(self, place: str | int) -> "Refusal":
        """The same refusal, seen from the object or array that holds the value at ``place``."""
        self.path.insert(0, place)
        return self

    def as_error(self) -> InvalidParamsError:
        """The error for a peer; holds what was expected, never the value or a type of ours."""
        field = ""
        for place in self.path:
            if isinstance(place, int):
                field += f"[{place}]"
            else:
                field += f".{place}" if field else place
        field = field or "params"
        if self.got is MISSING:
            sentence = f"`{field}` is missing: it must be {self.expected}."
        else:
            sentence = f"`{field}` must be {self.expected}, not {kind_of(self.got)}."
        return InvalidParamsError(sentence, field=field)


def kind_of(value: object) -> str:
    """A JSON value's kind in words. Strings are not shown: they may be long or private."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return f"the number {value}" if len(str(value)) < 30 else "such a long number"  # noqa: PLR2004
        case str():
            return "a string" if value else "an empty string"
        case list():
            return "an array"
    return "an object"


def is_text(value: JsonValue) -> str:
    """A string and nothing else."""
    if type(value) is str:
        return value
    raise Refusal("a string", value)


def is_bool(value: JsonValue) -> bool:
    """True or false, never a number or a word."""
    if type(value) is bool:
        return value
    raise Refusal("a boolean", value)


def is_number(value: JsonValue) -> float:
    """A number, kept as it came: an integer stays one."""
    if type(value) is float or type(value) is int:
        return value
    raise Refusal("a number", value)


def is_integer(value: JsonValue) -> int:
    """An integer: no boolean, and no ``1.0`` either."""
    if type(value) is int:
        return value
    raise Refusal("an integer", value)


def is_object(value: JsonValue) -> Any:  # noqa: ANN401 - the object itself, untouched
    """An object, not looked into."""
    if type(value) is dict:
        return value
    raise Refusal("an object", value)


def untouched(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Whatever it is: the very same object."""
    return value


def integer_within(bounds: IntRange) -> Reader:
    """A reader of integers within bounds."""
    lowest, highest = bounds
    expected = f"an integer from {lowest} to {highest}"

    def read(value: JsonValue) -> int:
        if type(value) is int and lowest <= value <= highest:
            return value
        raise Refusal(expected, value)

    return read


def one_of(values: tuple[str, ...]) -> Reader:
    """A reader of a closed enumeration."""
    quoted = ", ".join(f'"{value}"' for value in values)
    expected = f"one of {quoted}" if len(values) > 1 else quoted

    def read(value: JsonValue) -> str:
        if type(value) is str and value in values:
            return value
        raise Refusal(expected, value)

    return read


def or_null(inner: Reader) -> Reader:
    """A reader that lets null through."""
    return lambda value: None if value is None else inner(value)


def array_of(inner: Reader, *, skip_invalid: bool = False) -> Reader:
    """A reader of arrays. With ``skip_invalid`` items that cannot be read are left out."""

    def read(value: JsonValue) -> list[Any]:
        if type(value) is not list:
            raise Refusal("an array", value)
        items: list[Any] = []
        for index, item in enumerate(value):
            try:
                items.append(inner(item))
            except Refusal as refusal:
                if not skip_invalid:
                    raise refusal.under(index) from None
        return items

    return read


def map_of(inner: Reader) -> Reader:
    """A reader of objects with any keys and one type of value."""

    def read(value: JsonValue) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, item in is_object(value).items():
            try:
                values[key] = inner(item)
            except Refusal as refusal:
                raise refusal.under(key) from None
        return values

    return read


def tagged(tag: str, members: dict[str, Reader], default: Reader | None) -> Reader:
    """A reader of a tagged union: the member that ``tag`` names, `Unknown` for a name not known.

    An absent or null tag means the ``default`` member where there is one.
    """

    def read(value: JsonValue) -> Any:  # noqa: ANN401 - a member
        name = is_object(value).get(tag, MISSING)
        if type(name) is str:
            member = members.get(name)
            return member(value) if member else Unknown(value)  # type: ignore[arg-type]  # an object
        if default is not None and (name is None or name is MISSING):
            return default(value)
        raise Refusal("a string", name).under(tag)

    return read


def shaped(members: dict[str, Reader]) -> Reader:
    """A reader of a union without a tag: the member whose own required field is there."""
    fields = " or ".join(f"`{field}`" for field in members)

    def read(value: JsonValue) -> Any:  # noqa: ANN401 - a member
        found = is_object(value)
        for field, member in members.items():
            if field in found:
                return member(found)
        raise Refusal(f"an object with {fields}", value)

    return read


def arrays_of_one(members: dict[str, Reader]) -> Reader:
    """As `shaped`, for arrays: the first item decides for all."""
    arrays = {field: array_of(member) for field, member in members.items()}
    first, *_ = arrays.values()

    def read(value: JsonValue) -> Any:  # noqa: ANN401 - a list of members
        if type(value) is list and value and type(value[0]) is dict:
            for field, member in arrays.items():
                if field in value[0]:
                    return member(value)
        return first(value)

    return read
