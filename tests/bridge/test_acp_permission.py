"""What a user is asked, and what any answer means."""

import json

import anyio
import pytest
from acp_rig import HI, WAIT_S, Bench, bash, said, selected, write

from acp_bridge.vocabulary import JsonObject

pytestmark = pytest.mark.anyio


async def test_the_question_carries_the_whole_call_r084(bench: Bench) -> None:
    command = "echo " + "x" * 500
    bench.answers([write("w", content="new\n"), bash("b", command)], HI)
    asked: list[JsonObject] = []

    def reply(request: JsonObject) -> JsonObject:
        params = request["params"]
        assert isinstance(params, dict)
        asked.append(params)
        return selected("reject-once")

    async with bench.editor() as editor:
        editor.reply = reply
        assert await editor.prompt(await editor.new(bench.cwd)) == "end_turn"
    file, shell = asked
    call = file["toolCall"]
    assert isinstance(call, dict)
    path = str(bench.cwd / "a.txt")
    assert (call["kind"], call["title"], call["status"]) == ("edit", "Write `a.txt`", "pending")
    assert call["rawInput"] == {"file_path": "a.txt", "content": "new\n"}
    assert call["content"] == [{"type": "diff", "path": path, "oldText": None, "newText": "new\n"}]
    assert call["locations"] == [{"path": path, "line": 1}]
    kinds = [option["kind"] for option in file["options"]]  # type: ignore[index,union-attr,call-overload]
    assert kinds == ["allow_once", "allow_always", "reject_once"]
    call = shell["toolCall"]
    assert isinstance(call, dict)
    assert call["title"] == command
    assert not (bench.cwd / "a.txt").exists()


async def test_outside_the_workspace_always_is_not_offered(bench: Bench) -> None:
    bench.answers([write("w", "../outside.txt")], HI)
    asked: list[str] = []

    def reply(request: JsonObject) -> JsonObject:
        asked.append(json.dumps(request))
        return selected("allow-always")

    async with bench.editor() as editor:
        editor.reply = reply
        await editor.prompt(await editor.new(bench.cwd))
    assert "allow_always" not in asked[0]
    assert "outside the workspace" in asked[0]
    assert not (bench.folder / "outside.txt").exists()


MALFORMED: list[JsonObject] = [
    selected("allow"),
    selected(""),
    {"result": {"outcome": {"outcome": "selected"}}},
    {"result": {"outcome": {"outcome": "selected", "optionId": None}}},
    {"result": {"outcome": {"outcome": "allowed"}}},
    {"result": {"outcome": "allow-once"}},
    {"result": {}},
    {"result": None},
    {"result": "allow-once"},
    {"result": [1]},
    {"error": {"code": -32601, "message": "Method not found"}},
    {"error": "no"},
]


@pytest.mark.parametrize("answer", MALFORMED)
async def test_a_malformed_answer_is_a_rejection_r085(bench: Bench, answer: JsonObject) -> None:
    bench.answers([write("a"), write("b", "b.txt")], HI)
    replies = [answer, selected("allow-once")]
    async with bench.editor() as editor:
        editor.reply = lambda _request: replies.pop(0)
        assert await editor.prompt(await editor.new(bench.cwd)) == "end_turn"
    assert not (bench.cwd / "a.txt").exists()
    assert (bench.cwd / "b.txt").exists()


async def test_a_question_that_is_dismissed_without_a_cancel_is_a_rejection(bench: Bench) -> None:
    bench.answers([write("a")], HI)
    async with bench.editor() as editor:
        editor.reply = lambda _request: {"result": {"outcome": {"outcome": "cancelled"}}}
        assert await editor.prompt(await editor.new(bench.cwd)) == "end_turn"
    assert not (bench.cwd / "a.txt").exists()


async def test_a_cancel_while_asked_withdraws_the_question_r031(bench: Bench) -> None:
    bench.answers([write("a"), write("b", "b.txt")], HI)
    async with bench.editor() as editor:
        editor.reply = lambda _request: None
        session_id = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session_id))
        question = await editor.seen(lambda m: m.get("method") == "session/request_permission")
        await editor.cancel(session_id)
        assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
        gone = await editor.seen(lambda m: m.get("method") == "$/cancel_request")
        assert gone["params"] == {"requestId": question["id"]}
        await editor.send({"id": question["id"], **selected("allow-once")})  # late
        assert await editor.prompt(session_id) == "end_turn"
    assert not (bench.cwd / "a.txt").exists()


async def test_a_session_that_waits_holds_up_no_other_r089(bench: Bench) -> None:
    bench.answers([write("a")], HI)
    bench.answers(HI, HI, agent="2")
    async with bench.editor() as editor:
        editor.reply = lambda _request: None
        parked = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(parked))
        question = await editor.seen(lambda m: m.get("method") == "session/request_permission")
        with anyio.fail_after(WAIT_S):
            other = await editor.new(bench.cwd)
            assert await editor.prompt(other) == "end_turn"
            await editor.load(other, bench.cwd)
            await editor.call("session/list", {})
            assert await editor.call("session/close", {"sessionId": other}) == {}
        await editor.send({"id": question["id"], **selected("allow-once")})
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
