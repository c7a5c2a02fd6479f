"""Subagents of the real runtime before an editor: live in both forms, asking, stopped, loaded.

`Place.bridge` holds each transcript to the schema and the rules, and each load to what was live.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from bridge_rig import DshPlace, end_of
from dsh_rig import GATE, Message, pieces, text, tool
from process_rig import Bridge, eventually

pytestmark = [pytest.mark.dsh, pytest.mark.process]

NATIVE: Message = {"subagents": {}}
FALLBACK: Message = {}
FORMS = pytest.mark.parametrize("form", [NATIVE, FALLBACK], ids=["native", "fallback"])


@contextmanager
def editor(place: DshPlace, form: Message, *flags: str, checked: bool = True) -> Iterator[Bridge]:
    """A bridge that knows how this client wants to see subagents."""
    with place.bridge(*flags, checked=checked) as bridge:
        bridge.hello(**form)
        yield bridge


def delegated(place: DshPlace, session: str, *child_says: Message) -> None:
    """Script a root that delegates, waits, and hears of the end; the child says the rest."""
    place.loopback.answer(
        session, tool("c1", "subagent", description="Helper", prompt="Child, work.")
    )
    place.loopback.answer(session, text("It works. "))
    place.loopback.answer(session, text("It is done."))
    place.loopback.promise("Child, work.", *child_says)


def announced(bridge: Bridge) -> str:
    """The one subagent's id, as soon as the client has it."""
    update = bridge.update("subagent_update", title="Helper")["params"]["update"]
    return str(update["sessionId"])


def states(bridge: Bridge, child: str) -> list[Message]:
    return [
        update["state"]
        for update in bridge.updates()
        if update["sessionUpdate"] == "subagent_update" and update["sessionId"] == child
    ]


def entry(bridge: Bridge, session: str) -> Message:
    """The call that shows the subagent's work, as the client has it in the end."""
    drawn: Message = {}
    for update in bridge.updates(session):
        if update.get("toolCallId") == "c1":
            drawn.update(update)
    return drawn


def halfway(bridge: Bridge, place: DshPlace) -> str:
    """A session whose next prompt has a subagent that waits in the midst of its answer."""
    session = bridge.new(place.work)
    delegated(place, session, pieces("Half", GATE, " done."))
    return session


def load(bridge: Bridge, place: DshPlace, session: str) -> None:
    bridge.result("session/load", sessionId=session, cwd=str(place.work), mcpServers=[])


@FORMS
def test_a_subagent_is_shown_as_it_works_and_again_after_a_load(
    place: DshPlace, form: Message
) -> None:
    with editor(place, form, "--mode", "full") as bridge:
        session = halfway(bridge, place)
        prompt = bridge.prompt(session)
        if form is NATIVE:
            child = announced(bridge)
            eventually(lambda: bridge.text(child) == "Half")
            place.loopback.go(child)
        else:
            started = bridge.update("tool_call_update", title="Subagent Helper")
            assert started["params"]["sessionId"] == session
            [child] = eventually(
                lambda: [one for one in place.loopback.requests if one not in {session, ""}]
            )
            place.loopback.go(child)
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        assert bridge.text(session).endswith("It is done.")
        assert "Half" not in bridge.text(session)
        if form is NATIVE:
            assert bridge.text(child) == "Half done."
            assert states(bridge, child)[-1] == {"state": "idle", "stopReason": "end_turn"}
        else:
            shown = entry(bridge, session)
            assert shown["status"] == "completed"
            assert "Half done." in str(shown["content"])
            assert all(one["params"]["sessionId"] == session for one in shown_updates(bridge))
    with editor(place, form) as bridge:
        load(bridge, place, session)
        if form is NATIVE:
            assert announced(bridge) == child
            assert bridge.text(child) == "Half done."
            assert states(bridge, child)[-1] == {"state": "idle", "stopReason": "end_turn"}
        else:
            assert entry(bridge, session)["title"] == "Subagent Helper"


