"""Homes with remote children: a real service, real sessions at home, and a worker that tests play.

The worker executes a child for real, in a store of its own with a model of the test's, and keeps
what it would tell as items. The test decides which of them are told, when, and what comes between.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import attrs
from fake_models import OneModel, Said
from family_rig import Cast, Family, Home
from harness_rig import Clock, FakeClient, ids
from service_rig import Served, served

from acp_bridge.harness.committer import Committer
from acp_bridge.harness.desk import Choices, Desk, World
from acp_bridge.harness.files import SessionFiles
from acp_bridge.harness.memory import SessionMemory
from acp_bridge.harness.session import HarnessSession
from acp_bridge.harness.tools import builtin_tools
from acp_bridge.ports import PermissionAsk
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.driver import REOPEN_S, Outside
from acp_bridge.runevents.log import open_log
from acp_bridge.runevents.model import RUN_IN_PROGRESS, EventDraft, RunEvent, RunId
from acp_bridge.runevents.runs import Run
from acp_bridge.runevents.service.serving import Limits as ServiceLimits
from acp_bridge.sessions import Header, SessionStore
from acp_bridge.subagents.ledger import LEDGER_NAME, Ledger
from acp_bridge.subagents.remote_asks import answer_from_json, ask_json
from acp_bridge.subagents.remote_home import RemoteHome
from acp_bridge.subagents.remote_payloads import (
    Item,
    RowItem,
    Settlement,
    Task,
    TransientItem,
    item_json,
    settlement_json,
    settlement_type,
    task_from_json,
)
from acp_bridge.vocabulary import (
    Answer,
    Draft,
    Event,
    JsonObject,
    JsonValue,
    RuntimeEvent,
    SessionId,
    StreamDelta,
    ToolOutput,
    ToolPreview,
    TurnEnd,
)

WAIT_S = 60.0
NOW = "2026-11-30T12:00:00+00:00"


async def _soon(seconds: float) -> None:
    """Waits between tries are short; a stream's life is long."""
    await (anyio.sleep_forever() if seconds >= REOPEN_S else anyio.sleep(0.005))


def remote_home(url: str, folder: Path, *, delegates: bool = True) -> RemoteHome:
    return RemoteHome(
        EventClient(url),
        Ledger(folder / "home" / LEDGER_NAME),
        outside=Outside(now_s=lambda: 0.0, sleep=_soon, chance=lambda: 0.5),
        new_id=lambda: f"home-{os.urandom(6).hex()}",
        home_id="home-1",
        delegates=delegates,
    )


