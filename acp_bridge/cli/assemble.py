"""Puts the rooms together for one connection: the only place where they all meet."""

import os
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from acp_bridge import __version__
from acp_bridge.acp.agent_side import AgentFace
from acp_bridge.acp.client_side import ClientCalls
from acp_bridge.acp.converter import warm_up
from acp_bridge.acp.hello import ClientTraits
from acp_bridge.bridge.acp_agent import AcpAgent
from acp_bridge.cli.command import own_command
from acp_bridge.config import Settings
from acp_bridge.errors import BridgeError, ConfigError, RemoteProtocolError
from acp_bridge.harness.memory import SCRIPTED
from acp_bridge.harness.modes import MODES
from acp_bridge.models.catalog import Catalog
from acp_bridge.ports import ModelCatalog, Tool
from acp_bridge.runtime.embedded import EmbeddedRuntime, Outside
from acp_bridge.subagents.delegation import Limits
from acp_bridge.wire.endpoint import ByteStream, Endpoint, Reply
from acp_bridge.wire.messages import Notification, Request

NO_DSH = (
    "The dsh runtime is not in this version of acp-bridge: start it with `--runtime embedded`, "
    "or leave the flag out."
)


async def serve(
    stream: ByteStream,
    settings: Settings,
    *,
    initial: bytes = b"",
    traits: ClientTraits | None = None,
    started: Callable[[Endpoint], None] = lambda _endpoint: None,
) -> None:
    """Serve ACP on a stream until it ends, then leave nothing running.

    ``initial`` are bytes that were read before; ``traits`` what the client said in an
    ``initialize`` that was answered before. ``started`` gets the endpoint, to stop it.

    Raises:
        ConfigError: the settings cannot be used.
        RemoteProtocolError: the client speaks LSP.
    """
    if settings.runtime != "embedded":
        raise ConfigError(NO_DSH)
    face: AgentFace | None = None
    refused: RemoteProtocolError | None = None

    def admit(message: Request | Notification) -> Reply | object:
        assert face is not None
        return face.admit(message)

    endpoint = Endpoint(stream, admit)  # type: ignore[arg-type]  # as AgentFace.admit says
    async with (
        _catalog(settings) as catalog,
        _runtime(settings, catalog) as runtime,
        anyio.create_task_group() as tasks,
    ):

        def opened() -> None:
            # The reply is with the writer already, which runs before a task that starts now.
            tasks.start_soon(_get_ready, catalog)

        agent = AcpAgent(
            runtime=runtime,
            calls=ClientCalls(endpoint),
            version=__version__,
            traits=traits or ClientTraits(),
            is_gone=lambda: endpoint.gone is not None,
            opened=opened,
            runs_here=_runs_here(settings),
            setup_command=own_command(str(settings.home), "setup"),
        )
        face = AgentFace(agent)
        started(endpoint)
        try:
            await endpoint.run(initial)
        except RemoteProtocolError as error:
            refused = error  # kept, since a task group would wrap it
    if refused is not None:
        raise refused


def _runs_here(settings: Settings) -> bool:
    return settings.execution == "local"


def _runtime(settings: Settings, catalog: ModelCatalog) -> EmbeddedRuntime:
    outside = Outside(
        clock=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        chance=random.random,
        env=os.environ,
    )
    return EmbeddedRuntime(
        home=settings.home,
        catalog=catalog,
        mode=MODES[settings.mode].mode,
        tools=_tools,
        outside=outside,
        runs_here=_runs_here(settings),
        limits=Limits(settings.subagent_depth, settings.subagent_limit),
        detaches=settings.background == "detach",
    )


@asynccontextmanager
async def _catalog(settings: Settings) -> AsyncIterator[ModelCatalog]:
    catalog = Catalog(
        home=settings.home,
        environment=os.environ,
        configured=settings.model,
        models=settings.models,
    )
    try:
        if settings.record_model_requests is None:
            yield catalog
        else:
            from acp_bridge.models.recording import RecordingCatalog

            yield RecordingCatalog(catalog, settings.record_model_requests)
    finally:
        with anyio.CancelScope(shield=True):
            await catalog.aclose()


async def _get_ready(catalog: ModelCatalog) -> None:
    """Load what a first turn needs, so that its prompt does not wait for it."""
    import acp_bridge.subagents.tools  # noqa: F401  # the runtime asks for them then

    _tools()
    warm_up()
    try:
        local = catalog.open(None).provider == SCRIPTED
    except BridgeError:
        return  # the user hears of it where it matters
    if not local:
        from acp_bridge.models import http

        await anyio.to_thread.run_sync(http.warm_up)  # about 115 ms of imports


def _tools() -> tuple[Tool, ...]:
    from acp_bridge.harness.tools import builtin_tools

    return builtin_tools()
