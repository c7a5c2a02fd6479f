"""Slash commands, titles and what is said in between, on the real runtime through an ACP client."""

import pytest
from bridge_rig import DshPlace, end_of
from dsh_rig import GATE, pieces, text, tool
from process_rig import Bridge, eventually

from acp_bridge.runtime.dsh.commands import COMMANDS

pytestmark = [pytest.mark.dsh, pytest.mark.process]

LONG = "All of this is about the parser. " * 400


def offered(bridge: Bridge) -> list[str]:
    """The commands that the client was told of last."""
    update = bridge.update("available_commands_update")
    return [one["name"] for one in update["params"]["update"]["availableCommands"]]


def load(bridge: Bridge, place: DshPlace, session: str) -> None:
    bridge.result("session/load", sessionId=session, cwd=str(place.work), mcpServers=[])


def titles(bridge: Bridge, session: str) -> list[str]:
    return [
        update["title"]
        for update in bridge.updates(session)
        if update["sessionUpdate"] == "session_info_update"
    ]


def user_text(bridge: Bridge, session: str) -> str:
    return "".join(
        update["content"]["text"]
        for update in bridge.updates(session)
        if update["sessionUpdate"] == "user_message_chunk"
    )


def test_commands_are_offered_answered_without_the_model_and_loaded(place: DshPlace) -> None:
    with place.editor() as bridge:
        session = bridge.new(place.work)
        assert offered(bridge) == ["help", "mode", "model", "title", "compact"]
        for typed in ("/help", "/mode accept-edits", "/mode bogus", "/model", "/title  A  name "):
            assert end_of(bridge, session, typed) == "end_turn"
        said = bridge.text(session)
        for info in COMMANDS:
            assert f"- `/{info.name}" in said
        assert "- `accept-edits` (now)" in said
        assert "There is no mode 'bogus'" in said
        assert "- `deepseek:deepseek-flash` (now)" in said
        assert "The title is now: A name" in said
        assert titles(bridge, session) == ["A name"]
        assert place.loopback.requests[session] == []
        # The name stays when the conversation begins, and a word that is no command is a prompt.
        assert end_of(bridge, session, "/tmp is full") == "end_turn"
        assert "/tmp is full" in place.loopback.asked(session)
        assert titles(bridge, session) == ["A name"]
    with place.editor() as bridge:
        assert [one["title"] for one in bridge.result("session/list")["sessions"]] == ["A name"]
        load(bridge, place, session)
        assert bridge.text(session) == said + "Hi from the loopback."
        assert user_text(bridge, session).startswith("/help/mode accept-edits")
        assert titles(bridge, session) == ["A name"]
        modes = bridge.call("session/resume", sessionId=session, cwd=str(place.work), mcpServers=[])
        assert modes["result"]["modes"]["currentModeId"] == "accept-edits"


def test_the_runtimes_title_is_told_and_a_rename_outlives_the_process(place: DshPlace) -> None:
    with place.editor() as bridge:
        session = bridge.new(place.work)
        assert end_of(bridge, session, "Mend the lexer, please") == "end_turn"
        first = titles(bridge, session)
        assert first[0].startswith("Mend the lexer")
        assert end_of(bridge, session, "/title The lexer") == "end_turn"
        assert end_of(bridge, session, "And now the parser") == "end_turn"
        assert titles(bridge, session) == [*first, "The lexer"]
        assert [one["title"] for one in bridge.result("session/list")["sessions"]] == ["The lexer"]
    with place.editor() as bridge:
        load(bridge, place, session)
        assert end_of(bridge, session, "Once more") == "end_turn"
        assert titles(bridge, session)[-1] == "The lexer"


def test_a_conversation_is_compacted_by_the_runtime_and_a_cancel_leaves_it(
    place: DshPlace,
) -> None:
    with place.editor() as bridge:
        session = bridge.new(place.work)
        assert end_of(bridge, session, "/compact") == "end_turn"
        assert "No compactable history yet." in bridge.text(session)
        for words in ("first", "second", "third"):
            place.loopback.answer(session, text(LONG))
            assert end_of(bridge, session, words) == "end_turn"
        asked = len(place.loopback.requests[session])
        assert end_of(bridge, session, "/compact the tests") == "end_turn"
        assert "Usage: /compact (no arguments)" in bridge.text(session)
        assert len(place.loopback.requests[session]) == asked

        place.loopback.answer(session, pieces("A", GATE, " summary."))
        prompt = bridge.prompt(session, "/compact")
        place.loopback.wait_at_gate(session)
        bridge.cancel(session)
        assert bridge.answer_to(prompt)["result"]["stopReason"] == "cancelled"
        assert "Compaction cancelled." in bridge.text(session)

        place.loopback.answer(session, text("They spoke of the parser."))
        assert end_of(bridge, session, "/compact") == "end_turn"
        assert "Compacted " in bridge.text(session)
        assert end_of(bridge, session, "go on") == "end_turn"
        view = place.loopback.asked(session)
        assert "They spoke of the parser." in view
        assert view.count(LONG) < 3
        said = bridge.text(session)
    with place.editor() as bridge:
        load(bridge, place, session)
        assert bridge.text(session) == said


