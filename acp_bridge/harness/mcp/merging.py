"""Which MCP servers a session has: the client's, and the user's of config.toml, by name. Pure.

The client's word counts for how a server is reached, since it knows the project; what the user says
of a server of exactly that name counts for how long its calls may take (R095).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from acp_bridge.config import McpSettings
from acp_bridge.vocabulary import HttpServer, McpServer, StdioServer

CALL_S_MAX: Final = 300.0
"""How long one call may take where the user says nothing: five minutes, for builds and browsers."""


@attrs.frozen(slots=True)
class Wanted:
    """A server that a session is to have, and how long one call of it may take, in seconds."""

    server: McpServer
    call_s_max: float = CALL_S_MAX


def merged(own: Mapping[str, McpSettings], given: Sequence[McpServer]) -> list[Wanted]:
    """The user's servers with those that the client gives, which replace those of their name."""
    servers = {name: made for name, one in own.items() if (made := _server(name, one)) is not None}
    servers |= {server.name: server for server in given}
    return [Wanted(server, _call_s_max(own.get(name))) for name, server in servers.items()]


def _server(name: str, settings: McpSettings) -> McpServer | None:
    """The server, or None where the settings only say something of a client's."""
    if settings.command is not None:
        return StdioServer(name, settings.command, settings.args, settings.env)
    if settings.url is not None:
        is_sse = settings.type == "sse"
        return HttpServer(name, settings.url, settings.headers, is_sse=is_sse)
    return None


def _call_s_max(settings: McpSettings | None) -> float:
    if settings is None or settings.timeout_s is None:
        return CALL_S_MAX
    return settings.timeout_s
