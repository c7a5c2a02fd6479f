"""The ACP Python SDK's client drives the `acp-bridge` process: it has its own types and rules."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp import schema
from acp.client.connection import ClientSideConnection

from acp_bridge.testing.check import problems
from acp_bridge.testing.transcript import entries_from_trace

pytestmark = [pytest.mark.anyio, pytest.mark.peer, pytest.mark.process]

WAIT_S = 60


class Editor:
    """A client as the SDK wants it: keeps updates by session, answers permission by kind."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.updates: dict[str, list[Any]] = {}
        self.asked: list[Any] = []
        self.changed = anyio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.setdefault(session_id, []).append(update)
        self._tell()

    async def request_permission(
        self, options: list[schema.PermissionOption], session_id: str, tool_call: Any, **_: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append((session_id, tool_call))
        self._tell()
        if self.answer == "never":
            await anyio.sleep_forever()
        chosen = next(option for option in options if option.kind == self.answer)
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )

    def on_connect(self, conn: Any) -> None:
        pass

    def kinds(self, session_id: str) -> list[str]:
        return [update.session_update for update in self.updates.get(session_id, [])]

    def text(self, session_id: str) -> str:
        return "".join(
            update.content.text
            for update in self.updates.get(session_id, [])
            if update.session_update == "agent_message_chunk"
        )

    async def until(self, what: Any) -> None:
        with anyio.fail_after(WAIT_S):
            while not what():
                await self.changed.wait()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class Desk:
    """Where a test's bridge runs: a home, a working folder, a script."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.cwd = folder / "workspace"
        self.cwd.mkdir()
        self.script = folder / "model.jsonl"
        self.trace = folder / "trace.jsonl"

    def answers(self, *lines: list[dict[str, Any]], agent: str = "1") -> None:
        with self.script.open("a") as file:
            for line in lines:
                file.write(json.dumps({"agent": agent, "stream": line}) + "\n")

    @asynccontextmanager
    async def bridge(self, editor: Editor) -> AsyncIterator[ClientSideConnection]:
        with anyio.fail_after(60):
            async with acp.spawn_agent_process(
                editor,  # type: ignore[arg-type]  # a test needs only a part of the SDK's Client
                sys.executable,
                "-m",
                "acp_bridge",
                "--home",
                str(self.home),
                "--model",
                f"scripted:{self.script}",
                "--trace",
                str(self.trace),
                env=dict(os.environ),
            ) as (connection, _process):
                await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
                yield connection

    async def new(self, connection: ClientSideConnection) -> str:
        made = await connection.new_session(cwd=str(self.cwd), mcp_servers=[])
        return made.session_id


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path.resolve())
    yield made
    assert problems(entries_from_trace(made.trace.read_text())) == []


def call(call_id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_call": {"id": call_id, "name": tool, "arguments": arguments}}


async def test_it_writes_a_file_and_runs_a_command_with_permission(desk: Desk) -> None:
    path = desk.cwd / "hello.txt"
    desk.answers(
        [call("c1", "write", file_path=str(path), content="hello\n")],
        [call("c2", "bash", command="cat hello.txt", description="Show it")],
        [{"text": "It says hello."}],
    )
    editor = Editor("allow_once")
    async with desk.bridge(editor) as connection:
        session = await desk.new(connection)
        answer = await connection.prompt(session_id=session, prompt=[acp.text_block("Do it.")])
    assert answer.stop_reason == "end_turn"
    assert path.read_text() == "hello\n"
    assert [call.kind for _, call in editor.asked] == ["edit", "execute"]
    assert editor.text(session) == "It says hello."
    assert editor.kinds(session).count("tool_call") == 2


async def test_a_rejected_write_leaves_the_disk_alone(desk: Desk) -> None:
    desk.answers(
        [call("c1", "write", file_path=str(desk.cwd / "no.txt"), content="x")],
        [{"text": "Left alone."}],
    )
    editor = Editor("reject_once")
    async with desk.bridge(editor) as connection:
        session = await desk.new(connection)
        answer = await connection.prompt(session_id=session, prompt=[acp.text_block("Do it.")])
    assert answer.stop_reason == "end_turn"
    assert not (desk.cwd / "no.txt").exists()
    assert editor.updates[session][-1].session_update != "tool_call"


async def test_a_cancel_answers_the_prompt_with_cancelled(desk: Desk) -> None:
    desk.answers([{"text": "Once"}, {"wait": "never"}])
    editor = Editor("allow_once")
    stop_reasons: list[str] = []
    async with desk.bridge(editor) as connection:
        session = await desk.new(connection)

        async def prompt() -> None:
            answer = await connection.prompt(session_id=session, prompt=[acp.text_block("Talk.")])
            stop_reasons.append(answer.stop_reason)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            await editor.until(lambda: editor.text(session) == "Once")
            await connection.cancel(session_id=session)
    assert stop_reasons == ["cancelled"]


async def test_a_session_that_waits_for_permission_does_not_hold_up_another(desk: Desk) -> None:
    desk.answers([call("c1", "bash", command="true", description="Nothing")])
    desk.answers([{"text": "Free."}], agent="2")
    editor = Editor("never")
    async with desk.bridge(editor) as connection:
        first, second = await desk.new(connection), await desk.new(connection)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                lambda: connection.prompt(session_id=first, prompt=[acp.text_block("Run.")])
            )
            await editor.until(lambda: len(editor.asked) == 1)
            answer = await connection.prompt(session_id=second, prompt=[acp.text_block("Talk.")])
            assert answer.stop_reason == "end_turn"
            assert editor.text(second) == "Free."
            await connection.cancel(session_id=first)


async def test_a_session_is_replayed_after_a_restart(desk: Desk) -> None:
    (desk.cwd / "a.txt").write_text("a\n")
    desk.answers(
        [{"text": "Reading."}, call("c1", "read", file_path=str(desk.cwd / "a.txt"))],
        [{"text": "Read."}],
        [{"text": "Again."}],
    )
    live, later = Editor("allow_once"), Editor("allow_once")
    async with desk.bridge(live) as connection:
        session = await desk.new(connection)
        await connection.prompt(session_id=session, prompt=[acp.text_block("Read it.")])
    async with desk.bridge(later) as connection:
        await connection.load_session(cwd=str(desk.cwd), session_id=session, mcp_servers=[])
        replayed = later.text(session)
        answer = await connection.prompt(session_id=session, prompt=[acp.text_block("More.")])
    assert replayed == live.text(session) == "Reading.Read."
    assert later.kinds(session).count("user_message_chunk") == 1
    assert later.kinds(session).count("tool_call") == 1
    assert answer.stop_reason == "end_turn"
    assert later.text(session) == "Reading.Read.Again."


def delegate(call_id: str, label: str, **more: Any) -> dict[str, Any]:
    return call(call_id, "subagent", description=label, prompt=f"{label}, do it.", **more)


async def test_subagents_of_three_levels_are_tool_calls_of_the_root(desk: Desk) -> None:
    """The SDK knows no subagents and refuses what it does not know; R077, R079."""
    desk.answers([{"text": "P1 "}, delegate("c", "first")], [{"text": "P2 "}], [{"text": "P3"}])
    desk.answers([delegate("c", "second")], [{"text": "Wait."}], [{"text": "One."}], agent="1/1")
    desk.answers([delegate("c", "third", wait=True)], [{"text": "Two."}], agent="1/1/1")
    desk.answers(
        [call("c", "bash", command="echo made", description="Make")],
        [{"text": "Three."}],
        agent="1/1/1/1",
    )
    live, later = Editor("allow_once"), Editor("allow_once")
    async with desk.bridge(live) as connection:
        root = await desk.new(connection)
        answer = await connection.prompt(session_id=root, prompt=[acp.text_block("Go.")])
    assert answer.stop_reason == "end_turn"
    assert list(live.updates) == [root]
    assert live.text(root).startswith("P1 P2 ")
    ((asked_on, question),) = live.asked
    assert (asked_on, question.title) == (root, "third $ echo made")
    assert question.field_meta["acp-bridge"]["depth"] == 3
    titles = [u.title for u in live.updates[root] if u.session_update == "tool_call"]
    assert titles == ["Subagent first", "Subagent second", "Subagent third", question.title]
    async with desk.bridge(later) as connection:
        await connection.load_session(cwd=str(desk.cwd), session_id=root, mcp_servers=[])
    again = [u.title for u in later.updates[root] if u.session_update == "tool_call"]
    assert again == titles


async def test_two_subagents_ask_at_once_and_a_cancel_ends_both(desk: Desk) -> None:
    desk.answers([delegate("a", "left", wait=True), delegate("b", "right", wait=True)])
    for place in ("1/1", "1/2"):
        desk.answers([call("c", "bash", command=f"echo {place}", description="x")], agent=place)
    editor = Editor("never")
    stop_reasons: list[str] = []
    async with desk.bridge(editor) as connection:
        root = await desk.new(connection)

        async def prompt() -> None:
            answer = await connection.prompt(session_id=root, prompt=[acp.text_block("Go.")])
            stop_reasons.append(answer.stop_reason)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            await editor.until(lambda: len(editor.asked) == 2)
            await connection.cancel(session_id=root)
    assert stop_reasons == ["cancelled"]
    assert {session for session, _ in editor.asked} == {root}
    ended = [u for u in editor.updates[root] if getattr(u, "status", None) == "failed"]
    assert len({u.tool_call_id for u in ended}) == 4
