"""Mode, model and effort over the whole bridge: both forms in step, found again, never made up."""

import random
import threading
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.from_thread
import pytest
from acp_rig import HI, HOLD, Bench, Editor, bash, said, selected, write
from fake_models import FakeCatalog, FakeModel

from acp_bridge.ports import StopChunk, TextChunk, ToolCallChunk
from acp_bridge.sessions import LogWriter
from acp_bridge.testing.rules import broken_rules
from acp_bridge.vocabulary import Draft, Event, JsonObject, JsonValue

pytestmark = pytest.mark.anyio


def models(*more: FakeModel) -> FakeCatalog:
    return FakeCatalog(FakeModel("plain"), FakeModel("deep"), *more, deep=("low", "high"))


def efforts_asked(catalog: FakeCatalog, name: str) -> list[str | None]:
    model = catalog.models[f"fake:{name}"]
    assert isinstance(model, FakeModel)
    return [request.effort for request in model.asked]


def values(config: JsonValue) -> dict[str, str]:
    """Config options as ids with their current values; each value must be one that is offered."""
    assert isinstance(config, list)
    found = {}
    for option in config:
        assert isinstance(option, dict)
        offered = [choice["value"] for choice in option["options"]]  # type: ignore[index,union-attr,call-overload]
        assert option["currentValue"] in offered
        assert len(set(offered)) == len(offered)
        found[str(option["id"])] = str(option["currentValue"])
    return found


def chosen(answer: JsonObject) -> dict[str, str]:
    """What the answer to new, load or resume says, with the mode of both forms."""
    modes = answer["modes"]
    assert isinstance(modes, dict)
    return {"legacy": str(modes["currentModeId"]), **values(answer["configOptions"])}


async def opened(editor: Editor, bench: Bench, how: str, session_id: str) -> JsonObject:
    params: JsonObject = {"sessionId": session_id, "cwd": str(bench.cwd), "mcpServers": []}
    return await editor.call(f"session/{how}", params)


async def set_option(editor: Editor, session_id: str, option: str, value: str) -> dict[str, str]:
    """What the answer says of all options."""
    params: JsonObject = {"sessionId": session_id, "configId": option, "value": value}
    result = await editor.call("session/set_config_option", params)
    assert list(result) == ["configOptions"]
    return values(result["configOptions"])


async def set_mode(editor: Editor, session_id: str, mode: str) -> None:
    params: JsonObject = {"sessionId": session_id, "modeId": mode}
    assert await editor.call("session/set_mode", params) == {}


def changes(editor: Editor, since: int = 0) -> list[tuple[str, str]]:
    """What updates told of the mode: the form, and the mode that it says."""
    found = []
    for update in editor.updates()[since:]:
        if update["sessionUpdate"] == "current_mode_update":
            found.append(("legacy", str(update["currentModeId"])))
        if update["sessionUpdate"] == "config_option_update":
            found.append(("config", values(update["configOptions"])["mode"]))
    return found


async def test_every_answer_offers_both_forms_and_commands_follow_it(bench: Bench) -> None:
    catalog = models()
    start = {"legacy": "ask", "mode": "ask", "model": "fake:plain"}
    async with bench.editor(catalog=catalog) as editor:
        params: JsonObject = {"cwd": str(bench.cwd), "mcpServers": []}
        made = await editor.call("session/new", params)
        assert chosen(made) == start
        session_id = str(made["sessionId"])
        await editor.prompt(session_id)
        for how in ("load", "resume", "load"):
            assert chosen(await opened(editor, bench, how, session_id)) == start
        await editor.call("session/close", {"sessionId": session_id})
        for how in ("resume", "load"):
            assert chosen(await opened(editor, bench, how, session_id)) == start
        answers = [
            number
            for number, message in enumerate(editor.received)
            if "modes" in (message.get("result") or {})  # type: ignore[operator]
        ]
        assert len(answers) == 6
        for number in answers:
            params_after = editor.received[number + 1]["params"]
            assert isinstance(params_after, dict)
            update = params_after["update"]
            assert isinstance(update, dict)
            assert update["sessionUpdate"] == "available_commands_update"
            commands = update["availableCommands"]
            assert isinstance(commands, list)
            names = [command["name"] for command in commands]  # type: ignore[call-overload,index]
            assert names == ["help", "mode", "model", "title", "fork", "compact"]
        assert changes(editor) == []