def test_a_command_beside_a_held_prompt_takes_nothing_from_it(place: DshPlace) -> None:
    place.loopback.promise("Child, work.", pieces("From", GATE, " the child."))
    with place.editor("--mode", "full") as bridge:
        session = bridge.new(place.work)
        place.loopback.answer(
            session, tool("c1", "subagent", description="Helper", prompt="Child, work.")
        )
        place.loopback.answer(session, text("It works. "))
        place.loopback.answer(session, text("It is done."))
        held = bridge.prompt(session)
        eventually(lambda: bridge.text(session) == "It works. ", wait_s=60)
        child = eventually(lambda: next(iter(place.loopback.stood), None), wait_s=60)
        assert end_of(bridge, session, "/title Held") == "end_turn"
        assert not any(m.get("id") == held and "method" not in m for m in bridge.heard)
        place.loopback.go(child)
        assert bridge.answer_to(held)["result"]["stopReason"] == "end_turn"
        assert bridge.text(session).endswith("It is done.")


def test_without_the_plugin_commands_work_but_for_compact(place: DshPlace) -> None:
    place.without_plugin()
    with place.editor() as bridge:
        session = bridge.new(place.work)
        assert end_of(bridge, session, "/title Before") == "end_turn"
        assert end_of(bridge, session, "first") == "end_turn"
        for typed in ("/title After", "/mode full", "/compact", "/help"):
            assert end_of(bridge, session, typed) == "end_turn"
        said = bridge.text(session)
        assert "The title is now: After" in said
        assert "- `full` (now)" in said
        assert "needs the control plugin" in said
        assert titles(bridge, session)[-1] == "After"
        assert len(place.loopback.requests[session]) == 1
        assert end_of(bridge, session, "second") == "end_turn"
        assert "first" in place.loopback.asked(session)
        said = bridge.text(session)
    with place.editor() as bridge:
        assert [one["title"] for one in bridge.result("session/list")["sessions"]] == ["After"]
        load(bridge, place, session)
        assert bridge.text(session) == said


def steer(bridge: Bridge, session: str, words: str) -> str:
    said = [{"type": "text", "text": words}]
    return str(bridge.result("_session/steering", sessionId=session, prompt=said)["outcome"])


def test_what_is_said_while_only_a_subagent_works_gets_a_turn_of_the_held_prompt(
    place: DshPlace,
) -> None:
    place.loopback.promise("Child, work.", pieces("From", GATE, " the child."))
    with place.editor("--mode", "full") as bridge:
        session = bridge.new(place.work)
        place.loopback.answer(
            session, tool("c1", "subagent", description="Helper", prompt="Child, work.")
        )
        for words in ("It works. ", "I hear you. ", "It is done."):
            place.loopback.answer(session, text(words))
        held = bridge.prompt(session)
        eventually(lambda: bridge.text(session) == "It works. ", wait_s=60)
        child = eventually(lambda: next(iter(place.loopback.stood), None), wait_s=60)
        assert steer(bridge, session, "Is it on?") == "injected"
        eventually(lambda: bridge.text(session) == "It works. I hear you. ", wait_s=60)
        assert "Is it on?" in place.loopback.asked(session)
        assert not any(m.get("id") == held and "method" not in m for m in bridge.heard)
        place.loopback.go(child)
        assert bridge.answer_to(held)["result"]["stopReason"] == "end_turn"
        assert bridge.text(session) == "It works. I hear you. It is done."


def test_a_cancel_drops_what_no_step_has_taken(place: DshPlace) -> None:
    with place.editor() as bridge:
        session = bridge.new(place.work)
        place.loopback.answer(session, pieces("Half", GATE, " done."))
        prompt = bridge.prompt(session)
        eventually(lambda: bridge.text(session) == "Half", wait_s=60)
        assert steer(bridge, session, "never heard") == "injected"
        bridge.cancel(session)
        assert bridge.answer_to(prompt)["result"]["stopReason"] == "cancelled"
        assert end_of(bridge, session, "again") == "end_turn"
        assert "never heard" not in place.loopback.asked(session)


def test_without_the_plugin_what_is_said_in_a_turn_becomes_the_next_prompt(
    place: DshPlace,
) -> None:
    place.without_plugin()
    with place.editor() as bridge:
        session = bridge.new(place.work)
        place.loopback.answer(session, pieces("Half", GATE, " done."))
        place.loopback.answer(session, text(" And then."))
        prompt = bridge.prompt(session)
        place.loopback.wait_at_gate(session)
        assert steer(bridge, session, "and then?") == "startedNewTurn"
        place.loopback.go(session)
        assert bridge.answer_to(prompt)["result"]["stopReason"] == "end_turn"
        eventually(lambda: bridge.text(session) == "Half done. And then.", wait_s=60)
        assert "and then?" in place.loopback.asked(session)