@attrs.define
class Job:
    """A claimed run. ``items`` is what the child did; `tell` tells the home of it."""

    client: EventClient
    run: Run
    task: Task
    execution_id: str
    folder: Path
    items: list[Item] = attrs.field(factory=list)
    end: TurnEnd = attrs.field(factory=lambda: TurnEnd("completed"))
    answer: str | None = None
    _count: int = 0
    _sent: int = 0

    @property
    def run_id(self) -> RunId:
        return self.run.run_id

    @property
    def child_id(self) -> SessionId:
        return SessionId(self.task.header.session_id)

    async def works(
        self,
        *answers: Said,
        asked: FakeClient | None = None,
        steered: JsonObject | None = None,
        hold: anyio.Event | None = None,
    ) -> list[Item]:
        """Execute the child until it is idle; what it told.

        ``asked`` is whom it asks; once ``steered`` is in its inbox ``hold`` is set.
        """
        before = len(self.items)

        async def steer(session: HarnessSession) -> None:
            while steered is not None and not await session.steer(steered):
                await anyio.lowlevel.checkpoint()
            if hold is not None:
                hold.set()

        task = self.task
        await self._executed(task.header, task.events, answers, asked, self.items, steer)
        return self.items[before:]

    async def has_child(self, header: Header, rows: Sequence[Draft], *answers: Said) -> list[Item]:
        """Execute a subagent of the child whose log begins with these rows; what it told."""
        events = [Event(seq, 0, row.type, row.data, row.surface_op) for seq, row in enumerate(rows)]
        items: list[Item] = []
        begun = await self._executed(header, events, answers, None, items)
        return [*(RowItem(SessionId(header.session_id), row) for row in begun), *items]

    async def _executed(
        self,
        header: Header,
        events: Sequence[Event],
        answers: Sequence[Said],
        asked: FakeClient | None,
        told: list[Item],
        meanwhile: Callable[[HarnessSession], Awaitable[None]] | None = None,
    ) -> list[Event]:
        clock = Clock()
        store = SessionStore(self.folder / self.execution_id, clock=clock, durable=False)
        writer = store.create(header)
        begun = writer.append(
            [Draft(e.type, e.data, e.surface_op, e.source_event_seqs, e.ignorable) for e in events]
        )
        memory, model = SessionMemory(events), Cast({"1": answers})
        client = asked or FakeClient()
        assert header.cwd is not None
        desk = Desk(
            session_id=SessionId(header.session_id),
            cwd=Path(header.cwd),
            committer=Committer(writer),
            memory=memory,
            choices=Choices(self.task.mode, model),
            catalog=OneModel(lambda: model),
            tools={tool.name: tool for tool in builtin_tools()},
            client=client,
            files=SessionFiles(client),
            world=World(
                clock=clock,
                new_id=ids(),
                chance=lambda: 0.5,
                keep_attachment=lambda _name, _data: None,
                find_attachment=lambda _name: None,
                spill_dir=self.folder / "spill",
                env={"PATH": os.environ["PATH"]},
            ),
            place="1",
        )

        def hear(event: RuntimeEvent) -> None:
            session_id = SessionId(header.session_id)
            if isinstance(event, Event):
                told.append(RowItem(session_id, event))
            elif isinstance(event, StreamDelta | ToolOutput | ToolPreview):
                told.append(TransientItem(session_id, event))

        session = HarnessSession(desk)
        session.attach(hear)
        async with anyio.create_task_group() as group:
            group.start_soon(session.serve)
            with anyio.fail_after(WAIT_S):
                work = session.awake(title=self.task.title)
                if meanwhile is not None:
                    await meanwhile(session)
                self.end = await work.ended()
                await session.close()
        return begun

    async def begins(self, worker: str = "w1") -> None:
        """Say that a worker has begun with it."""
        await self.progress(RUN_IN_PROGRESS, {"worker": worker})

    async def progress(self, event_type: str, payload: JsonObject) -> None:
        """Publish an event of the run that is shown and forgotten."""
        self._count += 1
        draft = EventDraft(
            event_type, self.run_id, f"{self.execution_id}-{self._count}", NOW,
            execution_id=self.execution_id, payload=payload,
        )  # fmt: skip
        await self.client.publish(self.run_id, [draft])

    async def tell_new(self) -> None:
        """Tell the home what the child did since the last time."""
        new, self._sent = self.items[self._sent :], len(self.items)
        await self.tell(*new)

    async def tell(self, *items: Item, event_id: str = "") -> None:
        """Tell the home these, or all that the child did."""
        self._count += 1
        event_id = event_id or f"{self.execution_id}-{self._count}"
        rows: list[JsonValue] = [item_json(item) for item in items or self.items]
        await self.client.rows(
            self.run_id, execution_id=self.execution_id, event_id=event_id, rows=rows
        )

    async def ask(self, ask: PermissionAsk, ask_id: str = "q1") -> Answer:
        """The home's user's answer."""
        ask = attrs.evolve(ask, child_id=ask.child_id or self.child_id)
        with anyio.fail_after(WAIT_S):
            while True:
                answer = await self.client.ask(
                    self.run_id,
                    execution_id=self.execution_id,
                    event_id=ask_id,
                    payload=ask_json(ask),
                )
                if answer is not None:
                    return answer_from_json(answer)

    def relaying(self) -> FakeClient:
        """Whom a child asks that puts its questions to the home's user."""

        async def relay(ask: PermissionAsk) -> Answer:
            await self.tell_new()
            return await self.ask(ask)

        client = FakeClient()
        client.replier = relay
        return client

    async def settle(self, end: TurnEnd | None = None, answer: str | None = None) -> None:
        """Tell the end."""
        end = end or self.end
        payload = settlement_json(Settlement(end, answer))
        draft = EventDraft(
            settlement_type(end), self.run_id, "ignored", NOW,
            execution_id=self.execution_id, payload=payload,
        )  # fmt: skip
        await self.client.publish(self.run_id, [draft])

    async def heard(self, event_type: str, count: int = 1) -> list[RunEvent]:
        """The first events of this type of the run."""
        return await heard(self.client, self.run_id, event_type, count)


