"""The demo says all it can, chapter by chapter, and every turn of it ends."""

import pytest

from acp_bridge.models.demo import DemoModel
from acp_bridge.ports import Chunk, ModelRequest, StopChunk, TextChunk, ToolCallChunk
from acp_bridge.vocabulary import JsonObject

pytestmark = pytest.mark.anyio

STEPS_MAX = 10


def message(role: str, kind: str) -> JsonObject:
    return {"role": role, "source": {"kind": kind}, "content": [{"type": "text", "text": "x"}]}


async def turn(history: list[JsonObject]) -> list[str]:
    """One more prompt, played to its end; the names of the tools that were called."""
    history.append(message("user", "user"))
    tools: list[str] = []
    for _ in range(STEPS_MAX):
        asked = ModelRequest(
            system="",
            messages=history,
            tools=[],
            purpose="turn",
            agent="1",
            position=0,
        )
        got: list[Chunk] = [chunk async for chunk in DemoModel().stream(asked)]
        history.append(message("assistant", "model"))
        names = [c.name for c in got if isinstance(c, ToolCallChunk) and c.name]
        tools += names
        assert isinstance(got[-1], StopChunk)
        if not names:
            return tools
        history.extend(message("tool", "tool") for _ in names)
    raise AssertionError("the turn does not end")


async def test_every_chapter_ends_and_they_begin_again() -> None:
    history: list[JsonObject] = []
    chapters = [await turn(history) for _ in range(6)]
    assert chapters[0] == ["glob"]
    assert chapters[1] == ["todo_write", "write", "todo_write", "edit", "todo_write"]
    assert chapters[2] == ["bash"]
    assert chapters[3:] == chapters[:3]


async def test_a_request_for_a_summary_gets_one() -> None:
    history = [message("user", "user"), message("user", "compact-request")]
    asked = ModelRequest(
        system="", messages=history, tools=[], purpose="compact", agent="1", position=0
    )
    got = [chunk async for chunk in DemoModel().stream(asked)]
    assert isinstance(got[-1], StopChunk)
    assert all(isinstance(chunk, TextChunk) for chunk in got[:-1])


async def test_a_history_of_another_shape_ends_too() -> None:
    assert await turn([message("user", "runtime-context"), message("assistant", "model")])
    asked = ModelRequest(system="", messages=[], tools=[], purpose="turn", agent="1", position=0)
    got = [chunk async for chunk in DemoModel().stream(asked)]
    assert isinstance(got[-1], StopChunk)
