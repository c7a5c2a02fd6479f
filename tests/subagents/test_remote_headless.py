"""Remote children without any ACP editor, and streams of several sessions in one process.

The numbers are those of the list of tests in the design of orchestration.
"""

import json
import logging
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from family_rig import fork, message, say, spawn
from harness_rig import FakeClient
from lsp_rig import LspDesk
from remote_rig import Estate
from test_remote_children import DONE, done, ended, notices

from acp_bridge.cli.runtime import serve_sdk
from acp_bridge.config import Settings
from acp_bridge.errors import ConfigError, StoreFailedError
from acp_bridge.harness.committer import Committer, Rows
from acp_bridge.harness.session import HarnessSession
from acp_bridge.runevents.model import RunId
from acp_bridge.runevents.streamer import ConsumerId
from acp_bridge.subagents.remote_home import RemoteHome
from acp_bridge.vocabulary import ChildSaid, Draft, Event, JsonObject, Prompt, SessionId
from acp_bridge.wire.memory import stream_pair

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("tool", ["subagent", "subagent_fork"])
async def test_3_a_run_of_the_sdk_has_its_children_elsewhere(
    place: Estate, tmp_path: Path, tool: str
) -> None:
    """And 12: the run's driver alone, with no editor anywhere, hears of all of them."""
    script = tmp_path / "model.jsonl"
    arguments: JsonObject = {"description": "look", "prompt": "Look."}
    made = [
        {"tool_call": {"id": f"c{number}", "name": tool, "arguments": arguments}}
        for number in range(2)
    ]
    answers = [made, [{"text": "ok"}], [{"text": "ok"}], [{"text": "ok"}]]
    script.write_text("".join(json.dumps({"stream": one}) + "\n" for one in answers))
    settings = Settings(
        home=tmp_path / "home", model=f"scripted:{script}", delegation="remote",
        events=place.service.url,
    )  # fmt: skip
    ours, theirs = stream_pair()
    received: list[JsonObject] = []
    news = anyio.Event()

    async def read() -> None:
        nonlocal news
        rest = b""
        while data := await ours.receive():
            *lines, rest = (rest + data).split(b"\n")
            received.extend(json.loads(line) for line in lines)
            news.set()
            news = anyio.Event()

    async def call(number: int, method: str, **params: object) -> None:
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        await ours.send(json.dumps(request).encode() + b"\n")
        with anyio.fail_after(60):
            while not any(one.get("id") == number for one in received):
                await news.wait()
        assert all("error" not in one for one in received)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_sdk, theirs, settings)
        tasks.start_soon(read)
        name = {"provider": "deepseek-official", "model": "deepseek-v4-flash"}
        await call(1, "initialize", cwd=str(place.home.cwd), **name)
        blocks = [{"type": "text", "text": "go"}]
        await call(2, "session/prompt", sessionId="s", contentBlocks=blocks)
        jobs = [await done(place, say("seen")), await done(place, say("seen"))]
        await call(3, "session/wait", sessionId="s")
        finished = [one for one in received if one.get("method") == "subagent.finished"]
        assert len(finished) == 2
        log = str(received)
        assert all(f"Subagent {job.child_id}" in log for job in jobs)
        ours.send_eof()


async def test_3_a_language_servers_run_has_its_children_elsewhere(
    place: Estate, tmp_path: Path
) -> None:
    (tmp_path / "lsp").mkdir()
    desk = LspDesk(tmp_path / "lsp")
    arguments: JsonObject = {"description": "look", "prompt": "Look."}
    call: JsonObject = {"tool_call": {"id": "c", "name": "subagent", "arguments": arguments}}
    desk.script([call], [{"text": "wait"}], [{"text": "All is told."}])
    async with desk.editor(events=place.service.url) as editor:
        await editor.command("agent.prompt", "Go")
        await done(place, say("seen"))
        await editor.ended()
    assert "All is told." in desk.transcript()


