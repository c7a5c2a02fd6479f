"""Subagents on the wire of the real agent, in both forms: updates, questions, cancel, load."""

import json
from pathlib import Path

import anyio
import pytest
from acp_rig import WAIT_S, Editor, said, selected
from stage_plays import ends, nest, outlive, two_ask, until_cancelled
from stage_rig import FALLBACK, NATIVE, Stage, audience

from acp_bridge.bridge.open_session import EVENTS_PER_YIELD
from acp_bridge.errors import StoreFailedError
from acp_bridge.testing.check import official_schema
from acp_bridge.testing.rules import broken_rules
from acp_bridge.testing.schema import schema_problems
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import Answer, ChildSaid, JsonObject, JsonValue, SessionId, StreamDelta

pytestmark = pytest.mark.anyio

FORMS = pytest.mark.parametrize("form", [NATIVE, FALLBACK], ids=["native", "fallback"])


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def asked(editor: Editor) -> list[JsonObject]:
    """The parameters of every question."""
    return [
        params
        for message in editor.received
        if message.get("method") == "session/request_permission"
        and isinstance(params := message["params"], dict)
    ]


def end_of(editor: Editor, child: str) -> JsonValue:
    """The last state of a child, on whichever session it was told."""
    found = [u["state"] for u in editor.updates() if u.get("sessionId") == child and "state" in u]
    return found[-1]


def runs(editor: Editor, session_id: str) -> dict[str, JsonObject]:
    """The calls that show subagents, as the client has them in the end."""
    drawn: dict[str, JsonObject] = {}
    for update in editor.updates(session_id):
        if "acp-bridge" in str(update.get("_meta")):
            drawn.setdefault(str(update["toolCallId"]), {}).update(update)
    return drawn


@FORMS
async def test_three_levels_below_the_root_live_and_loaded(stage: Stage, form: JsonObject) -> None:
    """R079: nothing of a child is in the parent's answer. R077: a question from depth three."""
    entries = list[Entry]()
    async with audience(stage, nest, entries, form) as editor:
        root = await editor.new(stage.root.cwd)
        assert await editor.prompt(root) == "end_turn"
        assert editor.text(root) == "P1 P2"
        (question,) = asked(editor)
        if form is NATIVE:
            assert question["sessionId"] == "three"
            assert editor.text("three") == "three says. Made."
            assert [end_of(editor, name) for name in ("one", "two", "three")] == [
                {"state": "idle", "stopReason": "end_turn"}
            ] * 3
        else:
            assert question["sessionId"] == root
            call = question["toolCall"]
            assert isinstance(call, dict)
            assert call["title"] == "third $ make"
            lineage = question["_meta"]
            assert lineage == call["_meta"]
            assert isinstance(lineage, dict)
            assert lineage["acp-bridge"] == {
                "childSessionId": "three",
                "parentSessionId": "two",
                "rootSessionId": root,
                "depth": 3,
                "parentToolCallId": "two.1",
            }
            assert {m["params"]["sessionId"] for m in editor.received if "method" in m} == {root}  # type: ignore[index,call-overload]
            assert list(runs(editor, root)) == ["c", "two.1", "three.1", "three/b"]
    assert stage.answers == {"three": Answer.ALLOW_ONCE}
    stage.restart()
    async with audience(stage, nest, entries, form) as editor:
        await editor.load(root, stage.root.cwd)
        assert editor.text(root) == "P1 P2"
        if form is NATIVE:
            assert editor.text("three") == "three says. Made."
            assert "capabilities" not in json.dumps(editor.updates())
            order = [u["sessionId"] for u in editor.updates() if "title" in u and "state" in u]
            assert order == ["one", "two", "three"]


