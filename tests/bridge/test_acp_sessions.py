"""Sessions over the whole bridge: new, load, close and list, as clients use and misuse them."""

import json
import shutil

import pytest
from acp_rig import HI, HOLD, Bench, Editor, bash, said, selected, write
from picture_bytes import b64, png, png_bytes

from acp_bridge.sessions import SessionStore
from acp_bridge.testing.rules import broken_rules
from acp_bridge.vocabulary import JsonObject, JsonValue

pytestmark = pytest.mark.anyio


def session_files(bench: Bench) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in sorted(bench.home.rglob("*")) if path.is_file()
    }


def loaded(editor: Editor) -> int:
    """Where the answer to the load stands in what the client received."""
    return next(n for n, m in enumerate(editor.received) if "configOptions" in str(m.get("result")))


@pytest.mark.parametrize("session_id", ["nope", "", "../../etc/passwd", "x" * 10_000, "\ud800"])
async def test_an_unknown_session_is_32002_with_its_id_r052(bench: Bench, session_id: str) -> None:
    async with bench.editor() as editor:
        cwd = {"cwd": str(bench.cwd), "mcpServers": []}
        for method, params in (
            ("session/load", {"sessionId": session_id, **cwd}),
            ("session/resume", {"sessionId": session_id, **cwd}),
            ("session/prompt", said(session_id)),
            ("session/set_mode", {"sessionId": session_id, "modeId": "ask"}),
            (
                "session/set_config_option",
                {"sessionId": session_id, "configId": "mode", "value": "ask"},
            ),
        ):
            error = await editor.refused(method, params)  # type: ignore[arg-type]
            assert error["code"] == -32002
            if session_id != "\ud800":
                assert error["data"] == {"sessionId": session_id}
        assert await editor.call("session/close", {"sessionId": session_id}) == {}
        await editor.cancel(session_id)
    assert not (bench.home / "sessions").exists()


@pytest.mark.parametrize("cwd", ["relative", "", "/no/such/folder", "/etc/passwd", "/a\0b"])
async def test_a_bad_cwd_is_32602_naming_the_field(bench: Bench, cwd: str) -> None:
    async with bench.editor() as editor:
        error = await editor.refused("session/new", {"cwd": cwd, "mcpServers": []})
        assert error["code"] == -32602
        data = error["data"]
        assert isinstance(data, dict)
        assert data["field"] == "cwd"


async def test_another_cwd_on_load_is_refused_and_changes_no_byte(bench: Bench) -> None:
    bench.answers(HI)
    other = bench.folder / "other"
    other.mkdir()
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        await editor.prompt(session_id)
    before = session_files(bench)
    async with bench.editor() as editor:
        params: JsonObject = {"sessionId": session_id, "cwd": str(other), "mcpServers": []}
        error = await editor.refused("session/load", params)
        assert error["code"] == -32602
        assert str(other) in str(error["message"])
        assert str(bench.cwd) in str(error["message"])
        assert session_files(bench) == before
        link = bench.folder / "link"
        link.symlink_to(bench.cwd)
        await editor.load(session_id, link)
        error = await editor.refused("session/load", params)
        assert error["code"] == -32602


async def test_a_session_without_a_prompt_is_not_stored_r055(bench: Bench) -> None:
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
    async with bench.editor() as editor:
        params: JsonObject = {"sessionId": session_id, "cwd": str(bench.cwd), "mcpServers": []}
        assert (await editor.refused("session/load", params))["code"] == -32002
        assert (await editor.call("session/list", {}))["sessions"] == []


async def test_no_model_is_32000_with_a_sentence_that_helps(bench: Bench) -> None:
    async with bench.editor(model=None) as editor:
        for method, params in (
            ("session/new", {"cwd": str(bench.cwd), "mcpServers": []}),
            ("authenticate", {"methodId": "configured-model"}),
        ):
            error = await editor.refused(method, params)  # type: ignore[arg-type]
            assert error["code"] == -32000
            assert "--model demo" in str(error["message"])


async def test_authenticate_is_idempotent_and_knows_its_method(bench: Bench) -> None:
    async with bench.editor() as editor:
        for _ in range(2):
            assert await editor.call("authenticate", {"methodId": "configured-model"}) == {}
        error = await editor.refused("authenticate", {"methodId": "oauth"})
        assert error["code"] == -32602


async def test_a_script_that_is_wrong_is_an_error_of_the_call(bench: Bench) -> None:
    bench.script.write_text("nonsense\n")
    async with bench.editor() as editor:
        params: JsonObject = {"cwd": str(bench.cwd), "mcpServers": []}
        error = await editor.refused("session/new", params)
        assert "line 1" in str(error["data"])


