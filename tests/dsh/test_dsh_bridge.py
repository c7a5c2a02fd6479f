"""The whole way: an ACP client, the bridge as a process, and the real runtime behind it.

Each bridge that ends is checked for its transcript (schema, rules, replay), for silence on stderr,
and for processes that it left.
"""

import shutil

import pytest
from bridge_rig import DshPlace, end_of, shared_homes, tool_updates
from dsh_rig import GATE, pieces, text, tool
from picture_bytes import png

from acp_bridge.sessions import SessionStore

pytestmark = [pytest.mark.dsh, pytest.mark.process]

PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEU"
    "lEQVR4nGP4z8AARGDiPwMAHfAD/aAzCYkAAAAASUVORK5CYII="
)
"""Two by two pixels, red and green: the runtime decodes pictures."""


def test_a_prompt_streams_its_answer_as_the_model_says_it(place: DshPlace) -> None:
    with place.editor() as bridge:
        session = bridge.new(place.work)
        place.loopback.answer(session, pieces("Half", GATE, " done."))
        prompt = bridge.prompt(session)
        bridge.update("agent_message_chunk")
        assert bridge.text(session) == "Half"
        place.loopback.go(session)
        assert bridge.answer_to(prompt)["result"]["stopReason"] == "end_turn"
        assert bridge.text(session) == "Half done."


def test_tools_are_shown_and_ask_by_the_mode(place: DshPlace) -> None:
    with place.editor() as bridge:
        session = bridge.new(place.work)
        place.loopback.answer(
            session,
            tool("c1", "bash", command="echo hello-from-bash", description="Say hello"),
            tool("c2", "write", file_path=str(place.work / "a.txt"), content="x\n"),
        )
        place.loopback.answer(session, text("Both done."))
        prompt = bridge.prompt(session)
        bridge.allow(bridge.asked())
        second = bridge.wait_for(
            lambda m: (
                m.get("method") == "session/request_permission"
                and m["params"]["toolCall"]["toolCallId"] == "c2"
            )
        )
        bridge.allow(second, "reject-once")
        assert bridge.answer_to(prompt)["result"]["stopReason"] == "end_turn"
        assert not (place.work / "a.txt").exists()
        statuses = [status for name, status in tool_updates(bridge, session)]
        assert statuses.count("completed") == 1
        assert statuses.count("failed") == 1
        assert "hello-from-bash" in place.loopback.asked(session)


def test_a_folder_that_the_client_adds_is_worked_in_by_the_mode(place: DshPlace) -> None:
    added = place.root / "added"
    added.mkdir()
    (added / "old.txt").write_text("old\n")
    with place.editor("--mode", "accept-edits") as bridge:
        params = {"cwd": str(place.work), "mcpServers": [], "additionalDirectories": [str(added)]}
        session = str(bridge.result("session/new", **params)["sessionId"])
        place.loopback.answer(session, tool("c1", "read", file_path=str(added / "old.txt")))
        place.loopback.answer(
            session,
            tool(
                "c2", "edit", file_path=str(added / "old.txt"), old_string="old", new_string="new"
            ),
            tool("c3", "write", file_path=str(added / "made.txt"), content="made\n"),
        )
        place.loopback.answer(session, text("All done."))
        assert bridge.answer_to(bridge.prompt(session))["result"]["stopReason"] == "end_turn"
        assert "session/request_permission" not in {m.get("method") for m in bridge.heard}
        assert (added / "old.txt").read_text() == "new\n"
        assert (added / "made.txt").read_text() == "made\n"
        assert "is not told of the additional folders" in str(bridge.heard)


def test_a_cancel_ends_the_turn_keeps_what_was_said_and_the_session_goes_on(
    place: DshPlace,
) -> None:
    with place.editor() as bridge:
        session = bridge.new(place.work)
        place.loopback.answer(session, pieces("Half", GATE, " done."))
        prompt = bridge.prompt(session)
        bridge.update("agent_message_chunk")
        bridge.cancel(session)
        assert bridge.answer_to(prompt)["result"]["stopReason"] == "cancelled"
        assert end_of(bridge, session, "again") == "end_turn"
        assert bridge.text(session) == "HalfHi from the loopback."


