"""What a client gives beside the folder at each opening: added folders and a system prompt."""

import json

import anyio
import pytest
from acp_rig import HI, Bench, Editor, said, selected

from acp_bridge.bridge.extras import FOLDERS_MAX, SYSTEM_PROMPT_CHARS_MAX
from acp_bridge.vocabulary import JsonObject, JsonValue

pytestmark = pytest.mark.anyio

LONG = "x" * (SYSTEM_PROMPT_CHARS_MAX + 1)


def write(call_id: str, path: object) -> JsonObject:
    arguments: JsonObject = {"file_path": str(path), "content": "x\n"}
    return {"tool_call": {"id": call_id, "name": "write", "arguments": arguments}}


async def opened(editor: Editor, bench: Bench, **more: JsonValue) -> str:
    params: JsonObject = {"cwd": str(bench.cwd), "mcpServers": [], **more}
    return str((await editor.call("session/new", params))["sessionId"])


def asked(editor: Editor) -> list[JsonObject]:
    return [m for m in editor.received if m.get("method") == "session/request_permission"]


@pytest.mark.parametrize("value", ["", "relative", "~", "a\0b", "/no/such/folder"])
async def test_a_folder_that_is_none_is_refused_by_its_place(bench: Bench, value: str) -> None:
    async with bench.editor() as editor:
        params: JsonObject = {
            "cwd": str(bench.cwd),
            "mcpServers": [],
            "additionalDirectories": [str(bench.folder), value],
        }
        error = await editor.refused("session/new", params)
        assert error["code"] == -32602
        assert error["data"]["field"] == "additionalDirectories[1]"  # type: ignore[index,call-overload]
        params["additionalDirectories"] = [str(bench.folder)] * (FOLDERS_MAX + 1)
        error = await editor.refused("session/new", params)
        assert error["data"]["field"] == "additionalDirectories"  # type: ignore[index,call-overload]


async def test_a_folder_that_is_added_by_a_link_is_where_it_leads(bench: Bench) -> None:
    target, link = bench.folder / "target", bench.cwd / "link"
    target.mkdir()
    link.symlink_to(target)
    bench.answers([write("a", link / "by-link")], [write("b", target / "by-name")], HI)
    async with bench.editor() as editor:
        session = await opened(editor, bench, additionalDirectories=[str(link)])
        await editor.call("session/set_mode", {"sessionId": session, "modeId": "accept-edits"})
        await editor.prompt(session)
        assert asked(editor) == []
        assert sorted(path.name for path in target.iterdir()) == ["by-link", "by-name"]


async def test_what_is_beside_an_added_folder_still_asks_every_time(bench: Bench) -> None:
    added = bench.folder / "lib"
    added.mkdir()
    beside = bench.folder / "lib-too"
    bench.answers([write("a", beside / "x")], [write("b", added / ".." / "lib-too" / "y")], HI)
    async with bench.editor() as editor:
        editor.reply = lambda _request: selected("reject-once")
        session = await opened(editor, bench, additionalDirectories=[str(added)])
        await editor.call("session/set_mode", {"sessionId": session, "modeId": "accept-edits"})
        await editor.prompt(session)
        assert len(asked(editor)) == 2
        assert not beside.exists()


async def test_a_load_of_an_open_session_takes_what_it_gives_and_no_more(bench: Bench) -> None:
    first, second = bench.folder / "first", bench.folder / "second"
    for one in (first, second):
        one.mkdir()
    bench.answers(HI, [write("a", second / "x")], HI, [write("b", first / "x")], HI)
    async with bench.editor() as editor:
        editor.reply = lambda _request: selected("reject-once")
        session = await opened(editor, bench, additionalDirectories=[str(first)])
        await editor.call("session/set_mode", {"sessionId": session, "modeId": "accept-edits"})
        await editor.prompt(session)
        params: JsonObject = {
            "sessionId": session,
            "cwd": str(bench.cwd),
            "mcpServers": [],
            "additionalDirectories": [str(second)],
        }
        await editor.call("session/load", params)
        await editor.prompt(session)
        assert asked(editor) == []
        await editor.prompt(session)
        assert len(asked(editor)) == 1
        assert not (first / "x").exists()