async def test_a_replay_comes_whole_before_the_response_r050(bench: Bench) -> None:
    todos: JsonValue = [{"content": "x", "status": "pending"}]
    plan: JsonObject = {
        "tool_call": {"id": "p", "name": "todo_write", "arguments": {"todos": todos}}
    }
    bench.answers(
        [{"reasoning": "hm"}, {"text": "On it."}, write("c"), bash("d", "exit 3"), plan],
        [{"text": "Done."}, {"usage": {"input_tokens": 10, "output_tokens": 5}}],
        HI,
        HI,
    )
    image: JsonObject = {"type": "image", "data": png(), "mimeType": "image/png"}
    blocks: list[JsonValue] = [
        {"type": "text", "text": "Look"},
        image,
        {"type": "resource_link", "uri": "file:///a%20b.py#L9:15", "name": "b"},
        {"type": "resource", "resource": {"uri": "file:///c", "text": "whole"}},
    ]
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        await editor.call("session/prompt", {"sessionId": session_id, "prompt": blocks})
        await editor.prompt(session_id, "again")
        assert not [u for u in editor.updates() if u["sessionUpdate"] == "user_message_chunk"]
    async with bench.editor() as editor:
        await editor.load(session_id, bench.cwd)
        assert "user_message_chunk" not in str(editor.received[loaded(editor) :])
        kinds = [str(update["sessionUpdate"]) for update in editor.updates()]
        assert kinds[:4] == ["user_message_chunk"] * 4
        users = [u["content"] for u in editor.updates() if u["sessionUpdate"] == kinds[0]]
        assert users[:4] == blocks
        usage: JsonObject = {"sessionUpdate": "usage_update", "used": 15, "size": 128000}
        assert editor.received[loaded(editor) - 1]["params"]["update"] == usage  # type: ignore[call-overload,index]
        assert kinds.count("plan") == 1
        assert await editor.prompt(session_id) == "end_turn"


async def test_a_session_killed_while_it_asked_is_loaded_with_the_call_closed_r057(
    bench: Bench,
) -> None:
    bench.answers([write("a"), {"tool_call": {"id": "g", "name": "glob", "arguments": {}}}], HI)
    async with bench.editor() as editor:
        editor.reply = lambda _request: None
        session_id = await editor.new(bench.cwd)
        await editor.start("session/prompt", said(session_id))
        await editor.seen(lambda m: m.get("method") == "session/request_permission")
        shutil.copytree(bench.home, bench.folder / "killed")
    bench.home = bench.folder / "killed"
    bench.entries.clear()  # so there is nothing live to compare the replay with
    bench.judge = broken_rules
    async with bench.editor() as editor:
        await editor.load(session_id, bench.cwd)
        closed = {u["toolCallId"]: u["status"] for u in editor.updates() if "toolCallId" in u}
        assert closed == {"a": "failed", "g": "failed"}
        assert await editor.prompt(session_id) == "end_turn"
        assert not (bench.cwd / "a.txt").exists()


@pytest.mark.parametrize("option", ["allow-once", "allow-always", "reject-once"])
async def test_the_demo_ends_each_of_its_turns(bench: Bench, option: str) -> None:
    async with bench.editor(model="demo") as editor:
        editor.reply = lambda _request: selected(option)
        session_id = await editor.new(bench.cwd)
        for text in ("one", "two", "three", "four"):
            assert await editor.prompt(session_id, text) == "end_turn"
        assert (bench.cwd / "acp-bridge-demo.md").exists() == (option != "reject-once")
        kinds = {str(update["sessionUpdate"]) for update in editor.updates()}
        assert kinds >= {
            "agent_message_chunk",
            "agent_thought_chunk",
            "tool_call",
            "tool_call_update",
            "plan",
            "session_info_update",
            "usage_update",
        }


async def test_eight_sessions_work_side_by_side_each_in_its_folder_r089(bench: Bench) -> None:
    folders = [bench.folder / f"work-{n}" for n in range(8)]
    for number, folder in enumerate(folders, start=1):
        folder.mkdir()
        bench.answers([bash("c", "pwd")], HI, agent=str(number))
    async with bench.editor() as editor:
        made = [await editor.new(folder) for folder in folders]
        prompts = [await editor.start("session/prompt", said(name)) for name in made]
        await editor.call("session/close", {"sessionId": made[0]})
        for prompt in prompts:
            assert "result" in await editor.answer(prompt)
        for name, folder in list(zip(made, folders, strict=True))[1:]:
            told = json.dumps(editor.updates(name))
            assert str(folder) in told
            assert not [other for other in folders if other != folder and str(other) in told]