UNKNOWN_CHOICES: list[tuple[str, JsonObject, str]] = [
    ("set_mode", {"modeId": "nope"}, "modeId"),
    ("set_mode", {"modeId": ""}, "modeId"),
    ("set_mode", {"modeId": 1}, "modeId"),
    ("set_mode", {}, "modeId"),
    ("set_config_option", {"configId": "nope", "value": "ask"}, "configId"),
    ("set_config_option", {"configId": "mode", "value": "nope"}, "value"),
    ("set_config_option", {"configId": "mode", "value": "fake:deep"}, "value"),
    ("set_config_option", {"configId": "model", "value": "deep"}, "value"),
    ("set_config_option", {"configId": "effort", "value": "high"}, "value"),
    ("set_config_option", {"configId": "mode", "value": 1}, "value"),
    ("set_config_option", {"configId": "mode", "value": None}, "value"),
    ("set_config_option", {"configId": "mode", "value": True, "type": "boolean"}, "type"),
    ("set_config_option", {"configId": "mode", "value": True, "type": "slider"}, "type"),
    ("set_config_option", {"configId": "mode"}, "value"),
    ("set_config_option", {"value": "ask"}, "configId"),
]


@pytest.mark.parametrize(("method", "params", "field"), UNKNOWN_CHOICES)
async def test_what_cannot_be_chosen_is_32602_and_changes_nothing_r067(
    bench: Bench, method: str, params: JsonObject, field: str
) -> None:
    async with bench.editor(catalog=models()) as editor:
        session_id = await editor.new(bench.cwd)
        await editor.prompt(session_id)
        before = len(editor.updates())
        error = await editor.refused(f"session/{method}", {"sessionId": session_id, **params})
        assert error["code"] == -32602
        data = error["data"]
        assert isinstance(data, dict)
        assert data["field"] == field
        assert editor.updates()[before:] == []
        answer = await opened(editor, bench, "resume", session_id)
        assert chosen(answer) == {"legacy": "ask", "mode": "ask", "model": "fake:plain"}


async def test_each_form_follows_the_other_behind_the_answer_r067(bench: Bench) -> None:
    async with bench.editor(catalog=models()) as editor:
        session_id = await editor.new(bench.cwd)
        for is_stored in (False, True):
            if is_stored:
                await editor.prompt(session_id)
            before = len(editor.received), len(editor.updates())
            await set_mode(editor, session_id, "plan")
            await editor.seen_text('"currentValue": "plan"')
            assert "result" in editor.received[before[0]]
            assert changes(editor, before[1]) == [("config", "plan")]
            before = len(editor.received), len(editor.updates())
            assert (await set_option(editor, session_id, "mode", "ask"))["mode"] == "ask"
            await editor.call("session/list", {})
            assert "result" in editor.received[before[0]]
            assert changes(editor, before[1]) == [("legacy", "ask")]
            before = len(editor.received), len(editor.updates())
            await set_mode(editor, session_id, "ask")
            await set_option(editor, session_id, "mode", "ask")
            await editor.call("session/list", {})
            assert changes(editor, before[1]) == []


async def test_a_mode_set_as_an_option_really_asks_and_really_does_not_r067(bench: Bench) -> None:
    bench.answers(*[[write(str(n), f"{n}.txt")] if n % 2 == 0 else HI for n in range(8)])
    asked: list[str] = []

    def reply(request: JsonObject) -> JsonObject:
        asked.append(str(request["params"]["toolCall"]["toolCallId"]))  # type: ignore[call-overload,index]
        return selected("reject-once")

    async with bench.editor() as editor:
        editor.reply = reply
        session_id = await editor.new(bench.cwd)
        for mode in ("full", "ask", "accept-edits", "plan"):
            await set_option(editor, session_id, "mode", mode)
            assert await editor.prompt(session_id) == "end_turn"
    assert asked == ["2"]
    assert sorted(path.name for path in bench.cwd.iterdir()) == ["0.txt", "4.txt"]


async def test_options_follow_the_model(bench: Bench) -> None:
    catalog = models()
    async with bench.editor(catalog=catalog) as editor:
        session_id = await editor.new(bench.cwd)
        both = {"mode": "ask", "model": "fake:deep"}
        now = await set_option(editor, session_id, "model", "fake:deep")
        assert now == {**both, "effort": "default"}
        now = await set_option(editor, session_id, "effort", "high")
        assert now == {**both, "effort": "high"}
        await editor.prompt(session_id)
        assert await set_option(editor, session_id, "model", "fake:plain") == {
            "mode": "ask",
            "model": "fake:plain",
        }
        now = await set_option(editor, session_id, "model", "fake:deep")
        assert now == {**both, "effort": "default"}
        await editor.prompt(session_id)
        assert changes(editor) == []
    assert efforts_asked(catalog, "deep") == ["high", None]


