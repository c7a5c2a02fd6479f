"""Real subagents of scripted models before an editor: live, and loaded after a restart.

`Bench.editor` holds every message to the schema and the rules, and each load to what was live.
"""

import json

import pytest
from acp_rig import Bench, Editor, bash, said, selected

from acp_bridge.vocabulary import JsonObject, JsonValue

pytestmark = pytest.mark.anyio

NATIVE: JsonObject = {"subagents": {}}
FALLBACK: JsonObject = {}
FORMS = pytest.mark.parametrize("form", [NATIVE, FALLBACK], ids=["native", "fallback"])


def delegate(call_id: str, label: str, task: str = "Do it.", **more: JsonValue) -> JsonObject:
    arguments: JsonObject = {"description": label, "prompt": task, **more}
    return {"tool_call": {"id": call_id, "name": "subagent", "arguments": arguments}}


def children(editor: Editor) -> dict[str, str]:
    """The ids of announced subagents by title."""
    return {
        str(u["title"]): str(u["sessionId"])
        for u in editor.updates()
        if "title" in u and "state" in u
    }


def states(editor: Editor, child: str) -> list[object]:
    return [u["state"] for u in editor.updates() if u.get("sessionId") == child and "state" in u]


def runs(editor: Editor, root: str) -> dict[str, JsonObject]:
    """The calls that show subagents' work, by their title in the end."""
    drawn: dict[str, JsonObject] = {}
    for update in editor.updates(root):
        if "acp-bridge" in str(update.get("_meta")):
            drawn.setdefault(str(update["toolCallId"]), {}).update(update)
    return {str(call["title"]): call for call in drawn.values()}


def content(call: JsonObject) -> str:
    return str(call["content"][0]["content"]["text"])  # type: ignore[index,call-overload]


def nested(bench: Bench) -> None:
    """Three levels below the root; the deepest asks for a command."""
    bench.answers([{"text": "P1 "}, delegate("c", "first")], [{"text": "P2 "}], [{"text": "P3"}])
    bench.answers([delegate("c", "second")], [{"text": "Wait."}], [{"text": "One."}], agent="1/1")
    bench.answers([delegate("c", "third", wait=True)], [{"text": "Two."}], agent="1/1/1")
    bench.answers([bash("c", "echo made")], [{"text": "Three."}], agent="1/1/1/1")


@FORMS
async def test_three_levels_are_shown_live_and_after_a_restart(
    bench: Bench, form: JsonObject
) -> None:
    nested(bench)
    async with bench.editor(form) as editor:
        root = await editor.new(bench.cwd)
        assert await editor.prompt(root) == "end_turn"
        (question,) = [
            m for m in editor.received if m.get("method") == "session/request_permission"
        ]
        assert editor.text(root).startswith("P1 P2 ")
        live = children(editor), runs(editor, root)
        if form is NATIVE:
            kids = children(editor)
            assert list(kids) == ["first", "second", "third"]
            assert question["params"]["sessionId"] == kids["third"]  # type: ignore[index,call-overload]
            assert editor.text(kids["third"]) == "Three."
            for kid in kids.values():
                assert states(editor, kid)[-1] == {"state": "idle", "stopReason": "end_turn"}
        else:
            found = runs(editor, root)
            assert list(found) == [
                "Subagent first",
                "Subagent second",
                "Subagent third",
                "third $ echo made",
            ]
            assert content(found["Subagent third"]) == "Three."
            assert content(found["Subagent first"]) == "One."
            assert {call["status"] for call in found.values()} == {"completed"}
    async with bench.editor(form) as editor:
        await editor.load(root, bench.cwd)
        assert children(editor) == live[0]
        assert list(runs(editor, root)) == list(live[1])
        assert "capabilities" not in json.dumps(editor.updates())
        sessions = (await editor.call("session/list", {}))["sessions"]
        assert isinstance(sessions, list)
        assert [s["sessionId"] for s in sessions if isinstance(s, dict)] == [root]  # R072


@FORMS
async def test_two_children_ask_at_once(bench: Bench, form: JsonObject) -> None:
    bench.answers([delegate("a", "left"), delegate("b", "right")], [{"text": "Both."}])
    for number in (1, 2):
        bench.answers([bash("call_0", f"echo {number}")], [{"text": "ok"}], agent=f"1/{number}")
    bench.answers([{"text": "."}], [{"text": "."}])
    async with bench.editor(form) as editor:
        editor.reply = lambda _request: None
        root = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(root))

        def questions() -> list[JsonObject]:
            return [m for m in editor.received if m.get("method") == "session/request_permission"]

        await editor.seen(lambda _: len(questions()) == 2)
        for question in reversed(questions()):
            await editor.send({"id": question["id"], **selected("allow-once")})
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        commands = {str(q["params"]["toolCall"]["rawInput"]["command"]) for q in questions()}  # type: ignore[index,call-overload]
        assert commands == {"echo 1", "echo 2"}
    async with bench.editor(form) as editor:
        await editor.load(root, bench.cwd)