def test_a_session_is_loaded_with_its_past_resumed_without_and_listed(place: DshPlace) -> None:
    with place.editor() as bridge:
        session = bridge.new(place.work)
        assert end_of(bridge, session, "first") == "end_turn"
    params = {"sessionId": session, "cwd": str(place.work), "mcpServers": []}
    with place.editor() as bridge:
        listed = bridge.result("session/list", cwd=str(place.work))["sessions"]
        assert [(one["sessionId"], one["title"]) for one in listed] == [(session, "first")]
        bridge.result("session/load", **params)
        assert bridge.text(session) == "Hi from the loopback."
        assert end_of(bridge, session, "second") == "end_turn"
    with place.editor() as bridge:
        bridge.result("session/resume", **params)
        assert bridge.text(session) == ""
        assert end_of(bridge, session, "third") == "end_turn"
        asked = place.loopback.asked(session)
        assert all(words in asked for words in ("first", "second", "third"))


def test_a_fork_goes_on_from_the_turns_of_its_source(place: DshPlace) -> None:
    with place.editor() as bridge:
        session = bridge.new(place.work)
        assert end_of(bridge, session, "first") == "end_turn"
        params = {"sessionId": session, "cwd": str(place.work), "mcpServers": []}
        fork = bridge.result("session/fork", **params)["sessionId"]
        nested = bridge.result("session/fork", **{**params, "sessionId": fork})["sessionId"]
        assert end_of(bridge, fork, "in the fork") == "end_turn"
        assert end_of(bridge, nested, "in the nested one") == "end_turn"
        assert end_of(bridge, session, "in the source") == "end_turn"
        assert "first" in place.loopback.asked(fork)
        assert "in the fork" not in place.loopback.asked(session)
        assert "first" in place.loopback.asked(nested)
        bridge.result("session/delete", sessionId=fork)
        listed = bridge.result("session/list")["sessions"]
        assert {one["sessionId"] for one in listed} == {session, nested}


def test_without_the_plugin_the_bridge_works_and_says_what_is_missing(place: DshPlace) -> None:
    place.without_plugin()
    with place.editor() as bridge:
        session = bridge.new(place.work)
        place.loopback.answer(session, tool("c1", "write", file_path="a.txt", content="x\n"))
        place.loopback.answer(session, text("It was refused."))
        assert end_of(bridge, session, "first") == "end_turn"
        assert "control plugin did not start" in str(bridge.updates(session))
        assert bridge.text(session) == "It was refused."
        assert not (place.work / "a.txt").exists()

        place.loopback.answer(session, pieces("Half", GATE, " done."))
        prompt = bridge.prompt(session, "second")
        place.loopback.wait_at_gate(session)
        bridge.cancel(session)
        assert bridge.answer_to(prompt)["result"]["stopReason"] == "cancelled"
        assert bridge.text(session) == "It was refused.Half"
        assert end_of(bridge, session, "third") == "end_turn"
        assert "second" in place.loopback.asked(session)


def test_without_the_plugin_a_mode_holds_from_the_next_prompt_on(place: DshPlace) -> None:
    place.without_plugin()
    with place.editor() as bridge:
        session = bridge.new(place.work)
        assert end_of(bridge, session, "first") == "end_turn"
        bridge.result("session/set_mode", sessionId=session, modeId="full")
        place.loopback.answer(
            session, tool("c1", "bash", command="echo ran > ran.txt", description="Run")
        )
        place.loopback.answer(session, text("It ran."))
        assert end_of(bridge, session, "second") == "end_turn"
        assert (place.work / "ran.txt").read_text() == "ran\n"
        other = bridge.new(place.work)
        assert end_of(bridge, other, "beside it") == "end_turn"


def test_what_is_attached_reaches_the_model_and_is_shown_again_after_a_load(
    place: DshPlace,
) -> None:
    blocks = [
        {"type": "text", "text": "Look at these."},
        {"type": "resource_link", "uri": "file:///tmp/linked.txt", "name": "linked.txt"},
        {"type": "resource", "resource": {"uri": "file:///tmp/told.txt", "text": "told text"}},
        {"type": "image", "data": PICTURE, "mimeType": "image/png"},
    ]
    with place.editor() as bridge:
        session = bridge.new(place.work)
        broken = [{"type": "image", "data": png(4, 4), "mimeType": "image/png"}]
        refused = bridge.call("session/prompt", sessionId=session, prompt=broken, wait_s=60)
        assert "malformed image" in refused["error"]["data"]["details"]
        answer = bridge.call("session/prompt", sessionId=session, prompt=blocks, wait_s=60)
        assert "result" in answer, answer
        asked = place.loopback.asked(session)
        assert all(words in asked for words in ("/tmp/linked.txt", "told text", '"image"'))
        assert "_meta" not in asked
        # Nothing of it spoils the session.
        assert end_of(bridge, session, "again") == "end_turn"
    with place.editor() as bridge:
        params = {"sessionId": session, "cwd": str(place.work), "mcpServers": []}
        bridge.result("session/load", **params)
        shown = [
            update["content"]["type"]
            for update in bridge.updates(session)
            if update["sessionUpdate"] == "user_message_chunk"
        ]
        assert shown == ["text", "resource_link", "resource", "image", "text"]


