"""Prompts over the whole bridge: order, cancel, failures, and the end of the connection."""

import pytest
from acp_rig import HI, HOLD, Bench, bash, said

from acp_bridge.bridge.acp_agent import _stop_reason
from acp_bridge.errors import (
    AuthRequiredError,
    BridgeError,
    ModelFailedError,
    RuntimeFailedError,
)
from acp_bridge.sessions import SessionStore
from acp_bridge.testing.rules import broken_rules
from acp_bridge.vocabulary import JsonObject, JsonValue, TurnEnd

pytestmark = pytest.mark.anyio


def stored(bench: Bench, session_id: str) -> list[str]:
    """The row types of a stored session."""
    store = SessionStore(bench.home / "sessions", clock=lambda: 0)
    return [event.type for event in store.read(session_id).events]


async def test_every_update_of_a_turn_comes_before_its_response_r041(bench: Bench) -> None:
    bench.judge = broken_rules  # the schema takes its time over so many
    bench.answers([{"text": "x", "repeat": 500}])
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        assert await editor.prompt(session_id) == "end_turn"
        assert editor.text() == "x" * 500
        assert "result" in editor.received[-1]


async def test_a_turn_goes_on_when_the_client_reads_slowly(bench: Bench) -> None:
    bench.judge = broken_rules  # the schema takes its time over so many
    bench.answers([{"text": "y" * 1000, "repeat": 500}])
    async with bench.editor(buffer_bytes=1000) as editor:
        session_id = await editor.new(bench.cwd)
        assert await editor.prompt(session_id) == "end_turn"
        assert len(editor.text()) == 500_000


@pytest.mark.parametrize(
    ("stream", "code", "says"),
    [
        ([{"error": {"status": 401, "message": "bad key"}}], -32000, "bad key"),
        ([{"error": {"status": 400, "message": "bad request"}}], -32603, "bad request"),
        ([{"text": "a"}, {"error": {"status": 404, "message": "no model"}}], -32603, "no model"),
    ],
)
async def test_a_model_failure_is_an_error_and_the_next_prompt_works_r046(
    bench: Bench, stream: list[JsonValue], code: int, says: str
) -> None:
    bench.answers(stream, HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        error = await editor.refused("session/prompt", said(session_id))
        assert error["code"] == code
        assert says in str(error["message"])
        assert list(error["data"]) == ["details"]  # type: ignore[arg-type]
        assert await editor.prompt(session_id) == "end_turn"


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (TurnEnd("error", "bad key", "AUTH"), AuthRequiredError),
        (TurnEnd("error", "busy", "SERVER"), ModelFailedError),
        (TurnEnd("error", "no answer", "SCRIPT_EXHAUSTED"), ModelFailedError),
        (TurnEnd("error", "The disk is full.", "STORE"), RuntimeFailedError),
        (TurnEnd("error", "Try again.", "INTERNAL"), RuntimeFailedError),
        (TurnEnd("error"), ModelFailedError),
    ],
)
def test_a_failed_turn_is_the_error_of_whoever_is_to_blame(
    end: TurnEnd, error: type[BridgeError]
) -> None:
    with pytest.raises(error) as raised:
        _stop_reason(end)
    assert (end.details or "failed") in raised.value.details


@pytest.mark.parametrize("stop", ["max_tokens", "refusal"])
async def test_stops_that_are_no_failure(bench: Bench, stop: str) -> None:
    bench.answers([{"text": "a"}, {"stop": stop}])
    async with bench.editor() as editor:
        assert await editor.prompt(await editor.new(bench.cwd)) == stop


async def test_prompts_are_answered_in_order_and_a_cancel_ends_all_r037(bench: Bench) -> None:
    bench.answers(HOLD, HI, HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        first = await editor.start("session/prompt", said(session_id, "A"))
        others = [await editor.start("session/prompt", said(session_id, c)) for c in "BC"]
        await editor.seen_text("Half")
        await editor.cancel(session_id)
        for prompt in (first, *others):
            answer = await editor.answer(prompt)
            assert answer["result"] == {"stopReason": "cancelled"}
        assert await editor.prompt(session_id) == "end_turn"
        assert editor.text() == "HalfHi."


async def test_prompt_and_cancel_in_one_write_r032(bench: Bench) -> None:
    bench.answers(*[HI] * 50)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        cancel: JsonObject = {"method": "session/cancel", "params": {"sessionId": session_id}}
        for _ in range(20):
            request = editor.request("session/prompt", said(session_id))
            await editor.send(cancel, request, cancel, cancel)
            answer = await editor.answer(request["id"])
            assert answer["result"] in ({"stopReason": "cancelled"}, {"stopReason": "end_turn"})
        assert await editor.prompt(session_id) == "end_turn"


async def test_a_cancel_while_a_failed_call_waits_for_its_retry_is_cancelled_r035(
    bench: Bench,
) -> None:
    busy: JsonObject = {"error": {"status": 503, "message": "busy", "retry_after_s": 60}}
    bench.answers([{"text": "Half"}, busy], HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        prompts = [await editor.start("session/prompt", said(session_id, c)) for c in "AB"]
        await editor.seen_text("Trying again")
        await editor.cancel(session_id)
        for prompt in prompts:
            assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
        assert await editor.prompt(session_id) == "end_turn"
        assert editor.text() == "HalfHi."


async def test_cancel_request_for_a_queued_prompt_leaves_the_running_one(bench: Bench) -> None:
    bench.answers(HOLD, HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        first = await editor.start("session/prompt", said(session_id, "A"))
        second = await editor.start("session/prompt", said(session_id, "B"))
        await editor.seen_text("Half")
        await editor.send({"method": "$/cancel_request", "params": {"requestId": second}})
        error = (await editor.answer(second))["error"]
        assert isinstance(error, dict)
        assert error["code"] == -32800
        bench.release("go")
        assert (await editor.answer(first))["result"] == {"stopReason": "end_turn"}
        assert editor.text() == "Half done"


async def test_the_end_of_the_connection_ends_the_turn_as_disposed(bench: Bench) -> None:
    bench.answers(HOLD)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session_id))
        await editor.seen_text("Half")
    assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
    store = SessionStore(bench.home / "sessions", clock=lambda: 0)
    last = store.read(session_id).events[-1]
    assert last.type == "turn/end"
    assert "disposed" in str(last.data)


async def test_a_client_that_goes_while_asked_costs_no_more_model_calls(bench: Bench) -> None:
    bench.answers([bash("c", "echo")], HI)
    async with bench.editor() as editor:
        editor.reply = lambda _request: None
        session_id = await editor.new(bench.cwd)
        await editor.start("session/prompt", said(session_id))
        await editor.seen_text("toolCall")
        await editor.seen(lambda m: m.get("method") == "session/request_permission")
    assert stored(bench, session_id).count("assistant/message") == 1