def shown_updates(bridge: Bridge) -> list[Any]:
    return [one for one in bridge.heard if one.get("method") == "session/update"]


@FORMS
def test_a_subagent_asks_the_user_and_does_what_it_may(place: DshPlace, form: Message) -> None:
    with editor(place, form) as bridge:
        session = bridge.new(place.work)
        ran = tool("k1", "bash", command="echo made > made.txt", description="Make it")
        delegated(place, session, ran)
        place.loopback.promise("Child, work.", text("Made."))
        prompt = bridge.prompt(session)
        question = bridge.asked()
        asker = question["params"]["sessionId"]
        assert asker == (announced(bridge) if form is NATIVE else session)
        if form is NATIVE:
            assert states(bridge, asker)[-1]["state"] == "requires_action"
        assert not (place.work / "made.txt").exists()
        bridge.allow(question)
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        assert (place.work / "made.txt").read_text() == "made\n"
        assert bridge.text(session).endswith("It is done.")
    with editor(place, form) as bridge:
        load(bridge, place, session)


@FORMS
def test_a_cancel_of_the_parent_ends_the_subagent_and_the_session_goes_on(
    place: DshPlace, form: Message
) -> None:
    with editor(place, form, "--mode", "full") as bridge:
        session = halfway(bridge, place)
        place.loopback.script[session].pop()  # nothing is told of an end that the user wanted
        prompt = bridge.prompt(session)
        eventually(lambda: "It works." in bridge.text(session))
        if form is NATIVE:
            child = announced(bridge)
            eventually(lambda: bridge.text(child) == "Half")
        bridge.cancel(session)
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "cancelled"
        if form is NATIVE:
            assert states(bridge, child)[-1] == {"state": "idle", "stopReason": "cancelled"}
        else:
            assert entry(bridge, session)["status"] == "failed"
        assert end_of(bridge, session, "again") == "end_turn"
        assert bridge.text(session) == "It works. Hi from the loopback."
    with editor(place, form) as bridge:
        load(bridge, place, session)


def test_a_subagent_is_cancelled_alone_and_its_parent_is_told(place: DshPlace) -> None:
    with editor(place, NATIVE, "--mode", "full") as bridge:
        session = halfway(bridge, place)
        prompt = bridge.prompt(session)
        child = announced(bridge)
        eventually(lambda: bridge.text(child) == "Half")
        bridge.cancel(child)
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        assert states(bridge, child)[-1] == {"state": "idle", "stopReason": "cancelled"}
        assert bridge.text(session).endswith("It is done.")


def test_another_prompt_takes_the_place_of_one_that_only_a_subagent_holds(
    place: DshPlace,
) -> None:
    with editor(place, NATIVE, "--mode", "full") as bridge:
        session = halfway(bridge, place)
        first = bridge.prompt(session)
        child = announced(bridge)
        eventually(lambda: bridge.text(child) == "Half" and "It works." in bridge.text(session))
        second = bridge.prompt(session, "meanwhile")
        assert bridge.answer_to(first, wait_s=60)["result"]["stopReason"] == "end_turn"
        place.loopback.wait_for_request(session, 3)
        place.loopback.go(child)
        assert bridge.answer_to(second, wait_s=60)["result"]["stopReason"] == "end_turn"
        assert states(bridge, child)[-1] == {"state": "idle", "stopReason": "end_turn"}


