"""JSON both ways, and the same with orjson and without it."""

import enum
import json
import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.errors import LocalProtocolError, RemoteProtocolError
from acp_bridge.vocabulary import JsonValue
from acp_bridge.wire import codec


def use_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_orjson_encode", None)
    monkeypatch.setattr(codec, "_orjson_decode", None)


@pytest.fixture(params=["json", "orjson"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "json":
        use_json(monkeypatch)
    else:
        assert codec.speed_up(), "the dev extra has orjson"
    yield request.param
    assert (codec._orjson_encode is None) == (request.param == "json")


def both_lines(value: JsonValue) -> tuple[bytes, bytes]:
    with pytest.MonkeyPatch.context() as patch:
        use_json(patch)
        by_json = codec.encode({"v": value})
    assert codec.speed_up()
    return by_json, codec.encode({"v": value})


def both_values(line: bytes) -> tuple[JsonValue, JsonValue]:
    def decode() -> JsonValue:
        try:
            return codec.decode(line)
        except RemoteProtocolError as error:
            return f"refused: {error.code} {error.details}"

    with pytest.MonkeyPatch.context() as patch:
        use_json(patch)
        by_json = decode()
    assert codec.speed_up()
    return by_json, decode()


each_way = pytest.mark.usefixtures("way")


class Colour(enum.StrEnum):
    RED = "red"


class Place(NamedTuple):
    line: int
    column: int


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda items: st.lists(items, max_size=4) | st.dictionaries(st.text(), items, max_size=4),
    max_leaves=20,
)


@each_way
def test_a_message_is_one_compact_utf_8_line() -> None:
    assert codec.encode({"a": [1, "ü\n"], "b": None}) == '{"a":[1,"ü\\n"],"b":null}\n'.encode()


@each_way
def test_unicode_line_ends_are_escaped_as_r003_needs() -> None:
    line = codec.encode({"t": "a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1ee\u2014f\u00e9"})
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line) == {"t": "a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1ee\u2014f\u00e9"}
    assert b"\\u2028" in line
    assert "\u2014".encode() in line


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
        ("end\ud83d", "end\ufffd"),
    ],
    ids=["high", "low", "pair", "end"],
)
@each_way
def test_lone_surrogates_become_the_replacement_character(text: str, written: str) -> None:
    assert json.loads(codec.encode({text: text})) == {written: written}


@each_way
def test_numbers_that_json_does_not_have_become_null() -> None:
    message = {"a": [math.nan, (math.inf, 1.5)], "b": {"c": -math.inf}}
    assert json.loads(codec.encode(message)) == {"a": [None, [None, 1.5]], "b": {"c": None}}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (2**64, str(2**64)),
        (-(2**80), str(-(2**80))),
        ({2: "a"}, '{"2":"a"}'),
        ((1, 2), "[1,2]"),
        (Place(3, 4), "[3,4]"),
        (Colour.RED, '"red"'),
        (OrderedDict(a=1), '{"a":1}'),
    ],
)
@each_way
def test_what_orjson_refuses_is_written_all_the_same(value: object, written: str) -> None:
    assert codec.encode({"v": value}) == b'{"v":' + written.encode() + b"}\n"


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", {b"key": 1}])
@each_way
def test_what_is_no_json_is_our_own_fault(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        codec.encode({"v": value})


@each_way
def test_endless_nesting_is_refused_and_not_followed() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(LocalProtocolError):
        codec.encode({"v": loop})
    with pytest.raises(LocalProtocolError):
        codec.encode({"v": [math.nan, loop]})


@each_way
def test_nesting_that_orjson_refuses_is_written() -> None:
    deep: list[object] = []
    for _ in range(400):
        deep = [deep]
    assert codec.encode({"v": deep}) == b'{"v":' + b"[" * 401 + b"]" * 401 + b"}\n"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@each_way
def test_nesting_bombs_are_refused_and_do_not_crash(opening: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        codec.decode(opening * 200_000)
    assert caught.value.code == -32700


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"{",
        b"",
        b"[1,]",
        b"\xff\xfe{}",
        b'"\xc3"',
        b'"\xed\xa0\x80"',
        b"NaN",
        b"-Infinity",
        b'{"a":Infinity}',
        b"1e999",
        b"01",
        b'"\x01"',
        "\ufeff1".encode(),
        '{"a":1}'.encode("utf-16"),
        b"1" * 5000,
    ],
)
@each_way
def test_what_is_no_json_is_a_parse_error(line: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        codec.decode(line)
    assert caught.value.code == -32700


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"18446744073709551616", 18446744073709551616),
        (b"-9223372036854775809", -9223372036854775809),
        (b'{"id":123456789012345678901}', {"id": 123456789012345678901}),
        (b'"\\ud800"', "\ufffd"),
        (b'{"\\uDC00":["\\ud83d\\ude00"]}', {"\ufffd": ["\U0001f600"]}),
        (b'"\\\\ud800"', "\\ud800"),
        (b' {"a" :\r 1}', {"a": 1}),
        (b'{"a":1,"a":2}', {"a": 2}),
    ],
)
@each_way
def test_what_other_parsers_disagree_about_is_settled(line: bytes, value: JsonValue) -> None:
    assert codec.decode(line) == value


@given(JSON)
def test_both_ways_write_the_same_values(value: JsonValue) -> None:
    by_json, by_orjson = both_lines(value)
    assert json.loads(by_json) == json.loads(by_orjson)
    for line in (by_json, by_orjson):
        assert line.endswith(b"\n")
        assert len(line.decode().splitlines()) == 1


@given(JSON.filter(lambda value: "e-" not in repr(value)))
def test_both_ways_write_the_same_bytes_but_for_small_floats(value: JsonValue) -> None:
    by_json, by_orjson = both_lines(value)
    assert by_json == by_orjson


@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40))
def test_both_ways_read_the_same_values(line: bytes) -> None:
    by_json, by_orjson = both_values(line)
    assert repr(by_json) == repr(by_orjson)


@given(st.dictionaries(st.text(), JSON, max_size=3))
def test_what_is_read_can_always_be_written_again(value: dict[str, JsonValue]) -> None:
    for read in both_values(json.dumps(value).encode()):
        if isinstance(read, dict):
            codec.encode(read)
