"""What is acked and what is sent again: the outbox of an execution against a service that fails."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.errors import EventServiceError
from acp_bridge.runevents.model import json_text
from acp_bridge.runevents.service.guard import BODY_BYTES_MAX
from acp_bridge.subagents.remote_payloads import (
    AskWithdrawnItem,
    ChildFinishedItem,
    Item,
    RowItem,
    TransientItem,
    item_json,
)
from acp_bridge.vocabulary import (
    CallId,
    Event,
    FileDiff,
    SessionId,
    StreamDelta,
    ToolOutput,
    ToolPreview,
    TurnEnd,
)
from acp_bridge.worker import forwarding
from acp_bridge.worker.forwarding import BATCH_BYTES_MAX, FULL_BYTES, ITEM_BYTES_MAX, Batch, Outbox

A, B = SessionId("a"), SessionId("b")


def row(seq: int, size: int = 0, session_id: SessionId = A) -> RowItem:
    return RowItem(session_id, Event(seq, 0, "user/message", {"text": "x" * size}))


def piece(text: str, session_id: SessionId = A, block: int = 0) -> TransientItem:
    return TransientItem(session_id, StreamDelta(1, 1, 1, block, "text", text))


def output(text: str, call_id: str = "c") -> TransientItem:
    return TransientItem(A, ToolOutput(CallId(call_id), text))


def preview(text: str) -> TransientItem:
    return TransientItem(A, ToolPreview(CallId("c"), (FileDiff("/f", None, text),)))


class FailingService:
    """Takes each event id once, as the real one does, and loses answers as it is told."""

    def __init__(self) -> None:
        self.taken: list[Item] = []
        self._seen: dict[str, tuple[Item, ...]] = {}

    def post(self, batch: Batch, fate: Literal["answered", "answer lost", "never came"]) -> bool:
        """Whether the sender hears that it was taken."""
        if fate == "never came":
            return False
        if batch.event_id in self._seen:
            assert self._seen[batch.event_id] == batch.items, "what is sent again is the same"
        else:
            self._seen[batch.event_id] = batch.items
            self.taken += batch.items
        return fate == "answered"


def flat(items: Iterable[Item]) -> Iterator[object]:
    """Items with pieces taken apart, so that it does not matter which were joined."""
    for item in items:
        match item:
            case TransientItem(event=StreamDelta() | ToolOutput() as event):
                without = attrs.evolve(event, text="")
                yield from ((item.session_id, without, letter) for letter in event.text)
            case _:
                yield item


ITEMS = st.one_of(
    st.builds(piece, st.text(max_size=5), st.sampled_from([A, B]), st.integers(0, 1)),
    st.builds(output, st.text(max_size=5), st.sampled_from("cd")),
    st.builds(preview, st.text(max_size=5)),
    st.builds(row, st.integers(0, 9), st.sampled_from([0, 10, BATCH_BYTES_MAX // 2])),
    st.just(AskWithdrawnItem("ask")),
    st.just(ChildFinishedItem(A, B, TurnEnd("completed"), None)),
)
FATES = st.sampled_from(["answered", "answer lost", "never came"])


@given(st.lists(st.one_of(ITEMS, FATES), max_size=60))
def test_every_item_arrives_once_and_in_order_whatever_is_lost(schedule: list[object]) -> None:
    outbox, service = Outbox("x"), FailingService()
    put: list[Item] = []
    promises: dict[int, int] = {}
    """How many items must have arrived once a position is accepted."""

    def send(fate: object) -> None:
        batch = outbox.batch()
        if batch is None:
            assert outbox.is_empty
            return
        sizes = [len(json_text(item_json(item))) for item in batch.items]
        assert sum(sizes) <= BATCH_BYTES_MAX or len(sizes) == 1
        before = outbox.accepted_position
        if service.post(batch, fate):  # type: ignore[arg-type]
            outbox.accepted(batch)
            assert outbox.accepted_position > before
        else:
            assert outbox.accepted_position == before
            assert outbox.batch() is batch

    for one in schedule:
        if isinstance(one, str):
            send(one)
        else:
            outbox.put(one)  # type: ignore[arg-type]
            put.append(one)  # type: ignore[arg-type]
            promises[outbox.position] = len(list(flat(put)))
        for position, count in promises.items():
            if outbox.accepted_position >= position:
                assert len(list(flat(service.taken))) >= count
    while not outbox.is_empty:
        send("answered")
    assert list(flat(service.taken)) == list(flat(put))
    assert outbox.size == 0
    assert outbox.batch() is None


def test_pieces_that_wait_are_joined_and_those_of_other_streams_are_not() -> None:
    outbox = Outbox("x")
    outbox.put(piece("a"))
    first = outbox.batch()
    for item in (piece("b"), piece("c"), piece("d", block=1), piece("e", B), output("f"),
                 output("g"), output("h", "d"), row(0), piece("i", B)):  # fmt: skip
        outbox.put(item)
    assert outbox.is_urgent
    assert first is not None
    assert first.items == (piece("a"),), "what was sent stays as it is"
    outbox.accepted(first)
    second = outbox.batch()
    assert second is not None
    assert second.items == (piece("bc"), piece("d", block=1), piece("e", B), output("fg"),
                            output("h", "d"), row(0), piece("i", B))  # fmt: skip
    assert second.event_id != first.event_id


def test_pieces_alone_are_not_urgent() -> None:
    outbox = Outbox("x")
    outbox.put(piece("a"))
    outbox.put(output("b"))
    assert not outbox.is_urgent
    outbox.put(preview("c"))  # somebody is going to be asked
    assert outbox.is_urgent


def test_whoever_makes_more_than_the_line_takes_has_to_wait() -> None:
    outbox = Outbox("x")
    while not outbox.is_full:
        outbox.put(row(0, 100_000))
    assert FULL_BYTES <= outbox.size < FULL_BYTES + 101_000
    while (batch := outbox.batch()) is not None:
        outbox.accepted(batch)
    assert not outbox.is_full


def test_a_row_that_no_request_can_hold_is_refused_with_its_size() -> None:
    outbox = Outbox("x")
    outbox.put(row(0, ITEM_BYTES_MAX - 200))
    with pytest.raises(EventServiceError, match=r"made a row of \d+ bytes"):
        outbox.put(row(1, ITEM_BYTES_MAX))
    assert outbox.position == 1


def test_a_preview_that_no_request_can_hold_is_left_out() -> None:
    outbox = Outbox("x")
    outbox.put(preview("x" * ITEM_BYTES_MAX))
    assert outbox.is_empty


def test_the_largest_item_fits_the_services_bound_for_a_body() -> None:
    execution_id, event_id = "x" * 100, "e" * 160
    around = {"execution_id": execution_id, "event_id": event_id, "rows": []}
    assert ITEM_BYTES_MAX + len(json_text(around)) <= BODY_BYTES_MAX  # type: ignore[arg-type]


def test_a_queue_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "QUEUE_BYTES_MAX", 1_000)
    outbox = Outbox("x")
    outbox.put(row(0, 500))
    with pytest.raises(EventServiceError, match="1000 bytes wait already"):
        outbox.put(row(1, 500))


def test_nothing_of_it_is_imported_unless_it_is_asked_for() -> None:
    code = "import sys, acp_bridge.cli.assemble; print([m for m in sys.modules if 'worker' in m])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
