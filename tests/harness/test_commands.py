"""Slash commands: what they do, say and log."""

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from fake_models import FakeCatalog, FakeModel
from harness_rig import SESSION, WAIT_S, Rig, rig, script, store

from acp_bridge.harness.waiting import WaitingPrompt
from acp_bridge.vocabulary import Command, OptionsChanged, TurnEnd

pytestmark = pytest.mark.anyio


def typed(r: Rig, name: str, argument: str = "") -> WaitingPrompt:
    return r.session.admit(Command(name, argument))


async def run(r: Rig, name: str, argument: str = "") -> str:
    """What the command says, after its outcome in brackets if that is no success."""
    assert await r.ended(typed(r, name, argument)) == TurnEnd("completed")
    done = r.data("command/done")[-1]
    ran = r.data("command/run")[-1]
    assert done["commandId"] == ran["commandId"]
    assert ran["source"] == {"kind": "user"}
    assert (ran["name"], ran.get("args", "")) == (name, argument)
    return str(done["text"]) if done["kind"] == "success" else f"[{done['kind']}] {done['text']}"


def models() -> FakeCatalog:
    return FakeCatalog(FakeModel("plain"), FakeModel("deep"), deep=("low",))


async def test_help_names_every_command(tmp_path: Path) -> None:
    async with rig(tmp_path, models()) as r:
        text = await run(r, "help")
        assert [line.split("`")[1].split()[0] for line in text.splitlines()] == [
            f"/{info.name}" for info in r.session.commands
        ]
        assert {info.name for info in r.session.commands} == {
            "help",
            "mode",
            "model",
            "title",
            "compact",
            "fork",
        }


async def test_mode_shows_and_switches(tmp_path: Path) -> None:
    async with rig(tmp_path, models()) as r:
        assert "`ask` (now)" in await run(r, "mode")
        assert "`plan` (now)" in await run(r, "mode", "plan")
        assert r.session.options().mode == "plan"
        assert [e for e in r.told if isinstance(e, OptionsChanged)] == [OptionsChanged()]
        refused = await run(r, "mode", "nope")
        assert refused.startswith("[error] There is no mode 'nope'")
        assert "accept-edits" in refused
        assert r.session.options().mode == "plan"
    async with rig(tmp_path, models()) as r:
        assert r.session.options().mode == "plan"


async def test_model_shows_and_switches(tmp_path: Path) -> None:
    catalog = models()
    async with rig(tmp_path, catalog) as r:
        assert "`fake:plain` (now): Plain" in await run(r, "model")
        assert "`fake:deep` (now): Deep" in await run(r, "model", "fake:deep")
        assert (await run(r, "model", "deep")).startswith("[error] There is no model 'deep'")
        await r.prompt()
    assert [len(m.asked) for m in catalog.models.values()] == [0, 1]


async def test_title_names_the_session_and_the_first_prompt_does_not_rename_it(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, models()) as r:
        assert "Fix the parser" in await run(r, "title", "  Fix \n the   parser ")
        await r.prompt("hello")
        assert [data["title"] for data in r.data("session/title")] == ["Fix the parser"]
        await run(r, "title", "y" * 500)
        assert r.data("session/title")[-1]["title"] == "y" * 200
        for nothing in ("", " \n "):
            assert (await run(r, "title", nothing)).startswith("[error] Say the title")
        assert len(r.data("session/title")) == 2
    [summary] = store(tmp_path).list().sessions
    assert summary.title == "y" * 200


async def test_a_command_costs_no_model_call_and_opens_no_turn(tmp_path: Path) -> None:
    catalog = models()
    async with rig(tmp_path, catalog) as r:
        for name in ("help", "mode", "model", "title"):
            await run(r, name, "x" if name == "title" else "")
        assert not r.data("turn/start")
        assert await r.prompt() == TurnEnd("completed")
        assert r.data("turn/start") == [{"turn": 1}]
        assert len(r.data("permission/preset")) == 1
    [request] = catalog.models["fake:plain"].asked
    assert len(request.messages) == 1


async def test_commands_wait_for_their_place_among_prompts(tmp_path: Path) -> None:
    model = script(
        [{"text": "one"}, {"wait": "go"}], [{"text": "two"}], [{"text": "three"}], releases=tmp_path
    )
    async with rig(tmp_path, model) as r:
        turns = [r.admit("a"), typed(r, "mode", "plan"), r.admit("b"), typed(r, "mode", "ask")]
        await r.heard_text("one")
        assert r.session.options().mode == "ask"
        (tmp_path / "go").touch()
        for turn in turns:
            assert await r.ended(turn) == TurnEnd("completed")
        kinds = [e.type for e in r.rows if e.type in {"turn/start", "command/run"}]
        assert kinds == ["turn/start", "command/run"] * 2
        systems = [str(data) for data in r.data("system/message")]
        assert ["plan mode" in text for text in systems] == [False, True]


async def test_a_cancel_drops_the_commands_that_wait(tmp_path: Path) -> None:
    model = script([{"text": "one"}, {"wait": "never"}], releases=tmp_path)
    async with rig(tmp_path, model) as r:
        turns = [r.admit("a"), typed(r, "mode", "full"), typed(r, "title", "x")]
        await r.heard_text("one")
        r.session.cancel()
        for turn in turns:
            assert await r.ended(turn) == TurnEnd("aborted")
        assert r.session.options().mode == "ask"
        assert not r.data("command/run")


async def test_a_cancel_never_leaves_a_command_without_its_end(tmp_path: Path) -> None:
    async with rig(tmp_path, models()) as r:
        for n in range(40):
            turn = typed(r, "mode", ("full", "ask")[n % 2])
            for _ in range(n % 8):
                await anyio.lowlevel.checkpoint()
            r.session.cancel()
            with anyio.fail_after(WAIT_S):
                end = await turn.ended()
            assert end.kind in {"completed", "aborted"}
            assert len(r.data("command/run")) == len(r.data("command/done"))


async def test_a_disk_that_fails_a_command_is_an_error(tmp_path: Path) -> None:
    async with rig(tmp_path, models()) as r:
        r.writer.fail = lambda _drafts: True
        end = await r.ended(typed(r, "mode", "full"))
        assert (end.kind, end.code) == ("error", "STORE")
        assert r.session.options().mode == "ask"
        r.writer.fail = lambda drafts: drafts[0].type == "permission/preset" and len(drafts) < 5
        end = await r.ended(typed(r, "mode", "full"))
        assert end.code == "STORE"
        assert r.session.options().mode == "ask"
        r.writer.fail = lambda _drafts: False
        assert "`full` (now)" in await run(r, "mode", "full")
    assert SESSION in store(tmp_path).session_ids()