@FORMS
@pytest.mark.parametrize("option", ["allow-once", "reject-once"])
async def test_two_children_ask_at_once_and_each_gets_its_own_answer(
    stage: Stage, form: JsonObject, option: str
) -> None:
    """R077: both questions are open together; the second is answered first."""
    async with audience(stage, two_ask, [], form) as editor:
        editor.reply = lambda _request: None
        root = await editor.new(stage.root.cwd)
        prompt = await editor.start("session/prompt", said(root))
        await editor.seen(lambda _: len(asked(editor)) == 2)
        questions = [m for m in editor.received if m.get("method") == "session/request_permission"]
        await editor.send({"id": questions[1]["id"], **selected("reject-once")})
        await editor.send({"id": questions[0]["id"], **selected(option)})
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
    first = Answer.ALLOW_ONCE if option == "allow-once" else Answer.REJECT
    assert stage.answers == {"kid1": first, "kid2": Answer.REJECT}


@FORMS
async def test_children_fail_hit_their_limit_and_are_cancelled(
    stage: Stage, form: JsonObject
) -> None:
    """R080: each end is told; the question of a cancelled child is withdrawn."""
    async with audience(stage, ends, [], form) as editor:
        editor.reply = lambda _request: None
        root = await editor.new(stage.root.cwd)
        prompt = await editor.start("session/prompt", said(root))
        question = await editor.seen(lambda m: m.get("method") == "session/request_permission")
        if form is NATIVE:
            await editor.cancel("kid-aborted")
        else:
            stage.cancel_of(SessionId("kid-aborted")).set()  # by its parent
        gone = await editor.seen(lambda m: m.get("method") == "$/cancel_request")
        assert gone["params"] == {"requestId": question["id"]}
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        if form is NATIVE:
            states = [end_of(editor, f"kid-{k}") for k in ("error", "max-tokens", "aborted")]
            error: JsonObject = {"code": -32603, "message": "The server is down."}
            assert states == [
                {"state": "idle", "stopReason": "error", "error": error},
                {"state": "idle", "stopReason": "max_tokens"},
                {"state": "idle", "stopReason": "cancelled"},
            ]
        else:
            shown = runs(editor, root)
            assert [shown[k]["status"] for k in ("error", "max-tokens", "aborted")] == [
                "failed"
            ] * 3
            assert shown["kid-aborted/b"]["status"] == "failed"


@FORMS
async def test_a_cancel_of_the_parent_ends_its_children_first(
    stage: Stage, form: JsonObject
) -> None:
    async with audience(stage, until_cancelled, [], form) as editor:
        root = await editor.new(stage.root.cwd)
        prompt = await editor.start("session/prompt", said(root))
        await editor.seen_text("second: answers" if form is FALLBACK else "Work")
        await editor.cancel(root)
        assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
        if form is NATIVE:
            told = [u["sessionId"] for u in editor.updates() if "idle" in str(u.get("state"))]
            assert told == ["two", "one"]
        else:
            assert {call["status"] for call in runs(editor, root).values()} == {"failed"}


@FORMS
async def test_a_child_works_on_behind_its_parents_answer(stage: Stage, form: JsonObject) -> None:
    """R080: what it does is shown, and the next turn finds it."""
    async with audience(stage, outlive, [], form) as editor:
        root = await editor.new(stage.root.cwd)
        assert await editor.prompt(root) == "end_turn"
        kid = SessionId("kid")
        stage.say(kid, "Still at it. ")
        prompt = await editor.start("session/prompt", said(root))
        await stage.cue("hurry").wait()
        stage.say(kid, "Done.")
        stage.finish(kid)
        stage.cue("over").set()
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        assert editor.text(root) == "It works.It is over."
        if form is NATIVE:
            assert editor.text("kid") == "Still at it. Done."
            hurry = next(u for u in editor.updates("kid") if "Hurry." in str(u))
            assert hurry["sessionUpdate"] == "session_message"
        else:
            assert runs(editor, root)["c1"]["status"] == "completed"


async def test_a_question_while_idle_parents_child_works_reaches_the_client(stage: Stage) -> None:
    async with audience(stage, outlive, [], NATIVE) as editor:
        root = await editor.new(stage.root.cwd)
        await editor.prompt(root)
        kid = SessionId("kid")
        assert await stage.ask(kid, "b", "make") is Answer.ALLOW_ONCE
        stage.finish(kid)
        await editor.call("session/list", {})
        states = [str(u["state"]["state"]) for u in editor.updates(root) if "state" in u]  # type: ignore[index,call-overload]
        assert states == ["running", "requires_action", "running", "idle"]


