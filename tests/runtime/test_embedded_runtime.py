"""The embedded runtime: which sessions are open, where, and as whose place."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from fake_models import OneModel

from acp_bridge.errors import (
    AuthRequiredError,
    InvalidParamsError,
    SessionConflictError,
    SessionCorruptError,
    SessionNotFoundError,
)
from acp_bridge.harness.session import HarnessSession
from acp_bridge.harness.tools import builtin_tools
from acp_bridge.models.catalog import Catalog
from acp_bridge.models.script import script_from_text
from acp_bridge.models.scripted import ScriptedModel
from acp_bridge.ports import ClientCommand, CommandEnd, Model, PermissionAsk, QuestionsAsk
from acp_bridge.runtime.embedded import EmbeddedRuntime, Outside
from acp_bridge.runtime.stored import PAGE_SIZE
from acp_bridge.sessions import Header, SessionStore
from acp_bridge.vocabulary import Answer, Draft, JsonObject, Prompt, SessionId, StreamDelta

pytestmark = pytest.mark.anyio


class Nobody:
    """A client that offers nothing and rejects everything."""

    reads_text = False
    writes_text = False
    runs_commands = False
    takes_questions = False

    async def ask_permission(self, ask: PermissionAsk) -> Answer:
        del ask
        return Answer.REJECT

    async def ask_questions(self, ask: QuestionsAsk) -> None:
        raise AssertionError(ask)

    async def read_text(self, path: Path) -> str:
        raise AssertionError(path)

    async def write_text(self, path: Path, text: str) -> None:
        raise AssertionError(path, text)

    async def run_command(self, command: ClientCommand) -> CommandEnd:
        raise AssertionError(f"{command.line} without the capability")

    async def flow(self) -> None:
        return


class Bench:
    """A home, a workspace, and a script whose answers say who asks for the how manieth time."""

    def __init__(self, folder: Path) -> None:
        self.home, self.cwd = folder / "home", folder / "work"
        self.cwd.mkdir()
        self._now_ms = 1_700_000_000_000
        self._ids = iter(range(1000))

    def clock(self) -> int:
        self._now_ms += 1
        return self._now_ms

    @property
    def store(self) -> SessionStore:
        return SessionStore(self.home / "sessions", clock=self.clock, durable=False)

    def model(self) -> Model:
        lines = [
            json.dumps({"agent": agent, "stream": [{"text": f"{agent}:{n}"}]})
            for agent in "123456789"
            for n in range(5)
        ]
        script = script_from_text("\n".join(lines), name="s")
        return ScriptedModel(script, name="s", releases=self.home)

    @asynccontextmanager
    async def runtime(
        self, model: Callable[[], Model] | None = None
    ) -> AsyncIterator[EmbeddedRuntime]:
        outside = Outside(self.clock, lambda: f"id-{next(self._ids)}", lambda: 0.5, {})
        with anyio.fail_after(60):
            async with EmbeddedRuntime(
                home=self.home,
                catalog=OneModel(model or self.model),
                mode="ask",
                tools=builtin_tools,
                outside=outside,
            ) as runtime:
                yield runtime

    async def new(self, runtime: EmbeddedRuntime) -> HarnessSession:
        return await runtime.new_session(self.cwd, Nobody())

    async def open(self, runtime: EmbeddedRuntime, session_id: str) -> HarnessSession:
        return await runtime.open_session(SessionId(session_id), self.cwd, Nobody())

    def bytes(self) -> dict[str, bytes]:
        """Every file of the store and beside it, but for the derived index."""
        files = (path for path in sorted(self.home.rglob("*")) if path.is_file())
        return {str(p): p.read_bytes() for p in files if not p.name.startswith("index.sqlite3")}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def say(session: HarnessSession) -> str:
    """What the model answers: place and position."""
    told: list[str] = []

    def hear(event: object) -> None:
        if isinstance(event, StreamDelta):
            told.append(event.text)

    session.attach(hear)
    turn = session.admit(Prompt([{"type": "text", "text": "x"}], title="x"))
    with anyio.fail_after(60):
        await turn.ended()
    return "".join(told)


async def test_places_are_given_by_creation_and_kept_over_a_restart(bench: Bench) -> None:
    async with bench.runtime() as runtime:
        one, two, three = [await bench.new(runtime) for _ in range(3)]
        assert await say(two) == "2:0"
        assert await say(one) == "1:0"
        assert await say(two) == "2:1"
        assert await say(three) == "3:0"
    async with bench.runtime() as runtime:
        again = await bench.open(runtime, two.session_id)
        assert await say(again) == "2:2"
        # New ones count on from the reopened place.
        assert await say(await bench.new(runtime)) == "3:0"
        assert await say(await bench.open(runtime, one.session_id)) == "1:1"
        assert await say(await bench.new(runtime)) == "4:0"


async def test_a_place_that_nobody_could_have_is_given_anew(bench: Bench) -> None:
    writer = bench.store.create(Header("odd", 1, str(bench.cwd)))
    writer.append([Draft("plugin:acp-bridge/place", {"place": "x"}, ignorable=True)])
    writer.close()
    async with bench.runtime() as runtime:
        assert await say(await bench.open(runtime, "odd")) == "1:0"


async def test_a_new_session_may_be_named_once(bench: Bench) -> None:
    named = SessionId("../mine")
    async with bench.runtime() as runtime:
        one = await runtime.new_session(bench.cwd, Nobody(), named)
        assert one.session_id == named
        with pytest.raises(SessionConflictError):
            await runtime.new_session(bench.cwd, Nobody(), named)
        await say(one)
    assert bench.store.read_header(named).session_id == named
    async with bench.runtime() as runtime:
        with pytest.raises(SessionConflictError):
            await runtime.new_session(bench.cwd, Nobody(), named)
        for no_name in ("", "x" * 256):
            with pytest.raises(InvalidParamsError) as refused:
                await runtime.new_session(bench.cwd, Nobody(), SessionId(no_name))
            assert refused.value.field == "sessionId"


async def test_a_session_may_be_opened_in_whatever_folder_it_was_made(bench: Bench) -> None:
    async with bench.runtime() as runtime:
        one = await bench.new(runtime)
        await say(one)
    async with bench.runtime() as runtime:
        again = await runtime.open_session(one.session_id, None, Nobody())
        assert again.cwd == bench.cwd


async def test_opening_twice_gives_the_same_session(bench: Bench) -> None:
    async with bench.runtime() as runtime:
        one = await bench.new(runtime)
        await say(one)
        assert await bench.open(runtime, one.session_id) is one
        await one.close()
        found: list[HarnessSession] = []

        async def reopen() -> None:
            found.append(await bench.open(runtime, one.session_id))

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(reopen)
        assert len(set(map(id, found))) == 1
        assert found[0] is not one
        assert await say(found[0]) == "1:1"


async def test_opening_while_it_closes_waits_for_the_lock(bench: Bench) -> None:
    async with bench.runtime() as runtime:
        one = await bench.new(runtime)
        await say(one)
        found: list[HarnessSession] = []

        async def reopen() -> None:
            found.append(await bench.open(runtime, one.session_id))

        async with anyio.create_task_group() as group:
            group.start_soon(one.close)
            for _ in range(3):
                group.start_soon(reopen)
        assert found[0] is found[1] is found[2]
        assert found[0] is not one


async def test_another_cwd_is_refused_and_no_byte_changes(bench: Bench) -> None:
    async with bench.runtime() as runtime:
        one = await bench.new(runtime)
        await say(one)
    # Cut off in a turn: opening it for writing would close that turn.
    writer = bench.store.open(one.session_id)
    writer.append([Draft("turn/start", {"turn": 2})])
    writer.close()
    before = bench.bytes()
    async with bench.runtime() as runtime:
        with pytest.raises(InvalidParamsError) as refused:
            await runtime.open_session(one.session_id, bench.home, Nobody())
        assert refused.value.field == "cwd"
        assert bench.bytes() == before
        assert await say(await bench.open(runtime, one.session_id)) == "1:1"
        with pytest.raises(InvalidParamsError):
            await runtime.open_session(one.session_id, bench.home, Nobody())


@pytest.mark.parametrize(
    "more", [{"origin": "subagent", "parent_session": "p"}, {"cwd": None}], ids=["child", "no cwd"]
)
async def test_sessions_that_no_client_opens(bench: Bench, more: dict[str, str]) -> None:
    header = Header(**{"session_id": "s", "created_at_ms": 1, "cwd": str(bench.cwd), **more})  # type: ignore[arg-type]
    writer = bench.store.create(header)
    writer.append([Draft("permission/preset", {"preset": "read-only"})])
    writer.close()
    before = bench.bytes()
    async with bench.runtime() as runtime:
        with pytest.raises(InvalidParamsError) as refused:
            await bench.open(runtime, "s")
        assert refused.value.field == "sessionId"
        assert (await runtime.list_sessions(None, None)).sessions == []
    assert bench.bytes() == before


async def test_a_damaged_session_is_corrupt_and_hides_no_other(bench: Bench) -> None:
    async with bench.runtime() as runtime:
        good, bad = [await bench.new(runtime) for _ in range(2)]
        await say(good)
        await say(bad)
    (log,) = (bench.home / "sessions").glob(f"*/{bad.session_id}/session.v4*")
    log.write_bytes(b"\x28\xb5\x2f\xfd garbage")
    async with bench.runtime() as runtime:
        page = await runtime.list_sessions(None, None)
        assert [s.session_id for s in page.sessions] == [good.session_id]
        assert [b.path for b in page.bad] == [log]
        with pytest.raises(SessionCorruptError):
            await bench.open(runtime, bad.session_id)
        with pytest.raises(SessionNotFoundError):
            await bench.open(runtime, "nope")


async def test_a_session_open_in_another_process_is_a_conflict(bench: Bench) -> None:
    async with bench.runtime() as runtime:
        one = await bench.new(runtime)
        await say(one)
        async with bench.runtime() as other:
            with pytest.raises(SessionConflictError):
                await bench.open(other, one.session_id)
        assert await say(one) == "1:1"


async def test_without_a_model_nothing_opens(bench: Bench) -> None:
    async with bench.runtime(
        lambda: Catalog(home=bench.home, environment={}).open(None)
    ) as runtime:
        with pytest.raises(AuthRequiredError):
            await bench.new(runtime)
        with pytest.raises(AuthRequiredError):
            await bench.open(runtime, "s")
        with pytest.raises(AuthRequiredError):
            runtime.check_model()


async def test_closing_the_runtime_closes_what_runs(bench: Bench) -> None:
    made: list[HarnessSession] = []
    lines = [json.dumps({"agent": a, "stream": [{"wait": "never"}]}) for a in "123"]
    script = script_from_text("\n".join(lines), name="s")
    stuck = ScriptedModel(script, name="s", releases=bench.home)
    async with bench.runtime(lambda: stuck) as runtime:
        for _ in range(3):
            made.append(await bench.new(runtime))
            made[-1].admit(Prompt([{"type": "text", "text": "x"}]))
        await anyio.wait_all_tasks_blocked()
    for session in made:
        assert session.closing
        last = bench.store.read(session.session_id).events[-1]
        assert "disposed" in str(last.data)
        bench.store.open(session.session_id).close()


def _stored(bench: Bench, count: int, cwd: Path) -> None:
    for n in range(count):
        writer = bench.store.create(Header(f"{cwd.name}-{n:03}", 1, str(cwd)))
        writer._clock = lambda: 5  # one time for all: ids break the tie
        writer.append([Draft("permission/preset", {"preset": "read-only"})])
        writer.close()


async def test_pages_show_each_session_once_r071(bench: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other"
    _stored(bench, PAGE_SIZE + 20, bench.cwd)
    _stored(bench, 30, other)
    async with bench.runtime() as runtime:

        async def walk(cwd: Path | None) -> list[str]:
            found: list[str] = []
            token: str | None = None
            while True:
                page = await runtime.list_sessions(cwd, token)
                found += [summary.session_id for summary in page.sessions]
                if page.next_token is None:
                    return found
                if token is None and cwd == bench.cwd:
                    _stored_late(bench)
                token = page.next_token

        names = await walk(bench.cwd)
        assert names == [f"work-{n:03}" for n in range(PAGE_SIZE + 20)]
        assert len(await walk(other)) == 30
        everything = await walk(None)
        assert len(everything) == len(set(everything)) == PAGE_SIZE + 51
        assert everything[0] == "late"
        for token in ("zzz", "", "NSBh" * 3 + "!", "eCB5"):
            with pytest.raises(InvalidParamsError):
                await runtime.list_sessions(None, token)
        assert (await runtime.list_sessions(Path("/a\0b"), None)).sessions == []


def _stored_late(bench: Bench) -> None:
    writer = bench.store.create(Header("late", 1, str(bench.cwd)))
    writer.append([Draft("permission/preset", {"preset": "read-only"})])
    writer.close()


async def test_an_image_is_kept_before_its_message(bench: Bench) -> None:
    digest = "sha256:" + "a" * 64
    attachment: JsonObject = {
        "attachmentId": digest,
        "mediaType": "image/png",
        "bytes": 3,
        "width": 1,
        "height": 1,
    }
    async with bench.runtime() as runtime:
        session = await bench.new(runtime)
        prompt = Prompt([{"type": "image", "attachment": attachment}], attachments={digest: b"png"})
        assert (await session.admit(prompt).ended()).kind == "completed"
        assert await session.attachment(digest) == b"png"
        assert await session.attachment("sha256:" + "b" * 64) is None
        (bench.home / "attachments").rename(bench.home / "gone")
        (bench.home / "attachments").write_text("in the way")
        end = await session.admit(prompt).ended()
        assert (end.kind, end.code) == ("error", "STORE")
        assert await say(session) == "1:1"