def test_detached_a_prompt_ends_with_its_turn_and_a_cancel_ends_what_works_on(
    place: DshPlace,
) -> None:
    # Unchecked: what a subagent reports starts turns outside of any prompt, as was asked for.
    flags = ("--mode", "full", "--background", "detach")
    with editor(place, NATIVE, *flags, checked=False) as bridge:
        session = halfway(bridge, place)
        assert end_of(bridge, session) == "end_turn"
        child = announced(bridge)
        eventually(lambda: bridge.text(child) == "Half")
        place.loopback.go(child)
        eventually(lambda: bridge.text(session).endswith("It is done."))
        assert states(bridge, child)[-1] == {"state": "idle", "stopReason": "end_turn"}

        other = bridge.new(place.work)
        delegated(place, other, pieces("Half", GATE, " done."))
        place.loopback.script[other].pop()
        assert end_of(bridge, other) == "end_turn"
        eventually(lambda: bridge.text().count("Half") == 2)
        bridge.cancel(other)
        assert end_of(bridge, other, "after it") == "end_turn"
        assert bridge.text(other) == "It works. Hi from the loopback."
        stops = [one.get("stopReason") for one in states_of_all(bridge) if one["state"] == "idle"]
        assert stops == ["end_turn", "cancelled"]


def states_of_all(bridge: Bridge) -> list[Message]:
    found = [one for one in bridge.updates() if one["sessionUpdate"] == "subagent_update"]
    return [one["state"] for one in found]


@FORMS
def test_a_load_beside_a_working_subagent_shows_it_and_goes_on(
    place: DshPlace, form: Message
) -> None:
    with editor(place, form, "--mode", "full") as bridge:
        session = halfway(bridge, place)
        prompt = bridge.prompt(session)
        eventually(lambda: "It works." in bridge.text(session))
        [child] = eventually(lambda: [one for one in place.loopback.requests if one != session])
        if form is NATIVE:
            eventually(lambda: bridge.text(child) == "Half")
        else:  # what is under way when a client loads is neither before nor after
            eventually(lambda: entry(bridge, session).get("title") == "Subagent Helper: answers")
        load(bridge, place, session)
        if form is NATIVE:
            eventually(lambda: states(bridge, child)[-1] == {"state": "running"})
        else:
            assert entry(bridge, session)["status"] == "in_progress"
        place.loopback.go(child)
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        if form is NATIVE:
            assert states(bridge, child)[-1] == {"state": "idle", "stopReason": "end_turn"}
            assert bridge.text(child).endswith("Half done.")
        else:
            assert entry(bridge, session)["status"] == "completed"


def test_a_message_wakes_a_subagent_and_shows_a_second_run(place: DshPlace) -> None:
    with editor(place, NATIVE, "--mode", "full") as bridge:
        session = bridge.new(place.work)
        delegated(place, session, text("First answer."))
        assert end_of(bridge, session) == "end_turn"
        child = announced(bridge)
    with editor(place, NATIVE, "--mode", "full") as bridge:
        load(bridge, place, session)
        place.loopback.answer(
            session, tool("c2", "send_message", agent_id=child, message="And more.")
        )
        place.loopback.answer(session, text("Sent. "))
        place.loopback.answer(session, text("Done again."))
        place.loopback.promise("Child, work.", text("Second answer."))
        assert end_of(bridge, session, "wake it") == "end_turn"
        assert bridge.text(child) == "First answer.Second answer."
        told = [str(one) for one in bridge.updates() if one["sessionUpdate"] == "session_message"]
        assert any("And more." in one for one in told)
        assert any("Second answer." in one for one in told)
    with editor(place, NATIVE) as bridge:
        load(bridge, place, session)


@FORMS
def test_a_runtime_that_dies_leaves_no_subagent_at_work(place: DshPlace, form: Message) -> None:
    with editor(place, form, "--mode", "full") as bridge:
        session = halfway(bridge, place)
        prompt = bridge.prompt(session)
        eventually(lambda: "It works." in bridge.text(session))
        if form is NATIVE:
            child = announced(bridge)
            eventually(lambda: bridge.text(child) == "Half")
        os.killpg(place.dsh_of(), signal.SIGKILL)
        assert "signal 9" in bridge.answer_to(prompt, wait_s=60)["error"]["data"]["details"]
        if form is NATIVE:
            assert states(bridge, child)[-1]["state"] == "idle"
        else:
            assert entry(bridge, session)["status"] == "failed"
