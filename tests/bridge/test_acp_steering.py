"""Words for a running turn, in the order in which they and a cancel arrive."""

from typing import TYPE_CHECKING

import pytest
from acp_rig import HI, HOLD, Bench, said

if TYPE_CHECKING:
    from acp_bridge.vocabulary import JsonObject

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