async def test_a_choice_does_not_wait_for_the_turn_and_holds_from_its_next_request(
    bench: Bench,
) -> None:
    gate = anyio.Event()
    glob = ToolCallChunk(1, "c", "glob", '{"pattern": "*"}')
    catalog = models()
    plain = catalog.models["fake:plain"]
    assert isinstance(plain, FakeModel)
    plain.answers = [[TextChunk(0, "Half"), gate, glob, StopChunk("tool_calls")]]
    async with bench.editor(catalog=catalog) as editor:
        session_id = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session_id))
        await editor.seen_text("Half")
        await set_option(editor, session_id, "model", "fake:deep")
        await set_option(editor, session_id, "effort", "low")
        await set_mode(editor, session_id, "plan")
        gate.set()
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        assert editor.text() == "Halfdeep low"
    deep = catalog.models["fake:deep"]
    assert isinstance(deep, FakeModel)
    [request] = deep.asked
    assert "plan mode" in request.system
    assert request.effort == "low"


@pytest.mark.parametrize("how", ["load", "resume"])
@pytest.mark.parametrize("is_chosen_first", [True, False])
async def test_what_was_chosen_is_there_after_a_restart_and_really_used_r066(
    bench: Bench, how: str, is_chosen_first: bool
) -> None:
    wanted = {"legacy": "plan", "mode": "plan", "model": "fake:deep", "effort": "high"}
    async with bench.editor(catalog=models()) as editor:
        session_id = await editor.new(bench.cwd)
        if not is_chosen_first:
            await editor.prompt(session_id)
        await set_option(editor, session_id, "model", "fake:deep")
        await set_option(editor, session_id, "effort", "high")
        await set_mode(editor, session_id, "plan")
        if is_chosen_first:
            await editor.prompt(session_id)
    for _ in range(2):
        catalog = models()
        async with bench.editor(catalog=catalog) as editor:
            assert chosen(await opened(editor, bench, how, session_id)) == wanted
            before = len(editor.updates())
            await editor.prompt(session_id)
            assert "agent_thought_chunk" not in str(editor.updates()[before:])
        assert efforts_asked(catalog, "plain") == []
        deep = catalog.models["fake:deep"]
        assert isinstance(deep, FakeModel)
        [request] = deep.asked
        assert request.effort == "high"
        assert "plan mode" in request.system


@pytest.mark.parametrize("how", ["load", "resume"])
async def test_a_model_that_is_gone_falls_back_and_says_so_once_r066(
    bench: Bench, how: str
) -> None:
    async with bench.editor(catalog=models()) as editor:
        session_id = await editor.new(bench.cwd)
        await set_option(editor, session_id, "model", "fake:deep")
        await editor.prompt(session_id)
    less = FakeCatalog(FakeModel("other"))
    for is_first in (True, False):
        async with bench.editor(catalog=less) as editor:
            answer = await opened(editor, bench, how, session_id)
            assert chosen(answer)["model"] == "fake:other"
            before = len(editor.updates())
            for _ in range(2):
                assert await editor.prompt(session_id) == "end_turn"
            told = [u for u in editor.updates()[before:] if "not available" in str(u)]
            assert len(told) == is_first
            assert all(u["sessionUpdate"] == "agent_thought_chunk" for u in told)


@pytest.mark.parametrize(
    ("info", "has_options"),
    [
        ({"name": "JetBrains.IntelliJ IDEA", "version": "2026.1.2"}, False),
        ({"name": "JetBrains", "version": "2026.1"}, False),
        ({"name": "AIR", "version": "2026.1", "_meta": {"platform": "intellij"}}, False),
        ({"name": "JetBrains.IntelliJ IDEA", "version": "2026.2"}, True),
        ({"name": "JetBrains.IntelliJ IDEA", "version": "2025.3"}, True),
        ({"name": "zed", "version": "2026.1"}, True),
        ({"name": "x", "version": "2026.1", "_meta": {"platform": 1}}, True),
    ],
)
async def test_jetbrains_2026_1_gets_modes_only(
    bench: Bench, info: JsonObject, has_options: bool
) -> None:
    async with bench.editor(catalog=models(), info=info) as editor:
        params: JsonObject = {"cwd": str(bench.cwd), "mcpServers": []}
        made = await editor.call("session/new", params)
        session_id = str(made["sessionId"])
        await set_mode(editor, session_id, "plan")
        await editor.prompt(session_id, "/mode full")
        await editor.prompt(session_id, "/model fake:deep")
        answers = [made, *[await opened(editor, bench, h, session_id) for h in ("load", "resume")]]
        assert all("modes" in answer for answer in answers)
        assert all(("configOptions" in answer) == has_options for answer in answers)
        assert ("config_option_update" in str(editor.updates())) == has_options
        assert ("legacy", "full") in changes(editor)


