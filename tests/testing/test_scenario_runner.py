"""The runner against a tiny agent in memory: steps, waits, restarts, and what failures say."""

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio.abc
import pytest

from acp_bridge.testing import runner as runner_module
from acp_bridge.testing.client import ScenarioError
from acp_bridge.testing.launch import Agent, ByteStream, InMemory, Launcher, Place, command
from acp_bridge.testing.normal import Shared, expected_files
from acp_bridge.testing.runner import Outcome, play
from acp_bridge.testing.scenario import load, orphans
from acp_bridge.vocabulary import JsonObject, JsonValue

pytestmark = pytest.mark.anyio

ENOUGH_S = 1.0
"""The bound of waits of which one is meant to lapse; the others must not, on any machine."""


class FakeAgent:
    """Answers what the steps below need; asks permission on the prompt "ask"."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._asked: JsonValue = None

    async def serve(self) -> None:
        rest = b""
        while data := await self._stream.receive():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                await self._handle(json.loads(line))
        await self._stream.aclose()

    async def _handle(self, message: JsonObject) -> None:
        match message:
            case {"id": identity, "method": "session/new"}:
                await self._send({"id": identity, "result": {"sessionId": "s-a"}})
            case {"id": identity, "method": "session/prompt", "params": {"prompt": "ask"}}:
                self._asked = identity
                options: JsonValue = [{"optionId": "yes", "kind": "allow_once"}]
                params: JsonObject = {"sessionId": "s-a", "options": options}
                await self._send(
                    {"id": 7, "method": "session/request_permission", "params": params}
                )
            case {"id": identity, "method": "session/prompt"}:
                await self._update("agent_message_chunk")
                await self._send({"id": identity, "result": {"stopReason": "end_turn"}})
            case {"id": 7, "result": {"outcome": {"optionId": "yes"}}}:
                await self._send({"id": self._asked, "result": {"stopReason": "end_turn"}})
            case {"id": identity, "method": "initialize"}:
                await self._send({"id": identity, "result": {"protocolVersion": 1}})
            case {"method": "garbage"}:
                await self._stream.send(b"Traceback\n")
            case _:
                pass

    async def _update(self, kind: str) -> None:
        params: JsonObject = {
            "sessionId": "s-a",
            "update": {"sessionUpdate": kind, "messageId": "m"},
        }
        await self._send({"method": "session/update", "params": params})

    async def _send(self, message: JsonObject) -> None:
        await self._stream.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def in_memory(serve: Callable[[ByteStream], Awaitable[None]]) -> Launcher:
    async def launch(_place: Place, _flags: Sequence[str], tasks: anyio.abc.TaskGroup) -> Agent:
        agent = InMemory()
        agent.start(serve, tasks)
        return agent

    return launch


NEW: JsonObject = {"call": {"id": "new", "method": "session/new"}}
SESSION: JsonValue = {"$ref": "new.result.sessionId"}


def prompt(word: str, text: str) -> JsonObject:
    params: JsonObject = {"sessionId": SESSION, "prompt": text}
    return {word: {"id": "p", "method": "session/prompt", "params": params}}


@pytest.fixture
def played(tmp_path: Path) -> Callable[..., Awaitable[Outcome]]:
    async def run(*steps: JsonObject) -> Outcome:
        folder = tmp_path / "scenario"
        folder.mkdir(exist_ok=True)
        whole = {"description": "one", "client": {}, "steps": list(steps)}
        (folder / "input.json").write_text(json.dumps(whole))
        place = tmp_path / "place"
        place.mkdir()
        return await play(load(folder), in_memory(lambda s: FakeAgent(s).serve()), place)

    return run


Played = Callable[..., Awaitable[Outcome]]


async def test_a_turn_is_seen_in_order_and_numbered_by_session(played: Played) -> None:
    update: JsonObject = {"update": {"sessionUpdate": "agent_message_chunk"}}
    outcome = await played(NEW, prompt("call", "hi"), {"await": update})
    files = expected_files(outcome, Shared({}))
    wire = files["wire"]
    assert isinstance(wire, dict)
    assert set(wire) == {"connection.jsonl", "1.jsonl"}
    assert str(wire["1.jsonl"]).splitlines() == [
        '{"id": "new", "result": {"sessionId": "session-1"}}',
        (
            '{"method": "session/update", "params": {"sessionId": "session-1", "update": '
            '{"messageId": "m", "sessionUpdate": "agent_message_chunk"}}}'
        ),
        '{"id": "p", "result": {"stopReason": "end_turn"}}',
    ]


async def test_any_notification_is_awaited_once(played: Played) -> None:
    update: JsonObject = {"params": {"update": {"messageId": "m"}}}
    wanted: JsonObject = {"await": {"notification": {"method": "session/update", **update}}}
    await played(NEW, prompt("call", "hi"), wanted, prompt("call", "again"), wanted)


async def test_a_notification_that_does_not_come_again_fails(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "WAIT_S", ENOUGH_S)
    wanted: JsonObject = {"await": {"notification": {"method": "session/update"}}}
    with pytest.raises(ScenarioError, match=r"step 4 \(AwaitNotification\): no notification"):
        await played(NEW, prompt("call", "hi"), wanted, wanted)


async def test_a_row_is_awaited_in_the_logs_of_the_store(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = {"type": "session", "version": 4, "id": "old", "createdAt": 0, "cwd": "{{cwd}}"}
    rows = [
        {**header, "isSeeded": False, "delegationDepth": 0},
        {"type": "turn/start", "seq": 0, "time": 0, "data": {"turn": 1}},
        {
            "type": "turn/end",
            "seq": 1,
            "time": 0,
            "data": {"turn": 1, "reason": {"kind": "completed"}},
        },
    ]
    (tmp_path / "scenario" / "sessions").mkdir(parents=True)
    log = tmp_path / "scenario" / "sessions" / "old.jsonl"
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.setattr(runner_module, "WAIT_S", ENOUGH_S)
    row: JsonObject = {"type": "turn/end", "data": {"turn": 1}}
    once: JsonObject = {"await": {"row": row}}
    twice: JsonObject = {"await": {"row": row, "times": 2}}
    with pytest.raises(ScenarioError, match=r"step 2 \(AwaitRow\): 1 rows .* and not 2 within"):
        await played(once, twice)


async def test_a_file_is_awaited_in_the_workspace(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "FILE_WAIT_S", ENOUGH_S)
    made: JsonObject = {"write": {"path": "a/there.txt", "text": ""}}
    absent: JsonObject = {"await": {"file": "absent.txt"}}
    with pytest.raises(ScenarioError, match=r"step 3 \(AwaitFile\): no file absent\.txt within"):
        await played(made, {"await": {"file": "a/there.txt"}}, absent)


async def test_a_permission_is_awaited_by_name_and_answered_by_kind(played: Played) -> None:
    ask: JsonObject = {"as": "ask", "request": {"method": "session/request_permission"}}
    outcome = await played(
        NEW,
        prompt("request", "ask"),
        {"await": ask},
        {"answer": {"to": "ask", "choose": "allow_once"}},
        {"await": {"response": "p"}},
    )
    assert outcome.entries[-1].message["result"] == {"stopReason": "end_turn"}


async def test_a_restart_starts_a_new_run_with_its_own_initialize(played: Played) -> None:
    outcome = await played(NEW, {"restart": {}}, prompt("call", "hi"))
    assert [line.entry.run for line in outcome.lines if line.method == "initialize"] == [1, 1, 2, 2]


async def test_a_kill_ends_the_agent_and_the_next_run_goes_on(played: Played) -> None:
    outcome = await played(NEW, prompt("request", "ask"), {"kill": {}}, prompt("call", "hi"))
    assert outcome.entries[-1].message["result"] == {"stopReason": "end_turn"}


async def test_a_wait_without_an_end_says_which_step_and_what_was_seen(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "WAIT_S", ENOUGH_S)
    never: JsonObject = {"update": {"sessionUpdate": "plan"}}
    with pytest.raises(ScenarioError, match=r"step 3 \(AwaitUpdate\): no update (?s:.*)end_turn"):
        await played(NEW, prompt("call", "hi"), {"await": never})


async def test_a_line_that_is_no_message_fails_the_scenario(played: Played) -> None:
    with pytest.raises(ScenarioError, match="no message: b'Traceback'"):
        await played(NEW, {"notify": {"method": "garbage"}})


async def test_a_reference_to_nothing_names_itself(played: Played) -> None:
    with pytest.raises(ScenarioError, match=r"step 1 .*new\.result\.sessionId"):
        await played(prompt("call", "hi"))


def test_a_folder_that_holds_no_scenario_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(ValueError, match=r"mine/input\.json cannot be read: No such file"):
        load(folder)
    for text in (b"{", b"\xff", b"[" * 100_000):
        (folder / "input.json").write_bytes(text)
        with pytest.raises(ValueError, match=r"mine/input\.json is no JSON"):
            load(folder)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([{"sleep": 1}], "unknown step 'sleep'; known are call"),
        ([{"call": {"id": "x"}}], "'call' needs the member 'method'"),
        ([{"notify": {}, "call": {}}], "exactly one key"),
        ([{"answer": {"to": "x"}}], "result, error or choose"),
    ],
    ids=["unknown", "member", "two", "answer"],
)
async def test_a_bad_step_is_refused_with_its_place(
    tmp_path: Path, steps: list[JsonObject], why: str
) -> None:
    (tmp_path / "input.json").write_text(json.dumps({"description": "d", "steps": list(steps)}))
    with pytest.raises(ValueError, match=why):
        load(tmp_path)


async def test_a_wire_that_nobody_speaks_is_refused(tmp_path: Path) -> None:
    whole = {"description": "d", "wire": "lsp", "steps": []}
    (tmp_path / "input.json").write_text(json.dumps(whole))
    with pytest.raises(ValueError, match="unknown wire: 'lsp'"):
        load(tmp_path)


async def test_files_that_no_scenario_reads_are_orphans(tmp_path: Path) -> None:
    (tmp_path / "good" / "expected").mkdir(parents=True)
    (tmp_path / "good" / "input.json").touch()
    (tmp_path / "good" / "notes.txt").touch()
    (tmp_path / "gone" / "expected").mkdir(parents=True)
    (tmp_path / "stray.json").touch()
    assert orphans(tmp_path) == ["gone", "good/notes.txt", "stray.json"]


@pytest.mark.process
async def test_an_agent_that_dies_at_its_start_shows_its_last_words(tmp_path: Path) -> None:
    folder, place = tmp_path / "scenario", tmp_path / "place"
    folder.mkdir()
    place.mkdir()
    (folder / "input.json").write_text(json.dumps({"description": "d", "steps": [NEW]}))
    launcher = command([sys.executable, "-c", "raise SystemExit('no model here')"])
    with pytest.raises(ScenarioError, match="no model here"):
        await play(load(folder), launcher, place)
