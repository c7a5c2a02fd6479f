"""A service in this process on a real socket, and what stands around it: clock, inbox, cursors."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
from ports import kept_port

from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.delivery import StoredCursors
from acp_bridge.runevents.log import EventLog
from acp_bridge.runevents.model import EventDraft, RunEvent, RunId
from acp_bridge.runevents.service.agents import Clock
from acp_bridge.runevents.service.serving import Limits, Service, bind, serve
from acp_bridge.vocabulary import SessionId

NOW = "2026-11-30T12:00:00+00:00"


@dataclass
class FakeClock:
    """Milliseconds that a test moves by hand."""

    now_ms: int = 1_000_000

    def clock(self) -> Clock:
        return Clock(now_ms=lambda: self.now_ms, iso=lambda: NOW)


@dataclass
class Served:
    """A running service."""

    service: Service
    url: str
    port: int
    clock: FakeClock
    stop: anyio.Event


@asynccontextmanager
async def served(
    log: EventLog, *, token: str | None = None, limits: Limits | None = None, port: int = 0
) -> AsyncIterator[Served]:
    """Serve the log until the context ends; then nothing is left."""
    clock = FakeClock()
    limits = limits or Limits()
    service = Service(log, clock.clock(), token=token, limits=limits)
    listener = bind("127.0.0.1", port or kept_port(), token=token)
    bound = listener.getsockname()[1]
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def run(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            await serve(service, listener, stop=stop, task_status=task_status)

        await tasks.start(run)
        try:
            yield Served(service, f"http://127.0.0.1:{bound}", bound, clock, stop)
        finally:
            stop.set()


@asynccontextmanager
async def client_of(url: str, token: str | None = None) -> AsyncIterator[EventClient]:
    async with EventClient(url, token) as client:
        yield client


def draft(run_id: RunId, event_id: str, event_type: str = "run_succeeded") -> EventDraft:
    return EventDraft(event_type, run_id, event_id, NOW)


@dataclass
class MemoryInbox:
    """An inbox as a session log's is: rows keyed by event id. It can refuse, fail, and be slow."""

    rows: dict[SessionId, dict[str, RunEvent]] = field(default_factory=lambda: defaultdict(dict))
    calls: list[tuple[SessionId, str]] = field(default_factory=list)
    shown: list[tuple[SessionId, str]] = field(default_factory=list)
    ended: list[tuple[SessionId, str]] = field(default_factory=list)
    refusals: int = 0
    faults: list[Exception] = field(default_factory=list)
    pauses: int = 0
    came: anyio.Event = field(default_factory=anyio.Event)

    async def deliver(self, session_id: SessionId, event: RunEvent) -> bool:
        self.calls.append((session_id, event.event_id))
        for _ in range(self.pauses):
            await anyio.lowlevel.checkpoint()
        if self.faults:
            raise self.faults.pop(0)
        if self.refusals:
            self.refusals -= 1
            return False
        self.rows[session_id].setdefault(event.event_id, event)
        self._tell()
        return True

    def show(self, session_id: SessionId, event: RunEvent) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.shown.append((session_id, event.event_id))
        self._tell()

    def gave_up(self, session_id: SessionId, details: str) -> None:
        self.ended.append((session_id, details))
        self._tell()

    def of(self, session_id: SessionId) -> list[str]:
        return list(self.rows[session_id])

    async def until(self, session_id: SessionId, count: int, *, wait_s: float = 60) -> list[str]:
        """The session's event ids, once there are so many."""
        with anyio.fail_after(wait_s):
            while len(self.rows[session_id]) < count:
                await self.came.wait()
        return self.of(session_id)

    def _tell(self) -> None:
        came, self.came = self.came, anyio.Event()
        came.set()


@dataclass
class MemoryCursors:
    """A cursor store that outlives a "process"."""

    stored: dict[SessionId, StoredCursors] = field(default_factory=dict)
    saves: int = 0

    async def save(self, session_id: SessionId, stored: StoredCursors) -> None:
        self.saves += 1
        self.stored[session_id] = stored

    async def load(self, session_id: SessionId) -> StoredCursors:
        return self.stored.get(session_id, StoredCursors())
