"""A real MCP server for tests, on the library: over stdio as a program, over HTTP as an app.

``python mcp_program.py [HOW]``: "fails" exits with 3, "garbage" prints what is no message and goes
on, "hangs" never answers, "stubborn" ignores SIGTERM and the end of stdin.
"""

import base64
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import ToolAnnotations


def made_server() -> MCPServer:
    server = MCPServer("tiny")

    @server.tool(description="Adds two numbers.")
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def env(name: str) -> str:
        return repr(os.environ.get(name))

    @server.tool()
    def facts() -> str:
        return f"{os.getpid()} {Path.cwd()} {sys.stdin.isatty()}"

    @server.tool()
    def picture() -> Image:
        return Image(data=b"x" * 30, format="png")

    @server.tool()
    def fail() -> str:
        raise ValueError("out of milk")

    @server.tool()
    def crash() -> str:
        os._exit(7)

    @server.tool()
    def big(chars: int) -> str:
        return "x" * chars

    @server.tool()
    def stray() -> str:
        """A grandchild in a session of its own, which outlives a kill of the group."""
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        return str(child.pid)

    @server.tool()
    async def slow(mark: str) -> str:
        """Makes a file and waits; another one once it is cancelled."""
        Path(mark).touch()  # noqa: ASYNC240
        try:
            await anyio.sleep(60)
        finally:
            Path(f"{mark}.cancelled").touch()  # noqa: ASYNC240
        return "never"

    @server.tool()
    async def grow(ctx: Context) -> str:
        """From now on there is one tool more."""

        def grown() -> str:
            return "big now"

        server.add_tool(grown)
        await ctx.session.send_tool_list_changed()
        return "told"

    return server


def main() -> None:
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "fails":
        sys.stderr.write("no licence for " + os.environ.get("TINY_SECRET", "") + "\n")
        sys.exit(3)
    if how == "hangs":
        time.sleep(600)
    if how == "garbage":
        sys.stdout.write("Welcome to tiny!\n{}\n" + base64.b64encode(b"noise").decode() + "\n")
        sys.stdout.flush()
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    made_server().run("stdio")
    if how == "stubborn":
        time.sleep(600)


if __name__ == "__main__":
    main()