async def test_resume_shows_nothing_of_the_past_and_the_model_knows_it_r051(bench: Bench) -> None:
    catalog = models()
    async with bench.editor(catalog=catalog) as editor:
        session_id = await editor.new(bench.cwd)
        await editor.prompt(session_id, "Remember me")
    catalog = models()
    async with bench.editor(catalog=catalog) as editor:
        answer = await opened(editor, bench, "resume", session_id)
        assert set(answer) == {"modes", "configOptions"}
        await editor.call("session/list", {})
        assert [u["sessionUpdate"] for u in editor.updates()] == ["available_commands_update"]
        assert await editor.prompt(session_id, "Who?") == "end_turn"
        assert editor.text() == "plain None"
    plain = catalog.models["fake:plain"]
    assert isinstance(plain, FakeModel)
    assert "Remember me" in str(plain.asked[0].messages[0])


async def test_resume_of_what_is_open_and_busy_shows_what_comes_and_no_more(bench: Bench) -> None:
    bench.answers(HOLD)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session_id))
        await editor.seen_text("Half")
        await opened(editor, bench, "resume", session_id)
        bench.release("go")
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        assert editor.text() == "Half done"


async def test_resume_refuses_as_load_does(bench: Bench) -> None:
    other = bench.folder / "other"
    other.mkdir()
    async with bench.editor(catalog=models()) as editor:
        session_id = await editor.new(bench.cwd)
        await editor.prompt(session_id)
        for cwd, session, code in (
            (bench.cwd, "nope", -32002),
            (other, session_id, -32602),
            (Path("relative"), session_id, -32602),
        ):
            params: JsonObject = {"sessionId": session, "cwd": str(cwd)}
            assert (await editor.refused("session/resume", params))["code"] == code


async def test_a_mode_set_while_a_question_is_open_leaves_the_question_open(bench: Bench) -> None:
    bench.answers([bash("a", "echo a > a"), bash("b", "echo b > b")], HI)
    async with bench.editor() as editor:
        editor.reply = lambda _request: None
        session_id = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session_id))
        question = await editor.seen(lambda m: m.get("method") == "session/request_permission")
        await set_mode(editor, session_id, "plan")
        await editor.send({"id": question["id"], **selected("reject-once")})
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        asked = [m for m in editor.received if m.get("method") == "session/request_permission"]
        assert len(asked) == 1
    assert list(bench.cwd.iterdir()) == []


async def test_set_requests_side_by_side_end_with_both_forms_equal(bench: Bench) -> None:
    async with bench.editor(catalog=models()) as editor:
        session_id = await editor.new(bench.cwd)
        await editor.prompt(session_id)
        told = Told(editor, await opened(editor, bench, "resume", session_id))
        modes = ("plan", "full", "ask", "accept-edits")
        requests: list[JsonObject] = []
        for mode in modes:
            config: JsonObject = {"sessionId": session_id, "configId": "mode", "value": mode}
            requests += [
                editor.request("session/set_mode", {"sessionId": session_id, "modeId": mode}),
                editor.request("session/set_config_option", config),
                editor.request("session/prompt", said(session_id, f"/mode {mode}")),
            ]
        await editor.send(*requests)
        for request in requests:
            assert "result" in await editor.answer(request["id"])
        seen = told.after(requests)
        assert seen == chosen(await opened(editor, bench, "resume", session_id))


async def test_what_a_command_changes_is_told_also_beside_a_request_that_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_writing, go = anyio.Event(), threading.Event()
    append = LogWriter.append

    def slow(self: LogWriter, drafts: Sequence[Draft]) -> list[Event]:
        if drafts and drafts[-1].type == "plan/mode":
            anyio.from_thread.run_sync(is_writing.set)
            assert go.wait(60)
        return append(self, drafts)

    monkeypatch.setattr(LogWriter, "append", slow)
    async with bench.editor(catalog=models()) as editor:
        session_id = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session_id, "/mode plan"))
        with anyio.fail_after(60):
            await is_writing.wait()
        refused = await editor.start(
            "session/set_mode", {"sessionId": session_id, "modeId": "nope"}
        )
        await editor.call("session/list", {})  # so the one before it has been taken
        go.set()
        assert "error" in await editor.answer(refused)
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        assert changes(editor) == [("config", "plan"), ("legacy", "plan")]


