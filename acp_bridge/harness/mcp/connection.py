"""A connection to an MCP server on the ``mcp`` library: stdio, streamable HTTP, HTTP with SSE.

Whatever the library raises becomes a `McpServerError` in our own words: its texts hold addresses,
and what a server said.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    Implementation,
    PaginatedRequestParams,
    Tool,
    ToolListChangedNotification,
)

from acp_bridge import __version__
from acp_bridge.errors import McpServerError
from acp_bridge.harness.mcp.process import ServerProcess, server_process
from acp_bridge.harness.mcp.servers import Surroundings
from acp_bridge.harness.mcp.tool import ListedTool
from acp_bridge.vocabulary import HttpServer, JsonObject, McpServer, StdioServer

for _name in ("mcp", "httpx2", "httpcore2"):
    # They log addresses, headers and what servers say.
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)

LIST_S_MAX: Final = 30.0
"""How long a server may take to list its tools."""

PAGES_MAX: Final = 100
"""Of a list of tools: a server that gives more is going round in circles."""

SILENCE_S_MAX: Final = 24 * 3600.0
"""How long an open stream may be silent: calls have a bound of their own, and may be long."""

_HTTP_S_MAX: Final = 30.0


class LibraryConnection:
    """Implements `harness.mcp.tool.Connection`; made by `connected`."""

    def __init__(self, process: ServerProcess | None, stir: Callable[[], None]) -> None:
        self.session: ClientSession | None = None
        self.is_stale = False
        self._is_closed = False
        self._process = process
        self._stir = stir

    @property
    def is_over(self) -> bool:
        """Whether it ended by itself."""
        return self._is_closed or (self._process is not None and self._process.is_over)

    async def hear(self, message: IncomingMessage) -> None:
        """Take what the server tells by itself."""
        if isinstance(message, ToolListChangedNotification):
            self.is_stale = True
            self._stir()

    async def list_tools(self) -> list[ListedTool]:
        """Its tools."""
        assert self.session is not None
        self.is_stale = False
        found: list[ListedTool] = []
        cursor: str | None = None
        try:
            for _ in range(PAGES_MAX):
                params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
                page = await self.session.list_tools(params=params)
                found += [_listed(tool) for tool in page.tools]
                cursor = page.next_cursor
                if cursor is None:
                    return found
        except Exception as fault:  # noqa: BLE001  # the library raises anything; see the module
            raise McpServerError(await self.reason(fault)) from None
        raise McpServerError(f"lists its tools on more than {PAGES_MAX} pages")

    async def call(self, tool: str, arguments: JsonObject, *, s_max: float) -> JsonObject:
        """The result of ``tools/call``."""
        assert self.session is not None
        try:
            result = await self.session.call_tool(tool, arguments, read_timeout_seconds=s_max)
            answer: JsonObject = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        except MCPError as fault:
            if fault.code == REQUEST_TIMEOUT:
                raise McpServerError(f"did not answer within {s_max:g} s") from None
            if fault.code == CONNECTION_CLOSED:
                raise McpServerError(await self.reason(fault)) from None
            raise McpServerError(f"refused the call: {fault.message}") from None
        except Exception as fault:  # noqa: BLE001  # as above
            raise McpServerError(await self.reason(fault)) from None
        return answer

    async def why_over(self) -> str:
        """How it ended."""
        return "closed the connection" if self._process is None else await self._process.why_over()

    async def reason(self, fault: BaseException) -> str:
        """What went wrong, to go on from the server's name; without secrets."""
        fault = _first(fault)
        if isinstance(fault, MCPError) and fault.code == CONNECTION_CLOSED:
            self._is_closed = True
            self._stir()
            return await self.why_over()
        return _reason(fault)


@asynccontextmanager
async def connected(
    server: McpServer, surroundings: Surroundings, stir: Callable[[], None]
) -> AsyncIterator[LibraryConnection]:
    """A connected server, initialized; see `harness.mcp.servers.Connector`."""
    connection: LibraryConnection | None = None
    try:
        async with AsyncExitStack() as stack:
            if isinstance(server, StdioServer):
                process = await stack.enter_async_context(
                    server_process(server, surroundings, stir)
                )
                connection = LibraryConnection(process, stir)
                streams: TransportStreams = (process.incoming, process.outgoing)
            else:
                connection = LibraryConnection(None, stir)
                streams = await _http_streams(server, stack)
            session = ClientSession(
                *streams,
                read_timeout_seconds=LIST_S_MAX,
                message_handler=connection.hear,
                client_info=Implementation(name="acp-bridge", version=__version__),
            )
            connection.session = await stack.enter_async_context(session)
            await session.initialize()
            yield connection
    except McpServerError:
        raise
    except Exception as fault:  # noqa: BLE001  # the library raises anything; see the module
        first = _first(fault)
        if isinstance(first, McpServerError):
            raise first from None
        reason = _reason(first) if connection is None else await connection.reason(first)
        raise McpServerError(reason) from None


async def _http_streams(server: HttpServer, stack: AsyncExitStack) -> TransportStreams:
    headers = dict(server.headers)
    if server.is_sse:
        streams = sse_client(
            server.url, headers=headers, timeout=_HTTP_S_MAX, sse_read_timeout=SILENCE_S_MAX
        )
        return await stack.enter_async_context(streams)
    timeout = httpx2.Timeout(_HTTP_S_MAX, read=SILENCE_S_MAX)
    client = httpx2.AsyncClient(headers=headers, timeout=timeout)
    await stack.enter_async_context(client)
    return await stack.enter_async_context(streamable_http_client(server.url, http_client=client))


def _listed(tool: Tool) -> ListedTool:
    hints = tool.annotations
    return ListedTool(
        name=tool.name,
        description=tool.description or tool.title or "",
        parameters=tool.input_schema,
        only_reads=hints is not None and hints.read_only_hint is True,
    )


def _first(fault: BaseException) -> BaseException:
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


def _reason(fault: BaseException) -> str:
    match fault:
        case httpx2.HTTPStatusError():
            return f"cannot be used: it answered HTTP {fault.response.status_code}"
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
            return "cannot be used: its address is no HTTP address"
        case httpx2.LocalProtocolError():
            return "cannot be used: a header of it is none that HTTP knows"
        case httpx2.TransportError():
            return "cannot be reached"
        case MCPError(code=int(code)) if code == REQUEST_TIMEOUT:
            return f"did not answer within {LIST_S_MAX:.0f} s"
        case MCPError():
            return f"cannot be used: it answered with the error {fault.code}"
        case ValueError():
            return "cannot be used: what it answers is not MCP"
        case _:
            return f"cannot be used ({type(fault).__name__})"
