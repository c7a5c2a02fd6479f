"""``acp-bridge lsp``: serve an editor that speaks LSP and no ACP, on stdin and stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.cli.serve import begin, hold
from acp_bridge.errors import RemoteProtocolError
from acp_bridge.wire.stdio import claim

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acp_bridge.cli.serve import Started
    from acp_bridge.config import Settings
    from acp_bridge.wire.endpoint import ByteStream


def run(flags: Mapping[str, str | None]) -> int:
    """Serve until the editor is gone; the exit code."""
    begin()
    try:
        stdio = claim()
    except OSError:
        return 0  # whoever started us is gone already
    said = 0

    async def until_exit(stream: ByteStream, settings: Settings, started: Started) -> None:
        nonlocal said
        said = await serve(stream, settings, started)

    from acp_bridge.lsp.stream import BodyBuffer

    return hold(stdio, flags, until_exit, new_buffer=BodyBuffer) or said


async def serve(
    stream: ByteStream, settings: Settings, started: Started = lambda _server: None
) -> int:
    """Serve LSP on a stream until it ends; the exit code that LSP wants.

    Raises:
        ConfigError: the settings cannot be used.
        RemoteProtocolError: what comes is no LSP.
    """
    import anyio

    from acp_bridge import __version__
    from acp_bridge.bridge.lsp_agent import LspAgent
    from acp_bridge.cli.assemble import any_runtime, open_catalog
    from acp_bridge.harness.tools.disk import DiskFiles
    from acp_bridge.lsp.editor import Editor
    from acp_bridge.lsp.server import AgentServer

    server = AgentServer(__version__)
    refused: RemoteProtocolError | None = None
    async with (
        open_catalog(settings) as catalog,
        any_runtime(settings, catalog) as runtime,
        anyio.create_task_group() as tasks,
    ):
        server.agent = LspAgent(
            runtime=runtime,
            editor=Editor(server),
            folder=settings.home / "transcripts",
            write_file=DiskFiles().write_bytes,
            tasks=tasks,
        )
        started(server)
        try:
            await server.serve(stream)
        except RemoteProtocolError as error:
            refused = error  # kept, since a task group would wrap it
        with anyio.CancelScope(shield=True):
            await runtime.close()
        tasks.cancel_scope.cancel()
    if refused is not None:
        raise refused
    return server.exit_code
