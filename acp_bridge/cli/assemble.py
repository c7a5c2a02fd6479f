"""Puts the rooms together for one connection: the only place where they all meet."""

import os
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
from acp_bridge.models.known import DEEPSEEK
from acp_bridge.ports import ModelCatalog, Tool
from acp_bridge.runtime.embedded import EmbeddedRuntime, Outside
from acp_bridge.subagents.limits import Limits
from acp_bridge.wire.endpoint import ByteStream, Endpoint, Reply
from acp_bridge.wire.messages import Notification, Request

if TYPE_CHECKING:
    from acp_bridge.runevents.client import EventClient
    from acp_bridge.runtime.dsh.adapter import DshRuntime
    from acp_bridge.runtime.dsh.models import DshModels
    from acp_bridge.subagents.remote_home import RemoteHome
    from acp_bridge.worker.execution import Workplace


EVENTS_TOKEN: Final = "ACP_BRIDGE_EVENTS_TOKEN"  # noqa: S105  # the name of a variable


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
    face: AgentFace | None = None
    refused: RemoteProtocolError | None = None

    def admit(message: Request | Notification) -> Reply | object:
        assert face is not None
        return face.admit(message)

    endpoint = Endpoint(stream, admit)  # type: ignore[arg-type]  # as AgentFace.admit says
    async with (
        open_catalog(settings) as catalog,
        any_runtime(settings, catalog) as runtime,
        anyio.create_task_group() as tasks,
    ):

        def opened() -> None:
            # The reply is with the writer already, which runs before a task that starts now.
            tasks.start_soon(_get_ready, None if settings.runtime == "dsh" else catalog)

        agent = AcpAgent(
            runtime=runtime,
            calls=ClientCalls(endpoint),
            tasks=tasks,
            version=__version__,
            traits=traits or ClientTraits(),
            is_gone=lambda: endpoint.gone is not None,
            opened=opened,
            runs_here=_runs_here(settings),
            subagents=settings.subagents,
            setup_command=own_command(str(settings.home), "setup"),
        )
        face = AgentFace(agent)
        started(endpoint)
        try:
            await endpoint.run(initial)
        except RemoteProtocolError as error:
            refused = error  # kept, since a task group would wrap it
        tasks.cancel_scope.cancel()  # nobody is left to be told, and the runtime ends what runs
    if refused is not None:
        raise refused


def _runs_here(settings: Settings) -> bool:
    return settings.execution == "local"


def any_runtime(
    settings: Settings, catalog: ModelCatalog
) -> "AbstractAsyncContextManager[EmbeddedRuntime | DshRuntime]":
    """The runtime that the settings name."""
    return (
        dsh_runtime(settings) if settings.runtime == "dsh" else embedded_runtime(settings, catalog)
    )


def embedded_runtime(settings: Settings, catalog: ModelCatalog) -> EmbeddedRuntime:
    """The harness in this process, with the outer world and these models."""
    return EmbeddedRuntime(
        home=settings.home,
        catalog=catalog,
        mode=MODES[settings.mode].mode,
        tools=_tools,
        outside=_outside(),
        runs_here=_runs_here(settings),
        compacts=settings.compact == "auto",
        limits=Limits(settings.subagent_depth, settings.subagent_limit),
        detaches=settings.background == "detach",
        servers=settings.mcp_servers,
        remote=_remote_home(settings),
        reads_instructions=settings.instructions == "auto",
    )


def _remote_home(settings: Settings) -> "RemoteHome | None":
    """What lets subagents work on other machines; None, and nothing loaded, without an events home.

    Raises:
        ConfigError: the settings cannot be used.
    """
    delegates = settings.delegation == "remote"
    if settings.events is None:
        if delegates:
            raise ConfigError(
                "Subagents cannot work on other machines without an event service: set --events "
                "URL, or leave --delegation out."
            )
        return None
    import re
    import socket

    from acp_bridge.runevents.client import EventClient
    from acp_bridge.runevents.driver import Outside as StreamsOutside
    from acp_bridge.subagents.ledger import LEDGER_NAME, Ledger
    from acp_bridge.subagents.remote_home import RemoteHome

    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:100] or "home"
    return RemoteHome(
        EventClient(settings.events, settings.events_token),
        Ledger(settings.home / LEDGER_NAME),
        outside=StreamsOutside(now_s=time.monotonic, sleep=anyio.sleep, chance=random.random),
        new_id=_new_id,
        home_id=f"{host}:{os.getpid()}",
        delegates=delegates,
    )


def _outside() -> Outside:
    return Outside(
        clock=_now_ms,
        new_id=_new_id,
        chance=random.random,
        # Commands and MCP servers of the agent have no business with the events home.
        env={name: value for name, value in os.environ.items() if name != EVENTS_TOKEN},
    )


def workplace(
    settings: Settings,
    *,
    client: "EventClient",
    name: str,
    catalog: ModelCatalog,
    model_id: str | None,
    folder: Path,
) -> "Workplace":
    """What a worker's executions share: this machine's tools, keys and servers."""
    from acp_bridge.worker.execution import Workplace

    return Workplace(
        client=client,
        name=name,
        catalog=catalog,
        model_id=model_id,
        tools=_tools,
        outside=_outside(),
        compacts=settings.compact == "auto",
        servers=settings.mcp_servers,
        reads_instructions=settings.instructions == "auto",
        people_home=settings.home,
        folder=folder,
        now=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def dsh_runtime(settings: Settings) -> "DshRuntime":
    """The real runtime on its own home, with our key if we have one.

    Raises:
        ConfigError: the settings do not fit it.
    """
    from acp_bridge.runtime.dsh import adapter
    from acp_bridge.runtime.dsh.launch import home_of

    if settings.delegation == "remote":
        raise ConfigError(
            "Subagents of the dsh runtime work in its own process: leave --delegation out."
        )
    if not _runs_here(settings):
        raise ConfigError(
            "The dsh runtime runs commands by itself, never in terminals of the client: leave "
            "--execution out."
        )
    outside = adapter.Outside(
        clock=_now_ms,
        new_id=_new_id,
        env=os.environ,
        command=settings.dsh,
        scratch=settings.home,
    )
    return adapter.DshRuntime(
        home=home_of(os.environ),
        models=dsh_models(settings),
        mode=MODES[settings.mode].mode,
        outside=outside,
        detaches=settings.background == "detach",
        servers=settings.mcp_servers,
    )


def dsh_models(settings: Settings) -> "DshModels":
    """The models and the key of the real runtime.

    Raises:
        ConfigError: the model that is set is not one of DeepSeek's.
    """
    from acp_bridge.runtime.dsh.launch import home_of
    from acp_bridge.runtime.dsh.models import DshModels

    keys = Catalog(home=settings.home, environment=os.environ)
    return DshModels(
        home=home_of(os.environ),
        configured=settings.model,
        overrides=settings.models,
        find_key=partial(keys.key, DEEPSEEK.name),
        forget=keys.forget,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _new_id() -> str:
    return str(uuid.uuid4())


@asynccontextmanager
async def open_catalog(settings: Settings) -> AsyncIterator[ModelCatalog]:
    """The models that these settings give, with what is asked of them noted if they say so."""
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


async def _get_ready(catalog: ModelCatalog | None) -> None:
    """Load what a first turn needs, so that its prompt does not wait for it.

    ``catalog`` None: turns run in another process.
    """
    warm_up()
    if catalog is None:
        return
    import acp_bridge.harness.turn
    import acp_bridge.subagents.service
    import acp_bridge.subagents.tools  # noqa: F401  # the runtime asks for them then

    _tools()
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
