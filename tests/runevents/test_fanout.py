"""A subscription between memory and log: in any order of things nothing is lost, nothing twice."""

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.errors import StoreFailedError
from acp_bridge.runevents.log import PAGE_EVENTS_MAX, Page
from acp_bridge.runevents.log.fanout import Fanout, LiveSubscription
from acp_bridge.runevents.model import RunId, StoredEvent

pytestmark = pytest.mark.anyio

RUN, OTHER = RunId("run"), RunId("other")


class FakeLog:
    """A list of events; a read can be held while more are committed."""

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self.fanout = Fanout()
        self.page = PAGE_EVENTS_MAX
        self.reads = 0
        self.holds: list[anyio.Event] = []

    def commit(self, count: int, run_id: RunId = RUN) -> None:
        for _ in range(count):
            event = StoredEvent(len(self.events) + 1, run_id, "{}")
            self.events.append(event)
            self.fanout.offer([event])

    async def read(self, cursors: object) -> Page:
        self.reads += 1
        assert isinstance(cursors, dict)
        found = [one for one in self.events if one.sequence > cursors.get(one.run_id, 1 << 60)]
        if self.holds:
            await self.holds.pop(0).wait()
        return Page(found[: self.page], is_last=len(found) <= self.page)


async def take(subscription: LiveSubscription, count: int) -> list[int]:
    seen: list[int] = []
    with anyio.fail_after(60):
        while len(seen) < count:
            seen += [event.sequence for event in await subscription.next()]
    return seen


async def test_what_is_committed_during_a_read_comes_after_it_and_once() -> None:
    log = FakeLog()
    log.commit(3)
    held = anyio.Event()
    log.holds = [held]
    seen: list[int] = []
    with log.fanout.subscribe({RUN: 0}, log.read) as subscription:
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                seen.extend(await take(subscription, 5))

            tasks.start_soon(read)
            while not log.reads:
                await anyio.lowlevel.checkpoint()
            log.commit(2)
            held.set()
    assert seen == [1, 2, 3, 4, 5]


async def test_an_event_that_is_read_and_offered_comes_once() -> None:
    log = FakeLog()
    with log.fanout.subscribe({RUN: 0}, log.read) as subscription:
        log.commit(2)
        assert await take(subscription, 2) == [1, 2]
        log.fanout.offer(log.events)  # told late: it was read before
        log.commit(1)
        assert await take(subscription, 1) == [3]


async def test_a_live_subscription_asks_the_log_nothing() -> None:
    log = FakeLog()
    with log.fanout.subscribe({RUN: 0}, log.read) as subscription:
        log.commit(1)
        await take(subscription, 1)
        log.commit(PAGE_EVENTS_MAX)
        log.commit(5, OTHER)
        await take(subscription, PAGE_EVENTS_MAX)
        assert log.reads == 1


async def test_after_a_failure_everybody_who_waits_hears_of_it() -> None:
    log = FakeLog()
    log.commit(1)
    with log.fanout.subscribe({RUN: 0}, log.read) as subscription:
        await take(subscription, 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_fail_soon, log)
            with anyio.fail_after(60), pytest.raises(StoreFailedError, match="gone"):
                await subscription.next()


async def _fail_soon(log: FakeLog) -> None:
    await anyio.lowlevel.checkpoint()
    log.fanout.fail(StoreFailedError("gone"))


@given(
    steps=st.lists(
        st.sampled_from(["commit", "many", "other", "behind", "take", "cancelled"]), max_size=40
    ),
    page=st.integers(1, 5),
)
def test_any_interleaving_brings_the_whole_log_in_order(steps: list[str], page: int) -> None:
    async def play() -> None:
        log = FakeLog()
        log.page = page
        seen: list[int] = []
        with log.fanout.subscribe({RUN: 0}, log.read) as subscription:
            for step in steps:
                match step:
                    case "commit":
                        log.commit(1)
                    case "many":
                        log.commit(PAGE_EVENTS_MAX + 3)
                    case "other":
                        log.commit(2, OTHER)
                    case "behind":
                        log.fanout.fall_behind()
                    case "cancelled":
                        held = anyio.Event()
                        log.holds = [held]
                        with anyio.CancelScope() as scope:
                            scope.cancel()
                            seen += [one.sequence for one in await subscription.next()]
                        log.holds = []
                    case _:
                        wanted = sum(one.run_id == RUN for one in log.events)
                        if len(seen) < wanted:
                            seen += [one.sequence for one in await subscription.next()]
            expected = [one.sequence for one in log.events if one.run_id == RUN]
            seen += await take(subscription, len(expected) - len(seen))
        assert seen == expected

    anyio.run(play)