async def test_of_two_loads_at_once_the_last_ones_folders_count(bench: Bench) -> None:
    first, second = bench.folder / "first", bench.folder / "second"
    for one in (first, second):
        one.mkdir()
    bench.answers(HI, [write("a", second / "x")], HI, [write("b", first / "x")], HI)
    async with bench.editor() as editor:
        editor.reply = lambda _request: selected("reject-once")
        session = await editor.new(bench.cwd)
        await editor.call("session/set_mode", {"sessionId": session, "modeId": "accept-edits"})
        await editor.prompt(session)
        await editor.call("session/close", {"sessionId": session})
        loads = [
            editor.request(
                "session/resume",
                {
                    "sessionId": session,
                    "cwd": str(bench.cwd),
                    "additionalDirectories": [str(folder)],
                },
            )
            for folder in (first, second)
        ]
        await editor.send(*loads)
        for load in loads:
            await editor.answer(load["id"])
        await editor.prompt(session)
        assert asked(editor) == []
        await editor.prompt(session)
        assert len(asked(editor)) == 1
        assert not (first / "x").exists()


async def test_a_folder_that_is_given_twice_by_other_names_counts_once(bench: Bench) -> None:
    bench.answers(HI)
    (bench.folder / "more").mkdir()
    (bench.folder / "link").symlink_to(bench.folder / "more")
    spelt = [bench.folder / "more", bench.folder / "link", bench.folder / "link" / ".." / "more"]
    async with bench.editor() as editor:
        session = await opened(editor, bench, additionalDirectories=[str(one) for one in spelt])
        await editor.prompt(session)
        sessions = (await editor.call("session/list", {}))["sessions"]
        assert isinstance(sessions, list)
        listed = [one["additionalDirectories"] for one in sessions if isinstance(one, dict)]
        assert listed == [[str(bench.folder / "more")]]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"systemPrompt": {"mode": "_mine", "content": [{"type": "text", "text": "x"}]}}, ".mode"),
        ({"systemPrompt": {"mode": "append", "content": []}}, ".content"),
        ({"systemPrompt": {"mode": "append"}}, ".content"),
        ({"systemPrompt": {"mode": "append", "content": [{"type": "new"}]}}, ".content[0]"),
        (
            {
                "systemPrompt": {
                    "mode": "append",
                    "content": [{"type": "text", "text": "x" * 60_000}],
                }
            },
            "",
        ),
        ({"_meta": {"systemPrompt": LONG}}, None),
    ],
)
async def test_a_system_prompt_that_cannot_be_applied_opens_nothing(
    bench: Bench, given: JsonObject, field: str | None
) -> None:
    async with bench.editor() as editor:
        params: JsonObject = {"cwd": str(bench.cwd), "mcpServers": [], **given}
        error = await editor.refused("session/new", params)
        where = "_meta.systemPrompt" if field is None else f"systemPrompt{field}"
        assert (error["code"], error["data"]["field"]) == (-32602, where)  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    "meta", [{"systemPrompt": 7}, {"systemPrompt": {"append": ["x"]}}, {"systemPrompt": " "}, {}]
)
async def test_a_foreign_meta_is_another_programs_business(bench: Bench, meta: JsonObject) -> None:
    bench.answers(HI)
    async with bench.editor() as editor:
        session = await opened(editor, bench, _meta=meta)
        await editor.prompt(session)
        with anyio.fail_after(60):
            log = json.dumps(await editor.load(session, bench.cwd))
        assert "editor adds" not in log


async def test_a_fork_by_command_while_a_turn_waits_takes_what_is_completed(bench: Bench) -> None:
    bench.answers(HI, [{"text": "Busy."}, {"wait": "on"}])
    async with bench.editor() as editor:
        session = await opened(editor, bench)
        await editor.prompt(session)
        busy = await editor.start("session/prompt", said(session))
        fork = await editor.start("session/prompt", said(session, "/fork"))
        await editor.seen_text("Busy.")
        bench.release("on")
        await editor.answer(busy)
        await editor.answer(fork)
        sessions = (await editor.call("session/list", {}))["sessions"]
        assert isinstance(sessions, list)
        (made,) = [s["sessionId"] for s in sessions if s["sessionId"] != session]  # type: ignore[index,call-overload]
        assert f"session `{made}`" in editor.text(session)
        await editor.load(str(made), bench.cwd)
        assert editor.text(str(made)).endswith("Busy.")
