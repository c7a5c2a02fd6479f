"""The todo_write tool."""

import pytest
from tool_world import World

from acp_bridge.ports import Access

pytestmark = pytest.mark.anyio


async def test_the_list_becomes_a_row_of_the_log(world: World) -> None:
    result = await world.run(
        "todo_write",
        todos=[
            {"content": "one", "status": "in_progress", "extra": 1},
            {"content": "two", "status": "pending"},
            {"content": "three", "status": "completed"},
        ],
    )
    assert result.text == "Updated todo list: 1 pending, 1 in progress, 1 completed."
    assert result.rows == (
        (
            "todo/write",
            {
                "todos": [
                    {"content": "one", "status": "in_progress"},
                    {"content": "two", "status": "pending"},
                    {"content": "three", "status": "completed"},
                ]
            },
        ),
    )


async def test_an_empty_list_clears_the_plan(world: World) -> None:
    result = await world.run("todo_write", todos=[])
    assert result.text == "Updated todo list: 0 pending, 0 in progress, 0 completed."
    assert result.rows == (("todo/write", {"todos": []}),)


async def test_a_step_without_words_is_refused_and_writes_no_row(world: World) -> None:
    result = await world.run("todo_write", todos=[{"content": " ", "status": "pending"}])
    assert result.text == (
        'Error: invalid arguments: property "todos[0].content" must not be empty'
    )
    assert result.rows == ()


async def test_a_plan_touches_nothing(world: World) -> None:
    tool = world.tools["todo_write"]
    assert tool.access({"todos": []}, world.cwd) == Access()
    assert await world.preview("todo_write", todos=[]) == ()