async def heard(
    client: EventClient, run_id: RunId, event_type: str, count: int = 1
) -> list[RunEvent]:
    found: list[RunEvent] = []
    with anyio.fail_after(WAIT_S):
        async with client.open({run_id: 0}, epoch=None) as stream:
            batches = stream.batches()
            while len(found) < count:
                found += [e for e in await anext(batches) if e.event_type == event_type]
            await batches.aclose()
    return found


class FakeWorker:
    """Claims what waits."""

    def __init__(self, client: EventClient, folder: Path) -> None:
        self.client = client
        self._folder = folder
        self._count = 0

    async def claim(self) -> Job:
        """The run that waits longest, once there is one."""
        with anyio.fail_after(WAIT_S):
            while not (waiting := await self.client.waiting()):
                await anyio.lowlevel.checkpoint()
        self._count += 1
        execution_id = f"x{self._count}-{os.urandom(3).hex()}"
        run = await self.client.claim(waiting[0].run_id, worker="w", execution_id=execution_id)
        task = task_from_json(run.task)
        return Job(self.client, run, task, execution_id, self._folder / "worker")


@attrs.define
class Estate:
    """A service, a worker, and the folder of a home that delegates to it."""

    home: Home
    service: Served
    worker: FakeWorker
    client: EventClient

    async def until(self, holds: Callable[[], object]) -> None:
        with anyio.fail_after(WAIT_S):
            while not holds():
                await anyio.lowlevel.checkpoint()

    async def state_of_child(self, run_id: str, wanted: str) -> None:
        """As `state`, of a run that may not be registered yet."""
        with anyio.fail_after(WAIT_S):
            while all(run.run_id != run_id for run in await self.client.waiting()):
                await anyio.lowlevel.checkpoint()
        await self.state(run_id, wanted)

    async def state(self, run_id: str, wanted: str) -> None:
        """Wait until the service has the run in this state."""
        with anyio.fail_after(WAIT_S):
            while (await self.client.run(RunId(run_id))).state != wanted:
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def estate(folder: Path, *, delegates: bool = True) -> AsyncIterator[Estate]:
    """All of it, with short holds and sweeps."""
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(open_log(f"sqlite:{folder / 'events.sqlite'}"))
        limits = ServiceLimits(ask_hold_s=0.05, sweep_s=0.01)
        service = await stack.enter_async_context(served(log, limits=limits))
        client = await stack.enter_async_context(EventClient(service.url))
        home = Home(folder)
        home.remote = lambda: remote_home(service.url, folder, delegates=delegates)
        yield Estate(home, service, FakeWorker(client, folder), client)


def child_of(family: Family) -> SessionId:
    """The last child that was told to have begun."""
    return family.started()[-1].child_id


def cut_at(items: Sequence[Item], kind: str) -> int:
    """Behind the first row of this type."""
    rows = [isinstance(item, RowItem) and item.event.type == kind for item in items]
    return rows.index(True) + 1
