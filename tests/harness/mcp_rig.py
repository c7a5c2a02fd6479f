"""MCP servers for tests: a real one as a process, or on loopback with what it was sent."""

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import uvicorn
from mcp_program import made_server
from tool_world import World

from acp_bridge.harness.mcp.merging import Wanted
from acp_bridge.harness.mcp.servers import SessionServers, Surroundings
from acp_bridge.ports import ToolResult
from acp_bridge.vocabulary import HttpServer, JsonObject, McpServer, SessionId, StdioServer

PROGRAM = Path(__file__).with_name("mcp_program.py")
SECRET = "s3cret-value"


def lives(pid: int) -> bool:
    """Whether the process runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def until(done: Callable[[], bool]) -> None:
    """Wait for something that another process, or a foreign library, does."""
    with anyio.fail_after(60):
        while not done():  # noqa: ASYNC110
            await anyio.sleep(0.01)


def tiny(how: str = "", *, name: str = "tiny", env: Mapping[str, str] | None = None) -> StdioServer:
    args = (str(PROGRAM), how) if how else (str(PROGRAM),)
    return StdioServer(name, sys.executable, args, env or {})


@attrs.define
class Site:
    """``headers`` are those of each request, in lower case."""

    port: int = 0
    headers: list[dict[str, str]] = attrs.field(factory=list)

    def server(self, *, is_sse: bool, headers: Mapping[str, str] | None = None) -> HttpServer:
        path = "sse" if is_sse else "mcp"
        url = f"http://127.0.0.1:{self.port}/{path}"
        return HttpServer("site", url, headers or {}, is_sse=is_sse)


@asynccontextmanager
async def site(*, is_sse: bool) -> AsyncIterator[Site]:
    """A server on loopback."""
    made = made_server()
    app = made.sse_app() if is_sse else made.streamable_http_app()
    found = Site()

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            pairs = ((name.decode(), value.decode()) for name, value in scope["headers"])
            found.headers.append(dict(pairs))
        await app(scope, receive, send)

    config = uvicorn.Config(noting, port=0, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve)
        await until(lambda: server.started)
        found.port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield found
        finally:
            server.should_exit = True


@attrs.define
class Served:
    """The servers of a session, and what the user was told."""

    servers: SessionServers
    world: World
    notes: list[str]

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        with anyio.fail_after(60):
            return await self.servers.tools[name].run(arguments, self.world.context)

    async def text(self, name: str, /, **arguments: Any) -> str:
        return (await self.call(name, **arguments)).text

    async def offers(self, name: str) -> None:
        """Wait until there is such a tool."""
        await until(lambda: name in self.servers.tools)

    async def told(self) -> str:
        """The first sentence to the user."""
        await until(lambda: bool(self.notes))
        return self.notes[0]


@asynccontextmanager
async def serving(
    world: World, *wanted: McpServer | Wanted, env: Mapping[str, str] | None = None, **more: Any
) -> AsyncIterator[Served]:
    """These servers, from the start of a session to its end."""
    notes: list[str] = []
    all_wanted = [one if isinstance(one, Wanted) else Wanted(one) for one in wanted]
    surroundings = Surroundings(world.cwd, env if env is not None else world.env)
    servers = SessionServers(SessionId("s"), all_wanted, surroundings, notes.append, **more)
    async with anyio.create_task_group() as group:
        group.start_soon(servers.serve)
        try:
            yield Served(servers, world, notes)
        finally:
            await servers.close()


def schema_of(served: Served, name: str) -> JsonObject:
    return served.servers.tools[name].parameters
