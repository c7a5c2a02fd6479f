"""The whole bridge behind a stream, as clients use and misuse it."""

import json
import shutil
from pathlib import Path

import anyio
import pytest
from acp_rig import Bench, Editor, said, selected
from picture_bytes import b64, png, png_bytes

from acp_bridge.sessions import SessionStore
from acp_bridge.testing.rules import broken_rules
from acp_bridge.vocabulary import JsonObject, JsonValue

pytestmark = pytest.mark.anyio

HI: list[JsonValue] = [{"text": "Hi."}]
HOLD: list[JsonValue] = [{"text": "Half"}, {"wait": "go"}, {"text": " done"}]


def write(call_id: str, path: str = "a.txt", content: str = "x\n") -> JsonObject:
    arguments: JsonObject = {"file_path": path, "content": content}
    return {"tool_call": {"id": call_id, "name": "write", "arguments": arguments}}


def bash(call_id: str, command: str) -> JsonObject:
    arguments: JsonObject = {"command": command, "description": "test"}
    return {"tool_call": {"id": call_id, "name": "bash", "arguments": arguments}}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def stored(bench: Bench, session_id: str) -> list[str]:
    """The row types of a stored session."""
    store = SessionStore(bench.home / "sessions", clock=lambda: 0)
    return [event.type for event in store.read(session_id).events]


def session_files(bench: Bench) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in sorted(bench.home.rglob("*")) if path.is_file()
    }


# --- sessions that are not there, or not so ---------------------------------------------------


@pytest.mark.parametrize("session_id", ["nope", "", "../../etc/passwd", "x" * 10_000, "\ud800"])
async def test_an_unknown_session_is_32002_with_its_id_r052(bench: Bench, session_id: str) -> None:
    async with bench.editor() as editor:
        cwd = {"cwd": str(bench.cwd), "mcpServers": []}
        for method, params in (
            ("session/load", {"sessionId": session_id, **cwd}),
            ("session/prompt", said(session_id)),
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


# --- turns ------------------------------------------------------------------------------------


async def test_every_update_of_a_turn_comes_before_its_response_r041(bench: Bench) -> None:
    bench.answers([{"text": "x", "repeat": 500}])
    async with bench.editor() as editor:
        session_id = await editor.new(bench.cwd)
        assert await editor.prompt(session_id) == "end_turn"
        assert editor.text() == "x" * 500
        assert "result" in editor.received[-1]


async def test_a_turn_goes_on_when_the_client_reads_slowly(bench: Bench) -> None:
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


# --- permission -------------------------------------------------------------------------------


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
        with anyio.fail_after(2):
            other = await editor.new(bench.cwd)
            assert await editor.prompt(other) == "end_turn"
            assert await editor.load(other, bench.cwd) == {}
            await editor.call("session/list", {})
            assert await editor.call("session/close", {"sessionId": other}) == {}
        await editor.send({"id": question["id"], **selected("allow-once")})
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}


# --- load -------------------------------------------------------------------------------------


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
        assert "result" in editor.received[-1]
        kinds = [str(update["sessionUpdate"]) for update in editor.updates()]
        assert kinds[:4] == ["user_message_chunk"] * 4
        users = [u["content"] for u in editor.updates() if u["sessionUpdate"] == kinds[0]]
        assert users[:4] == blocks
        assert editor.updates()[-1] == {"sessionUpdate": "usage_update", "used": 15, "size": 128000}
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


# --- list -------------------------------------------------------------------------------------


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
