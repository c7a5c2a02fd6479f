"""A tool of an MCP server, as the harness calls it."""

import json
from pathlib import Path
from typing import Protocol

import anyio
import attrs

from acp_bridge.errors import McpServerError
from acp_bridge.harness.mcp.naming import shown
from acp_bridge.harness.mcp.results import text_of_result
from acp_bridge.harness.tools.output import KeptOutput
from acp_bridge.harness.tools.results import NoPreview, failure
from acp_bridge.ports import Access, ToolContext, ToolResult
from acp_bridge.vocabulary import ForeignTool, JsonObject


@attrs.frozen(slots=True)
class ListedTool:
    """A tool as its server lists it. ``only_reads`` is the server's own word, a hint."""

    name: str
    description: str
    parameters: JsonObject
    only_reads: bool = False


class Connection(Protocol):
    """A connected server."""

    @property
    def is_over(self) -> bool:
        """Whether it ended by itself."""

    @property
    def is_stale(self) -> bool:
        """Whether it said that its tools changed since `list_tools` was called."""

    async def list_tools(self) -> list[ListedTool]:
        """Its tools; bounded.

        Raises:
            McpServerError: it does not tell them.
        """

    async def call(self, tool: str, arguments: JsonObject, *, s_max: float) -> JsonObject:
        """The result of ``tools/call``. A call that is cancelled is cancelled there too.

        Raises:
            McpServerError: there is none.
        """

    async def why_over(self) -> str:
        """How it ended, to go on from its name."""


class McpTool(NoPreview):
    """Implements `ports.Tool`. ``name`` is what the model calls it, ``server_name`` whose it is."""

    def __init__(
        self,
        name: str,
        listed: ListedTool,
        connection: Connection,
        *,
        server_name: str,
        call_s_max: float,
    ) -> None:
        self.name = name
        self.description = listed.description
        self.parameters: JsonObject = {"type": "object", **listed.parameters}
        self._tool = listed.name
        self._connection = connection
        self._server_name = server_name
        self._call_s_max = call_s_max
        self.foreign = ForeignTool(
            identity=json.dumps([server_name, listed.name]),
            what=f"{shown(listed.name)} of the MCP server {shown(server_name)}",
            only_reads=listed.only_reads,
        )

    def access(self, arguments: JsonObject, cwd: Path) -> Access:  # noqa: ARG002
        """What it touches cannot be known."""
        return Access(foreign=self.foreign)

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Call it; a long answer is kept as that of a command is."""
        result = await self.call(arguments)
        kept = KeptOutput(context.spill_dir, stem="mcp")
        with anyio.CancelScope(shield=True):
            await kept.add(result.text.encode(errors="replace"), result.text)
        kept.close()
        return attrs.evolve(result, text=kept.text())

    async def call(self, arguments: JsonObject) -> ToolResult:
        """Call it; the answer is as long as it is."""
        try:
            result = await self._connection.call(self._tool, arguments, s_max=self._call_s_max)
        except McpServerError as fault:
            return failure(f"the MCP server {shown(self._server_name)} {fault.details}.")
        return ToolResult(text_of_result(result), is_error=result.get("isError") is True)
