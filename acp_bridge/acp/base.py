"""What every generated ACP type rests on: the base class, `Unknown`, `UNSET`, integer ranges."""

from enum import Enum
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import attrs

from acp_bridge.vocabulary import JsonObject

__all__ = ["UNSET", "Int64", "IntRange", "Uint16", "Uint32", "Uint64", "Unknown", "Unset", "Value"]


class Value:
    """Base of the generated types: equality and a short ``repr``, once for all of them.

    The types themselves are `attrs.define(eq=False, repr=False, kw_only=True)`: methods written
    per class double the cost of creating it (47 against 26 ms for 120 classes), and a frozen
    class doubles the cost of an instance (0.63 against 0.29 us), which every streamed chunk pays
    twice. Treat them as values all the same. Arguments are by keyword only, so that a field that
    a newer schema adds cannot shift another.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _names(type(self)))

    __hash__ = None  # type: ignore[assignment]  # equal by value and mutable in principle

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in _names(type(self)))
        return f"{type(self).__name__}({', '.join(shown)})"


def _names(cls: type[Any]) -> list[str]:
    return [field.name for field in attrs.fields(cls)]


class Unknown(Value):
    """A member of a tagged union with a tag that we do not know, kept and written verbatim."""

    __slots__ = ("raw",)

    def __init__(self, raw: JsonObject) -> None:
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) and other.raw == self.raw

    __hash__ = None

    def __repr__(self) -> str:
        return f"Unknown({self.raw!r})"


class Unset(Enum):
    """Type of `UNSET`."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
"""A patch's field that is left out ("unchanged"), where None is written as null ("clear")."""


class IntRange(NamedTuple):
    """Bounds of an integer, both inclusive."""

    lowest: int
    highest: int


Uint16: TypeAlias = Annotated[int, IntRange(0, 2**16 - 1)]
Uint32: TypeAlias = Annotated[int, IntRange(0, 2**32 - 1)]
Uint64: TypeAlias = Annotated[int, IntRange(0, 2**64 - 1)]
Int64: TypeAlias = Annotated[int, IntRange(-(2**63), 2**63 - 1)]
