"""The MCP servers that a client names, as the runtime takes them. Pure."""

from collections.abc import Sequence
from typing import TypeAlias

from acp_bridge.acp.base import Unknown
from acp_bridge.acp.types import HttpHeader, McpServerHttp, McpServerSse, McpServerStdio
from acp_bridge.errors import InvalidParamsError
from acp_bridge.vocabulary import HttpServer, McpServer, StdioServer

AcpServer: TypeAlias = McpServerHttp | McpServerSse | McpServerStdio | Unknown


def servers_from_acp(servers: Sequence[AcpServer]) -> list[McpServer]:
    """The servers of ``session/new``, ``load``, ``resume`` or ``fork``.

    Raises:
        InvalidParamsError: one cannot be used; says which (R018, R093).
    """
    found: dict[str, McpServer] = {}
    for at, server in enumerate(servers):
        made = _server(server, f"mcpServers[{at}]")
        if made.name in found:
            raise InvalidParamsError(
                f"Two MCP servers are named {made.name!r:.100}: each needs a name of its own.",
                field=f"mcpServers[{at}].name",
            )
        found[made.name] = made
    return list(found.values())


def _server(server: AcpServer, field: str) -> McpServer:
    match server:
        case McpServerStdio():
            env = {variable.name: variable.value for variable in server.env}
            return StdioServer(server.name, server.command, tuple(server.args), env)
        case McpServerHttp() | McpServerSse():
            is_sse = isinstance(server, McpServerSse)
            headers = _headers(server.headers)
            return HttpServer(server.name, server.url, headers, is_sse=is_sse)
        case _:
            raise InvalidParamsError(
                "MCP servers of this type are not supported: use stdio (without a type), http or "
                "sse.",
                field=f"{field}.type",
            )


def _headers(headers: Sequence[HttpHeader]) -> dict[str, str]:
    """A header that is there twice becomes one with both values (RFC 9110, section 5.3)."""
    found: dict[str, str] = {}
    for header in headers:
        before = found.get(header.name)
        found[header.name] = header.value if before is None else f"{before}, {header.value}"
    return found
