"""What the real runtime's model asks a user, and what was allowed "always", as a client sees it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bridge_rig import DshPlace, end_of
from dsh_rig import Message, text, tool
from process_rig import Bridge

from acp_bridge.harness.memory import GRANT_ROW

pytestmark = [pytest.mark.dsh, pytest.mark.process]

QUESTIONS = [
    {
        "id": "paint",
        "question": "Which colour?",
        "header": "Paint",
        "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}],
    },
    {"id": "name", "question": "What shall it be called?"},
]


def asks(place: DshPlace, session: str) -> None:
    """Script a turn that asks."""
    place.loopback.answer(session, tool("q1", "ask_user_question", questions=QUESTIONS))
    place.loopback.answer(session, text("So be it."))


def form(bridge: Bridge) -> Message:
    return bridge.asked("elicitation/create")


@contextmanager
def asking(place: DshPlace) -> Iterator[tuple[Bridge, str, int]]:
    """An editor that takes forms, a session, and its prompt, in which the model asks."""
    with place.bridge() as bridge:
        bridge.hello(elicitation={"form": {}})
        session = bridge.new(place.work)
        asks(place, session)
        yield bridge, session, bridge.prompt(session)


def test_questions_are_a_form_and_the_answers_reach_the_model(place: DshPlace) -> None:
    with asking(place) as (bridge, session, prompt):
        asked = form(bridge)
        assert asked["params"]["toolCallId"] == "q1"
        fields = asked["params"]["requestedSchema"]["properties"]
        assert [one["title"] for one in fields["q1"]["oneOf"]] == ["Red", "Blue"]
        content = {"q1": "Blue", "q2": "Tugboat"}
        bridge.send({"id": asked["id"], "result": {"action": "accept", "content": content}})
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        result = place.loopback.asked(session)
        assert "Blue" in result.rpartition("tool_result")[2]
        assert "Tugboat" in result.rpartition("tool_result")[2]


def test_a_question_that_is_skipped_is_no_fault(place: DshPlace) -> None:
    with asking(place) as (bridge, session, prompt):
        content = {"q1_other": "A dark green"}
        answer = {"action": "accept", "content": content}
        bridge.send({"id": form(bridge)["id"], "result": answer})
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        result = place.loopback.asked(session).rpartition("tool_result")[2]
        assert "A dark green" in result
        assert "true" not in result.partition("is_error")[2][:8]


@pytest.mark.parametrize("forms", [True, False])
def test_a_user_who_declines_or_cannot_be_asked_is_told_to_the_model(
    place: DshPlace, *, forms: bool
) -> None:
    with place.bridge() as bridge:
        bridge.hello(**({"elicitation": {"form": {}}} if forms else {}))
        session = bridge.new(place.work)
        asks(place, session)
        prompt = bridge.prompt(session)
        if forms:
            bridge.send({"id": form(bridge)["id"], "result": {"action": "decline"}})
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        assert "did not answer the questions" in place.loopback.asked(session)
        assert bridge.text(session) == "So be it."


def test_a_cancel_withdraws_the_form_and_the_session_goes_on(place: DshPlace) -> None:
    with asking(place) as (bridge, session, prompt):
        asked = form(bridge)
        bridge.cancel(session)
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "cancelled"
        bridge.wait_for(
            lambda m: (
                m.get("method") == "$/cancel_request" and m["params"]["requestId"] == asked["id"]
            )
        )
        bridge.send({"id": asked["id"], "result": {"action": "cancel"}})
        assert end_of(bridge, session, "again") == "end_turn"


def makes(call_id: str) -> Message:
    return tool(call_id, "bash", command=f"git status {call_id}", description="Look")


def asked_for(bridge: Bridge) -> list[str]:
    """The calls that the user was asked about."""
    return [
        one["params"]["toolCall"]["toolCallId"]
        for one in bridge.heard
        if one.get("method") == "session/request_permission"
    ]


def test_what_is_allowed_always_holds_after_a_restart_but_not_in_a_fork(place: DshPlace) -> None:
    with place.editor() as bridge:
        session = bridge.new(place.work)
        place.loopback.answer(session, makes("c1"))
        place.loopback.answer(session, text("Looked."))
        prompt = bridge.prompt(session)
        bridge.allow(bridge.asked(), "allow-always")
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        bridge.result("session/close", sessionId=session)
    [row] = [one for one in place.stored(session) if one.type == GRANT_ROW]
    assert (row.data, row.ignorable) == ({"grant": "program:git status"}, True)
    params = {"sessionId": session, "cwd": str(place.work), "mcpServers": []}
    with place.editor() as bridge:
        bridge.result("session/load", **params)
        place.loopback.answer(session, makes("c2"))
        place.loopback.answer(session, text("Looked again."))
        assert end_of(bridge, session) == "end_turn"
        assert asked_for(bridge) == []
        fork = bridge.result("session/fork", **params)["sessionId"]
        place.loopback.answer(fork, makes("c3"))
        place.loopback.answer(fork, text("Looked in the fork."))
        prompt = bridge.prompt(fork)
        bridge.allow(bridge.asked(), "reject-once")
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        assert asked_for(bridge) == ["c3"]


def test_what_a_subagent_was_allowed_holds_for_it_alone_when_it_is_woken_after_a_restart(
    place: DshPlace,
) -> None:
    words = "Child, look."
    place.loopback.promise(words, makes("c1"))
    place.loopback.promise(words, text("Looked."))
    with place.editor() as bridge:
        session = bridge.new(place.work)
        place.loopback.answer(session, tool("d", "subagent", description="d", prompt=words))
        place.loopback.answer(session, text("It works."))
        prompt = bridge.prompt(session)
        bridge.allow(bridge.asked(), "allow-always")
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        child = next(one for one in place.loopback.requests if one != session)
    params = {"sessionId": session, "cwd": str(place.work), "mcpServers": []}
    place.loopback.answer(child, makes("c2"))
    place.loopback.answer(child, text("Looked again."))
    place.loopback.answer(session, tool("m", "send_message", agent_id=child, message="Look again."))
    place.loopback.answer(session, text("It was woken."))
    place.loopback.answer(session, makes("c3"))
    place.loopback.answer(session, text("Looked myself."))
    with place.editor() as bridge:
        bridge.result("session/resume", **params)
        prompt = bridge.prompt(session)
        bridge.allow(bridge.asked())
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        assert asked_for(bridge) == ["c3"]
        assert "c2" in place.loopback.asked(child)
