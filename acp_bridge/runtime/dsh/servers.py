"""The MCP servers of a session of the real runtime: run by us, their tools called by its model.

They are those of `harness.mcp`, so that names, reasons, bounds and what is told are the same in
both runtimes. The control plugin tells the runtime of the tools and asks us to run their calls;
the runtime sees no command, address or header of a server.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio
import anyio.abc

from acp_bridge.errors import BridgeError
from acp_bridge.harness.mcp.merging import Wanted
from acp_bridge.harness.mcp.naming import shown
from acp_bridge.harness.mcp.servers import SessionServers, Surroundings
from acp_bridge.harness.mcp.tool import McpTool
from acp_bridge.ports import Tool, ToolResult
from acp_bridge.runtime.dsh.control_types import CallToRun
from acp_bridge.runtime.dsh.host import Host
from acp_bridge.vocabulary import ForeignTool, SessionId

logger = logging.getLogger(__name__)

NOT_USED: Final = (
    "MCP servers cannot be used with what is there of DeepSeek Harness (`acp-bridge doctor` says "
    "what is missing). The session goes on without: {}."
)


class DshServers:
    """`serve` must run in a task while the session is open.

    ``host`` gives the process that has the session open, if any; ``group`` holds what follows a
    change of the tools.
    """

    def __init__(
        self,
        session_id: SessionId,
        wanted: Sequence[Wanted],
        surroundings: Surroundings,
        *,
        group: anyio.abc.TaskGroup,
        host: Callable[[], Host | None],
    ) -> None:
        self.news: list[str] = []
        """Sentences that the user was not told yet."""
        self._session_id = session_id
        self._wanted = wanted
        self._group = group
        self._host = host
        self._giving = anyio.Lock()
        self._given: Mapping[str, Tool] = {}
        """What the runtime was told last."""
        self._servers = SessionServers(
            session_id, wanted, surroundings, self.news.append, changed=self._tools_changed
        )

    async def serve(self) -> None:
        """Connect to them all, and keep them until `close`."""
        await self._servers.serve()

    async def close(self) -> None:
        """End them all; bounded."""
        await self._servers.close()

    async def ready(self) -> None:
        """Wait, a bounded time and once, for those that are still connecting."""
        await self._servers.ready()

    async def begin(self, host: Host) -> None:
        """The session was opened in this process, which knows no tools of it yet."""
        if _takes_tools(host):
            await self.give(host, is_fresh=True)
        elif host.control is not None:
            names = ", ".join(shown(one.server.name) for one in self._wanted)
            self.news.append(NOT_USED.format(names))

    async def give(self, host: Host, *, is_fresh: bool = False) -> None:
        """Tell the runtime the tools that are there, unless it knows them."""
        async with self._giving:
            if is_fresh:
                self._given = {}
            tools = self._servers.tools
            if tools is self._given or not (tools or self._given) or not _takes_tools(host):
                return
            assert host.control is not None
            try:
                await host.control.set_tools(self._session_id, tools.values())
            except BridgeError:
                logger.exception("session %s: its MCP tools were not taken", self._session_id)
            else:
                self._given = tools

    def foreign(self, tool_name: str) -> ForeignTool | None:
        """What a call of this tool is judged by; None: it is none of theirs."""
        tool = self._servers.tools.get(tool_name)
        return tool.foreign if isinstance(tool, McpTool) else None

    async def call(self, call: CallToRun) -> ToolResult:
        """Run a call, of the session or of one of its subagents."""
        tool = self._servers.tools.get(call.tool_name)
        if not isinstance(tool, McpTool):
            return ToolResult(f"the tool {call.tool_name} is gone.", is_error=True)
        return await tool.call(call.arguments)

    def _tools_changed(self) -> None:
        host = self._host()
        if host is not None and host.usable:
            self._group.start_soon(self.give, host)


def _takes_tools(host: Host) -> bool:
    return host.can("mcp") and host.can("record")
