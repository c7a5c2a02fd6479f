"""The run event's JSON: what is refused names its field, what is taken comes back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.errors import InvalidParamsError
from acp_bridge.runevents.model import (
    COUNT_MAX,
    EVENT_ID_CHARS_MAX,
    ID_CHARS_MAX,
    EventDraft,
    RunId,
    StoredEvent,
    draft_from_json,
    event_from_json,
    json_text,
    object_from_text,
    stored_text,
)
from acp_bridge.sse import EventBuffer
from acp_bridge.vocabulary import JsonValue

GOOD: dict[str, JsonValue] = {
    "event_type": "new_message",
    "run_id": "run-1",
    "event_id": "e-1",
    "occurred_at": "2026-11-30T12:00:00.123Z",
    "ref_id": "run-0",
    "execution_id": None,
    "payload": {"text": "hello"},
}

BAD: list[tuple[str, JsonValue]] = [
    ("event_type", None),
    ("event_type", "Upper"),
    ("event_type", "x" * 65),
    ("run_id", ""),
    ("run_id", 7),
    ("run_id", "a b"),
    ("run_id", "x" * (ID_CHARS_MAX + 1)),
    ("event_id", None),
    ("event_id", "line\nbreak"),
    ("event_id", "x" * (EVENT_ID_CHARS_MAX + 1)),
    ("ref_id", 1),
    ("execution_id", ""),
    ("occurred_at", "yesterday"),
    ("occurred_at", "2026-11-30T12:00:00"),
    ("occurred_at", 1),
    ("payload", "text"),
    ("payload", None),
    ("payload", []),
    ("sequence", 0),
    ("sequence", True),
    ("sequence", -1),
    ("sequence", COUNT_MAX + 1),
    ("sequence", "1"),
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_a_bad_field_is_named(field: str, value: JsonValue) -> None:
    with pytest.raises(InvalidParamsError) as refused:
        event_from_json({**GOOD, "sequence": 1, field: value})
    assert refused.value.field == field
    assert field in refused.value.details


@pytest.mark.parametrize("value", [None, [], "text", 1])
def test_an_event_that_is_no_object_is_refused(value: JsonValue) -> None:
    with pytest.raises(InvalidParamsError):
        draft_from_json(value)


@pytest.mark.parametrize("text", ["", "{", "[]", "NaN", '{"a": NaN}', "[" * 100_000, b"\xff\xfe"])
def test_a_text_that_is_no_json_object_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidParamsError) as refused:
        object_from_text(text)
    assert refused.value.field == "(body)"


def test_the_address_gives_the_run_and_the_server_the_time() -> None:
    item = {name: value for name, value in GOOD.items() if name not in {"run_id", "occurred_at"}}
    draft = draft_from_json(item, run_id=RunId("run-7"), now="2026-11-30T13:00:00+00:00")
    assert (draft.run_id, draft.occurred_at) == ("run-7", "2026-11-30T13:00:00+00:00")


def test_an_item_cannot_name_another_run_than_its_address() -> None:
    with pytest.raises(InvalidParamsError) as refused:
        draft_from_json(GOOD, run_id=RunId("run-7"))
    assert refused.value.field == "run_id"


def test_a_number_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidParamsError) as refused:
        json_text({"number": float("inf")})
    assert refused.value.field == "payload"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(payload=st.dictionaries(st.text(st.characters(codec=None)), json_values, max_size=4))
def test_any_payload_survives_log_and_stream(payload: dict[str, JsonValue]) -> None:
    draft = EventDraft("rows", RunId("r"), "e", "2026-11-30T12:00:00Z", payload=payload)
    stored = StoredEvent(12, RunId("r"), stored_text(draft))
    (data,) = EventBuffer().receive(stored.frame())
    event = event_from_json(json.loads(data))
    assert event == stored.event()
    as_json = json.loads(json.dumps(payload))  # two halves of a character become one there
    assert (event.sequence, event.payload) == (12, as_json)


@given(value=json_values)
def test_no_json_makes_parsing_raise_anything_else(value: JsonValue) -> None:
    with pytest.raises(InvalidParamsError):
        draft_from_json(value)
