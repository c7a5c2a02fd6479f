"""The servers of a session with connections made by hand: who is first, who fails, and when."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest
from mcp_rig import Served, serving
from pace import patient
from tool_world import World

from acp_bridge.errors import McpServerError
from acp_bridge.harness.mcp.servers import SessionTools, Surroundings
from acp_bridge.harness.mcp.tool import Connection, ListedTool
from acp_bridge.vocabulary import JsonObject, McpServer, StdioServer

pytestmark = pytest.mark.anyio


@attrs.define
class FakeConnection:
    """Connects once ``there`` is set; ``failure`` is what it raises instead of listing."""

    name: str
    tools: list[str] = attrs.field(factory=lambda: ["b", "a"])
    there: anyio.Event = attrs.field(factory=anyio.Event)
    left: anyio.Event = attrs.field(factory=anyio.Event)
    failure: str | None = None
    fault: Exception | None = None
    is_over: bool = False
    is_stale: bool = False
    stir: Callable[[], None] = lambda: None

    async def list_tools(self) -> list[ListedTool]:
        if self.fault is not None:
            raise self.fault
        if self.failure is not None:
            raise McpServerError(self.failure)
        self.is_stale = False
        return [ListedTool(name, self.name, {}) for name in self.tools]

    async def call(self, tool: str, arguments: JsonObject, *, s_max: float) -> JsonObject:
        del arguments, s_max
        return {"content": [{"type": "text", "text": f"{self.name} {tool}"}]}

    async def why_over(self) -> str:
        return "went home"


class Fakes:
    """Servers "x" and "y"."""

    def __init__(self) -> None:
        self.by_name = {name: FakeConnection(name) for name in "xy"}
        self.servers = [StdioServer(name, "run") for name in self.by_name]

    @asynccontextmanager
    async def connect(
        self, server: McpServer, _surroundings: Surroundings, stir: Callable[[], None]
    ) -> AsyncIterator[Connection]:
        fake = self.by_name[server.name]
        fake.stir = stir
        await fake.there.wait()
        try:
            yield fake
        finally:
            fake.left.set()

    @asynccontextmanager
    async def serving(self, world: World) -> AsyncIterator[Served]:
        async with serving(world, *self.servers, find_connector=lambda: self.connect) as served:
            yield served


async def test_the_order_of_tools_does_not_depend_on_who_was_faster(world: World) -> None:
    fakes = Fakes()
    async with fakes.serving(world) as served:
        fakes.by_name["y"].there.set()
        await served.offers("mcp__y__a")
        assert list(served.servers.tools) == ["mcp__y__b", "mcp__y__a"]
        fakes.by_name["x"].there.set()
        await served.offers("mcp__x__a")
        names = ["mcp__x__b", "mcp__x__a", "mcp__y__b", "mcp__y__a"]
        assert list(served.servers.tools) == names
        assert list(SessionTools(world.tools, served.servers)) == [*world.tools, *names]
    assert all(fake.left.is_set() for fake in fakes.by_name.values())


async def test_a_server_that_ends_takes_its_tools_along_and_is_told_of(world: World) -> None:
    fakes = Fakes()
    for fake in fakes.by_name.values():
        fake.there.set()
    async with fakes.serving(world) as served:
        await served.servers.ready()
        gone = fakes.by_name["x"]
        gone.is_over = True
        gone.stir()
        assert await served.told() == (
            "The MCP server x went home. Its tools are gone; they come back when the session is "
            "opened again."
        )
        assert list(served.servers.tools) == ["mcp__y__b", "mcp__y__a"]
        assert gone.left.is_set()


async def test_a_list_that_changed_is_fetched_again(world: World) -> None:
    fakes = Fakes()
    for fake in fakes.by_name.values():
        fake.there.set()
    async with fakes.serving(world) as served:
        await served.servers.ready()
        changed = fakes.by_name["x"]
        changed.tools, changed.is_stale = ["c", "c"], True
        changed.stir()
        await served.offers("mcp__x__c")
        assert list(served.servers.tools) == ["mcp__x__c", "mcp__y__b", "mcp__y__a"]
        changed.failure, changed.is_stale = "lost the list", True
        changed.stir()
        assert (await served.told()).startswith("The MCP server x lost the list. Its tools are")


async def test_a_session_that_closes_leaves_who_is_still_connecting(world: World) -> None:
    fakes = Fakes()
    fakes.by_name["x"].there.set()
    with anyio.fail_after(patient(2)):
        async with fakes.serving(world) as served:
            await served.offers("mcp__x__a")
    assert fakes.by_name["x"].left.is_set()
    assert not fakes.by_name["y"].left.is_set()
    assert served.notes == []


async def test_a_fault_of_ours_costs_one_server_alone(world: World) -> None:
    fakes = Fakes()
    fakes.by_name["x"].fault = RuntimeError("with a secret in it")
    for fake in fakes.by_name.values():
        fake.there.set()
    async with fakes.serving(world) as served:
        await served.servers.ready()
        assert list(served.servers.tools) == ["mcp__y__b", "mcp__y__a"]
    assert served.notes == [
        "The MCP server x cannot be used (RuntimeError). The session goes on without it."
    ]
