"""MCP servers as a client gives them: in new, load, resume and fork, and what the user sees."""

import json
from typing import Any

import anyio
import pytest
from acp_rig import HI, WAIT_S, Bench, Editor, allow, said, selected
from mcp_rig import SECRET, lives, tiny
from pace import patient

from acp_bridge.harness.mcp import servers as servers_module
from acp_bridge.vocabulary import JsonObject, JsonValue

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of these tests take as long to start as the machine is busy."""
    monkeypatch.setattr(servers_module, "PROMPT_WAIT_S", 30.0)


def acp_server(how: str = "", *, name: str = "tiny") -> JsonObject:
    server = tiny(how, name=name)
    env: list[JsonValue] = [{"name": "TINY_SECRET", "value": SECRET}]
    return {"name": name, "command": server.command, "args": list(server.args), "env": env}


def use(call_id: str, tool: str, **arguments: JsonValue) -> JsonObject:
    return {"tool_call": {"id": call_id, "name": f"mcp__tiny__{tool}", "arguments": arguments}}


async def opened(
    editor: Editor, bench: Bench, *servers: JsonObject, by: str = "session/new", **more: JsonValue
) -> str:
    params: JsonObject = {"cwd": str(bench.cwd), "mcpServers": list(servers), **more}
    result = await editor.call(by, params)
    return str(result.get("sessionId", more.get("sessionId")))


def results(editor: Editor, session_id: str | None = None) -> list[str]:
    """The text of each tool call that has ended."""
    found = []
    for update in editor.updates(session_id):
        if update.get("status") in {"completed", "failed"}:
            content: Any = update["content"]
            found.append("".join(block["content"]["text"] for block in content))
    return found


def thoughts(editor: Editor) -> str:
    updates: list[Any] = editor.updates()
    return "".join(
        update["content"]["text"]
        for update in updates
        if update["sessionUpdate"] == "agent_thought_chunk"
    )


async def test_a_tool_of_a_server_asks_and_always_holds_for_that_tool_alone(bench: Bench) -> None:
    bench.answers(
        [use("a", "add", a=1, b=2)], [use("b", "add", a=3, b=4)], [use("c", "env", name="X")], HI
    )
    asked: list[Any] = []

    def reply(request: JsonObject) -> JsonObject:
        asked.append(request["params"])
        return selected("allow-always")

    async with bench.editor() as editor:
        editor.reply = reply
        session = await opened(editor, bench, acp_server())
        assert await editor.prompt(session) == "end_turn"
        assert results(editor) == ["3", "7", "None"]
    first, second = asked
    assert first["toolCall"]["title"] == "add (tiny)"
    assert first["toolCall"]["rawInput"] == {"a": 1, "b": 2}
    labels = [option["name"] for option in first["options"] if option["kind"] == "allow_always"]
    assert labels == ["Always allow add of the MCP server tiny, for this session"]
    assert second["toolCall"]["title"] == "env (tiny)"


async def test_plan_asks_for_what_is_said_to_read_only_and_refuses_the_rest(bench: Bench) -> None:
    bench.answers([use("a", "add", a=1, b=2), use("b", "env", name="X")], HI)
    asked: list[Any] = []

    def reply(request: JsonObject) -> JsonObject:
        asked.append(request["params"])
        return selected("allow-once")

    async with bench.editor() as editor:
        editor.reply = reply
        session = await opened(editor, bench, acp_server())
        await editor.call("session/set_mode", {"sessionId": session, "modeId": "plan"})
        await editor.prompt(session)
        refused, ran = sorted(results(editor), key=len, reverse=True)
    assert "plan mode allows no call that uses add of the MCP server tiny" in refused
    assert ran == "None"
    assert [one["toolCall"]["title"] for one in asked] == ["env (tiny)"]


async def test_two_sessions_have_servers_of_their_own(bench: Bench) -> None:
    bench.answers([use("a", "facts")], HI)
    bench.answers([use("b", "facts")], HI, [use("c", "add", a=1, b=1)], HI, agent="2")
    async with bench.editor() as editor:
        one = await opened(editor, bench, acp_server())
        other = await opened(editor, bench, acp_server())
        await editor.prompt(one)
        await editor.prompt(other)
        pids = [int(results(editor, session)[0].split()[0]) for session in (one, other)]
        assert all(map(lives, pids))
        await editor.call("session/close", {"sessionId": one})
        assert list(map(lives, pids)) == [False, True]
        await editor.prompt(other)
        assert results(editor, other)[-1] == "2"
    assert not lives(pids[1])


@pytest.mark.parametrize("by", ["session/load", "session/resume", "session/fork"])
async def test_a_stored_session_connects_again(bench: Bench, by: str) -> None:
    for agent in "12":
        bench.answers([use("a", "facts")], HI, [use("b", "facts")], HI, agent=agent)
    async with bench.editor() as editor:
        session = await opened(editor, bench, acp_server())
        await editor.prompt(session)
        before = int(results(editor, session)[-1].split()[0])
    assert not lives(before)
    async with bench.editor() as editor:
        session = await opened(editor, bench, acp_server(), by=by, sessionId=session)
        await editor.prompt(session)
        pid, folder, _ = results(editor, session)[-1].split()
        assert (lives(int(pid)), folder) == (True, str(bench.cwd))


async def test_a_server_that_fails_is_named_once_and_the_session_works(bench: Bench) -> None:
    bench.answers([use("a", "add", a=1, b=2)], HI, HI)
    async with bench.editor() as editor:
        session = await opened(editor, bench, acp_server("fails", name="bad"), acp_server())
        await editor.prompt(session)
        await editor.prompt(session)
        assert results(editor) == ["3"]
        told = "The MCP server bad ended with exit code 3. The session goes on without it.\n"
        assert thoughts(editor) == told
        assert SECRET not in json.dumps(editor.received)


async def test_a_session_is_there_at_once_whatever_its_servers_do(bench: Bench) -> None:
    servers = [acp_server("hangs", name=f"slow {n}") for n in range(3)]
    async with bench.editor() as editor:
        with anyio.fail_after(patient(2)):
            session = await opened(editor, bench, *servers)
        with anyio.fail_after(WAIT_S):
            await editor.call("session/close", {"sessionId": session})


async def test_a_prompt_that_waits_for_servers_can_be_cancelled(bench: Bench) -> None:
    async with bench.editor() as editor:
        session = await opened(editor, bench, acp_server("hangs"))
        prompt = await editor.start("session/prompt", said(session))
        await editor.cancel(session)
        with anyio.fail_after(patient(2)):
            answer = await editor.answer(prompt)
        assert answer["result"] == {"stopReason": "cancelled"}


REFUSED: list[tuple[list[JsonValue], str]] = [
    ([acp_server(), {"type": "acp", "name": "x", "id": "1"}], "mcpServers[1].type"),
    ([acp_server(), acp_server()], "mcpServers[1].name"),
    ([{"type": "http", "name": "x"}], "mcpServers[0].url"),
]


@pytest.mark.parametrize(("servers", "field"), REFUSED)
async def test_a_server_that_cannot_be_is_refused_by_its_place_r018(
    bench: Bench, servers: list[JsonValue], field: str
) -> None:
    async with bench.editor(is_judged=False) as editor:
        params: JsonObject = {"cwd": str(bench.cwd), "mcpServers": servers}
        error = await editor.refused("session/new", params)
        assert error["code"] == -32602
        data = error["data"]
        assert isinstance(data, dict)
        assert data["field"] == field


async def test_a_subagent_has_the_servers_of_its_root(bench: Bench) -> None:
    delegate: JsonObject = {"description": "look", "prompt": "Look.", "wait": True}
    bench.answers(
        [use("a", "facts")],
        [{"tool_call": {"id": "s", "name": "subagent", "arguments": delegate}}],
        HI,
    )
    bench.answers([use("b", "facts")], [{"text": "Done."}], agent="1/1")
    async with bench.editor({"subagents": {}}) as editor:
        editor.reply = allow
        session = await opened(editor, bench, acp_server())
        await editor.prompt(session)
        mine, *_ = results(editor, session)
        assert results(editor).count(mine) == 2
