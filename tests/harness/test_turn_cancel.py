"""Cancel and close in every phase: the log is closed properly and the session goes on (R031-R037).

`rig` checks at its end that the log is sound and needs no repair.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from harness_rig import FakeClient, Rig, bash, call, rig, script

from acp_bridge.harness.waiting import WaitingPrompt
from acp_bridge.ports import PermissionAsk
from acp_bridge.vocabulary import Answer, JsonObject, JsonValue, ToolOutput, TurnEnd

pytestmark = pytest.mark.anyio

ABORTED = TurnEnd("aborted")
BY_USER: JsonObject = {"kind": "aborted", "reason": {"kind": "user"}}
AT_CLOSE: JsonObject = {"kind": "aborted", "reason": {"kind": "disposed"}}


async def never(_ask: PermissionAsk) -> Answer:
    await anyio.sleep_forever()
    raise AssertionError


STREAMING: list[JsonValue] = [{"text": "Half"}, {"wait": "never"}]
SILENT: list[JsonValue] = [{"wait": "never"}]
THINKING: list[JsonValue] = [{"reasoning": "hm"}, {"wait": "never"}]
IN_A_CALL: list[JsonValue] = [{"text": "Half"}, call("c", "glob", pattern="*"), {"wait": "never"}]
RETRYING: list[JsonValue] = [
    {"text": "Half"},
    {"error": {"status": 429, "message": "slow down", "retry_after_s": 100}},
]
RUNNING: list[JsonValue] = [bash("c", "echo started; sleep 100")]
ASKING: list[JsonValue] = [bash("c", "echo never")]
TWO: list[JsonValue] = [bash("a", "echo a"), bash("b", "echo b"), call("g", "glob", pattern="*")]

OK: list[JsonValue] = [{"text": "ok"}]

PHASES = {
    "streaming": (STREAMING, ["assistant/message", "step/end", "turn/end"]),
    "silent": (SILENT, ["assistant/attempt", "step/end", "turn/end"]),
    "thinking": (THINKING, ["assistant/message", "step/end", "turn/end"]),
    "in a call": (IN_A_CALL, ["assistant/message", "step/end", "turn/end"]),
    "retrying": (RETRYING, ["step/end", "turn/end"]),
    "running": (RUNNING, ["tool/result", "step/end", "turn/end"]),
    "asking": (
        ASKING,
        ["approval/decided", "tool/call", "tool/result", "step/end", "turn/end"],
    ),
    "asking for the first of two": (
        TWO,
        [
            *["approval/decided", "tool/call", "tool/result"] * 2,
            "step/end",
            "turn/end",
        ],
    ),
}


@asynccontextmanager
async def in_phase(tmp_path: Path, phase: str) -> AsyncIterator[tuple[Rig, WaitingPrompt]]:
    """A session in the middle of a turn."""
    client = FakeClient(Answer.ALLOW_ONCE)
    if phase.startswith("asking"):
        client.replier = never
    model = script(PHASES[phase][0], [{"text": "B"}], releases=tmp_path)
    async with rig(tmp_path, model, client=client) as r:
        turn = r.admit("A")
        match phase:
            case "streaming" | "in a call":
                await r.heard_text("Half")
            case "thinking":
                await r.heard_text("hm")
            case "silent":
                await r.heard_row("request/header")
            case "retrying":
                await r.heard_row("llm/retry")
            case "running":
                await r.heard(lambda event: isinstance(event, ToolOutput))
            case "asking":
                await r.heard_row("approval/asked")
            case _:
                await r.heard_row("tool/result")
        await anyio.wait_all_tasks_blocked()
        yield r, turn


@pytest.mark.parametrize("phase", PHASES)
async def test_a_cancel_closes_the_turn_and_the_next_prompt_works_r035(
    tmp_path: Path, phase: str
) -> None:
    async with in_phase(tmp_path, phase) as (r, turn):
        r.session.cancel()
        r.session.cancel()
        assert await r.ended(turn) == ABORTED
        assert r.reason() == BY_USER
        assert r.writer.batches[-1] == PHASES[phase][1]
        if "Half" in str(PHASES[phase][0]):
            assert "Half" in str([event.data for event in r.rows])
        assert await r.prompt("B") == TurnEnd("completed")
        r.session.cancel()
        assert r.reason() == {"kind": "completed"}


@pytest.mark.parametrize("phase", PHASES)
async def test_a_close_in_a_turn_is_logged_as_disposed(tmp_path: Path, phase: str) -> None:
    async with in_phase(tmp_path, phase) as (r, turn):
        waiting = r.admit("queued")
        with anyio.fail_after(60):
            await r.session.close()
            await r.session.close()
        assert await r.ended(turn) == ABORTED
        assert await r.ended(waiting) == ABORTED
        assert r.reason() == AT_CLOSE
        assert len(r.data("turn/start")) == 1
        assert await r.prompt("too late") == ABORTED


async def test_what_a_cancelled_command_said_is_in_its_result(tmp_path: Path) -> None:
    async with in_phase(tmp_path, "running") as (r, turn):
        r.session.cancel()
        await r.ended(turn)
        assert "started" in r.results()[0]
        assert r.data("tool/result")[0]["error"] == {"name": "ToolAbortedError", "code": "ABORTED"}


async def test_a_cancel_right_behind_the_prompt_finds_it_r032(tmp_path: Path) -> None:
    async with rig(tmp_path, script(STREAMING, [{"text": "B"}], releases=tmp_path)) as r:
        turn = r.admit("A")
        r.session.cancel()
        assert await r.ended(turn) == ABORTED
        assert r.rows == []


async def test_a_cancel_ends_the_running_prompt_and_those_that_wait_r037(tmp_path: Path) -> None:
    async with in_phase(tmp_path, "streaming") as (r, turn):
        waiting = [r.admit("B"), r.admit("C")]
        assert r.session.busy
        r.session.cancel()
        later = r.admit("D")
        for one in (turn, *waiting):
            assert await r.ended(one) == ABORTED
        assert await r.ended(later) == TurnEnd("completed")
        assert [_text(data) for data in r.data("user/message")] == ["A", "D"]


async def test_a_prompt_that_is_withdrawn_takes_no_other_with_it(tmp_path: Path) -> None:
    model = script([{"text": "Half"}, {"wait": "go"}], [{"text": "C"}], releases=tmp_path)
    async with rig(tmp_path, model) as r:
        turn, second, third = r.admit("A"), r.admit("B"), r.admit("C")
        await r.heard_text("Half")
        second.withdraw()
        (tmp_path / "go").touch()
        assert await r.ended(turn) == TurnEnd("completed")
        assert await r.ended(second) == ABORTED
        assert await r.ended(third) == TurnEnd("completed")
        third.withdraw()
        assert [_text(data) for data in r.data("user/message")] == ["A", "C"]


def _text(message: JsonObject) -> JsonValue:
    content = message["content"]
    assert isinstance(content, list)
    assert isinstance(content[0], dict)
    return content[0]["text"]


async def test_prompts_of_one_session_run_in_order_and_never_interleave_r047(
    tmp_path: Path,
) -> None:
    model = script(*[[{"text": str(n)}] for n in range(5)], releases=tmp_path)
    async with rig(tmp_path, model) as r:
        turns = [r.admit(str(n)) for n in range(5)]
        for turn in turns:
            assert await r.ended(turn) == TurnEnd("completed")
        assert [_text(data) for data in r.data("user/message")] == list("01234")
        kinds = [e.type for e in r.rows if e.type in {"turn/start", "turn/end"}]
        assert kinds == ["turn/start", "turn/end"] * 5


async def test_cancels_at_every_moment_leave_a_sound_log(tmp_path: Path) -> None:
    """A cancel after each number of hops through the event loop; `rig` judges each log."""
    stream: list[JsonValue] = [{"text": "t", "repeat": 40}, *TWO]
    for hops in range(0, 60, 3):
        folder = tmp_path / str(hops)
        folder.mkdir()
        client = FakeClient(*[Answer.ALLOW_ONCE] * 4)
        model = script(*(stream, OK) * 3, releases=folder)
        async with rig(folder, model, client=client) as r:
            turn = r.admit()
            for _ in range(hops):
                await anyio.lowlevel.checkpoint()
            r.session.cancel()
            assert (await r.ended(turn)).kind in {"aborted", "completed"}
            client.answers = [Answer.ALLOW_ONCE] * 4
            assert (await r.prompt()).kind == "completed"


async def test_a_prompt_whose_waiter_went_away_still_runs(tmp_path: Path) -> None:
    async with rig(tmp_path, script([{"text": "A"}], releases=tmp_path)) as r:
        turn = r.admit()
        with anyio.move_on_after(0):
            await turn.ended()
        assert await r.ended(turn) == TurnEnd("completed")


async def test_a_close_is_bounded_when_a_turn_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.harness.session.CLOSE_WAIT_S", 0.01)
    gate = anyio.Event()

    async def stubborn(_ask: PermissionAsk) -> Answer:
        with anyio.CancelScope(shield=True):
            await gate.wait()
        return Answer.REJECT

    client = FakeClient()
    client.replier = stubborn
    async with rig(tmp_path, script(ASKING, OK, releases=tmp_path), client=client) as r:
        turn = r.admit()
        await r.heard_row("approval/asked")
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(60):
            await r.session.close()
        gate.set()
        assert await r.ended(turn) == ABORTED
        monkeypatch.setattr("acp_bridge.harness.session.CLOSE_WAIT_S", 5)


async def test_always_for_the_first_of_two_edits_covers_the_second(tmp_path: Path) -> None:
    edits = [call(c, "write", file_path=c, content="x") for c in "ab"]
    client = FakeClient(Answer.ALLOW_ALWAYS)
    async with rig(tmp_path, script(edits, OK, releases=tmp_path), client=client) as r:
        assert await r.prompt() == TurnEnd("completed")
        assert len(client.asks) == 1
        assert (r.cwd / "b").exists()
        assert [d["outcome"] for d in r.data("approval/decided")] == ["allowed-once"] * 2
