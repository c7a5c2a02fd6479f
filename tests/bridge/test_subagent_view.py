"""What a client is shown of subagents, in both forms."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shown_story import (
    Sent,
    background,
    calls,
    content,
    of_kind,
    replayed,
    sent,
    states,
    texts,
    three_levels,
    view,
)
from story_rows import CWD, ROOT, Story

from acp_bridge.acp.converter import unstructure
from acp_bridge.acp.types import AgentThoughtChunk, Notice
from acp_bridge.bridge.clients import View
from acp_bridge.bridge.subagent_history import history
from acp_bridge.bridge.subagent_view import SubagentView
from acp_bridge.ports import PermissionAsk
from acp_bridge.testing.rules.messages import TITLE_CHARS_MAX
from acp_bridge.vocabulary import CallId, JsonObject, SessionId

FORMS = pytest.mark.parametrize("native", [True, False], ids=["native", "fallback"])


# --- native ------------------------------------------------------------------------------------


def test_natively_a_child_is_announced_on_its_parent_before_anything_bears_its_id() -> None:
    found = sent(background().told, native=True)
    first = next(
        n for n, (name, u) in enumerate(found) if name == "kid" or u.get("sessionId") == "kid"
    )
    assert found[first] == (
        ROOT,
        {
            "sessionUpdate": "subagent_update",
            "sessionId": "kid",
            "title": "reviewer",
            "capabilities": {"cancel": {}},
            "state": {"state": "running"},
        },
    )
    assert found[first + 1] == (
        "kid",
        {
            "sessionUpdate": "session_message",
            "messageId": "1.0.told",
            "senderSessionId": ROOT,
            "recipientSessionId": "kid",
            "content": [{"type": "text", "text": "Look at it."}],
        },
    )


def test_natively_each_sessions_updates_come_under_its_own_id() -> None:
    found = sent(background().told, native=True)
    assert texts(found, ROOT) == "P1 P2"
    assert texts(found, "kid") == "C1The answer."
    assert calls(found)["c1"]["status"] == "completed"
    assert content(calls(found)["c1"]) == "started subagent kid"
    assert calls(found, "kid")["c1"]["title"] == "Read `a.txt`"


def test_natively_the_answer_is_a_message_to_the_parent_and_then_the_child_is_idle() -> None:
    found = sent(background().told, native=True)
    answers = [u for name, u in of_kind(found, "session_message") if name == ROOT]
    assert [u["content"] for u in answers] == [[{"type": "text", "text": "The answer."}]]
    assert (answers[0]["senderSessionId"], answers[0]["recipientSessionId"]) == ("kid", ROOT)
    assert found[-1] == (
        ROOT,
        {
            "sessionUpdate": "subagent_update",
            "sessionId": "kid",
            "state": {"state": "idle", "stopReason": "end_turn"},
        },
    )


def test_natively_an_answer_that_the_parents_call_waited_for_is_not_told_twice() -> None:
    story = Story()
    story.turn()
    child = story.delegate(ROOT, "c1", "kid", "reviewer", wait=True)
    story.say(child, "The answer.")
    story.finish(child)
    story.result(ROOT, "c1", "The answer.")
    found = sent(story.told, native=True)
    assert not [u for name, u in of_kind(found, "session_message") if name == ROOT]
    assert content(calls(found)["c1"]) == "The answer."


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("completed", {"stopReason": "end_turn"}),
        ("max-tokens", {"stopReason": "max_tokens"}),
        ("step-limit", {"stopReason": "max_turn_requests"}),
        ("refusal", {"stopReason": "refusal"}),
        ("aborted", {"stopReason": "cancelled"}),
        (
            "error",
            {"stopReason": "error", "error": {"code": -32603, "message": "The server is down."}},
        ),
    ],
)
def test_natively_idle_says_why_the_work_stopped(kind: str, state: JsonObject) -> None:
    found = sent(background(kind=kind).told, native=True)
    assert states(found, "kid")[-1] == (ROOT, {"state": "idle", **state})


def test_natively_three_levels_nest_by_the_outer_id() -> None:
    story = three_levels()
    found = sent(story.told, native=True)
    outer = {str(u["sessionId"]): name for name, u in of_kind(found, "subagent_update")}
    assert outer == {"one": ROOT, "two": "one", "three": "two"}
    assert [texts(found, name) for name in (ROOT, "one", "two", "three")] == ["R", "1", "2", "3"]


def test_natively_a_folder_is_told_where_it_differs_from_the_parents() -> None:
    story = Story()
    story.turn()
    child = story.delegate(ROOT, "c1", "kid", "k", cwd=Path("/elsewhere"))
    story.delegate(child, "c1", "grandkid", "g")
    updates = of_kind(sent(story.told, native=True), "subagent_update")
    assert [u.get("cwd") for _, u in updates] == ["/elsewhere", None]


def test_natively_a_long_task_goes_on_in_chunks() -> None:
    story = Story()
    story.turn()
    story.delegate(ROOT, "c1", "kid", "k", task="x" * 400_000)
    found = sent(story.told, native=True)
    (first,) = of_kind(found, "session_message")
    rest = of_kind(found, "session_message_chunk")
    parts = [str(first[1]["content"][0]["text"])]  # type: ignore[call-overload,index]
    parts += [str(u["content"]["text"]) for _, u in rest]  # type: ignore[call-overload,index]
    assert "".join(parts) == "x" * 400_000
    assert max(map(len, parts)) <= 150_000


# --- fallback ----------------------------------------------------------------------------------


def test_without_the_capability_nothing_bears_a_childs_id_and_no_kind_is_unknown() -> None:
    for story in (background(), three_levels()):
        found = sent(story.told, native=False)
        assert {name for name, _ in found} == {ROOT}
        kinds = {update["sessionUpdate"] for _, update in found}
        assert kinds <= {"agent_message_chunk", "tool_call", "tool_call_update"}


def noticed() -> Story:
    """A child that is told of beside its work: a sentence of ours, and a call that is retried."""
    story = Story()
    story.turn()
    child = story.delegate(ROOT, "c1", "kid", "the `reviewer`")
    story.result(ROOT, "c1", "started subagent kid")
    story.turn(child)
    story.say(ROOT, "Meanwhile.")
    story.row(child, "plugin:acp-bridge/notice", {"text": "The model is gone."})
    failure: JsonObject = {"message": "busy"}
    retry: JsonObject = {"turn": 1, "step": 1, "retry": 1, "maxRetries": 5, "failure": failure}
    story.row(child, "llm/retry", retry)
    story.say(child, "Done.")
    story.finish(child)
    story.end_turn()
    return story


SAID_OF_THE_CHILD = [
    "Subagent the 'reviewer': The model is gone.",
    "Subagent the 'reviewer': The model call failed: busy. Trying again (1 of 5).",
]


def test_what_is_said_beside_a_childs_work_stands_on_the_root_under_its_name() -> None:
    story = noticed()
    for found in (sent(story.told, native=False), replayed(story, native=False)):
        thoughts = of_kind(found, "agent_thought_chunk")
        assert [u["content"]["text"] for _, u in thoughts] == [f"{s}\n" for s in SAID_OF_THE_CHILD]  # type: ignore[call-overload,index]
        assert {name for name, _ in thoughts} == {ROOT}
        ids = [str(update["messageId"]) for _, update in thoughts]
        assert len(set(ids)) == len(ids)
        assert all(one.startswith("kid/") for one in ids)
        ours = [u["_meta"]["acp-bridge"]["childSessionId"] for _, u in thoughts]  # type: ignore[call-overload,index]
        assert ours == ["kid", "kid"]


def test_natively_a_childs_notices_stay_its_own() -> None:
    thoughts = of_kind(sent(noticed().told, native=True), "agent_thought_chunk")
    assert {name for name, _ in thoughts} == {"kid"}
    assert not any("reviewer" in str(update) for _, update in thoughts)


def test_a_client_that_takes_notices_gets_a_childs_as_such_and_a_replay_shows_none() -> None:
    story = noticed()
    live = SubagentView(ROOT, CWD, View(notices=True))
    shown = [update for event in story.told for _, update in live.project(event)]
    assert [one.title for one in shown if isinstance(one, Notice)] == SAID_OF_THE_CHILD
    again = SubagentView(ROOT, CWD, View(notices=True), replay=True)
    past = history(ROOT, story.root.events, story.descendants())
    kinds = {type(update) for event in past for _, update in again.project(event)}
    assert not kinds & {Notice, AgentThoughtChunk}


def test_the_call_that_started_a_child_shows_its_whole_run() -> None:
    found = sent(background().told, native=False)
    assert texts(found, ROOT) == "P1 P2"
    (call,) = calls(found).values()
    assert (call["toolCallId"], call["title"]) == ("c1", "Subagent reviewer")
    assert (call["kind"], call["status"]) == ("think", "completed")
    assert content(call) == "The answer."
    assert call["rawOutput"] == {"childSessionId": "kid", "stopReason": "end_turn"}
    meta = call["_meta"]
    assert isinstance(meta, dict)
    assert meta["acp-bridge"] == {
        "childSessionId": "kid",
        "parentSessionId": ROOT,
        "rootSessionId": ROOT,
        "depth": 1,
    }


def test_progress_rolls_in_the_title_and_content_comes_once() -> None:
    found = of_kind(sent(background().told, native=False), "tool_call_update")
    titles = [update["title"] for _, update in found if "title" in update]
    assert titles == [
        "Subagent reviewer",
        "Subagent reviewer: answers",
        "Subagent reviewer: Read a.txt",
        "Subagent reviewer: answers",
        "Subagent reviewer",
    ]
    assert ["content" in update for _, update in found] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("max-tokens", "The subagent stopped at its token limit."),
        ("step-limit", "The subagent stopped at its limit of steps."),
        ("refusal", "The model refused to go on. No."),
        ("aborted", "The subagent was cancelled."),
        ("error", "The subagent failed. The server is down."),
    ],
)
def test_a_run_that_is_not_completed_has_failed_and_says_why(kind: str, sentence: str) -> None:
    (call,) = calls(sent(background(kind=kind).told, native=False)).values()
    assert call["status"] == "failed"
    assert content(call) == f"The answer.\n\n{sentence}"


def test_nested_runs_are_calls_of_their_own_that_name_the_one_above() -> None:
    found = calls(sent(three_levels().told, native=False))
    assert list(found) == ["c", "two.1", "three.1"]
    above = [
        call["_meta"]["acp-bridge"].get("parentToolCallId")  # type: ignore[call-overload,index,union-attr]
        for call in found.values()
    ]
    assert above == [None, "c", "two.1"]
    assert {call["status"] for call in found.values()} == {"completed"}
    assert [content(call) for call in found.values()] == ["1", "2", "3"]


def test_a_message_that_wakes_a_child_begins_a_run_of_its_own() -> None:
    story = background()
    kid = SessionId("kid")
    story.turn()
    story.wake(ROOT, "c2", kid, "More.")
    story.say(kid, "Second answer.")
    story.finish(kid)
    found = calls(sent(story.told, native=False))
    assert list(found) == ["c1", "c2", "kid.2"]
    assert [call["title"] for call in found.values()] == [
        "Subagent reviewer",
        "Message a subagent",
        "Subagent reviewer",
    ]
    assert content(found["c1"]) == "The answer."
    assert content(found["kid.2"]) == "Second answer."
    native = sent(story.told, native=True)
    assert states(native, "kid")[2:] == [
        (ROOT, {"state": "running"}),
        (ROOT, {"state": "idle", "stopReason": "end_turn"}),
    ]


def test_a_call_that_started_nothing_ends_with_its_own_result() -> None:
    story = Story()
    story.turn()
    story.call(ROOT, "c1", "subagent", {"description": "a", "prompt": "p"})
    story.result(ROOT, "c1", "16 subagents run already.", is_error=True)
    story.call(ROOT, "c2", "subagent", {"description": "b", "prompt": "p"})
    story.result(ROOT, "c2", "started subagent lost")
    story.end_turn()
    found = calls(sent(story.told, native=False))
    assert [call["status"] for call in found.values()] == ["failed", "completed"]
    assert content(found["c2"]) == "started subagent lost"


def test_an_id_that_comes_again_while_the_child_works_is_another_call() -> None:
    """R083."""
    story = Story()
    story.turn()
    child = story.delegate(ROOT, "call_0", "kid", "k")
    story.result(ROOT, "call_0", "started subagent kid")
    story.call(ROOT, "call_0", "read", {"file_path": "a.txt"})
    story.result(ROOT, "call_0", "text")
    story.say(child, "Done.")
    story.finish(child)
    found = calls(sent(story.told, native=False))
    assert list(found) == ["call_0", "call_0#2"]
    assert content(found["call_0"]) == "Done."
    assert found["call_0#2"]["title"] == "Read `a.txt`"


@given(st.text(max_size=80), st.text(max_size=80))
def test_titles_are_one_short_line_whatever_the_names(label: str, path: str) -> None:
    story = Story()
    story.turn()
    child = story.delegate(ROOT, "c1", "kid", label)
    story.calls(child, ("w", "write", {"file_path": path, "content": ""}))
    story.asked(child, "w")
    story.finish(child)
    for _, update in sent(story.told, native=False):
        title = str(update.get("title", "x"))
        assert title.strip()
        assert len(title) <= TITLE_CHARS_MAX
        assert "\n" not in title


# --- questions ---------------------------------------------------------------------------------


def asking(child: str, call_id: str) -> PermissionAsk:
    return PermissionAsk(CallId(call_id), "bash", "runs a command", None, SessionId(child))


@FORMS
def test_two_children_that_ask_at_once_are_both_shown(native: bool) -> None:
    story = Story()
    shown = view(native=native)
    found: Sent = []
    story.consumers.append(
        lambda event: found.extend((n, unstructure(u)) for n, u in shown.project(event))
    )
    story.turn()
    for number in (1, 2):
        child = story.delegate(ROOT, f"c{number}", f"kid{number}", f"k{number}")
        story.result(ROOT, f"c{number}", f"started subagent kid{number}")
        story.calls(child, ("same", "bash", {"command": f"make {number}"}))
        story.asked(child, "same")
    places = [shown.asked(asking(f"kid{number}", "same")) for number in (1, 2)]
    for number, place in enumerate(places, start=1):
        assert place is not None
        call = calls(found, place.session_id)[place.call.acp_id]
        assert call["rawInput"] == {"command": f"make {number}"}
        assert call["title"] == place.title
        assert call["status"] == "pending"
        if native:
            assert (place.session_id, place.call.acp_id) == (f"kid{number}", "same")
        else:
            assert (place.session_id, place.call.acp_id) == (ROOT, f"kid{number}/same")
            assert place.title == f"k{number} $ make {number}"
            assert place.meta == call["_meta"]


@FORMS
def test_an_asker_or_a_call_that_nobody_knows_is_not_asked_for(native: bool) -> None:
    story = background()
    shown = view(native=native)
    for event in story.told:
        shown.project(event)
    assert shown.asked(asking("stranger", "c1")) is None
    assert shown.asked(asking("kid", "c9")) is None


@FORMS
def test_a_call_that_was_asked_for_is_followed_to_its_end(native: bool) -> None:
    story = Story()
    story.turn()
    child = story.delegate(ROOT, "c1", "kid", "k")
    story.calls(child, ("w", "write", {"file_path": "a.txt", "content": "x"}))
    story.asked(child, "w")
    story.decided(child, "w")
    story.call(child, "w", "write", {"file_path": "a.txt", "content": "x"}, said=False)
    story.result(child, "w", "Written.")
    story.call(child, "r", "read", {"file_path": "a.txt"})
    story.result(child, "r", "x")
    story.finish(child)
    found = sent(story.told, native=native)
    if native:
        assert [c["status"] for c in calls(found, "kid").values()] == ["completed", "completed"]
    else:
        beside = calls(found)
        assert list(beside) == ["c1", "kid/w"]
        assert beside["kid/w"]["status"] == "completed"
        assert beside["kid/w"]["title"] == "Write `a.txt` (k)"


def test_natively_a_child_requires_action_until_its_last_question_is_answered() -> None:
    story = background()
    shown = view(native=True)
    for event in story.told[: story.told.index(story.told[-4])]:
        shown.project(event)
    kid = SessionId("kid")
    told = [
        [unstructure(u).get("state") for _, u in shown.waits(kid, for_user=for_user)]
        for for_user in (True, True, False, False)
    ]
    assert told == [[{"state": "requires_action"}], [], [], [{"state": "running"}]]


@FORMS
def test_calls_that_a_cut_off_child_left_open_are_ended(native: bool) -> None:
    story = Story()
    story.turn()
    child = story.delegate(ROOT, "c1", "kid", "k")
    story.result(ROOT, "c1", "started subagent kid")
    story.calls(child, ("b", "bash", {"command": "sleep 9"}))
    story.asked(child, "b")
    story.members[child].running = False  # the process died
    story.end_turn()
    found = replayed(story, native=native)
    name, call_id = ("kid", "b") if native else (ROOT, "kid/b")
    assert calls(found, name)[call_id]["status"] == "failed"
    if native:
        assert states(found, "kid")[-1] == (ROOT, {"state": "idle", "stopReason": "cancelled"})
    else:
        assert calls(found)["c1"]["status"] == "failed"
