"""MCP servers with the real runtime, as a client gives them and as a user sees them."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from bridge_rig import DshPlace, end_of
from dsh_rig import Message, text, tool
from mcp_rig import SECRET, Site, lives, site, tiny
from process_rig import Bridge, eventually

pytestmark = [pytest.mark.dsh, pytest.mark.process]

TRIES = 60


def acp_server(how: str = "", *, name: str = "tiny") -> Message:
    server = tiny(how, name=name)
    env = [{"name": "TINY_SECRET", "value": SECRET}]
    return {"name": name, "command": server.command, "args": list(server.args), "env": env}


def acp_site(found: Site, *, is_sse: bool) -> Message:
    headers = [{"name": "Authorization", "value": f"Bearer {SECRET}"}]
    server = found.server(is_sse=is_sse)
    kind = "sse" if is_sse else "http"
    return {"type": kind, "name": kind, "url": server.url, "headers": headers}


@contextmanager
def sites() -> Iterator[tuple[Site, Site]]:
    """A server on streamable HTTP, and one on SSE."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(site(is_sse=False)) as http,
        portal.wrap_async_context_manager(site(is_sse=True)) as sse,
    ):
        yield http, sse


def opened(bridge: Bridge, place: DshPlace, *servers: Message, by: str = "new", **more: str) -> str:
    params = {"cwd": str(place.work), "mcpServers": list(servers), **more}
    result = bridge.result(f"session/{by}", **params)
    return str(result.get("sessionId", more.get("sessionId")))


def offered(place: DshPlace, session: str) -> set[str]:
    """The tools of servers that the model was offered last."""
    names = (one["name"] for one in place.loopback.requests[session][-1]["tools"])
    return {name for name in names if name.startswith("mcp__")}


def until_offered(bridge: Bridge, place: DshPlace, session: str, *servers: str) -> None:
    """Prompt until all are there: a busy machine needs more than the wait of the first prompt."""
    for _ in range(TRIES):
        assert end_of(bridge, session, "hello") == "end_turn"
        if all(f"mcp__{name}__add" in offered(place, session) for name in servers):
            return
        time.sleep(1)
    pytest.fail(f"offered is {offered(place, session)}")


def results(bridge: Bridge, session: str | None = None) -> dict[str, str]:
    """The text of each tool call that has ended, by its id."""
    found = {}
    for update in bridge.updates(session):
        if update.get("status") in {"completed", "failed"}:
            content: Any = update["content"]
            found[update["toolCallId"]] = "".join(one["content"]["text"] for one in content)
    return found


def thoughts(bridge: Bridge, session: str) -> list[str]:
    return [
        update["content"]["text"].strip()
        for update in bridge.updates(session)
        if update["sessionUpdate"] == "agent_thought_chunk"
    ]


def no_secret(bridge: Bridge, place: DshPlace) -> None:
    """Nothing that is stored, shown or sent to a model holds what only servers may see."""
    assert SECRET not in str(bridge.heard)
    assert SECRET not in str(place.loopback.requests)
    for file in (*place.home.rglob("*"), *place.dsh_home.rglob("*")):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


def test_tools_of_all_kinds_of_servers_are_called_and_ask_each_by_itself(place: DshPlace) -> None:
    with sites() as (http, sse), place.editor() as bridge:
        servers = (acp_server(), acp_site(http, is_sse=False), acp_site(sse, is_sse=True))
        session = opened(bridge, place, *servers)
        until_offered(bridge, place, session, "tiny", "http", "sse")
        for call_id, name in (("c1", "tiny"), ("c2", "http"), ("c3", "sse"), ("c4", "tiny")):
            place.loopback.answer(session, tool(call_id, f"mcp__{name}__add", a=2, b=3))
        place.loopback.answer(session, tool("c5", "mcp__tiny__fail"))
        place.loopback.answer(session, text("Done."))
        prompt = bridge.prompt(session)
        for call_id, option in (
            ("c1", "allow-always"),
            ("c2", "allow-once"),
            ("c3", "reject-once"),
            ("c5", "allow-once"),
        ):
            question = bridge.wait_for(
                lambda m, wanted=call_id: (  # type: ignore[misc]
                    m.get("method") == "session/request_permission"
                    and m["params"]["toolCall"]["toolCallId"] == wanted
                )
            )
            labels = [one["name"] for one in question["params"]["options"]]
            tool_name = "fail" if call_id == "c5" else "add"
            server = {"c2": "http", "c3": "sse"}.get(call_id, "tiny")
            what = f"{tool_name} of the MCP server {server}"
            assert f"Always allow {what}, for this session" in labels
            bridge.allow(question, option)
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        found = results(bridge, session)
        assert (found["c1"], found["c2"], found["c4"]) == ("5", "5", "5")
        assert "rejected" in found["c3"]
        assert found["c5"] == "Error: Error executing tool fail"
        assert f"Bearer {SECRET}" in {one.get("authorization") for one in http.headers}
        no_secret(bridge, place)