async def test_loading_what_is_open_shows_it_again(bench: Bench) -> None:
    bench.answers(HI, HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        await editor.prompt(session_id)
        for _ in range(2):
            await editor.load(session_id, bench.cwd)
        assert editor.text() == "Hi." * 3
        assert await editor.prompt(session_id) == "end_turn"


async def test_loading_a_busy_session_shows_the_past_then_goes_on(bench: Bench) -> None:
    bench.answers([write("a"), {"text": "past "}], HOLD)
    async with bench.editor(is_judged=False) as editor:
        session_id = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session_id))
        await editor.seen_text("Half")
        before = len(editor.updates())
        await editor.load(session_id, bench.cwd)
        bench.release("go")
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        again = [
            u["content"]["text"]  # type: ignore[index,call-overload]
            for u in editor.updates()[before:]
            if u["sessionUpdate"] == "agent_message_chunk"
        ]
        assert again == ["past ", "Half", " done"]


async def test_close_is_tolerant_and_a_closed_session_can_be_loaded(bench: Bench) -> None:
    bench.answers(HOLD, HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session_id))
        await editor.seen_text("Half")
        close = [await editor.start("session/close", {"sessionId": session_id}) for _ in range(2)]
        for request in close:
            assert (await editor.answer(request))["result"] == {}
        assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
        assert (await editor.refused("session/prompt", said(session_id)))["code"] == -32002
        await editor.load(session_id, bench.cwd)
        assert await editor.prompt(session_id) == "end_turn"


async def test_a_session_open_elsewhere_is_a_conflict(bench: Bench) -> None:
    bench.answers(HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        await editor.prompt(session_id)
        store = SessionStore(bench.home / "sessions", clock=lambda: 0)
        await editor.call("session/close", {"sessionId": session_id})
        writer = store.open(session_id)
        try:
            params: JsonObject = {"sessionId": session_id, "cwd": str(bench.cwd), "mcpServers": []}
            error = await editor.refused("session/load", params)
            assert error["code"] == -32603
            assert "already open" in str(error["data"])
        finally:
            writer.close()
        await editor.load(session_id, bench.cwd)


@pytest.mark.parametrize(
    ("image", "says"),
    [
        ({"data": "!", "mimeType": "image/png"}, "base64"),
        ({"data": png(9000, 1), "mimeType": "image/png"}, "8000"),
        ({"data": b64(png_bytes(1, 1)[:30]), "mimeType": "image/png"}, "cut off"),
        ({"data": png(), "mimeType": "image/gif"}, "not a sound"),
    ],
)
async def test_a_poison_image_is_refused_and_nothing_is_stored_r075(
    bench: Bench, image: JsonObject, says: str
) -> None:
    bench.answers(HI)
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        params: JsonObject = {"sessionId": session_id, "prompt": [{"type": "image", **image}]}
        error = await editor.refused("session/prompt", params)
        assert error["code"] == -32602
        assert says in str(error["message"])
        assert not (bench.home / "attachments").exists()
        assert await editor.prompt(session_id) == "end_turn"


async def sessions_listed(editor: Editor, params: JsonObject) -> list[JsonObject]:
    found: list[JsonObject] = []
    while True:
        page = await editor.call("session/list", params)
        sessions = page["sessions"]
        assert isinstance(sessions, list)
        found += [session for session in sessions if isinstance(session, dict)]
        if "nextCursor" not in page:
            return found
        params = {**params, "cursor": page["nextCursor"]}


async def test_a_list_shows_each_session_once_and_the_newest_first_r071(bench: Bench) -> None:
    bench.answers(HI)
    for agent in "234":
        bench.answers(HI, agent=agent)
    other = bench.folder / "other"
    other.mkdir()
    async with bench.editor() as editor:
        made = []
        for cwd in (bench.cwd, other, bench.cwd, bench.cwd):
            made.append(await editor.new(cwd))
            await editor.prompt(made[-1], f"Title {len(made)}")
        assert [s["sessionId"] for s in await sessions_listed(editor, {})] == made[::-1]
        here = await sessions_listed(editor, {"cwd": str(bench.cwd) + "/"})
        assert [s["sessionId"] for s in here] == [made[3], made[2], made[0]]
        assert here[0]["title"] == "Title 4"
        assert here[0]["cwd"] == str(bench.cwd)
        assert await sessions_listed(editor, {"cwd": "/nowhere"}) == []
        await editor.load(made[0], bench.cwd)


@pytest.mark.parametrize("cursor", ["zzz", "", "AAAA", "é", "MTIz", "!!!!"])
async def test_a_bad_cursor_is_refused_r071(bench: Bench, cursor: str) -> None:
    async with bench.editor() as editor:
        assert (await editor.refused("session/list", {"cursor": cursor}))["code"] == -32602


@pytest.mark.parametrize("cwd", ["relative", "./x"])
async def test_a_relative_cwd_in_a_list_is_refused_r071(bench: Bench, cwd: str) -> None:
    async with bench.editor() as editor:
        assert (await editor.refused("session/list", {"cwd": cwd}))["code"] == -32602
        await editor.call("session/list", {"cwd": "/a\0b"})
