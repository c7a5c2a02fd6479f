"""A small MCP server on the official library: two tools, one of which fails."""

from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("shelf")


@server.tool()
def find(title: str) -> str:
    """Find a book by its title."""
    return f"{title}: third shelf"


@server.tool()
def lend(title: str) -> str:
    """Lend a book."""
    raise ValueError(f"{title} is lent already")


Path("started").touch()  # the scenario waits for it: a prompt waits for a server only so long
server.run("stdio")