def test_a_prompt_stays_open_until_its_subagents_are_done(place: DshPlace) -> None:
    place.loopback.promise("Child, work.", text("From the child."))
    with place.editor("--mode", "full") as bridge:
        session = bridge.new(place.work)
        place.loopback.answer(
            session, tool("c1", "subagent", description="Helper", prompt="Child, work.")
        )
        place.loopback.answer(session, text("It works. "))
        place.loopback.answer(session, text("It is done."))
        assert end_of(bridge, session) == "end_turn"
        said = bridge.text(session)
        assert said.endswith("It is done.")
        assert "From the child." not in said
        listed = bridge.result("session/list")["sessions"]
        assert [one["sessionId"] for one in listed] == [session]


def test_a_store_of_plain_logs_stays_plain(place: DshPlace) -> None:
    shutil.copytree(shared_homes() / "plain-encoding", place.dsh_home)
    with place.editor() as bridge:
        session = bridge.new(place.work)
        assert end_of(bridge, session) == "end_turn"
        assert len(bridge.result("session/list")["sessions"]) > 1
    logs = [path.name for path in place.dsh_home.glob("sessions/*/*/session.v*")]
    assert set(logs) == {"session.v4.jsonl"}


def test_a_closed_session_is_free_and_choices_hold_in_the_running_process(
    place: DshPlace,
) -> None:
    with place.editor() as bridge:
        session, other = bridge.new(place.work), bridge.new(place.work)
        assert end_of(bridge, session) == "end_turn"
        assert end_of(bridge, other) == "end_turn"
        for option, value in (("model", "deepseek:deepseek-v4-pro"), ("effort", "max")):
            bridge.result(
                "session/set_config_option", sessionId=session, configId=option, value=value
            )
        bridge.result("session/set_mode", sessionId=session, modeId="full")
        place.loopback.answer(session, tool("c1", "bash", command="echo x > x", description="x"))
        assert end_of(bridge, session, "with the other model") == "end_turn"
        assert (place.work / "x").exists()
        request = place.loopback.requests[session][-1]
        assert (request["model"], request["output_config"]) == (
            "deepseek-v4-pro",
            {"effort": "max"},
        )
        assert place.loopback.requests[other][-1]["model"] == "deepseek-flash"
        bridge.result("session/close", sessionId=session)
        store = SessionStore(place.dsh_home / "sessions", clock=lambda: 0)
        store.open(session).close()  # the lock is free
        params = {"sessionId": session, "cwd": str(place.work), "mcpServers": []}
        modes = bridge.result("session/resume", **params)["modes"]
        assert modes["currentModeId"] == "full"
        assert end_of(bridge, session, "once more") == "end_turn"
        assert place.loopback.requests[session][-1]["model"] == "deepseek-v4-pro"
        assert len([name for name in place.processes().values() if "--profile sdk" in name]) <= 2


def test_the_menu_of_models_becomes_the_runtimes_own_once_it_is_up(place: DshPlace) -> None:
    with place.editor() as bridge:
        session = bridge.new(place.work)
        update = bridge.update("config_option_update")
        options = {one["id"]: one for one in update["params"]["update"]["configOptions"]}
        names = {one["name"] for one in options["model"]["options"]}
        assert "DeepSeek-V4-Pro" in names
        assert options["model"]["currentValue"] == "deepseek:deepseek-flash"
        later = bridge.result("session/new", cwd=str(place.work), mcpServers=[])
        [told] = [one for one in later["configOptions"] if one["id"] == "model"]
        assert told["options"] == options["model"]["options"]
        assert end_of(bridge, session) == "end_turn"