@FORMS
async def test_a_cancel_of_the_parent_ends_its_children(bench: Bench, form: JsonObject) -> None:
    bench.answers([delegate("a", "slow", wait=True)])
    bench.answers([{"text": "Half"}, {"wait": "never"}], agent="1/1")
    async with bench.editor(form) as editor:
        root = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(root))
        await editor.seen_text("Half" if form is NATIVE else "slow: answers")
        await editor.cancel(root)
        assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
        if form is NATIVE:
            kid = children(editor)["slow"]
            assert states(editor, kid)[-1] == {"state": "idle", "stopReason": "cancelled"}
        else:
            assert runs(editor, root)["Subagent slow"]["status"] == "failed"
    async with bench.editor(form) as editor:
        await editor.load(root, bench.cwd)


@FORMS
async def test_children_fail_and_hit_their_limit(bench: Bench, form: JsonObject) -> None:
    bench.answers([delegate("a", "fails", wait=True)], [delegate("b", "long", wait=True)])
    bench.answers([{"text": "So."}])
    bench.answers([{"error": {"status": 400, "message": "no"}}], agent="1/1")
    bench.answers([{"text": "Cut"}, {"stop": "max_tokens"}], agent="1/2")
    async with bench.editor(form) as editor:
        root = await editor.new(bench.cwd)
        assert await editor.prompt(root) == "end_turn"
        if form is NATIVE:
            kids = children(editor)
            failed = states(editor, kids["fails"])[-1]
            assert isinstance(failed, dict)
            assert failed["stopReason"] == "error"
            assert states(editor, kids["long"])[-1] == {"state": "idle", "stopReason": "max_tokens"}
        else:
            found = runs(editor, root)
            assert [call["status"] for call in found.values()] == ["failed", "failed"]
            assert "The subagent failed." in content(found["Subagent fails"])
            assert content(found["Subagent long"]).startswith("Cut\n\nThe subagent stopped")
    async with bench.editor(form) as editor:
        await editor.load(root, bench.cwd)


async def test_the_user_cancels_one_child_by_its_id(bench: Bench) -> None:
    bench.answers([delegate("a", "slow")], [{"text": "Go on."}], [{"text": "I see."}])
    bench.answers([{"text": "Half"}, {"wait": "never"}], agent="1/1")
    async with bench.editor(NATIVE) as editor:
        root = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(root))
        await editor.seen_text("Half")
        kid = children(editor)["slow"]
        await editor.cancel(kid)
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        assert states(editor, kid)[-1] == {"state": "idle", "stopReason": "cancelled"}
        error = await editor.refused("session/prompt", said(kid))
        assert error["code"] == -32602


@FORMS
async def test_a_complete_child_is_woken_by_a_message_also_after_a_restart(
    bench: Bench, form: JsonObject
) -> None:
    bench.answers([delegate("a", "worker")], [{"text": "."}], [{"text": "."}])
    bench.answers([{"text": "First."}], [{"text": "Second."}], agent="1/1")
    async with bench.editor(form) as editor:
        root = await editor.new(bench.cwd)
        await editor.prompt(root)
        kid = next(iter(children(editor).values()), "") or next(
            str(call["_meta"]["acp-bridge"]["childSessionId"])  # type: ignore[index,call-overload]
            for call in runs(editor, root).values()
        )
    arguments: JsonObject = {"agent_id": kid, "message": "More."}
    bench.answers(
        [{"tool_call": {"id": "a", "name": "send_message", "arguments": arguments}}],
        [{"text": "Sent."}],
        [{"text": "Done."}],
    )
    async with bench.editor(form) as editor:
        await editor.load(root, bench.cwd)
        start = len(editor.updates())
        assert await editor.prompt(root, "Wake it.") == "end_turn"
        later = editor.updates()[start:]
        if form is NATIVE:
            woken = next(u for u in later if u["sessionUpdate"] == "subagent_update")
            assert (woken["title"], woken["state"]) == ("worker", {"state": "running"})
            assert woken["capabilities"] == {"cancel": {}}
            assert editor.text(kid).endswith("Second.")
        else:
            (call,) = [u for u in later if u.get("toolCallId") == f"{kid}.2" and "content" in u]
            assert content(call) == "Second."
    async with bench.editor(form) as editor:
        await editor.load(root, bench.cwd)
