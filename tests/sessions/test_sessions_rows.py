"""Header and row envelope: what is read, what is refused, and the key order that is written."""

import importlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_rows import events_of, header

from acp_bridge.errors import SessionCorruptError, SessionUnsupportedError
from acp_bridge.sessions import jsontext
from acp_bridge.sessions.events import (
    KNOWN_TYPES,
    RETIRED_TYPES,
    dump_events,
    event_from_row,
    row_from_event,
)
from acp_bridge.sessions.header import Header, dump_header, parse_header
from acp_bridge.vocabulary import Event, JsonObject, JsonValue

GOOD_HEADER = (
    b'{"type":"session","version":4,"id":"x","createdAt":5,"cwd":"/w","parentSession":"p",'
    b'"isSeeded":true,"origin":"subagent","delegationDepth":1,"agentPreset":"a"}'
)
ROW: JsonObject = {"type": "todo/write", "seq": 9, "time": 5, "data": {}}


def test_a_header_is_read_and_written_in_the_runtimes_key_order() -> None:
    parsed = parse_header(GOOD_HEADER)
    assert parsed == Header("x", 5, "/w", True, 1, "p", "subagent", "a")
    assert dump_header(parsed) == GOOD_HEADER + b"\n"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": ""}, "bad id"),
        ({"createdAt": -1}, "bad createdAt"),
        ({"createdAt": True}, "bad createdAt"),
        ({"delegationDepth": 1.5}, "bad delegationDepth"),
        ({"cwd": "relative"}, "bad cwd"),
        ({"cwd": None}, "bad cwd"),
        ({"origin": "root"}, "bad origin"),
        ({"isSeeded": 1}, "bad isSeeded"),
        ({"version": "4"}, "bad version"),
        ({"type": "other"}, "bad type"),
        ({"sandboxMode": "read-only"}, "unknown key 'sandboxMode'"),
    ],
)
def test_a_malformed_header_is_corrupt(change: JsonObject, why: str) -> None:
    row = jsontext.loads(GOOD_HEADER)
    assert isinstance(row, dict)
    with pytest.raises(SessionCorruptError, match=why):
        parse_header(jsontext.dumps({**row, **change}))


def test_whole_floats_in_a_header_count_as_integers() -> None:
    parsed = parse_header(GOOD_HEADER.replace(b'"createdAt":5', b'"createdAt":5.0'))
    assert type(parsed.created_at_ms) is int


@pytest.mark.parametrize("version", [b"5", b"3", b"4.5", b"0"])
def test_another_version_is_unsupported_whatever_its_shape(version: bytes) -> None:
    with pytest.raises(SessionUnsupportedError, match="version " + version.decode()):
        parse_header(b'{"version":' + version + b',"new":1}')


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b"\xff", b'{"type":"session"}', b"NaN"])
def test_a_first_line_that_is_no_header_is_corrupt(line: bytes) -> None:
    with pytest.raises(SessionCorruptError, match="first line"):
        parse_header(line)


def test_a_float_that_is_whole_counts_as_its_integer() -> None:
    event = event_from_row({**ROW, "seq": 9.0, "time": 5.0}, 9)
    assert (event.seq, event.time_ms) == (9, 5)
    assert type(event.time_ms) is int


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"type": 1}, "type is not a string"),
        ({"seq": 8}, "has seq 8"),
        ({"seq": "9"}, "has seq '9'"),
        ({"time": "5"}, "time is not an integer"),
        ({"time": None}, "time is not an integer"),
        ({"time": 2**53}, "time is not an integer"),
        ({"extra": 1}, "unknown key 'extra'"),
        ({"ignorable": False}, "ignorable is not true"),
        ({"surfaceOp": "prepend"}, "surfaceOp is malformed"),
        ({"surfaceOp": {"op": "replace", "startSeq": 1}}, "surfaceOp is malformed"),
        ({"sourceEventSeqs": 3}, "not an array"),
        ({"sourceEventSeqs": [9]}, "no earlier seq"),
        ({"sourceEventSeqs": [True]}, "no earlier seq"),
        ({"sourceEventSeqs": [3, 3]}, "repeats"),
        ({"sourceEventSeqs": [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]}, "repeats"),
        ({"surfaceOp": {"op": "insert", "startSeq": 1, "endSeq": 2}}, "surfaceOp is malformed"),
        ({"sourceEventSeqs": [[3, 1]]}, "malformed"),
        ({"sourceEventSeqs": [[1, 9]]}, "malformed"),
        ({"sourceEventSeqs": [[3, 5], 1]}, "does not rise"),
    ],
)
def test_a_malformed_envelope_is_corrupt_and_says_where(change: JsonObject, why: str) -> None:
    with pytest.raises(SessionCorruptError, match=f"seq 9: .*{why}"):
        event_from_row({**ROW, **change}, 9)


