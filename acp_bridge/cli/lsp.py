"""``acp-bridge lsp``: serve an editor that speaks LSP and no ACP, on stdin and stdout."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import anyio

from acp_bridge import __version__
from acp_bridge.cli.assemble import embedded_runtime, open_catalog
from acp_bridge.cli.serve import EXIT_FAILED, EXIT_USAGE, kill_commands, say, start_log
from acp_bridge.config import resolve
from acp_bridge.errors import BridgeError, RemoteProtocolError
from acp_bridge.wire.lifetime import Ending, end_of_life
from acp_bridge.wire.stdio import Stdio, claim

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acp_bridge.config import Settings
    from acp_bridge.wire.endpoint import ByteStream


def run(flags: Mapping[str, str | None]) -> int:
    """Serve until the editor is gone; the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # as `serve` does, until the loop takes their place
    try:
        stdio = claim()
    except OSError:
        return 0  # whoever started us is gone already
    try:
        settings, _ = resolve(flags, os.environ)
        start_log(settings)
        return _serve(stdio, settings)
    except BridgeError as error:
        say(error.details)
        return EXIT_USAGE
    except OSError as error:
        say(f"the system refused to go on: {error}")
        return EXIT_FAILED


def _serve(stdio: Stdio, settings: Settings) -> int:
    exit_code = 0
    failure: BridgeError | None = None

    async def main() -> None:
        nonlocal exit_code, failure
        async with anyio.create_task_group() as tasks:
            ended: Ending | None = None
            serving = anyio.CancelScope()

            def on_end(ending: Ending) -> None:
                nonlocal ended
                ended = ending
                serving.cancel()

            async def watch() -> None:
                await end_of_life(on_end, parent_pid=stdio.parent_pid, before_exit=kill_commands)

            tasks.start_soon(watch)
            with serving:
                try:
                    exit_code = await serve(stdio.stream(), settings)
                except BridgeError as error:
                    failure = error  # kept, since a task group would wrap it
            if ended is not None:
                exit_code = ended.exit_code
            tasks.cancel_scope.cancel()

    anyio.run(main)  # pygls works on asyncio alone, which is anyio's default
    if failure is not None:
        raise failure
    return exit_code


async def serve(stream: ByteStream, settings: Settings) -> int:
    """Serve LSP on a stream until it ends; the exit code that LSP wants.

    Raises:
        ConfigError: the settings cannot be used.
        RemoteProtocolError: what comes is no LSP.
    """
    from acp_bridge.bridge.lsp_agent import LspAgent
    from acp_bridge.harness.tools.disk import DiskFiles
    from acp_bridge.lsp.editor import Editor
    from acp_bridge.lsp.server import AgentServer

    server = AgentServer(__version__)
    refused: RemoteProtocolError | None = None
    async with (
        open_catalog(settings) as catalog,
        embedded_runtime(settings, catalog) as runtime,
        anyio.create_task_group() as tasks,
    ):
        server.agent = LspAgent(
            runtime=runtime,
            editor=Editor(server),
            folder=settings.home / "transcripts",
            write_file=DiskFiles().write_bytes,
            tasks=tasks,
        )
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