def test_bad_servers_are_named_with_the_reason_and_the_session_goes_on(place: DshPlace) -> None:
    missing = {**acp_server(name="missing"), "command": "no-such-command"}
    refusing = {
        "type": "http",
        "name": "refusing",
        "url": f"http://127.0.0.1:9/{SECRET}",
        "headers": [{"name": "Authorization", "value": f"Bearer {SECRET}"}],
    }
    bad = (acp_server("fails", name="failing"), missing, refusing)
    reasons = {
        "failing ended with exit code 3",
        "missing cannot be started: there is no command no-such-command",
        "refusing cannot be reached",
    }
    expected = {f"The MCP server {why}. The session goes on without it." for why in reasons}
    with place.editor() as bridge:
        session = opened(bridge, place, acp_server(), *bad)
        until_offered(bridge, place, session, "tiny")
        for _ in range(TRIES):
            if expected <= set(thoughts(bridge, session)):
                break
            time.sleep(1)
            assert end_of(bridge, session) == "end_turn"
        said = thoughts(bridge, session)
        assert expected <= set(said)
        assert not any(name.startswith("mcp__failing") for name in offered(place, session))
        no_secret(bridge, place)
        before = len(bridge.heard)
        bridge.result("session/close", sessionId=session)
        opened(bridge, place, by="load", sessionId=session)
        shown = str(bridge.heard[before:])
        assert all(shown.count(words) == 1 for words in said)
        assert end_of(bridge, session, "without any") == "end_turn"
        assert offered(place, session) == set()


def test_a_server_that_hangs_holds_up_neither_the_opening_nor_the_prompt(place: DshPlace) -> None:
    with place.editor() as bridge:
        session = opened(bridge, place, acp_server("hangs", name="slow"))
        assert end_of(bridge, session) == "end_turn"
        assert thoughts(bridge, session) == [
            "The MCP server slow is still connecting: its tools come when it is there."
        ]


def test_subagents_share_the_servers_of_their_session_which_end_with_it(place: DshPlace) -> None:
    words = "Child, say where you are."
    place.loopback.promise(words, tool("m2", "mcp__tiny__facts"))
    with place.editor() as bridge:
        session, other = opened(bridge, place, acp_server()), bridge.new(place.work)
        until_offered(bridge, place, session, "tiny")
        place.loopback.answer(session, tool("m1", "mcp__tiny__facts"))
        place.loopback.answer(session, tool("d", "subagent", description="d", prompt=words))
        place.loopback.answer(session, text("It works."))
        prompt = bridge.prompt(session)
        first = bridge.asked()
        bridge.allow(first, "allow-always")
        second = bridge.wait_for(
            lambda m: m.get("method") == "session/request_permission" and m != first
        )
        bridge.allow(second)  # a subagent has none of the session's grants
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        [facts] = [one for call_id, one in results(bridge, session).items() if call_id == "m1"]
        child = next(one for one in place.loopback.requests if one not in {session, other})
        assert json.dumps(facts)[1:-1] in place.loopback.asked(child)
        assert end_of(bridge, other) == "end_turn"
        assert offered(place, other) == set()
        pid = int(facts.split()[0])
        assert lives(pid)
        bridge.result("session/close", sessionId=session)
        assert not lives(pid)


def test_plan_mode_refuses_tools_unless_their_server_says_that_they_only_read(
    place: DshPlace,
) -> None:
    with place.editor("--mode", "plan") as bridge:
        session = opened(bridge, place, acp_server())
        until_offered(bridge, place, session, "tiny")
        place.loopback.answer(session, tool("c1", "mcp__tiny__add", a=2, b=3))
        for call_id in ("c2", "c3"):
            place.loopback.answer(session, tool(call_id, "mcp__tiny__env", name="NOTHING"))
        place.loopback.answer(session, text("Done."))
        prompt = bridge.prompt(session)
        for call_id, option in (("c2", "allow-once"), ("c3", "reject-once")):
            question = bridge.wait_for(
                lambda m, wanted=call_id: (  # type: ignore[misc]
                    m.get("method") == "session/request_permission"
                    and m["params"]["toolCall"]["toolCallId"] == wanted
                )
            )
            kinds = {one["kind"] for one in question["params"]["options"]}
            assert "allow_always" not in kinds
            bridge.allow(question, option)
        assert bridge.answer_to(prompt, wait_s=60)["result"]["stopReason"] == "end_turn"
        found = results(bridge, session)
        assert "plan mode allows no call" in found["c1"]
        assert found["c2"] == "None"
        assert "rejected" in found["c3"]


