"""Slash commands and deleting over the whole bridge."""

import shutil

import pytest
from acp_rig import HI, HOLD, Bench, Editor, said
from fake_models import FakeCatalog, FakeModel
from picture_bytes import png

from acp_bridge.sessions import Header, SessionStore
from acp_bridge.vocabulary import Draft, JsonObject, JsonValue

pytestmark = pytest.mark.anyio


def catalog() -> FakeCatalog:
    return FakeCatalog(FakeModel("plain"), FakeModel("deep"))


def seen_by(catalog: FakeCatalog) -> list[str]:
    """The last message of each request, as the model saw it."""
    model = catalog.models["fake:plain"]
    assert isinstance(model, FakeModel)
    contents = [request.messages[-1]["content"] for request in model.asked]
    return [str(content[0].get("text")) for content in contents]  # type: ignore[index,union-attr]


async def test_commands_are_answered_in_text_and_cost_no_model_call_r107(bench: Bench) -> None:
    models = catalog()
    async with bench.editor(catalog=models) as editor:
        session_id = await editor.new(bench.cwd)
        for text, says in (
            ("/help", "`/mode [MODE]`"),
            ("/mode", "`ask` (now)"),
            ("  /mode   plan\n", "`plan` (now)"),
            ("/mode nope", "There is no mode 'nope'"),
            ("/model fake:deep", "`fake:deep` (now)"),
            ("/model nope", "There is no model 'nope'"),
            ("/title Fix the parser", "Fix the parser"),
            ("/title", "Say the title"),
        ):
            before = len(editor.text())
            assert await editor.prompt(session_id, text) == "end_turn"
            assert says in editor.text()[before:]
        kinds = [u["sessionUpdate"] for u in editor.updates()]
        assert kinds.count("current_mode_update") == 1
        assert kinds.count("config_option_update") == 2
        titles = [u["title"] for u in editor.updates() if "title" in u]
        assert titles == ["Fix the parser"]
        sessions = (await editor.call("session/list", {}))["sessions"]
        assert "'title': 'Fix the parser'" in str(sessions)
    assert seen_by(models) == []


NO_COMMANDS: list[str] = [
    "/compacted",
    "/unknown args",
    "/Help",
    "/helpme",
    "/",
    "//help",
    "/help/me",
    "see /help",
    "/etc/passwd is odd",
    "/mode-x plan",
]


@pytest.mark.parametrize("text", NO_COMMANDS)
async def test_unknown_slash_text_goes_to_the_model_unchanged(bench: Bench, text: str) -> None:
    models = catalog()
    async with bench.editor(catalog=models) as editor:
        assert await editor.prompt(await editor.new(bench.cwd), text) == "end_turn"
    assert seen_by(models) == [text]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": png(), "mimeType": "image/png"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///c", "text": "whole"}},
        {"type": "text", "text": "and more"},
    ],
    ids=lambda block: block["type"],
)
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_command_with_something_beside_it_is_a_prompt(
    bench: Bench, block: JsonObject, is_first: bool
) -> None:
    models = catalog()
    blocks: list[JsonValue] = [{"type": "text", "text": "/mode full"}, block]
    async with bench.editor(catalog=models) as editor:
        session_id = await editor.new(bench.cwd)
        params: JsonObject = {
            "sessionId": session_id,
            "prompt": blocks if is_first else blocks[::-1],
        }
        assert await editor.call("session/prompt", params) == {"stopReason": "end_turn"}
        assert "current_mode_update" not in str(editor.updates())
    assert len(seen_by(models)) == 1


async def test_a_replay_shows_commands_as_they_were_typed_and_answered(bench: Bench) -> None:
    async with bench.editor(catalog=catalog()) as editor:
        session_id = await editor.new(bench.cwd)
        for text in ("/title One  two", "hello", "/mode nope", "/help"):
            await editor.prompt(session_id, text)
        live = editor.text()
    async with bench.editor(catalog=catalog()) as editor:
        await editor.load(session_id, bench.cwd)
        typed = [
            u["content"]["text"]  # type: ignore[call-overload,index]
            for u in editor.updates()
            if u["sessionUpdate"] == "user_message_chunk"
        ]
        assert typed == ["/title One  two", "hello", "/mode nope", "/help"]
        assert editor.text() == live
        assert await editor.prompt(session_id, "/mode plan") == "end_turn"


