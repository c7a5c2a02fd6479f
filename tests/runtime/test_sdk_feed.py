"""What a session and its subagents tell, as notifications of the SDK wire."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sdk_rig import CHILD, GRANDCHILD, ROOT, brief, finished, message, row, started, turn

from acp_bridge.runtime.sdk.feed import Feed
from acp_bridge.vocabulary import (
    CallId,
    ChildMessaged,
    ChildSaid,
    Event,
    OptionsChanged,
    RuntimeEvent,
    StreamDelta,
)


def told(feed: Feed, events: Iterable[RuntimeEvent]) -> list[str]:
    return brief(notice for event in events for notice in feed.take(event))


def test_a_turn_is_between_running_and_idle() -> None:
    feed = Feed(ROOT)
    feed.expect("m")
    assert not feed.quiet
    assert told(feed, turn("m")) == [
        "root agent/inbox/spliced",
        "root running",
        "root turn/start",
        "root agent/inbox/spliced",
        "root user/message",
        "root turn/end",
        "root idle",
    ]
    assert feed.quiet


def test_a_row_goes_out_as_it_is_in_the_log() -> None:
    event = Event(7, 8, "user/message", message("m"), (1, 4), (1, 2, 3, 4), ignorable=True)
    ((method, params),) = Feed(ROOT).take(event)
    assert method == "session.event"
    assert params == {
        "sessionId": "root",
        "event": {
            "type": "user/message",
            "seq": 7,
            "time": 8,
            "data": message("m"),
            "sourceEventSeqs": [[1, 4]],
            "surfaceOp": {"op": "replace", "startSeq": 1, "endSeq": 4},
            "ignorable": True,
        },
    }


def test_a_session_with_a_waiting_prompt_does_not_pass_through_idle() -> None:
    feed = Feed(ROOT)
    feed.expect("one")
    feed.expect("two")
    lines = told(feed, [*turn("one"), *turn("two", 2)])
    assert [line for line in lines if line in {"root running", "root idle"}] == [
        "root running",
        "root idle",
    ]
    assert lines[-1] == "root idle"


def test_a_waiting_prompt_that_has_no_turn_ends_in_idle() -> None:
    feed = Feed(ROOT)
    feed.expect("one")
    feed.expect("two")
    told(feed, turn("one"))
    assert brief(feed.drop("one")) == []
    assert not feed.has("two")
    assert brief(feed.drop("two")) == ["root idle"]
    assert feed.quiet


def test_a_prompt_dropped_while_another_runs_leaves_the_status_alone() -> None:
    feed = Feed(ROOT)
    feed.expect("one")
    feed.expect("two")
    told(feed, turn("one")[:-1])
    assert brief(feed.drop("two")) == []
    assert not feed.quiet
    assert told(feed, turn("one")[-1:]) == ["root turn/end", "root idle"]


def test_a_prompt_that_never_began_leaves_no_trace() -> None:
    feed = Feed(ROOT)
    feed.expect("m")
    assert brief(feed.drop("m")) == []
    assert feed.quiet


def test_a_message_is_there_from_its_place_in_the_inbox_on() -> None:
    feed = Feed(ROOT)
    feed.expect("m")
    assert not feed.has("m")
    feed.take(turn("m")[0])
    assert feed.has("m")


def test_subagents_at_any_depth_are_told_with_their_own_rows() -> None:
    feed = Feed(ROOT)
    feed.expect("m")
    lines = told(
        feed,
        [
            *turn("m")[:-1],
            started(ROOT, CHILD),
            ChildSaid(CHILD, row("subagent/descriptor", provider="fork")),
            ChildSaid(CHILD, row("turn/start", turn=1)),
            started(CHILD, GRANDCHILD),
            ChildSaid(GRANDCHILD, row("turn/start", turn=1)),
            ChildMessaged(CHILD, GRANDCHILD, CallId("c"), "hurry"),
            ChildSaid(GRANDCHILD, row("turn/end", turn=1)),
            finished(CHILD, GRANDCHILD),
            turn("m")[-1],
        ],
    )
    assert lines[5:] == [
        "subagent.started root child",
        "child subagent/descriptor",
        "child running",
        "child turn/start",
        "subagent.started child grand",
        "grand running",
        "grand turn/start",
        "grand turn/end",
        "grand idle",
        "subagent.finished child grand",
        "root turn/end",
        "root idle",
    ]
    assert not feed.quiet, "the child still works"
    ending: list[RuntimeEvent] = [ChildSaid(CHILD, row("turn/end", turn=1)), finished(ROOT, CHILD)]
    assert told(feed, ending) == ["child turn/end", "child idle", "subagent.finished root child"]
    assert feed.quiet


def test_what_a_finished_subagent_looks_like() -> None:
    feed = Feed(ROOT)
    told(
        feed, [started(ROOT, CHILD), ChildSaid(CHILD, row("subagent/descriptor", provider="fork"))]
    )
    (finish,) = feed.take(finished(ROOT, CHILD))
    assert finish == (
        "subagent.finished",
        {
            "provider": "fork",
            "agentId": "child",
            "parentSessionId": "root",
            "childSessionId": "child",
            "status": "ok",
            "stopReason": "completed",
            "lastAssistantMessage": [{"type": "text", "text": "said"}],
        },
    )


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("completed", "ok", "completed"),
        ("max-tokens", "ok", "max-tokens"),
        ("aborted", "error", "aborted"),
        ("error", "error", "error"),
        ("refusal", "error", "error"),
        ("step-limit", "error", "error"),
    ],
)
def test_a_subagents_end_is_said_in_the_logs_words(kind: str, status: str, reason: str) -> None:
    ((_, params),) = Feed(ROOT).take(finished(ROOT, CHILD, kind, None))
    assert (params["status"], params["stopReason"]) == (status, reason)
    assert "lastAssistantMessage" not in params
    assert "provider" not in params, "its descriptor was never seen"


def test_a_subagent_cut_off_in_a_turn_is_idle_before_it_is_finished() -> None:
    feed = Feed(ROOT)
    told(feed, [started(ROOT, CHILD), ChildSaid(CHILD, row("turn/start", turn=1))])
    assert told(feed, [finished(ROOT, CHILD, "aborted")]) == [
        "child idle",
        "subagent.finished root child",
    ]


def test_a_subagent_that_is_woken_again_is_told_again() -> None:
    feed = Feed(ROOT)
    again: list[RuntimeEvent] = [started(ROOT, CHILD), finished(ROOT, CHILD)]
    assert (
        told(feed, again * 2)
        == [
            "subagent.started root child",
            "subagent.finished root child",
        ]
        * 2
    )
    assert feed.quiet


def test_what_is_no_row_is_not_told() -> None:
    delta = StreamDelta(1, 1, 1, 0, "text", "hi")
    assert told(Feed(ROOT), [delta, OptionsChanged(), ChildSaid(CHILD, delta)]) == []


@given(st.data())
def test_every_session_alternates_between_running_and_idle(data: st.DataObject) -> None:
    """Whatever prompts come, wait, run and are lost, and whatever children do in between."""
    feed = Feed(ROOT)
    waiting: list[str] = []
    at: dict[str, bool] = {}
    said: list[str] = []
    count = 0
    for _ in range(data.draw(st.integers(1, 12))):
        match data.draw(st.sampled_from(["prompt", "turn", "lose", "child"])):
            case "prompt":
                count += 1
                waiting.append(f"m{count}")
                feed.expect(waiting[-1])
            case "turn" if waiting:
                first = waiting.pop(0)
                said += told(feed, turn(first))
                said += brief(feed.drop(first))
            case "lose" if waiting:
                said += brief(feed.drop(waiting.pop()))
            case "child":
                said += told(feed, [started(ROOT, CHILD), ChildSaid(CHILD, row("turn/start"))])
                said += told(feed, [finished(ROOT, CHILD)])
    for line in said:
        session, _, what = line.partition(" ")
        if what in {"running", "idle"}:
            assert at.get(session, False) != (what == "running"), said
            at[session] = what == "running"
        elif what in {"turn/start", "turn/end"}:
            assert at.get(session), said
    assert feed.quiet == (not waiting)
    assert waiting or not at.get("root", False)