@pytest.mark.parametrize("key", ROW)
def test_a_missing_envelope_key_is_named(key: str) -> None:
    with pytest.raises(SessionCorruptError, match=f"seq 9: the row lacks '{key}'"):
        event_from_row({name: value for name, value in ROW.items() if name != key}, 9)


@pytest.mark.parametrize("row", [None, 1, "x", [], True])
def test_a_row_that_is_no_object_is_corrupt(row: JsonValue) -> None:
    with pytest.raises(SessionCorruptError, match="not an object"):
        event_from_row(row, 0)


@pytest.mark.parametrize(
    ("seqs", "packed"),
    [
        ((1, 2, 3), [[1, 3]]),
        ((1, 2), [1, 2]),
        ((0, 2, 3, 4, 6, 8, 9), [0, [2, 4], 6, 8, 9]),
        ((5, 1, 2, 3), [5, 1, 2, 3]),
        ((), []),
    ],
)
def test_runs_of_three_are_packed_only_where_the_list_rises(
    seqs: tuple[int, ...], packed: JsonValue
) -> None:
    row = row_from_event(Event(20, 1, "tool/result", {}, "append", seqs))
    assert row["sourceEventSeqs"] == packed
    assert list(row) == ["type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp"]


@given(st.lists(st.integers(0, 99), unique=True).map(tuple), st.booleans())
def test_any_source_list_survives_the_round_trip(seqs: tuple[int, ...], rises: bool) -> None:
    event = Event(100, 1, "x/y", None, (3, 4), tuple(sorted(seqs)) if rises else seqs, True)
    assert event_from_row(row_from_event(event), 100) == event


def test_an_unknown_types_surface_op_is_kept_as_it_is() -> None:
    row: JsonObject = {
        "type": "new/thing",
        "seq": 0,
        "time": 1,
        "data": None,
        "surfaceOp": {"op": "fold", "by": 3},
        "ignorable": True,
    }
    assert row_from_event(event_from_row(row, 0)) == row


def test_the_known_types_are_the_62_of_the_format() -> None:
    assert len(KNOWN_TYPES) == 62
    assert not KNOWN_TYPES & RETIRED_TYPES


ODD: list[JsonValue] = ["\ud800", 2**70, '\u2028 \x7f\x1b\\"', 1e-7, "é", {"": [None, True, -0.5]}]


@pytest.mark.parametrize("value", ODD)
def test_json_that_only_one_library_writes_survives(
    value: JsonValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = jsontext.dumps(value)
    assert b"\n" not in text
    monkeypatch.setattr(jsontext, "orjson", None)
    assert jsontext.loads(text) == value
    assert jsontext.loads(jsontext.dumps(value)) == value


@pytest.mark.parametrize("fast", [True, False])
def test_no_text_but_json_is_read(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fast:
        monkeypatch.setattr(jsontext, "orjson", None)
    for text in (b"NaN", b"Infinity", b"{", b"", b"\xff", b'"\x01"', b"[" * 100_000, b"1 2"):
        with pytest.raises(ValueError):  # noqa: PT011 - each library has its own words
            jsontext.loads(text)


def test_the_store_works_without_orjson(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "orjson", None)
    try:
        slow = importlib.reload(jsontext)
        assert slow.orjson is None
        assert slow.loads(slow.dumps({"a": "ü"})) == {"a": "ü"}
    finally:
        monkeypatch.undo()
        importlib.reload(jsontext)


def test_a_header_and_rows_are_lines() -> None:
    assert dump_header(header()).count(b"\n") == 1
    events = [
        Event(0, 1, "todo/write", {"todos": []}),
        Event(1, 2, "plugin:a/b", 1, None, None, True),
    ]
    lines = dump_events(events)
    assert lines == (
        b'{"type":"todo/write","seq":0,"time":1,"data":{"todos":[]}}\n'
        b'{"type":"plugin:a/b","seq":1,"time":2,"data":1,"ignorable":true}\n'
    )
    assert events_of(lines.splitlines()) == events
    assert dump_events([]) == b""