@pytest.mark.parametrize("seed", range(8))
async def test_however_choices_prompts_and_openings_fall_the_client_knows_the_truth(
    bench: Bench, seed: int
) -> None:
    pick = random.Random(seed).choice  # a seed, so that a failure can be seen again
    # What a turn says while its load is on the way is shown again.
    bench.judge = lambda entries: [b for b in broken_rules(entries) if "taken up again" not in b]
    session_id = ""
    for _ in range(2):
        async with bench.editor(catalog=models()) as editor:
            if session_id:
                told = Told(editor, await opened(editor, bench, "resume", session_id))
            else:
                params: JsonObject = {"cwd": str(bench.cwd), "mcpServers": []}
                made = await editor.call("session/new", params)
                session_id = str(made["sessionId"])
                told = Told(editor, made)
                await editor.prompt(session_id)
            sent: list[JsonObject] = []
            for _ in range(40):
                mode = pick(["ask", "plan", "full", "nope"])
                model = pick(["fake:plain", "fake:deep", "nope"])
                cwd: JsonObject = {"cwd": str(bench.cwd), "mcpServers": []}
                requests: list[tuple[str, JsonObject]] = [
                    ("session/set_mode", {"modeId": mode}),
                    ("session/set_config_option", {"configId": "mode", "value": mode}),
                    ("session/set_config_option", {"configId": "model", "value": model}),
                    ("session/set_config_option", {"configId": "effort", "value": "low"}),
                    ("session/prompt", said(session_id, f"/mode {mode}")),
                    ("session/prompt", said(session_id, f"/model {model}")),
                    ("session/prompt", said(session_id, "hello")),
                    ("session/load", cwd),
                    ("session/resume", cwd),
                ]
                method, more = pick(requests)
                sent.append(editor.request(method, {**more, "sessionId": session_id}))
                await editor.send(sent[-1])
                if method == "session/load" or pick([True, False, False]):
                    await editor.answer(sent[-1]["id"])
                if pick([True] + [False] * 9):
                    await editor.cancel(session_id)
            for request in sent:
                await editor.answer(request["id"])
            asked = editor.request("session/resume", {**cwd, "sessionId": session_id})
            seen = told.after(sent)
            await editor.send(asked)
            truth = chosen((await editor.answer(asked["id"]))["result"])  # type: ignore[arg-type]
            assert seen == truth


class Told:
    """What a client knows of its options, having been answered and told all that it was."""

    def __init__(self, editor: Editor, opening: JsonObject) -> None:
        self._editor = editor
        self._start = len(editor.received)
        self._known = chosen(opening)

    def after(self, sent: list[JsonObject]) -> dict[str, str]:
        by_id = {request["id"]: request for request in sent}
        for message in self._editor.received[self._start :]:
            request = by_id.get(message.get("id"))
            result, params = message.get("result"), message.get("params")
            if isinstance(result, dict) and "modes" in result:
                self._known = chosen(result)
            elif isinstance(result, dict) and "configOptions" in result:
                self._config(result["configOptions"])
            elif isinstance(result, dict) and request and request["method"] == "session/set_mode":
                self._known["legacy"] = str(request["params"]["modeId"])  # type: ignore[call-overload,index]
            update = params.get("update") if isinstance(params, dict) else None
            if isinstance(update, dict) and "currentModeId" in update:
                self._known["legacy"] = str(update["currentModeId"])
            elif isinstance(update, dict) and "configOptions" in update:
                self._config(update["configOptions"])
        return self._known

    def _config(self, config: JsonValue) -> None:
        self._known = {"legacy": self._known["legacy"], **values(config)}


async def test_a_type_that_is_not_known_is_a_choice_if_it_has_a_text(bench: Bench) -> None:
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        params: JsonObject = {"sessionId": session_id, "configId": "mode", "type": "select"}
        method = "session/set_config_option"
        answer = await editor.call(method, {**params, "value": "plan"})
        assert values(answer["configOptions"])["mode"] == "plan"
        for value in (True, None, ["plan"]):
            error = await editor.refused(method, {**params, "value": value})  # type: ignore[dict-item]
            assert error["code"] == -32602
        error = await editor.refused(method, {"type": "select", "value": "plan"})
        assert error["code"] == -32602
