"""``acp-bridge runtime``: serve the embedded harness to programs that use the SDK.

The SDK starts one file, ``BIN --profile NAME [--patch FILE…]``, so this command has a name of its
own beside ``acp-bridge``: ``acp-bridge-runtime``.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from acp_bridge.cli.serve import begin, hold
from acp_bridge.wire.stdio import claim

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from acp_bridge.cli.serve import Started
    from acp_bridge.config import Settings
    from acp_bridge.wire.endpoint import ByteStream, Reply
    from acp_bridge.wire.messages import Notification, Request

HOME_VARIABLE = "DSH_HOME"
"""Where the SDK says that sessions are to be; it starts no runtime without it."""


def main() -> int:
    """The ``acp-bridge-runtime`` command."""
    from acp_bridge.cli.main import main as command_line

    return command_line(["runtime", *sys.argv[1:]])


def run(flags: Mapping[str, str | None], *, patches: Sequence[str]) -> int:
    """Serve until the client is gone; the exit code. ``patches`` are named in the log, not read."""
    begin()
    try:
        stdio = claim()
    except OSError:
        return 0  # whoever started us is gone already

    async def serve(stream: ByteStream, settings: Settings, started: Started) -> None:
        for patch in patches:
            logging.getLogger(__name__).warning("the patch %s is not read", patch)
        await serve_sdk(stream, settings, started=started)

    return hold(stdio, {**flags, "home": _home(flags)}, serve)


async def serve_sdk(
    stream: ByteStream,
    settings: Settings,
    *,
    started: Started = lambda _server: None,
) -> None:
    """Serve the embedded harness over the SDK's wire until it ends, then leave nothing running."""
    import uuid

    from acp_bridge import __version__
    from acp_bridge.cli.assemble import embedded_runtime, open_catalog
    from acp_bridge.runtime.sdk.naming import NamedCatalog
    from acp_bridge.runtime.sdk.server import SdkServer
    from acp_bridge.wire.endpoint import Endpoint

    server: SdkServer | None = None

    def admit(message: Request | Notification) -> Reply | Awaitable[Reply] | None:
        assert server is not None
        return server.admit(message)

    endpoint = Endpoint(stream, admit)
    async with open_catalog(settings) as found:
        catalog = NamedCatalog(found, pinned=settings.model is not None)
        async with (
            embedded_runtime(settings, catalog) as runtime,
            SdkServer(
                runtime,
                endpoint,
                name_model=catalog.name,
                new_id=lambda: str(uuid.uuid4()),
                version=__version__,
            ) as server,
        ):
            started(endpoint)
            await endpoint.run()


def _home(flags: Mapping[str, str | None]) -> str | None:
    """The home folder, if anybody says where: our own names for it win."""
    named = flags.get("home") or os.environ.get("ACP_BRIDGE_HOME")
    return named or os.environ.get(HOME_VARIABLE, "").strip() or None
