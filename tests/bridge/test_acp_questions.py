"""Questions of the model over the whole bridge: when they are put, and what ends the waiting."""

import anyio.lowlevel
import pytest
from acp_rig import HI, Bench, said

from acp_bridge.vocabulary import JsonObject, JsonValue

pytestmark = pytest.mark.anyio

FORMS: JsonObject = {"elicitation": {"form": {}}}


def asks(call_id: str) -> list[JsonValue]:
    questions: list[JsonValue] = [{"id": "n", "question": "What is it called?"}]
    arguments: JsonObject = {"questions": questions}
    return [{"tool_call": {"id": call_id, "name": "ask_user_question", "arguments": arguments}}]


def is_form(message: JsonObject) -> bool:
    return message.get("method") == "elicitation/create"


@pytest.mark.parametrize(
    "offered", [{}, {"elicitation": {}}, {"elicitation": {"form": None, "url": {}}}]
)
async def test_a_client_without_forms_is_never_asked(bench: Bench, offered: JsonObject) -> None:
    bench.answers(asks("c"), HI)
    async with bench.editor(offered) as editor:
        assert await editor.prompt(await editor.new(bench.cwd)) == "end_turn"
        await editor.seen_text('unknown tool \\"ask_user_question\\"')
        assert not any(is_form(message) for message in editor.received)


async def test_a_client_that_goes_away_ends_the_question_and_the_turn(bench: Bench) -> None:
    bench.answers(asks("c"), HI)
    async with bench.editor(FORMS, is_judged=False) as editor:
        editor.reply = lambda _request: None
        session_id = await editor.new(bench.cwd)
        await editor.start("session/prompt", said(session_id))
        await editor.seen(is_form)
    async with bench.editor(FORMS, is_judged=False) as editor:
        await editor.load(session_id, bench.cwd)
        await editor.seen_text("cancelled while running")
        assert "Hi." not in editor.text()  # the model was not asked again


async def test_a_question_comes_behind_a_replay_that_shows_its_call(bench: Bench) -> None:
    bench.answers([{"wait": "go"}, *asks("c")], HI)
    async with bench.editor(FORMS) as editor:
        editor.reply = lambda _request: None
        session_id = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session_id))
        load = await editor.start(
            "session/load", {"sessionId": session_id, "cwd": str(bench.cwd), "mcpServers": []}
        )
        bench.release("go")
        await editor.answer(load)
        form = await editor.seen(is_form)
        content: JsonObject = {"q1": "Bridge"}
        result: JsonObject = {"action": "accept", "content": content}
        await editor.send({"id": form["id"], "result": result})
        answer = await editor.answer(prompt)
        assert answer["result"] == {"stopReason": "end_turn"}
        await editor.seen_text("n: Bridge")


async def test_two_questions_of_one_answer_are_put_one_after_the_other(bench: Bench) -> None:
    bench.answers([*asks("a"), *asks("b")], HI)
    async with bench.editor(FORMS) as editor:
        editor.reply = lambda _request: None
        session_id = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session_id))
        first = await editor.seen(is_form)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert [m["id"] for m in editor.received if is_form(m)] == [first["id"]]
        await editor.send({"id": first["id"], "result": {"action": "decline"}})
        second = await editor.seen(lambda m: is_form(m) and m["id"] != first["id"])
        await editor.send({"id": second["id"], "result": {"action": "decline"}})
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
