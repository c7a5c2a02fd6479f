"""The control plugin on the real runtime: tools of ours, and rows of ours in the log."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing

import anyio
import attrs
import pytest
from control_rig import Rig, dsh_rig
from dsh_rig import GATE, pieces, text, tool

from acp_bridge.errors import PeerError
from acp_bridge.harness.tools.results import NoPreview
from acp_bridge.ports import Access, ToolResult
from acp_bridge.runtime.dsh.control_types import CallToRun, Opening
from acp_bridge.sessions import SessionStore
from acp_bridge.vocabulary import Draft, JsonObject, SessionId

pytestmark = [pytest.mark.dsh, pytest.mark.process, pytest.mark.anyio]

NAME = "mcp__tiny__who"


@attrs.define
class FakeTool(NoPreview):
    """A tool by its name: it is called over the wire, never here."""

    name: str = NAME
    description: str = "who am I"
    parameters: JsonObject = attrs.field(
        factory=lambda: {"type": "object", "properties": {"word": {"type": "string"}}}
    )

    def access(self, *_args: object) -> Access:
        return Access()

    async def run(self, *_args: object) -> ToolResult:
        raise NotImplementedError


@attrs.define
class Calls:
    """Who runs the calls of the tests: ``answer`` decides how."""

    heard: list[CallToRun] = attrs.field(factory=list)
    answer: Callable[[CallToRun], Awaitable[ToolResult]] | None = None

    async def run(self, call: CallToRun) -> ToolResult:
        self.heard.append(call)
        if self.answer is not None:
            return await self.answer(call)
        return ToolResult(f"You are {call.session_id} with {call.arguments.get('word')}.")


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with dsh_rig(tmp_path_factory.mktemp("tools")) as rig:
        yield rig
    rig.check_quiet()


@pytest.fixture
def calls(shared: Rig) -> Calls:
    calls = Calls()
    shared.control.answer_calls(calls.run)
    return calls


@pytest.fixture
def rig(shared: Rig) -> Rig:
    shared.model.script.clear()
    return shared


def names(rig: Rig, session: str, at: int = -1) -> list[str]:
    """The tools of ours that a request offered."""
    offered = [one["name"] for one in rig.model.requests[session][at]["tools"]]
    return [name for name in offered if name.startswith("mcp__")]


async def test_a_tool_is_called_here_and_belongs_to_its_session_and_its_subagents(
    rig: Rig, calls: Calls
) -> None:
    session, other = await rig.open(), await rig.open()
    await rig.control.set_tools(session, [FakeTool()])
    words = f"who for {session}"
    rig.model.answer(session, tool("m1", NAME, word="one"))
    rig.model.answer(session, tool("d", "subagent", description="d", prompt=words))
    rig.model.promise(words, tool("m2", NAME, word="two"))
    for one in (session, other):
        assert await rig.prompt(one) == "completed"
    [child] = map(SessionId, rig.wire.children(session))
    assert rig.wire.results(session)["m1"] == f"You are {session} with one."
    assert rig.wire.results(child)["m2"] == f"You are {child} with two."
    first, second = calls.heard
    assert (first.session_id, first.root_id, first.call_id) == (session, session, "m1")
    assert (second.session_id, second.root_id, second.arguments) == (
        child,
        session,
        {"word": "two"},
    )
    assert names(rig, session) == names(rig, child) == [NAME]
    assert names(rig, other) == []


async def test_a_subagent_that_works_gets_what_its_session_gets(rig: Rig, calls: Calls) -> None:
    session = await rig.open()
    words = f"look for {session}"
    rig.model.answer(session, tool("d", "subagent", description="d", prompt=words))
    rig.model.promise(words, pieces("I ", GATE, "look."), tool("m2", NAME, word="late"))
    await rig.send(session, "go")
    await rig.wire.until(lambda: bool(rig.wire.children(session)))
    [child] = map(SessionId, rig.wire.children(session))
    await rig.wire.until(lambda: bool(rig.wire.notes("bridge.stream", child)))
    await rig.control.set_tools(session, [FakeTool()])
    rig.model.go(child)
    await rig.wait(session)
    assert rig.wire.results(child)["m2"] == f"You are {child} with late."
    assert len(calls.heard) == 1


async def test_a_failure_is_one_for_the_model(rig: Rig, calls: Calls) -> None:
    async def fail(_call: CallToRun) -> ToolResult:
        return ToolResult("Error: out of milk", is_error=True)

    calls.answer = fail
    session = await rig.open()
    await rig.control.set_tools(session, [FakeTool()])
    rig.model.answer(session, tool("m1", NAME))
    assert await rig.prompt(session) == "completed"
    [row] = rig.wire.rows(session, "tool/result")
    assert row["data"]["message"]["isError"] is True
    assert rig.wire.results(session)["m1"] == "Error: out of milk"


async def test_a_call_that_is_given_up_is_cancelled_here(rig: Rig, calls: Calls) -> None:
    began, ended = anyio.Event(), anyio.Event()

    async def hang(_call: CallToRun) -> ToolResult:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    calls.answer = hang
    session = await rig.open()
    await rig.control.set_tools(session, [FakeTool()])
    rig.model.answer(session, tool("m1", NAME))
    await rig.send(session, "go")
    with anyio.fail_after(60):
        await began.wait()
        assert await rig.control.cancel(session)
        await ended.wait()
    assert rig.wire.ends(session) == ["aborted"]


async def test_tools_that_change_in_a_turn_are_those_of_its_next_request(
    rig: Rig, calls: Calls
) -> None:
    assert calls.heard == []
    session = await rig.open()
    await rig.control.set_tools(session, [FakeTool(), FakeTool("mcp__other__gone")])
    rig.model.answer(session, pieces("I ", GATE, "look."), tool("m1", "mcp__other__gone"))
    await rig.send(session, "go")
    await rig.wire.until(lambda: bool(rig.wire.notes("bridge.stream", session)))
    await rig.control.set_tools(session, [FakeTool("mcp__new__one"), FakeTool()])
    rig.model.go(session)
    await rig.wait(session)
    assert set(names(rig, session, 0)) == {NAME, "mcp__other__gone"}
    assert set(names(rig, session, 1)) == {NAME, "mcp__new__one"}
    assert calls.heard == []  # it was gone when it was called
    await rig.control.set_tools(session, [])
    assert await rig.prompt(session) == "completed"
    assert names(rig, session) == []


async def test_a_row_of_ours_is_told_stored_and_passed_over_by_the_runtime(rig: Rig) -> None:
    session = await rig.open()
    await rig.control.record(session, Draft("plugin:acp-bridge/notice", {"text": "before"}))
    rig.model.answer(session, text("Fine."))
    assert await rig.prompt(session) == "completed"
    await rig.control.record(session, Draft("plugin:acp-bridge/notice", {"text": "after"}))
    rows = rig.wire.rows(session, "plugin:acp-bridge/notice")
    assert [row["data"]["text"] for row in rows] == ["before", "after"]
    assert all(row["ignorable"] is True for row in rows)
    await rig.control.close(session)
    store = SessionStore(rig.home / "sessions", clock=lambda: 0)
    with closing(store.open(session)) as writer:
        stored = [one for one in writer.events if one.type == "plugin:acp-bridge/notice"]
    assert [(one.seq, one.ignorable) for one in stored] == [(row["seq"], True) for row in rows]
    await rig.control.resume_session(Opening(session, str(rig.cwd)))
    assert await rig.prompt(session, "again") == "completed"
    assert "before" not in rig.model.asked(session)


async def test_rows_of_others_are_not_ours_to_write(rig: Rig) -> None:
    session = await rig.open()
    with pytest.raises(PeerError, match="must begin with plugin:acp-bridge/"):
        await rig.control.record(session, Draft("turn/start", {"turn": 7}))
    assert rig.wire.rows(session, "turn/start") == []
