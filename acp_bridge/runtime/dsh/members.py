"""Strict readers of what the runtime sends: a member of an object, or an error that names it. Pure.

Each takes the object and the member's name. Absent and null are the same to the optional ones.
"""

from acp_bridge.errors import RemoteProtocolError
from acp_bridge.vocabulary import JsonObject, JsonValue

_INVALID_REQUEST = -32600


def as_object(value: JsonValue, name: str) -> JsonObject:
    """The value itself if it is an object; ``name`` is how an error calls it."""
    if isinstance(value, dict):
        return value
    raise refusal(name, "an object")


def text(owner: JsonObject, name: str) -> str:
    """A string that must be there."""
    value = owner.get(name)
    if isinstance(value, str):
        return value
    raise refusal(name, "a string")


def optional_text(owner: JsonObject, name: str) -> str | None:
    """A string, or None if there is none."""
    return None if owner.get(name) is None else text(owner, name)


def number(owner: JsonObject, name: str) -> int:
    """An integer that must be there."""
    value = owner.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise refusal(name, "an integer")


def optional_number(owner: JsonObject, name: str) -> int | None:
    """An integer, or None if there is none."""
    return None if owner.get(name) is None else number(owner, name)


def flag(owner: JsonObject, name: str) -> bool:
    """A boolean that must be there."""
    value = owner.get(name)
    if isinstance(value, bool):
        return value
    raise refusal(name, "a boolean")


def objects(owner: JsonObject, name: str) -> list[JsonObject]:
    """An array of objects that must be there."""
    value = owner.get(name)
    if not isinstance(value, list):
        raise refusal(name, "an array")
    return [as_object(item, f"{name}[{at}]") for at, item in enumerate(value)]


def texts(owner: JsonObject, name: str) -> tuple[str, ...]:
    """An array of strings; absent, an empty one."""
    value = owner.get(name)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise refusal(name, "an array")
    return tuple(text({name: item}, name) for item in value)


def refusal(name: str, expected: str) -> RemoteProtocolError:
    """The error for a member that is not what was ``expected``."""
    return RemoteProtocolError(
        f"The dsh runtime's control plugin sent `{name}` that is not {expected}: the runtime and "
        "acp-bridge do not fit each other; `acp-bridge doctor` tells their versions.",
        code=_INVALID_REQUEST,
    )
