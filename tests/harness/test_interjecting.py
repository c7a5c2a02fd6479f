"""What a user says during a turn: taken by a step and seen, or refused; never lost, never twice."""

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from harness_rig import WAIT_S, Rig, call, rig, script

from acp_bridge.harness.inbox import queues
from acp_bridge.harness.prompts import user_message
from acp_bridge.vocabulary import Command, Event, JsonObject, JsonValue, Prompt

pytestmark = pytest.mark.anyio

ANSWERS: list[list[JsonValue]] = [
    [call("g", "glob", pattern="*")],
    [{"text": "One."}],
    [{"text": "Two."}],
    [{"text": "Three."}],
]


def said(text: str) -> Prompt:
    return Prompt([{"type": "text", "text": text}])


def texts_of(events: list[Event]) -> list[str]:
    """What the model was shown of the user, in order."""
    found = []
    for event in events:
        if event.type == "user/message":
            assert isinstance(event.data, dict)
            content = event.data["content"]
            assert isinstance(content, list)
            block = content[0]
            assert isinstance(block, dict)
            found.append(str(block["text"]))
    return found


def waiting(bench: Rig) -> list[JsonObject]:
    """What is left in the log's inbox."""
    return [one for queue in queues(bench.session._desk).values() for one in queue]


@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_at_any_moment_it_is_taken_or_refused(tmp_path: Path, steps: int) -> None:
    async with rig(tmp_path, script(*ANSWERS, releases=tmp_path)) as bench:
        turn = bench.admit("go")
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        taken = await bench.session.interject(said("more"))
        assert (await bench.ended(turn)).kind == "completed"
        assert texts_of(bench.rows) == (["go", "more"] if taken else ["go"])
        assert waiting(bench) == []
        # The next prompt is not behind anything that was left.
        assert (await bench.prompt("next")).kind == "completed"
        assert texts_of(bench.rows)[-1] == "next"


@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_a_cancel_drops_it_or_it_was_taken(tmp_path: Path, steps: int) -> None:
    held: list[list[JsonValue]] = [[{"text": "I"}, {"wait": "never"}], [{"text": "ok"}]]
    async with rig(tmp_path, script(*held, releases=tmp_path)) as bench:
        turn = bench.admit("go")
        await bench.heard_text("I")
        taken: list[bool] = []

        async def interject() -> None:
            taken.append(await bench.session.interject(said("more")))

        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as group:
                group.start_soon(interject)
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                bench.session.cancel()
        assert (await bench.ended(turn)).kind == "aborted"
        assert len(taken) == 1
        assert waiting(bench) == []
        assert (await bench.prompt("next")).kind == "completed"
        assert texts_of(bench.rows) == ["go", "next"]


async def test_nothing_takes_it_where_no_prompt_runs(tmp_path: Path) -> None:
    async with rig(tmp_path, script([{"text": "ok"}], releases=tmp_path)) as bench:
        assert not await bench.session.interject(said("early"))
        assert (await bench.prompt("go")).kind == "completed"
        assert not await bench.session.interject(said("late"))
        command = bench.session.admit(Command("help", ""))
        await anyio.lowlevel.checkpoint()
        assert not await bench.session.interject(said("to a command"))
        await bench.ended(command)
        assert texts_of(bench.rows) == ["go"]


async def test_what_a_killed_turn_left_comes_before_the_next_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path, script(ANSWERS[1], releases=tmp_path)) as bench:
        message = user_message(bench.session._desk, said("left"))
        await bench.session.receive([], message, "next-step")
        assert (await bench.prompt("next")).kind == "completed"
        assert texts_of(bench.rows) == ["left", "next"]
