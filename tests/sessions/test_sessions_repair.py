"""Closing a turn that was cut off at any row."""

from pathlib import Path

import pytest
from session_rows import (
    START_MS,
    Clock,
    answer,
    call,
    closing,
    folded,
    header,
    opening,
    placed,
    put,
    result,
    store,
    text_turn,
)

from acp_bridge.sessions import LogState
from acp_bridge.sessions.codec import encode_batch
from acp_bridge.sessions.events import dump_events
from acp_bridge.sessions.header import dump_header
from acp_bridge.sessions.repair import boundary, closers
from acp_bridge.sessions.validation.messages import NOT_STARTED_TEXT
from acp_bridge.vocabulary import Draft, Event

TOOLS = [
    *text_turn(1),
    *opening(2),
    answer(2, "a", "b"),
    call(2, "a"),
    call(2, "b"),
    result(2, "b", 18),
    result(2, "a", 17),
    *closing(2),
]


def types(drafts: list[Draft]) -> list[str]:
    return [draft.type for draft in drafts]


@pytest.mark.parametrize("cut", range(len(TOOLS) + 1))
def test_a_log_cut_after_any_row_is_closed_soundly(cut: int) -> None:
    state = folded(TOOLS[:cut])
    more = [*closers(state), *boundary(state)]
    closed = folded([*TOOLS[:cut], *more])
    assert closed.turn is None
    assert closed.step is None
    assert closed.pending == {}
    assert types(more)[-1] == "session/end-seed"
    assert closers(closed) == []
    assert boundary(closed) == []


def test_a_started_call_has_an_unknown_outcome_and_the_other_never_started() -> None:
    drafts = closers(folded([*opening(1), answer(1, "a", "b"), call(1, "a")]))
    assert types(drafts) == ["tool/result", "tool/result", "step/end", "turn/end"]
    started, waiting = drafts[0], drafts[1]
    assert started.source_event_seqs == (8,)
    assert waiting.source_event_seqs is None
    assert isinstance(started.data, dict)
    assert isinstance(waiting.data, dict)
    assert started.data["error"] == {
        "name": "ToolOutcomeUnknownError",
        "code": "TOOL_OUTCOME_UNKNOWN",
    }
    assert waiting.data["error"] == {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    assert waiting.data["message"] == {
        "id": "interrupted-tool-result-b-10",
        "role": "tool",
        "toolCallId": "b",
        "isError": True,
        "source": {"kind": "tool", "callId": "b"},
        "content": [{"type": "text", "text": NOT_STARTED_TEXT}],
    }
    assert drafts[3].data == {"turn": 1, "reason": {"kind": "interrupted"}}


def test_a_killed_compaction_is_orphaned_by_the_end_seed_in_the_same_batch() -> None:
    killed = [
        *text_turn(1),
        Draft("turn/start", {"turn": 2}),
        Draft("compaction/start", {"compactionId": "k", "turn": 2}),
    ]
    state = folded(killed)
    more = [*closers(state), *boundary(state)]
    assert types(more) == ["turn/end", "session/end-seed"]
    assert folded([*killed, *more]).compaction is None


def test_an_end_seed_inside_an_open_turn_is_no_boundary_for_its_end() -> None:
    seeded = header(is_seeded=True)
    mark = Draft("session/end-seed", {"inherited": True})
    state = folded([*opening(1), mark], seeded)
    assert types([*closers(state), *boundary(state)]) == [
        "step/end",
        "turn/end",
        "session/end-seed",
    ]
    assert boundary(folded([*text_turn(1), mark], seeded)) == []


def test_a_log_without_rows_gets_its_boundary() -> None:
    assert types(boundary(LogState(header()))) == ["session/end-seed"]


def write(root: Path, events: list[Event]) -> None:
    lines = dump_events(events)
    put(root, "s", encode_batch(dump_header(header()), "zstd") + encode_batch(lines, "zstd"))


def test_closing_rows_copy_the_last_time_and_the_boundary_has_its_own(tmp_path: Path) -> None:
    events = placed([*opening(1)])
    write(tmp_path, events)
    writer = store(tmp_path).open("s")
    writer.close()
    times = [event.time_ms for event in writer.events[len(events) :]]
    assert times == [events[-1].time_ms, events[-1].time_ms, START_MS + 1]
    assert times[-1] == Clock()()


def test_the_repair_is_one_batch(tmp_path: Path) -> None:
    write(tmp_path, placed(opening(1)))
    path = next(tmp_path.rglob("session.v4*"))
    before = path.read_bytes()
    store(tmp_path).open("s").close()
    appended = path.read_bytes()[len(before) :]
    assert appended.count(b"\x28\xb5\x2f\xfd") == 1