@FORMS
async def test_an_asker_that_nobody_knows_is_refused_at_once(
    stage: Stage, form: JsonObject
) -> None:
    """R077: never parked."""
    async with audience(stage, outlive, [], form) as editor:
        await editor.new(stage.root.cwd)
        stage.members[SessionId("stranger")] = stage.root
        with anyio.fail_after(WAIT_S):
            assert await stage.ask(SessionId("stranger"), "b", "make") is Answer.UNAVAILABLE
        assert asked(editor) == []


def at(stage: Stage) -> JsonObject:
    """The parameters that open the stage's session again."""
    return {"sessionId": stage.root_id, "cwd": str(stage.root.cwd), "mcpServers": []}


FORBIDDEN: list[tuple[str, JsonObject]] = [
    ("session/prompt", {"prompt": [{"type": "text", "text": "x"}]}),
    ("session/load", {"cwd": "/", "mcpServers": []}),
    ("session/resume", {"cwd": "/"}),
    ("session/fork", {"cwd": "/"}),
    ("session/close", {}),
    ("session/delete", {}),
    ("session/set_mode", {"modeId": "ask"}),
    ("session/set_config_option", {"configId": "mode", "value": "ask"}),
]


@FORMS
@pytest.mark.parametrize(("method", "params"), FORBIDDEN, ids=lambda p: str(p)[:20])
async def test_all_but_a_cancel_is_refused_for_a_child(
    stage: Stage, form: JsonObject, method: str, params: JsonObject
) -> None:
    async with audience(stage, outlive, [], form) as editor:
        await editor.prompt(await editor.new(stage.root.cwd))
        error = await editor.refused(method, {"sessionId": "kid", **params})
        assert error["code"] == -32602
        assert "kid is a subagent's" in str(error["message"])


async def test_a_cancel_of_a_child_is_no_ones_where_none_was_offered(stage: Stage) -> None:
    async with audience(stage, outlive, [], FALLBACK) as editor:
        await editor.prompt(await editor.new(stage.root.cwd))
        await editor.cancel("kid")
        await editor.cancel("nobody")
        await editor.call("session/list", {})
    assert stage.child_cancels == {}


async def test_after_a_load_who_works_is_announced_again_and_goes_on(stage: Stage) -> None:
    async with audience(stage, outlive, [], NATIVE) as editor:
        root = await editor.new(stage.root.cwd)
        await editor.prompt(root)
        kid = SessionId("kid")
        stage.say(kid, "Before. ")
        for _ in range(2 * EVENTS_PER_YIELD):  # else nothing can come between
            stage.say(kid, "More. ", streamed=False)
        await editor.call("session/list", {})
        went_on = False

        async def watch(message: JsonObject) -> None:
            nonlocal went_on
            if "Before. " in str(message) and not went_on:
                went_on = True
                stage.say(kid, "Meanwhile. ")

        editor.watch = watch
        answer = await editor.answer(await editor.start("session/load", at(stage)))
        await editor.seen_text("Mean")
        stage.finish(kid)
        split = editor.received.index(answer)
        past, later = editor.received[:split], editor.received[split + 1 :]
    assert went_on
    assert "Mean" not in str(past)
    assert later[0]["params"] == {
        "sessionId": stage.root_id,
        "update": {
            "sessionUpdate": "subagent_update",
            "sessionId": "kid",
            "title": "slow",
            "capabilities": {"cancel": {}},
            "state": {"state": "running"},
        },
    }
    assert "Mean" in str(later[1])