async def test_25_rows_that_a_disk_refused_come_again_and_are_there_once(
    place: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []
    commit = Committer.commit

    async def flaky(committer: Committer, rows: Rows) -> list[Event]:
        drafts = rows if isinstance(rows, list) else []
        kinds = [draft.type for draft in drafts if isinstance(draft, Draft)]
        if "assistant/message" in kinds and committer.writer.header.origin and not refused:
            refused.append("rows")
            raise StoreFailedError("The disk is full.")
        return await commit(committer, rows)

    monkeypatch.setattr(Committer, "commit", flaky)
    async with place.home.family({"1": [spawn(), say("a"), say("b")]}) as family:
        turn = family.admit()
        job = await done(place, say("seen"))
        assert await ended(turn) == DONE
        assert refused == ["rows"]
        assert len(family.rows(job.child_id, "assistant/message")) == 1
        assert family.said(job.child_id) == ["seen"]
        rows = [e.event for e in family.told if isinstance(e, ChildSaid)]
        seqs = [row.seq for row in rows if isinstance(row, Event)]
        assert seqs == sorted(set(seqs))


async def test_22_and_25_an_end_that_could_not_be_told_comes_again_and_is_told_once(
    place: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []
    notify = HarnessSession.notify

    async def flaky(session: HarnessSession, told: JsonObject, *, wakes: bool) -> bool:
        if not refused:
            refused.append("end")
            raise StoreFailedError("The disk is full.")
        return await notify(session, told, wakes=wakes)

    monkeypatch.setattr(HarnessSession, "notify", flaky)
    async with place.home.family({"1": [spawn(), say("a"), say("b")]}) as family:
        family.admit()
        job = await done(place, say("seen"))
        await place.until(lambda: refused and notices(family))
        assert await family.prompt() == DONE
        assert len(notices(family)) == 1
        assert [row.type for row in family.log(job.child_id)].count("turn/end") == 1


async def test_29_each_of_two_roots_closes_its_own_stream_only(place: Estate) -> None:
    answers = {
        "1": [spawn(), say("a"), say("b")],
        "2": [spawn(), say("a"), say("noted")],
    }
    made: list[RemoteHome] = []
    make = place.home.remote
    assert make is not None

    def noting() -> RemoteHome:
        made.append(make())
        return made[-1]

    place.home.remote = noting
    async with place.home.family(answers, leaves=True) as family:
        family.admit()
        one = await place.worker.claim()
        other = await family.runtime.new_session(place.home.cwd, FakeClient())
        other.attach(lambda _event: None)
        turn = other.admit(Prompt([{"type": "text", "text": "go"}]))
        two = await place.worker.claim()
        (home,) = made
        await place.until(lambda: home.streams.snapshot().open_connections == 2)
        await family.root.close()
        assert home.streams.snapshot().open_connections == 1
        await two.works(say("seen"))
        await two.tell()
        await two.settle()
        assert await ended(turn) == DONE
        assert (await place.client.run(one.run_id)).state == "claimed"


async def test_30_a_run_that_is_hosted_without_its_driver_is_an_error(
    place: Estate, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[RemoteHome] = []
    make = place.home.remote
    assert make is not None

    def noting() -> RemoteHome:
        made.append(make())
        return made[-1]

    place.home.remote = noting
    async with place.home.family({"1": [spawn(), say("a"), say("b")]}) as family:
        with caplog.at_level(logging.ERROR):
            turn = family.admit()
            await done(place, say("seen"))
            assert await ended(turn) == DONE
            assert caplog.messages == []  # the session's opening registered its driver
            (home,) = made
            nobody = ConsumerId("nobody")
            home.streams.run_assigned(SessionId("other"), RunId("other"), hosted_by=nobody)
        assert "register the driver first" in caplog.messages[0]


async def test_a_child_is_woken_elsewhere_again_and_local_ones_stay_local(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("a"), say("b")]}) as family:
        turn = family.admit()
        job = await done(place, say("first"))
        assert await ended(turn) == DONE
        family.model.answers["1"] = [message(job.child_id, "More."), say("c"), say("d")]
        turn = family.admit()
        again = await done(place, say("second"))
        assert again.child_id == job.child_id
        assert await ended(turn) == DONE
        root_id = family.root.session_id
    place.home.remote = None
    async with place.home.family(
        {"1": [message(job.child_id, "More."), fork(), say("ok"), say("ok")]}, session_id=root_id
    ) as family:
        assert await family.prompt() == DONE
        assert "works on another machine" in family.results()[-2]
        (local,) = family.started()
        assert family.rows(local.child_id, "subagent/descriptor")[-1]["provider"] == "fork"


def test_nothing_of_run_events_is_loaded_without_an_events_home(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
import anyio
from acp_bridge.cli.assemble import embedded_runtime, open_catalog
from acp_bridge.config import Settings
from acp_bridge.ports import PermissionAsk
from acp_bridge.vocabulary import Prompt

class Nobody:
    reads_text = writes_text = runs_commands = takes_questions = False
    async def flow(self): pass

async def main():
    settings = Settings(home=Path({str(tmp_path)!r}), model="scripted:{tmp_path}/m.jsonl")
    async with open_catalog(settings) as catalog, embedded_runtime(settings, catalog) as runtime:
        session = await runtime.new_session(Path({str(tmp_path)!r}), Nobody())
        end = await session.admit(Prompt([{{"type": "text", "text": "go"}}])).ended()
        assert end.kind == "completed", end
        assert len(await session.descendants()) == 1

anyio.run(main)
words = ("runevents", "subagents.remote_", "subagents.ledger")
loaded = [name for name in sys.modules if any(word in name for word in words)]
assert loaded == [], loaded
"""
    call = {"id": "c", "name": "subagent", "arguments": {"description": "d", "prompt": "p"}}
    ok = {"stream": [{"text": "ok"}]}
    lines = [{"stream": [{"tool_call": call}]}, ok, ok, {**ok, "agent": "1/1"}]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stderr


def test_delegation_elsewhere_needs_an_events_home(tmp_path: Path) -> None:
    from acp_bridge.cli.assemble import dsh_runtime, embedded_runtime
    from acp_bridge.models.catalog import Catalog

    settings = Settings(home=tmp_path, delegation="remote")
    with pytest.raises(ConfigError, match="--events"):
        embedded_runtime(settings, Catalog(home=tmp_path, environment={}))
    with pytest.raises(ConfigError, match="--delegation"):
        dsh_runtime(settings)


def test_commands_do_not_see_the_events_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acp_bridge.cli.assemble import embedded_runtime
    from acp_bridge.models.catalog import Catalog

    monkeypatch.setenv("ACP_BRIDGE_EVENTS_TOKEN", "s3cret")
    settings = Settings(home=tmp_path)
    runtime = embedded_runtime(settings, Catalog(home=tmp_path, environment={}))
    assert "s3cret" not in str(dict(runtime._world.env))
