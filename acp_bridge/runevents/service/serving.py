"""The service as an app, and as a server that starts, serves, and ends within 2 s."""

import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio
import anyio.abc
import attrs
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from acp_bridge import __version__
from acp_bridge.errors import BridgeError, ConfigError
from acp_bridge.runevents.log import EventLog
from acp_bridge.runevents.service.agents import ASK_HOLD_S, Agents, Clock
from acp_bridge.runevents.service.guard import HEALTH, Guard, answering, is_loopback
from acp_bridge.runevents.service.homes import Homes
from acp_bridge.runevents.service.streams import STALL_S, Streams

logger = logging.getLogger(__name__)

STOP_S: Final = 2.0
"""How long ending may take: open streams end at once, answers under way may still go out."""

KEEP_ALIVE_S: Final = 75
"""How long an idle connection is kept: longer than our client does (45 s), so that it never sends
into one that is just being closed."""

SWEEP_S: Final = 1.0
"""How often leases are looked at."""

REQUESTS_MAX: Final = 10_000
"""Connections and requests at a time, streams among them."""

HEADER_BYTES_MAX: Final = 65_536
"""A request's head: an address with a hundred runs in it fits."""


@attrs.frozen
class Limits:
    """Times in seconds that tests make short."""

    stall_s: float = STALL_S
    ask_hold_s: float = ASK_HOLD_S
    sweep_s: float = SWEEP_S


class Service:
    """The app over one log. ``token`` None: only for a service that is bound to loopback."""

    def __init__(
        self, log: EventLog, clock: Clock, *, token: str | None, limits: Limits = Limits()
    ) -> None:
        self._log = log
        self._limits = limits
        self.streams = Streams(log, stall_s=limits.stall_s)
        self.agents = Agents(log, clock, ask_hold_s=limits.ask_hold_s)
        self.homes = Homes(clock.now_ms)
        self.app = Guard(Starlette(routes=self._routes()), token=token)

    async def sweep(self) -> None:
        """Look after the leases, until cancelled."""
        while True:
            try:
                await self.agents.settle_lapsed()
            except BridgeError as error:
                logger.warning("leases were not looked after: %s", error.details)
            await anyio.sleep(self._limits.sweep_s)

    async def health(self, _request: Request) -> Response:
        """``GET /healthz``: 200 while the log answers."""
        await self._log.last_sequence()
        return JSONResponse({"status": "ok"})

    async def status(self, _request: Request) -> Response:
        """``GET /v1/agent/status``: what is open, in counts, and what homes say of themselves."""
        streams, watched = self.streams.counts()
        return JSONResponse(
            {
                "version": __version__,
                "epoch": self._log.epoch,
                "last_sequence": await self._log.last_sequence(),
                "open_streams": streams,
                "watched_runs": watched,
                "waiting_runs": len(await self._log.runs_in("waiting", COUNT_RUNS_MAX)),
                "claimed_runs": len(await self._log.runs_in("claimed", COUNT_RUNS_MAX)),
                "homes": self.homes.told(),
            }
        )

    def _routes(self) -> list[Route]:
        agents, streams = self.agents, self.streams
        table = (
            ("GET", HEALTH, self.health),
            ("GET", "/v1/agent/status", self.status),
            ("GET", "/v1/agent/events/stream", streams.from_query),
            ("POST", "/v1/agent/events/stream", streams.from_body),
            ("POST", "/v1/agent/events/{run}", agents.publish),
            ("POST", "/v1/agent/messages", agents.message),
            ("POST", "/v1/agent/homes/{home}", self.homes.tell),
            ("POST", "/v1/agent/runs", agents.register),
            ("GET", "/v1/agent/runs", agents.list_runs),
            ("GET", "/v1/agent/runs/{run}", agents.show_run),
            ("POST", "/v1/agent/runs/{run}/claim", agents.claim),
            ("POST", "/v1/agent/runs/{run}/lease", agents.lease),
            ("POST", "/v1/agent/runs/{run}/rows", agents.rows),
            ("POST", "/v1/agent/runs/{run}/ask", agents.ask),
            ("POST", "/v1/agent/runs/{run}/answer", agents.answer),
            ("POST", "/v1/agent/runs/{run}/cancel", agents.cancel),
            ("POST", "/v1/agent/runs/{run}/delivered", agents.delivered),
        )
        return [
            Route(path, answering(endpoint), methods=[method]) for method, path, endpoint in table
        ]


COUNT_RUNS_MAX: Final = 10_000


def bind(host: str, port: int, *, token: str | None, stall_s: float = STALL_S) -> socket.socket:
    """A listening socket for the service.

    Raises:
        ConfigError: it cannot be bound, or would serve other machines without a token.
    """
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"Serving on {host} needs a token, since other machines reach it: set "
            "ACP_BRIDGE_EVENTS_TOKEN or --token, or serve on 127.0.0.1."
        )
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as fault:
        why = (fault.strerror or type(fault).__name__).lower()
        raise ConfigError(
            f"{host}:{port} cannot be served on: {why}. Use another --port."
        ) from fault
    # Connections inherit it. Without it the second write of an answer waits 40 ms for the reader's
    # system to acknowledge the first; asyncio sets it only on sockets that name their protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # What was written to a reader that takes nothing is given up by the kernel too.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(stall_s * 1000))
    return listener


async def serve(
    service: Service,
    listener: socket.socket,
    *,
    stop: anyio.Event,
    task_status: "anyio.abc.TaskStatus[None]" = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on the socket until ``stop`` is set; then end within `STOP_S`."""
    server = _Server(
        uvicorn.Config(
            service.app,
            http="h11",
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=REQUESTS_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        ),
        started=task_status.started,
    )
    with listener:
        await _serve(server, service, listener, stop)


async def _serve(
    server: uvicorn.Server, service: Service, listener: socket.socket, stop: anyio.Event
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.sweep)
        tasks.start_soon(_end, server, service, stop)
        await server.serve([listener])
        tasks.cancel_scope.cancel()


async def _end(server: uvicorn.Server, service: Service, stop: anyio.Event) -> None:
    await stop.wait()
    service.streams.end_all()
    service.agents.end_holds()
    server.should_exit = True


@asynccontextmanager
async def stopped_by_signals() -> AsyncIterator[anyio.Event]:
    """An event that SIGTERM and SIGINT set."""
    stop = anyio.Event()

    async def watch() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                stop.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        yield stop
        tasks.cancel_scope.cancel()


class _Server(uvicorn.Server):
    """uvicorn, which leaves signals to us and says when it serves."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell_started = started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them as they are."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        self._tell_started()
