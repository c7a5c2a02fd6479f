"""What the runtime's rows and names of runs tell of subagents, held to stories told by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shown_story import background, three_levels
from story_rows import ROOT, Story

from acp_bridge.runtime.dsh.delegations import Delegations
from acp_bridge.vocabulary import (
    CallId,
    ChildFinished,
    ChildMessaged,
    ChildSaid,
    ChildStarted,
    Event,
    JsonObject,
    RuntimeEvent,
    SessionId,
    StreamDelta,
    TurnEnd,
)

KID = SessionId("kid")
CWD = Path("/work")


def folded(story: Story) -> list[RuntimeEvent]:
    """The story as the wire would tell it: rows, deltas, and who began and ended below whom."""
    fold = Delegations(ROOT)
    told: list[RuntimeEvent] = []
    catalog: list[Event] = []
    for event in story.told:
        match event:
            case Event(type="subagent/catalog"):
                catalog.append(event)  # it follows the start on this wire
            case Event():
                told += fold.row(ROOT, event)
            case ChildStarted():
                told.append(fold.started(event.parent_id, event.child_id, event.cwd))
                for row in catalog:
                    fold.row(event.parent_id, row)
                catalog.clear()
            case ChildSaid(child_id=child, event=Event(type="subagent/catalog") as row):
                catalog.append(row)
                told.append(ChildSaid(child, row))
            case ChildSaid(child_id=child, event=Event() as row):
                told += fold.row(child, row)
            case ChildSaid(child_id=child, event=StreamDelta() as delta):
                told += fold.delta(child, delta)
            case ChildFinished():
                told += fold.finished(event.parent_id, event.child_id)
    return told


def of_children(story: Story) -> list[RuntimeEvent]:
    kinds = (ChildStarted, ChildSaid, ChildMessaged, ChildFinished)
    return [event for event in story.told if isinstance(event, kinds)]


def steered_and_woken() -> Story:
    story = Story()
    story.turn()
    story.delegate(ROOT, "c1", KID, "helper", task="Look.")
    story.result(ROOT, "c1", "started subagent kid")
    story.steer(ROOT, "c2", KID, "Faster.")
    story.say(KID, "First.")
    story.finish(KID)
    story.wake(ROOT, "c3", KID, "And again.")
    story.say(KID, "Second.")
    story.finish(KID)
    story.end_turn()
    return story


@pytest.mark.parametrize("made", [background, three_levels, steered_and_woken])
def test_a_story_is_told_of_its_subagents_as_it_was(made: Callable[[], Story]) -> None:
    story = made()
    assert folded(story) == of_children(story)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["new", "wake", "steer"]),
            st.sampled_from(["completed", "aborted", "error", "max-tokens"]),
        ),
        max_size=6,
    )
)
def test_any_series_of_runs_is_told_with_its_calls_names_and_ends(
    steps: list[tuple[str, str]],
) -> None:
    story = Story()
    story.turn()
    kids: list[SessionId] = []
    for number, (step, end) in enumerate(steps):
        call = f"c{number}"
        if step == "new" or not kids:
            kid = story.delegate(ROOT, call, f"kid{number}", f"label {number}", task=f"do {number}")
            kids.append(kid)
            story.result(ROOT, call, f"started subagent {kid}")
        else:
            story.wake(ROOT, call, kids[-1], f"again {number}")
        if step == "steer":
            story.steer(ROOT, f"{call}-more", kids[-1], "more")
        story.say(kids[-1], f"Answer {number}.")
        story.finish(kids[-1], end)
    assert folded(story) == of_children(story)


def row(seq: int, kind: str, **data: object) -> Event:
    held: JsonObject = data  # type: ignore[assignment]
    return Event(seq, seq, kind, held)


def call(seq: int, call_id: str, name: str, arguments: str) -> Event:
    return row(seq, "tool/call", callId=call_id, name=name, arguments=arguments)


def test_the_log_names_the_children_that_it_has() -> None:
    fold = Delegations(ROOT, [row(0, "subagent/catalog", childId=KID, label="helper")])
    fold.row(ROOT, call(1, "c1", "subagent", '{"description": "other", "prompt": "x"}'))
    # It works again by itself: the open call makes another one.
    started = fold.started(ROOT, KID, CWD)
    assert (started.label, started.call_id, started.task) == ("helper", "", "")


def test_a_message_that_was_refused_or_is_for_the_parent_steers_nobody() -> None:
    fold = Delegations(ROOT)
    fold.started(ROOT, KID, CWD)
    for seq, (target, is_error) in enumerate([("kid", True), ("root", False)]):
        arguments = f'{{"agent_id": "{target}", "message": "x"}}'
        assert fold.row(ROOT, call(2 * seq, "c1", "send_message", arguments)) == []
        message = {"toolCallId": "c1", "isError": is_error}
        assert fold.row(ROOT, row(2 * seq + 1, "tool/result", message=message)) == []


def test_arguments_that_are_no_object_name_nothing() -> None:
    fold = Delegations(ROOT)
    fold.row(ROOT, call(0, "c1", "subagent", "{bad"))
    assert fold.started(ROOT, KID, CWD) == ChildStarted(
        ROOT, KID, "subagent", "", CallId("c1"), CWD
    )


def test_an_older_run_below_another_parent_ends_alone() -> None:
    fold = Delegations(ROOT)
    other = SessionId("other")
    fold.started(ROOT, KID, CWD)
    fold.started(other, KID, CWD)
    assert [type(one) for one in fold.finished(ROOT, KID)] == [ChildFinished]
    assert fold.running() == [KID]
    assert fold.finished(ROOT, KID) == []
    assert [one.parent_id for one in fold.finished(other, KID) if isinstance(one, ChildFinished)]


def test_what_a_lost_child_has_in_its_log_is_told_once_and_then_its_end() -> None:
    fold = Delegations(ROOT)
    fold.started(ROOT, KID, CWD)
    rows = [row(3, "turn/start"), row(4, "step/start")]
    rest = row(5, "turn/end", reason={"kind": "aborted"})
    fold.row(KID, rows[0])
    assert fold.lost(KID, [*rows, rest]) == [
        ChildSaid(KID, rows[1]),
        ChildSaid(KID, rest),
        ChildFinished(ROOT, KID, TurnEnd("aborted"), None),
    ]
    assert fold.running() == []


def test_a_child_of_which_no_row_was_heard_is_not_told_what_it_inherited() -> None:
    fold = Delegations(ROOT)
    fold.started(ROOT, KID, CWD)
    told = fold.lost(KID, [row(0, "turn/start"), row(1, "turn/end", reason={"kind": "completed"})])
    assert told == [ChildFinished(ROOT, KID, TurnEnd("aborted"), None)]


def test_a_delta_of_who_does_not_work_is_nobodys() -> None:
    assert Delegations(ROOT).delta(KID, StreamDelta(1, 1, 1, 0, "text", "x")) == []
