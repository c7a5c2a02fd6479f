"""Bytes into events, as the HTML standard reads them, at any split; no half characters."""

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_bridge import sse
from acp_bridge.models import jsontext
from acp_bridge.models.jsontext import body_bytes, event_json
from acp_bridge.sse import EventBuffer, EventTooLongError


def read(*pieces: bytes) -> list[str]:
    buffer = EventBuffer()
    return [event for piece in pieces for event in buffer.receive(piece)]


def as_the_standard_says(data: bytes) -> list[str]:
    """The slow reading: whole text, line by line."""
    text = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    found: list[str] = []
    values: list[bytes] = []
    for line in text.split(b"\n")[:-1]:
        name, _, value = line.partition(b":")
        if not line:
            found.append(b"\n".join(values).decode("utf-8", "replace"))
            values = []
        elif name == b"data":
            values.append(value.removeprefix(b" "))
    return [event for event in found if event]


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\n", ["a"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a\n\n", [" a"]),
        (b"event: x\ndata: a\n\n", ["a"]),
        (b"data: a\nevent: x\n\n", ["a"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data\ndata: b\n\n", ["\nb"]),
        (b"id: 1\nretry: 2\n: words\ndata: a\n\n", ["a"]),
        (b"database: no\n\n", []),
        (b": ping\n\n", []),
        (b"\n\n\n\ndata: a\n\n\n\ndata: b\n\n", ["a", "b"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        (b"data: cut off", []),
        (b"data: cut off\n", []),
        (b"data: a\r\rdata: b\r\n\r\n", ["a", "b"]),
    ],
)
def test_events_are_read_as_the_standard_says(data: bytes, events: list[str]) -> None:
    assert read(data) == events == as_the_standard_says(data)
    assert read(*(bytes([byte]) for byte in data)) == events


LINES = st.sampled_from(
    [b"data: a", b"data:b", b"data", b"event: x", b": c", b"", b"", b"data: \xc3\xa4", b"dat"]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(
    lines=st.lists(st.tuples(LINES, ENDS)),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef"]),
    cuts=st.lists(st.integers(0, 200)),
)
@example(lines=[(b"data: a", b"\r"), (b"", b"\r\n")], mark=b"", cuts=[8, 9, 10])
def test_any_split_gives_the_events_of_the_whole(
    lines: list[tuple[bytes, bytes]], mark: bytes, cuts: list[int]
) -> None:
    data = mark + b"".join(line + end for line, end in lines)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in pairwise(places)]
    assert read(*pieces) == as_the_standard_says(data)


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "EVENT_BYTES_MAX", 100)
    buffer = EventBuffer()
    assert buffer.receive(b"data: a\n\n" * 50) == ["a"] * 50
    assert buffer.receive(b"data: " + b"a" * 94) == []
    with pytest.raises(EventTooLongError):
        buffer.receive(b"a")


@pytest.mark.parametrize("fast", [True, False])
def test_half_a_character_goes_neither_in_nor_out(
    monkeypatch: pytest.MonkeyPatch, *, fast: bool
) -> None:
    if not fast:
        monkeypatch.setattr(jsontext, "_loads", json.loads)
        monkeypatch.setattr(jsontext, "_dumps", None)
    assert event_json('{"a": "\\ud83d\\ude42 \\uD83D x"}') == {"a": "🙂 ? x"}
    assert event_json('{"a": "ä"}') == {"a": "ä"}
    assert body_bytes({"a": "ä\ud83d"}) == '{"a":"ä?"}'.encode()
    assert body_bytes({"a": [1, None, True], "n": 1 << 70}) == (
        b'{"a":[1,null,true],"n":1180591620717411303424}'
    )
    with pytest.raises(json.JSONDecodeError):
        event_json("{")
