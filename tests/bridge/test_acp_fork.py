"""``session/fork``: a new session with the past of another, which stays as it is (R060, R061)."""

from pathlib import Path

import pytest
from acp_rig import Bench, Editor, Reply, bash, selected

from acp_bridge.vocabulary import JsonObject

pytestmark = pytest.mark.anyio


def params(session: str, cwd: Path) -> JsonObject:
    return {"sessionId": session, "cwd": str(cwd), "mcpServers": []}


async def fork(editor: Editor, session: str, cwd: Path) -> str:
    answer = await editor.call("session/fork", params(session, cwd))
    assert "modes" in answer
    return str(answer["sessionId"])


def logs(bench: Bench) -> dict[str, bytes]:
    return {p.parent.name: p.read_bytes() for p in bench.home.rglob("session.v4*")}


async def test_a_fork_knows_the_past_and_is_not_replayed(bench: Bench) -> None:
    bench.answers([{"text": "One."}], [{"text": "Two, in the source."}])
    bench.answers([{"text": "Two, in the fork."}], agent="2")
    async with bench.editor() as editor:
        source = await editor.new(bench.cwd)
        await editor.prompt(source, "first")
        before = logs(bench)[source]
        made = await fork(editor, source, bench.cwd)
        assert editor.text(made) == ""
        assert logs(bench)[source] == before
        assert await editor.prompt(made, "second") == "end_turn"
        assert await editor.prompt(source, "second") == "end_turn"
        assert editor.text(made) == "Two, in the fork."
        assert editor.text(source) == "One.Two, in the source."
    async with bench.editor() as editor:
        await editor.load(made, bench.cwd)
        assert editor.text(made) == "One.Two, in the fork."
        listed = (await editor.call("session/list", {}))["sessions"]
        assert isinstance(listed, list)
        titles = {one["sessionId"]: one["title"] for one in listed if isinstance(one, dict)}
        assert titles == {source: "first", made: "first (2)"}


async def test_a_fork_of_a_fork_in_another_folder_goes_on_there(bench: Bench) -> None:
    bench.answers([{"text": "One."}])
    bench.answers([{"text": "Here."}], agent="3")
    other = bench.folder / "other"
    other.mkdir()
    async with bench.editor() as editor:
        source = await editor.new(bench.cwd)
        await editor.prompt(source)
        middle = await fork(editor, source, bench.cwd)
        last = await fork(editor, middle, other)
        assert await editor.prompt(last) == "end_turn"
        assert editor.text(last) == "Here."
        await editor.call("session/close", {"sessionId": last})
        refused = await editor.refused("session/load", params(last, bench.cwd))
        assert refused["code"] == -32602
        await editor.load(last, other)


async def test_a_fork_of_a_session_without_a_prompt_is_empty_and_keeps_the_choice(
    bench: Bench,
) -> None:
    bench.answers([{"text": "x"}])
    async with bench.editor() as editor:
        source = await editor.new(bench.cwd)
        await editor.call("session/set_mode", {"sessionId": source, "modeId": "plan"})
        answer = await editor.call("session/fork", params(source, bench.cwd))
        modes = answer["modes"]
        assert isinstance(modes, dict)
        assert modes["currentModeId"] == "plan"
        assert logs(bench) == {}


async def test_a_fork_keeps_the_mode_and_drops_the_grants(bench: Bench) -> None:
    asked: list[JsonObject] = []

    def always(request: JsonObject) -> Reply:
        asked.append(request)
        return selected("allow-always")

    for agent in "12":
        bench.answers([bash("t", "true")], [{"text": "done"}], agent=agent)
    async with bench.editor() as editor:
        source = await editor.new(bench.cwd)
        mode: JsonObject = {"sessionId": source, "modeId": "accept-edits"}
        await editor.call("session/set_mode", mode)
        editor.reply = always
        await editor.prompt(source)
        answer = await editor.call("session/fork", params(source, bench.cwd))
        modes = answer["modes"]
        assert isinstance(modes, dict)
        assert modes["currentModeId"] == "accept-edits"
        await editor.prompt(str(answer["sessionId"]))
        assert len(asked) == 2


async def test_what_cannot_be_forked_says_why(bench: Bench) -> None:
    async with bench.editor() as editor:
        refused = await editor.refused("session/fork", params("nope", bench.cwd))
        assert (refused["code"], refused["data"]) == (-32002, {"sessionId": "nope"})
        refused = await editor.refused("session/fork", params("nope", Path("relative")))
        assert refused["code"] == -32602
