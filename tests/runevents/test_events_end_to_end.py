"""A home here, the service in another process, cut and killed: nothing is lost, nothing twice."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from redis_rig import redis_server
from service_rig import NOW, MemoryCursors, MemoryInbox, client_of
from serving_process import CuttingProxy, ServerProcess

from acp_bridge.errors import EventServiceError
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.driver import Outside
from acp_bridge.runevents.log import open_log
from acp_bridge.runevents.model import EventDraft, RunEvent, RunId
from acp_bridge.runevents.runs import registered
from acp_bridge.runevents.streamer import ConsumerId
from acp_bridge.runevents.streaming import RunStreams, run_streams
from acp_bridge.vocabulary import SessionId

pytestmark = [pytest.mark.anyio, pytest.mark.process]

RUNS = 1_000
PARENTS = 5
CHILDREN = 10  # of each parent: 50 watched
LATE = 2  # of them, registered while events come
ROUNDS = 5
TOGETHER = 4  # events in one request
EVENTS = ROUNDS * TOGETHER  # of each watched run
WAIT_S = 90.0
CUT_AFTER = 20
KILLS = 3
PUBLISHERS = 10
FASTER = 50
EDITOR = ConsumerId("editor")


@pytest.fixture(params=["sqlite", "redis"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    if request.param == "sqlite":
        running = ServerProcess(f"sqlite:{tmp_path / 'events.sqlite'}")
        yield running
        running.stop()
    else:
        with redis_server(tmp_path) as redis:
            running = ServerProcess(redis.url)
            yield running
            running.stop()


@dataclass
class Story:
    """What was published for each run, in the order of the answers, and what was removed."""

    published: dict[RunId, list[str]] = field(default_factory=lambda: defaultdict(list))
    removed: set[RunId] = field(default_factory=set)


class SlowInbox(MemoryInbox):
    """One of its sessions takes its time."""

    async def deliver(self, session_id: SessionId, event: RunEvent) -> bool:
        self.pauses = 100 if session_id == "p0" else 0
        return await super().deliver(session_id, event)


def parents() -> list[RunId]:
    return [RunId(f"p{number}") for number in range(PARENTS)]


def children(parent: RunId) -> list[RunId]:
    return [RunId(f"{parent}-c{number}") for number in range(CHILDREN)]


def unwatched() -> list[RunId]:
    others = RUNS - PARENTS - PARENTS * CHILDREN
    return [RunId(f"unwatched-{number}") for number in range(others)]


async def insist(client: EventClient, run_id: RunId, drafts: list[EventDraft]) -> None:
    """Publish until it is answered, as a worker does; event ids make that safe."""
    while True:
        try:
            await client.publish(run_id, drafts)
        except EventServiceError as error:
            if error.status not in {None, 503}:
                raise
            await anyio.sleep(0.05)  # until the server is back
        else:
            return


async def register_all(log_url: str) -> None:
    """Straight into the log, before it is served: a thousand runs, each with a first event."""
    async with open_log(log_url) as log:

        async def register(run_id: RunId, parent_id: RunId | None) -> None:
            change = partial(
                registered, run_id=run_id, parent_id=parent_id, task=None, task_id=None
            )
            await log.change_run(run_id, change)
            await log.append([EventDraft("run_in_progress", run_id, f"{run_id}-begun", NOW)])

        async with anyio.create_task_group() as tasks:
            for parent in parents():
                tasks.start_soon(register, parent, None)
                for child in children(parent):
                    tasks.start_soon(register, child, parent)
            for run_id in unwatched():
                tasks.start_soon(register, run_id, None)


async def publish_all(client: EventClient, story: Story) -> None:
    watched = [child for parent in parents() for child in children(parent)]

    async def some(mine: list[RunId], others: list[RunId]) -> None:
        for number in range(ROUNDS):
            for run_id in [*mine, others[number]]:
                ids = [f"{run_id}-e{number}-{n}" for n in range(TOGETHER)]
                drafts = [EventDraft("run_failed", run_id, event_id, NOW) for event_id in ids]
                await insist(client, run_id, drafts)
                story.published[run_id] += ids

    async with anyio.create_task_group() as tasks:
        for number in range(PUBLISHERS):
            tasks.start_soon(some, watched[number::PUBLISHERS], unwatched()[number::PUBLISHERS])


async def widen_and_narrow(streams: RunStreams, inbox: MemoryInbox, story: Story) -> None:
    """While events come: late children of every parent, and one that is removed."""
    for number, parent in enumerate(parents()):
        await inbox.until(SessionId(parent), 20 + 10 * number, wait_s=WAIT_S)
        for child in children(parent)[-LATE:]:
            streams.register_child(SessionId(parent), child)
        gone = children(parent)[0]
        streams.run_assigned(SessionId(gone), gone)
        story.removed.add(gone)
        streams.removed(SessionId(gone))
        streams.unregister_consumer(SessionId(parent), EDITOR)
        await anyio.lowlevel.checkpoint()
        streams.register_consumer(SessionId(parent), EDITOR)


async def kill_thrice(server: ServerProcess, inbox: MemoryInbox) -> None:
    for number in range(1, KILLS + 1):
        wanted = number * 150
        while sum(map(len, inbox.rows.values())) < wanted:
            await inbox.came.wait()
        await anyio.to_thread.run_sync(server.kill)
        await anyio.to_thread.run_sync(server.start)


async def test_nothing_is_lost_nothing_twice_and_each_run_is_in_order(
    server: ServerProcess,
) -> None:
    await register_all(server.log_url)
    await anyio.to_thread.run_sync(server.start)
    story, inbox, cursors = Story(), SlowInbox(), MemoryCursors()
    proxy = CuttingProxy(server, events_max=CUT_AFTER)
    outside = Outside(
        now_s=anyio.current_time, sleep=lambda wait_s: anyio.sleep(wait_s / FASTER),
        chance=lambda: 0.5,
    )  # fmt: skip
    with anyio.fail_after(WAIT_S):
        async with AsyncExitStack() as stack:
            publisher = await stack.enter_async_context(client_of(server.url))
            await stack.enter_async_context(proxy.running())
            source = await stack.enter_async_context(client_of(proxy.url))
            streams = await stack.enter_async_context(
                run_streams(source=source, delivery=inbox, store=cursors, outside=outside)
            )
            for parent in parents():
                streams.register_consumer(SessionId(parent), EDITOR)
                for child in children(parent)[:-LATE]:
                    streams.register_child(SessionId(parent), child)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(publish_all, publisher, story)
                tasks.start_soon(widen_and_narrow, streams, inbox, story)
                tasks.start_soon(kill_thrice, server, inbox)
            while awaited(story, inbox):
                await inbox.came.wait()
            check_delivered(story, inbox)
    assert proxy.cuts >= PARENTS * (CHILDREN - 1) * EVENTS // CUT_AFTER // 2


def awaited(story: Story, inbox: MemoryInbox) -> bool:
    """Whether the last event of a watched run is still missing."""
    return any(
        story.published[child][-1] not in inbox.rows[SessionId(parent)]
        for parent in parents()
        for child in children(parent)
        if child not in story.removed
    )


def check_delivered(story: Story, inbox: MemoryInbox) -> None:
    assert [call for call, times in Counter(inbox.calls).items() if times > 1] == []
    for parent in parents():
        of_run: dict[RunId, list[str]] = defaultdict(list)
        for event in inbox.rows[SessionId(parent)].values():
            of_run[event.run_id].append(event.event_id)
        assert set(of_run) <= set(children(parent))
        for child in children(parent):
            expected = story.published[child]
            if child in story.removed:  # whatever came before it was removed, in order
                assert of_run[child] == expected[: len(of_run[child])]
            else:
                assert of_run[child] == expected
