"""JSON text of log rows: strict in, compact out, with orjson where it is installed.

What orjson refuses and JavaScript writes (lone surrogates, deep nesting, numbers beyond 64 bits)
goes through the ``json`` module.
"""

import json
from typing import NoReturn, cast

from acp_bridge.vocabulary import JsonValue

try:
    import orjson
except ImportError:  # the extra "fast" is not installed
    orjson = None  # type: ignore[assignment,unused-ignore]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def loads(text: bytes) -> JsonValue:
    """The value of one JSON text in UTF-8.

    Raises:
        ValueError: it is no JSON, no UTF-8, or nested too deeply.
    """
    if orjson is not None:
        try:
            return cast("JsonValue", orjson.loads(text))
        except ValueError:
            pass  # the json module decides
    try:
        # Decoded first, because json.loads would guess UTF-16 and UTF-32 from NUL bytes.
        return cast("JsonValue", json.loads(text.decode(), parse_constant=_refuse_constant))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dumps(value: JsonValue) -> bytes:
    """Compact JSON in UTF-8, keys in their order, without a newline.

    Raises:
        ValueError: the value is nested too deeply, or holds a number that is not finite (orjson
            writes that one as null, as JavaScript does).
        TypeError: the value is no JSON.
    """
    if orjson is not None:
        try:
            return orjson.dumps(value)
        except TypeError:
            pass  # the json module decides
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