@FORMS
async def test_what_happens_while_the_logs_are_read_is_shown_once(
    stage: Stage, form: JsonObject
) -> None:
    """One child ends, one begins and is in the middle of a message; only the load tells of it."""
    async with audience(stage, outlive, [], form, judge=broken_rules) as editor:
        root = SessionId(await editor.new(stage.root.cwd))
        await editor.prompt(root)
        kid, late = SessionId("kid"), SessionId("late")

        def go_on() -> None:
            stage.say(kid, "The end.")
            stage.finish(kid)
            stage.delegate(root, "c9", late, "late one")
            stage.result(root, "c9", "started subagent late")
            stage.say(late, "Just begun. ")
            stage.tell(ChildSaid(late, StreamDelta(1, 2, 1, 0, "text", "Half a")))

        stage.while_reading = go_on
        start = len(editor.received)
        await editor.call("session/load", at(stage))
        stage.while_reading = lambda: None
        stage.say(late, "Half a message.", streamed=False)
        stage.finish(late)
        await editor.call("session/list", {})
        later = editor.received[start:]
        if form is NATIVE:
            assert sum("The end." in str(m) for m in later) == 2  # one is to the root
            assert editor.text(late) == "Just begun. Half a message."
            assert end_of(editor, late) == {"state": "idle", "stopReason": "end_turn"}
        else:
            shown = runs(editor, root)
            assert {call["status"] for call in shown.values()} == {"completed"}
            announced = [u for u in editor.updates(root) if u["sessionUpdate"] == "tool_call"]
            assert [u["toolCallId"] for u in announced] == ["c1", "c1", "c9"]


@FORMS
async def test_a_load_that_is_given_up_while_it_reads_takes_nothing_from_the_client(
    stage: Stage, form: JsonObject
) -> None:
    def judge(entries: list[Entry]) -> list[str]:
        # The rules take it that a client draws anew when it asks for a load.
        return schema_problems(entries, official_schema())

    async with audience(stage, outlive, [], form, judge=judge) as editor:
        root = SessionId(await editor.new(stage.root.cwd))
        await editor.prompt(root)
        kid, reading = SessionId("kid"), stage.cue("reading")
        stage.while_reading = reading.set
        stage.reads_on = anyio.Event()
        load = await editor.start("session/load", at(stage))
        await reading.wait()
        stage.say(kid, "Meanwhile.")
        stage.finish(kid)
        await editor.send({"method": "$/cancel_request", "params": {"requestId": load}})
        assert (await editor.answer(load))["error"]["code"] == -32800  # type: ignore[index,call-overload]
        await editor.call("session/list", {})
        if form is NATIVE:
            assert editor.text(kid) == "Meanwhile."
            assert end_of(editor, kid) == {"state": "idle", "stopReason": "end_turn"}
        else:
            assert runs(editor, root)["c1"]["status"] == "completed"


@FORMS
async def test_a_resume_announces_who_works_and_nothing_of_the_past(
    stage: Stage, form: JsonObject
) -> None:
    async with audience(stage, outlive, [], form) as editor:
        root = await editor.new(stage.root.cwd)
        await editor.prompt(root)
        before = len(editor.updates())
        await editor.call("session/resume", at(stage))
        await editor.call("session/list", {})
        later = [u for u in editor.updates()[before:] if "commands" not in str(u).lower()]
        assert [u["sessionUpdate"] for u in later] == (
            ["subagent_update"] if form is NATIVE else []
        )
        stage.finish(SessionId("kid"))


@FORMS
async def test_a_store_that_cannot_say_whose_child_is_whose_keeps_no_session_shut(
    stage: Stage, form: JsonObject, caplog: pytest.LogCaptureFixture
) -> None:
    async with audience(stage, nest, [], form) as editor:
        root = await editor.new(stage.root.cwd)
        await editor.prompt(root)
    stage.restart()

    def refuse() -> None:
        raise StoreFailedError("The store cannot be listed.")

    stage.while_reading = refuse
    async with audience(stage, nest, [], form, judge=broken_rules) as editor:
        await editor.load(root, stage.root.cwd)
        assert editor.text(root) == "P1 P2"
        (call,) = [u for u in editor.updates(root) if u.get("status") == "completed"]
        assert call["toolCallId"] == "c"
    assert "without its subagents: The store cannot be listed." in caplog.text


async def test_zed_is_shown_tool_calls_though_it_offers_subagents(stage: Stage) -> None:
    info: JsonObject = {"name": "zed", "version": "1"}
    async with audience(stage, nest, [], NATIVE, info=info) as editor:
        root = await editor.new(stage.root.cwd)
        await editor.prompt(root)
        assert {m["params"]["sessionId"] for m in editor.received if "method" in m} == {root}  # type: ignore[index,call-overload]
