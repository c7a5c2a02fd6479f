"""The MCP servers of one session: each connects in a task of its own, and is told of if it fails.

A turn's request lists the tools that are there at that moment, so a server that is slow, changes
its tools or dies changes the next request. Order and names of tools do not depend on which server
was faster.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import anyio.to_thread
import attrs

from acp_bridge.errors import McpServerError
from acp_bridge.harness.mcp.merging import Wanted
from acp_bridge.harness.mcp.naming import server_parts, shown, tool_names
from acp_bridge.harness.mcp.tool import Connection, McpTool
from acp_bridge.ports import Tool
from acp_bridge.vocabulary import McpServer, SessionId

logger = logging.getLogger(__name__)

CONNECT_S_MAX: Final = 30.0
"""How long a server may take to connect: ``npx`` may have to load it first."""

PROMPT_WAIT_S: Final = 5.0
"""How long a session's first prompt waits for servers that still connect."""

CLOSE_WAIT_S: Final = 5.0
"""How long all of a session's servers may take to end; a process is killed after 2.5 s."""

NO_LIBRARY: Final = (
    "MCP servers need a part of acp-bridge that is not installed: "
    "`pip install 'harness-acp-bridge[mcp]'`. Without it these are not used: {}."
)


@attrs.frozen(slots=True)
class Surroundings:
    """Where a server's process runs: folder and environment."""

    cwd: Path
    env: Mapping[str, str] = attrs.field(repr=False)


Connector: TypeAlias = Callable[
    [McpServer, Surroundings, Callable[[], None]], AbstractAsyncContextManager[Connection]
]
"""Connects to a server; the callback is called when its tools change or it ends.

Raises:
    McpServerError: it cannot be connected.
"""


def library_connector() -> Connector:
    """The one on the MCP library, which takes a second to import: call this in a thread.

    Raises:
        ImportError: the library is not installed, or another version than we know.
    """
    from acp_bridge.harness.mcp.connection import connected

    return connected


