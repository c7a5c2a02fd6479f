"""Words for a running turn, in the order in which they and a cancel arrive."""

import pytest
from acp_rig import HI, HOLD, Bench, said

from acp_bridge.vocabulary import JsonObject, JsonValue

pytestmark = pytest.mark.anyio


async def test_a_cancel_right_behind_them_drops_them_too(bench: Bench) -> None:
    bench.answers(HOLD, HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session_id))
        await editor.seen_text("Half")
        steer = editor.request("_session/steering", said(session_id, "Faster."))
        cancel: JsonObject = {"method": "session/cancel", "params": {"sessionId": session_id}}
        await editor.send(steer, cancel)
        assert (await editor.answer(steer["id"]))["result"] == {"outcome": "failed"}
        assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
        assert await editor.prompt(session_id, "Go on.") == "end_turn"
        await editor.load(session_id, bench.cwd)
        assert "Faster." not in str(editor.updates())


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
async def test_words_that_meet_a_close_are_not_said_to_have_started_a_turn(
    bench: Bench, method: str
) -> None:
    bench.answers(HOLD)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session_id))
        await editor.seen_text("Half")
        steer = editor.request("_session/steering", said(session_id, "Faster."))
        close = editor.request(method, {"sessionId": session_id})
        await editor.send(steer, close)
        assert (await editor.answer(steer["id"]))["result"] == {"outcome": "failed"}
        assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
        assert (await editor.answer(close["id"]))["result"] == {}


async def test_words_without_a_turn_start_one_and_a_command_is_run(bench: Bench) -> None:
    bench.answers(HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        started = {"outcome": "startedNewTurn"}
        assert await editor.call("_session/steering", said(session_id, "/title Better")) == started
        await editor.seen_text("The title is now: Better")
        assert await editor.call("_session/steering", said(session_id, "Hello.")) == started
        await editor.seen_text("Hi.")


@pytest.mark.parametrize("prompt", [[], [{"type": "text", "text": " "}], [{"type": "audio"}], "x"])
async def test_words_that_cannot_be_used_are_refused(bench: Bench, prompt: object) -> None:
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        params: JsonObject = {"sessionId": session_id, "prompt": prompt}  # type: ignore[dict-item]
        error = await editor.refused("_session/steering", params)
        assert error["code"] == -32602
        unknown = await editor.refused("_session/steering", said("no such session"))
        assert unknown["code"] == -32002


BUSY: list[JsonValue] = [{"text": "I be"}, {"error": {"status": 400, "message": "bad request"}}]
DENIED: list[JsonValue] = [{"error": {"status": 401, "message": "bad key"}}]
REFUSED: list[JsonValue] = [{"stop": "refusal"}]

FAILURES = pytest.mark.parametrize(
    ("stream", "told"),
    [
        (BUSY, "The model call failed: bad request"),
        (DENIED, "The model refused the key: bad key"),
        (REFUSED, "The model refused"),
    ],
    ids=["error", "key", "refusal"],
)


@FAILURES
async def test_a_turn_that_they_started_and_that_fails_says_why(
    bench: Bench, stream: list[JsonValue], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench.answers(stream, HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        steered = await editor.call("_session/steering", said(session_id, "Hello."))
        assert steered == {"outcome": "startedNewTurn"}
        await editor.seen_text(told)
        said_of_it = [u for u in editor.updates() if told in str(u)]
        assert [u["sessionUpdate"] for u in said_of_it] == ["agent_message_chunk"]
        assert await editor.prompt(session_id, "Go on.") == "end_turn"
        await editor.load(session_id, bench.cwd)
    assert f"session {session_id}: a turn failed beside any prompt" in caplog.text
    assert "Hello." not in caplog.text


@FAILURES
async def test_a_client_that_takes_notices_gets_the_failure_as_one(
    bench: Bench, stream: list[JsonValue], told: str
) -> None:
    bench.answers(stream)
    async with bench.editor({"session": {"notices": {}}}) as editor:
        session_id = await editor.new(bench.cwd)
        await editor.call("_session/steering", said(session_id, "Hello."))
        await editor.seen_text(told)
        notices = [u for u in editor.updates() if u["sessionUpdate"] == "notice"]
        assert [(u["severity"], told in str(u["title"])) for u in notices] == [("error", True)]


async def test_a_turn_that_they_started_and_that_is_cancelled_has_nothing_to_say(
    bench: Bench,
) -> None:
    bench.answers(HOLD, HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        await editor.call("_session/steering", said(session_id, "Hello."))
        await editor.seen_text("Half")
        await editor.send({"method": "session/cancel", "params": {"sessionId": session_id}})
        assert await editor.prompt(session_id, "Go on.") == "end_turn"
        assert "fail" not in editor.text()


async def test_the_connection_may_end_while_such_a_turn_runs(bench: Bench) -> None:
    bench.answers(HOLD)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        await editor.call("_session/steering", said(session_id, "Hello."))
        await editor.seen_text("Half")