def test_a_users_own_servers_are_there_at_every_opening_and_give_way_by_name(
    place: DshPlace,
) -> None:
    own = tiny(name="own")
    place.home.mkdir(exist_ok=True)
    (place.home / "config.toml").write_text(
        f"[mcp_servers.own]\ncommand = {json.dumps(own.command)}\n"
        f"args = {json.dumps(list(own.args))}\nenv = {{ WHOSE = 'the user' }}\n"
        f"[mcp_servers.tiny]\ncommand = 'no-such-command'\n"
    )
    with place.editor("--mode", "full") as bridge:
        session = opened(bridge, place, acp_server())
        until_offered(bridge, place, session, "own", "tiny")
        place.loopback.answer(session, tool("c1", "mcp__own__env", name="WHOSE"))
        place.loopback.answer(session, text("Done."))
        assert end_of(bridge, session) == "end_turn"
        assert results(bridge, session)["c1"] == "'the user'"
        fork = opened(bridge, place, acp_server(), by="fork", sessionId=session)
        until_offered(bridge, place, fork, "own", "tiny")
        bridge.result("session/close", sessionId=session)
        opened(bridge, place, by="resume", sessionId=session)
        until_offered(bridge, place, session, "own")
        assert "mcp__tiny__add" not in offered(place, session)


def test_servers_end_with_the_bridge_and_one_that_dies_is_told(place: DshPlace) -> None:
    with place.editor("--mode", "full") as bridge:
        session = opened(bridge, place, acp_server(), acp_server("stubborn", name="bad"))
        until_offered(bridge, place, session, "tiny", "bad")
        place.loopback.answer(session, tool("c1", "mcp__tiny__crash"))
        place.loopback.answer(session, text("It crashed."))
        assert end_of(bridge, session) == "end_turn"
        assert "ended with exit code 7" in results(bridge, session)["c1"]
        eventually(lambda: end_of(bridge, session) and thoughts(bridge, session))
        [told] = thoughts(bridge, session)
        assert told.startswith("The MCP server tiny ended with exit code 7. Its tools are gone;")
        assert not any(name.startswith("mcp__tiny") for name in offered(place, session))


def test_a_long_answer_is_kept_where_the_model_may_read_on(place: DshPlace) -> None:
    with place.editor("--mode", "full") as bridge:
        session = opened(bridge, place, acp_server())
        until_offered(bridge, place, session, "tiny")
        place.loopback.answer(session, tool("c1", "mcp__tiny__big", chars=300_000))
        place.loopback.answer(session, text("Much."))
        assert end_of(bridge, session) == "end_turn"
        assert len(place.loopback.asked(session)) < 200_000
        assert "dsh-spill-" in place.loopback.asked(session)


def test_servers_of_dshs_own_configuration_stay_beside_ours_and_tools_follow_their_lists(
    place: DshPlace,
) -> None:
    configured = [
        {
            "id": f"own-{name}",
            "name": "@deepseek-ai/dsh-mcp-client",
            "config": {
                "transport": "stdio",
                "serverName": name,
                "command": tiny().command,
                "args": list(tiny().args),
                "env": {"WHOSE": "dsh"},
            },
        }
        for name in ("tiny", "own")
    ]
    place.dsh_home.mkdir()
    (place.dsh_home / "cordis.patch.yml").write_text(json.dumps([{"insert": configured}]))
    given = acp_server()
    given["env"] = [{"name": "WHOSE", "value": "the editor"}]
    with place.editor("--mode", "full") as bridge:
        session = opened(bridge, place, given)
        until_offered(bridge, place, session, "own", "tiny")
        for _ in range(TRIES):
            place.loopback.answer(session, tool("c1", "mcp__tiny__env", name="WHOSE"))
            place.loopback.answer(session, tool("c2", "mcp__own__env", name="WHOSE"))
            place.loopback.answer(session, tool("c3", "mcp__tiny__grow"))
            place.loopback.answer(session, text("Done."))
            assert end_of(bridge, session) == "end_turn"
            if results(bridge, session)["c1"] == "'the editor'":
                break
            time.sleep(1)
        assert results(bridge, session)["c1"] == "'the editor'"
        assert results(bridge, session)["c2"] == "'dsh'"
        eventually(
            lambda: (
                end_of(bridge, session) == "end_turn"
                and "mcp__tiny__grown" in offered(place, session)
            )
        )
        bridge.result("session/close", sessionId=session)