class SessionTools(Mapping[str, Tool]):
    """The tools of a session: those that all have, then those of its servers."""

    def __init__(self, common: Mapping[str, Tool], servers: "SessionServers") -> None:
        self._common = common
        self._servers = servers

    def __getitem__(self, name: str) -> Tool:
        found = self._common.get(name)
        return self._servers.tools[name] if found is None else found

    def __iter__(self) -> Iterator[str]:
        yield from self._common
        yield from (name for name in self._servers.tools if name not in self._common)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class SessionServers:
    """Implements `harness.desk.Servers`. `serve` must run in a task while the session is open.

    ``note`` takes sentences for the user; ``changed`` is called when ``tools`` are others, until
    `close`.
    """

    def __init__(
        self,
        session_id: SessionId,
        wanted: Sequence[Wanted],
        surroundings: Surroundings,
        note: Callable[[str], None],
        *,
        changed: Callable[[], None] = lambda: None,
        find_connector: Callable[[], Connector] = library_connector,
    ) -> None:
        self.tools: Mapping[str, Tool] = {}
        self._session_id = session_id
        self._surroundings = surroundings
        self._note = note
        self._changed = changed
        self._find_connector = find_connector
        self._waited = False
        self._closing = anyio.Event()
        self._closed = anyio.Event()
        self._loading = anyio.CancelScope()
        parts = server_parts([one.server.name for one in wanted])
        self._links = [
            _Link(one, part, self._collect) for one, part in zip(wanted, parts, strict=True)
        ]

    async def serve(self) -> None:
        """Connect to them all, side by side, and keep them until `close`."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._end_links)
                with self._loading:
                    connector = await self._connector()
                    if connector is not None:
                        for link in self._links:
                            group.start_soon(self._serve_link, link, connector)
        finally:
            for link in self._links:
                link.settled.set()
            self._closed.set()

    async def ready(self) -> None:
        """Wait for those that are still connecting; once in a session, and bounded."""
        if self._waited:
            return
        self._waited = True
        with anyio.move_on_after(PROMPT_WAIT_S):
            for link in self._links:
                await link.settled.wait()
        for link in self._links:
            if not link.settled.is_set():
                name = shown(link.name)
                self._note(
                    f"The MCP server {name} is still connecting: its tools come when it is there."
                )

    async def close(self) -> None:
        """End them all: processes, connections, and what they started."""
        self._closing.set()
        with anyio.move_on_after(CLOSE_WAIT_S, shield=True) as bound:
            await self._closed.wait()
        if bound.cancelled_caught:
            logger.warning("session %s: its MCP servers did not end in time", self._session_id)

    async def _connector(self) -> Connector | None:
        try:
            return await anyio.to_thread.run_sync(self._find_connector, abandon_on_cancel=True)
        except ImportError:
            self._note(NO_LIBRARY.format(", ".join(shown(link.name) for link in self._links)))
            for link in self._links:
                link.settled.set()
            return None

    async def _end_links(self) -> None:
        await self._closing.wait()
        self._loading.cancel()
        for link in self._links:
            link.end()

    async def _serve_link(self, link: "_Link", connector: Connector) -> None:
        why = None
        try:
            await link.serve(connector, self._surroundings)
        except McpServerError as fault:
            why = fault.details
        except Exception as fault:  # noqa: BLE001  # one server's fault must not end the others
            why = f"cannot be used ({type(fault).__name__})"  # its text may hold secrets
        if why is None or self._closing.is_set():
            return  # how it ends with its session is nobody's concern
        name = shown(link.name)
        logger.warning("session %s: the MCP server %s %s", self._session_id, name, why)
        self._note(
            f"The MCP server {name} {why}. Its tools are gone; they come back when the session is "
            "opened again."
            if link.was_there
            else f"The MCP server {name} {why}. The session goes on without it."
        )

    def _collect(self) -> None:
        self.tools = {tool.name: tool for link in self._links for tool in link.tools}
        if not self._closing.is_set():
            self._changed()


class _Link:
    """One server from its start to its end."""

    def __init__(self, wanted: Wanted, part: str, changed: Callable[[], None]) -> None:
        self.tools: Sequence[Tool] = ()
        self.settled = anyio.Event()
        """Set once it is connected, or will not be."""
        self.was_there = False
        self._wanted = wanted
        self._part = part
        self._changed = changed
        self._news = anyio.Event()
        self._ending = False
        self._scope = anyio.CancelScope()

    @property
    def name(self) -> str:
        """As client or user call it."""
        return self._wanted.server.name

    def end(self) -> None:
        """Let it go; one that is still connecting is left at once."""
        self._ending = True
        self._news.set()
        if not self.was_there:
            self._scope.cancel()

    async def serve(self, connector: Connector, surroundings: Surroundings) -> None:
        """Raises McpServerError: it failed, or ended by itself."""
        if self._ending:
            return
        try:
            self._scope.deadline = anyio.current_time() + CONNECT_S_MAX
            with self._scope:
                server = self._wanted.server
                async with connector(server, surroundings, self._news_came) as connection:
                    await self._list(connection)
                    self._scope.deadline = float("inf")
                    self.was_there = True
                    self.settled.set()
                    await self._until_over(connection)
            if self._scope.cancelled_caught and not self._ending:
                raise McpServerError(f"did not connect within {CONNECT_S_MAX:.0f} s")
        finally:
            self.tools = ()
            self._changed()
            self.settled.set()

    def _news_came(self) -> None:
        self._news.set()

    async def _until_over(self, connection: Connection) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            if self._ending:
                return
            if connection.is_over:
                raise McpServerError(await connection.why_over())
            if connection.is_stale:
                await self._list(connection)

    async def _list(self, connection: Connection) -> None:
        listed = list({tool.name: tool for tool in await connection.list_tools()}.values())
        names = tool_names(self._part, [tool.name for tool in listed])
        self.tools = [
            McpTool(
                name,
                tool,
                connection,
                server_name=self.name,
                call_s_max=self._wanted.call_s_max,
            )
            for name, tool in zip(names, listed, strict=True)
        ]
        self._changed()
