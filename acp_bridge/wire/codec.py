"""JSON values to lines and back, the same with orjson and with json alone.

Lines are compact UTF-8. Three things that other programs trip over never leave here: raw U+2028,
U+2029 and U+0085 are ASCII-escaped, since line readers that follow Unicode split at them (R003);
lone surrogates become U+FFFD; NaN and the infinities become null.

orjson is an extra, and importing it costs 20 ms, so it is switched on by `speed_up` after the
first answer is out. Both ways give equal values; the bytes differ only in how small floats are
spelt (1e-7, 1e-07). What orjson refuses (ints above 64 bits, keys that are no strings, values
nested above 254 levels), json does.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Final

from acp_bridge.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from acp_bridge.vocabulary import JsonValue

PARSE_ERROR: Final = -32700
"""JSON-RPC 2.0, section 5.1: invalid JSON was received."""


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _finite_float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number


def _text_encoder() -> Callable[[object], str]:
    """The encoder of `json` with its C part made once: `JSONEncoder.encode` makes one per value.

    That is 1.9 against 4.8 us for an update. Where an interpreter has no such part, or has changed
    how it is called, the ordinary way serves.
    """
    usual = json.JSONEncoder(
        ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
    )
    try:
        core = json.encoder.c_make_encoder(  # type: ignore[attr-defined]  # not in typeshed
            None,
            usual.default,
            json.encoder.encode_basestring,
            usual.indent,
            usual.key_separator,
            usual.item_separator,
            usual.sort_keys,
            usual.skipkeys,
            usual.allow_nan,
        )
        if "".join(core(_SAMPLE, 0)) != usual.encode(_SAMPLE):
            return usual.encode
    except (AttributeError, TypeError):
        return usual.encode
    return lambda value: "".join(core(value, 0))


_SAMPLE: Final = {"a": ["\u00e9", 1, -0.5, True, None], "b": {}}

_json_encode = _text_encoder()
_json_decode = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite_float).decode
_orjson_encode: Callable[[object], bytes] | None = None
_orjson_decode: Callable[[bytes], JsonValue] | None = None

_DIGITS_AS_ZEROS = bytes(ord("0") if chr(byte).isdecimal() else ord(" ") for byte in range(256))
_LONG_NUMBER: Final = b"0" * 19
"""The shortest run of digits that may be above 64 bits, once every digit has become a zero."""


def speed_up() -> bool:
    """Use orjson from now on if it is installed; whether it is. Cheap to call again."""
    global _orjson_encode, _orjson_decode
    try:
        import orjson
    except ImportError:
        return False
    options = (
        orjson.OPT_PASSTHROUGH_DATACLASS
        | orjson.OPT_PASSTHROUGH_DATETIME
        | orjson.OPT_PASSTHROUGH_SUBCLASS
    )

    def encode_line(value: object) -> bytes:
        # Joined, the line is a copy of its own size. What orjson gives keeps the buffer in which
        # it was made, 4 KiB for a line of 100 bytes: a queue of them would take 40 times its size.
        return orjson.dumps(value, None, options) + b"\n"

    _orjson_encode, _orjson_decode = encode_line, orjson.loads
    return True


def encode(message: Mapping[str, object]) -> bytes:
    r"""One line of compact JSON with its ``\n``.

    Raises:
        LocalProtocolError: the message holds something that is no JSON, or is nested too deeply.
    """
    line = None
    if _orjson_encode is not None:
        try:
            line = _orjson_encode(message)
        except TypeError:
            line = None
    if line is None:
        line = _encode_by_json(message)
    return line if line.isascii() else _escape_line_ends(line)


def _encode_by_json(message: object) -> bytes:
    try:
        try:
            text = _json_encode(message)
        except ValueError:
            text = _json_encode(_with_finite_numbers(message))
    except (TypeError, ValueError, RecursionError) as exc:
        raise LocalProtocolError("A message of ours could not be written as JSON.") from exc
    return _utf8(text) + b"\n"


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # By way of UTF-16, two halves that found each other become their character again.
        halves = text.encode("utf-16-le", "surrogatepass")
        return halves.decode("utf-16-le", "replace").encode()


def _escape_line_ends(line: bytes) -> bytes:
    # Bytes above 0x7F occur only inside strings, and UTF-8 sequences never overlap. Looking for
    # one byte first is ten times faster than looking for three, and nearly always enough.
    if b"\xe2" in line:
        line = line.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    if b"\xc2" in line:
        line = line.replace(b"\xc2\x85", b"\\u0085")
    return line


def _with_finite_numbers(value: object) -> object:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _with_finite_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_finite_numbers(item) for item in value]
    return value


def decode(line: bytes) -> JsonValue:
    """The JSON value that a line holds; its strings can always be written as UTF-8 again.

    Raises:
        RemoteProtocolError: -32700: it is no JSON, no UTF-8, or nested too deeply.
    """
    if _orjson_decode is not None and not _may_exceed_64_bits(line):
        try:
            return _orjson_decode(line)
        except ValueError:
            pass  # json has the last word: it takes lone surrogates, and both refuse the rest
    try:
        value: JsonValue = _json_decode(line.decode())
        if b"\\" in line and (b"\\ud" in line or b"\\uD" in line):
            value = _json_decode(_utf8(_json_encode(value)).decode())
    except UnicodeDecodeError:
        raise RemoteProtocolError("The line is not UTF-8.", code=PARSE_ERROR) from None
    except ValueError:
        raise RemoteProtocolError("The line is not JSON.", code=PARSE_ERROR) from None
    except RecursionError:
        raise RemoteProtocolError("The JSON is nested too deeply.", code=PARSE_ERROR) from None
    return value


def _may_exceed_64_bits(line: bytes) -> bool:
    # orjson turns such integers into floats without a word; an id like that could not be echoed.
    return _LONG_NUMBER in line.translate(_DIGITS_AS_ZEROS)
