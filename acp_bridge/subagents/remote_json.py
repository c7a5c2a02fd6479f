"""Reading the JSON of remote payloads: each helper names the field that it cannot use. Pure.

``where`` is a whole field, like ``rows[3].end``; ``at`` is what stands before a name, like
``rows[3].``. All raise `InvalidParamsError`.
"""

import json
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, TypeVar, get_args

from acp_bridge.errors import InvalidParamsError, SessionCorruptError, SessionUnsupportedError
from acp_bridge.sessions.events import event_from_row
from acp_bridge.sessions.header import Header, dump_header, parse_header
from acp_bridge.vocabulary import Event, JsonObject, JsonValue, TurnEnd

T = TypeVar("T", bound=str)


def header_json(header: Header) -> JsonObject:
    """A header as a JSON object."""
    row: JsonObject = json.loads(dump_header(header))
    return row


def header_from(value: JsonValue, where: str) -> Header:
    """A log's header."""
    try:
        return parse_header(json.dumps(object_from(value, where)).encode())
    except (SessionCorruptError, SessionUnsupportedError) as fault:
        raise InvalidParamsError(f"{where} is no header: {fault.details}.", field=where) from fault


def event_from(value: JsonValue, seq: int, where: str) -> Event:
    """A log's row that must have this ``seq``."""
    try:
        return event_from_row(value, seq)
    except SessionCorruptError as fault:
        raise InvalidParamsError(f"{where} is no row: {fault.details}.", field=where) from fault


def end_json(end: TurnEnd) -> JsonObject:
    """A turn's end as a JSON object."""
    return {"kind": end.kind, "details": end.details, "code": end.code}


def end_from(value: JsonValue, where: str) -> TurnEnd:
    """A turn's end."""
    data, at = object_from(value, where), f"{where}."
    return TurnEnd(
        one_of_in(data, "kind", _END_KINDS, at),
        optional_text_in(data, "details", at),
        optional_text_in(data, "code", at),
    )


_EndKind: TypeAlias = Literal[
    "completed", "max-tokens", "step-limit", "refusal", "aborted", "error"
]
_END_KINDS: Final[tuple[_EndKind, ...]] = get_args(_EndKind)


def object_from(value: JsonValue, where: str) -> JsonObject:
    """A JSON object."""
    if not isinstance(value, dict):
        raise bad(where, "a JSON object")
    return value


def list_from(value: JsonValue, where: str) -> list[JsonValue]:
    """A list."""
    if not isinstance(value, list):
        raise bad(where, "a list")
    return value


def text_in(data: JsonObject, name: str, at: str) -> str:
    """A string, perhaps an empty one."""
    value = data.get(name)
    if not isinstance(value, str):
        raise bad(f"{at}{name}", "a string")
    return value


def name_in(data: JsonObject, name: str, at: str) -> str:
    """A string that is not empty."""
    value = text_in(data, name, at)
    if not value:
        raise bad(f"{at}{name}", "a string with something in it")
    return value


def optional_text_in(data: JsonObject, name: str, at: str) -> str | None:
    """A string, or None where there is none."""
    return None if data.get(name) is None else text_in(data, name, at)


def count_in(data: JsonObject, name: str, at: str) -> int:
    """A whole number from 0."""
    value = data.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise bad(f"{at}{name}", "a whole number from 0")
    return value


def one_of_in(data: JsonObject, name: str, known: Sequence[T], at: str) -> T:
    """One of the known words."""
    found = next((one for one in known if one == data.get(name)), None)
    if found is None:
        raise bad(f"{at}{name}", " or ".join(known))
    return found


def bad(field: str, wanted: str) -> InvalidParamsError:
    """What is raised: the field, and what it must be."""
    return InvalidParamsError(f"{field} must be {wanted}.", field=field)