async def test_commands_keep_their_place_and_a_cancel_drops_them(bench: Bench) -> None:
    bench.answers(HOLD, HI, [{"text": "Busy"}, {"wait": "never"}], HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        texts = ("one", "/mode full", "two")
        prompts = [await editor.start("session/prompt", said(session_id, t)) for t in texts]
        await editor.seen_text("Half")
        assert "`full` (now)" not in editor.text()
        bench.release("go")
        for prompt in prompts:
            assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        order = [editor.text().index(text) for text in ("Half done", "`full` (now)", "Hi.")]
        assert order == sorted(order)
        texts = ("three", "/mode ask", "/title x")
        prompts = [await editor.start("session/prompt", said(session_id, t)) for t in texts]
        await editor.seen_text("Busy")
        await editor.cancel(session_id)
        for prompt in prompts:
            assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
        before = len(editor.text())
        await editor.prompt(session_id, "/mode")
        assert "`full` (now)" in editor.text()[before:]


async def test_the_updates_of_a_command_come_before_its_answer(bench: Bench) -> None:
    async with bench.editor(catalog=catalog()) as editor:
        session_id = await editor.new(bench.cwd)
        for text in ("/mode plan", "/model fake:deep", "/title x", "/help", "/mode nope"):
            await editor.prompt(session_id, text)
            assert "result" in editor.received[-1]


# --- deleting ----------------------------------------------------------------------------------


async def listed(editor: Editor) -> list[str]:
    sessions = (await editor.call("session/list", {}))["sessions"]
    assert isinstance(sessions, list)
    return [str(session["sessionId"]) for session in sessions]  # type: ignore[call-overload,index]


def store(bench: Bench) -> SessionStore:
    return SessionStore(bench.home / "sessions", clock=lambda: 0)


async def test_a_deleted_session_is_gone_for_every_method(bench: Bench) -> None:
    async with bench.editor(catalog=catalog()) as editor:
        kept, gone = [await editor.new(bench.cwd) for _ in range(2)]
        await editor.prompt(kept)
        await editor.prompt(gone)
        for _ in range(2):
            assert await editor.call("session/delete", {"sessionId": gone}) == {}
            assert await listed(editor) == [kept]
        cwd: JsonObject = {"cwd": str(bench.cwd), "mcpServers": []}
        for method, params in (
            ("session/load", cwd),
            ("session/resume", cwd),
            ("session/prompt", said(gone)),
            ("session/set_mode", {"modeId": "ask"}),
            ("session/set_config_option", {"configId": "mode", "value": "ask"}),
        ):
            error = await editor.refused(method, {**params, "sessionId": gone})
            assert error["code"] == -32002
        assert await editor.call("session/close", {"sessionId": gone}) == {}
        assert not list(bench.home.rglob(f"*{gone}*"))
        assert await editor.prompt(kept) == "end_turn"


async def test_deleting_a_busy_session_ends_its_prompts(bench: Bench) -> None:
    bench.answers(HOLD)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        prompts = [await editor.start("session/prompt", said(session_id)) for _ in range(2)]
        await editor.seen_text("Half")
        assert await editor.call("session/delete", {"sessionId": session_id}) == {}
        for prompt in prompts:
            assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
        assert await listed(editor) == []


@pytest.mark.parametrize("session_id", ["nope", "", "../../etc/passwd", "x" * 10_000])
async def test_deleting_what_is_unknown_is_fine_r052(bench: Bench, session_id: str) -> None:
    async with bench.editor(catalog=catalog()) as editor:
        assert await editor.call("session/delete", {"sessionId": session_id}) == {}
        unsaid = await editor.new(bench.cwd)
        assert await editor.call("session/delete", {"sessionId": unsaid}) == {}
        assert (await editor.refused("session/prompt", said(unsaid)))["code"] == -32002
    assert not (bench.home / "sessions").exists()


async def test_deleting_what_another_process_has_open_is_a_conflict(bench: Bench) -> None:
    async with bench.editor(catalog=catalog()) as editor:
        session_id = await editor.new(bench.cwd)
        await editor.prompt(session_id)
        await editor.call("session/close", {"sessionId": session_id})
        writer = store(bench).open(session_id)
        error = await editor.refused("session/delete", {"sessionId": session_id})
        assert error["code"] == -32603
        assert "already open" in str(error["data"])
        writer.close()
        assert await listed(editor) == [session_id]
        assert await editor.call("session/delete", {"sessionId": session_id}) == {}
        assert await listed(editor) == []


async def test_subagents_go_with_their_parent_and_not_alone(bench: Bench) -> None:
    async with bench.editor(catalog=catalog()) as editor:
        session_id = await editor.new(bench.cwd)
        await editor.prompt(session_id)
        header = Header(
            "child",
            1,
            str(bench.cwd),
            origin="subagent",
            parent_session=session_id,
            delegation_depth=1,
        )
        writer = store(bench).create(header)
        writer.append([Draft("permission/preset", {"preset": "read-only"})])
        writer.close()
        error = await editor.refused("session/delete", {"sessionId": "child"})
        assert error["code"] == -32602
        assert "subagent" in str(error["message"])
        assert len(store(bench).session_ids()) == 2
        assert await editor.call("session/delete", {"sessionId": session_id}) == {}
    assert store(bench).session_ids() == []


async def test_deleting_a_session_whose_files_are_gone_is_fine(bench: Bench) -> None:
    async with bench.editor(catalog=catalog()) as editor:
        session_id = await editor.new(bench.cwd)
        await editor.prompt(session_id)
        shutil.rmtree(bench.home / "sessions")
        assert await editor.call("session/delete", {"sessionId": session_id}) == {}
        assert await listed(editor) == []


async def test_load_and_delete_side_by_side_both_get_a_true_answer(bench: Bench) -> None:
    async with bench.editor(catalog=catalog()) as editor:
        for order in (1, -1):
            session_id = await editor.new(bench.cwd)
            await editor.prompt(session_id)
            await editor.call("session/close", {"sessionId": session_id})
            params: JsonObject = {"sessionId": session_id, "cwd": str(bench.cwd), "mcpServers": []}
            requests = [
                editor.request("session/load", params),
                editor.request("session/delete", {"sessionId": session_id}),
            ][::order]
            await editor.send(*requests)
            answers = {str(r["method"]): await editor.answer(r["id"]) for r in requests}
            assert answers["session/delete"]["result"] == {}
            refusal = answers["session/load"].get("error", {})
            assert isinstance(refusal, dict)
            assert refusal.get("code") in (None, -32002, -32603)
            assert await listed(editor) == []
