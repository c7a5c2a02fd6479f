"""One suite that every event log must pass: SQLite, and Redis with a real redis-server."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import anyio
import attrs
import pytest
import redis as redis_client
from redis_rig import RedisServer, redis_server

from acp_bridge.errors import (
    ConfigError,
    InvalidParamsError,
    RunConflictError,
    RunNotFoundError,
    StoreFailedError,
)
from acp_bridge.runevents.log import PAGE_EVENTS_MAX, EventLog, Subscription, open_log
from acp_bridge.runevents.model import EventDraft, RunId
from acp_bridge.runevents.runs import Run, claimed, registered, settled

pytestmark = pytest.mark.anyio

A, B, NOBODY = RunId("run-a"), RunId("run-b"), RunId("nobody")
Opener = Callable[[], AbstractAsyncContextManager[EventLog]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(params=["sqlite", "redis"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    if request.param == "sqlite":
        return partial(open_log, f"sqlite:{tmp_path / 'events.sqlite'}")
    server: RedisServer = request.getfixturevalue("server")
    with redis_client.Redis.from_url(server.url) as redis:
        redis.flushall()
    return partial(open_log, server.url)


@pytest.fixture
async def log(opener: Opener) -> AsyncIterator[EventLog]:
    async with opener() as opened:
        for run_id in (A, B):
            await register(opened, run_id)
        yield opened


async def register(log: EventLog, run_id: RunId, parent_id: RunId | None = None) -> Run:
    return await log.change_run(
        run_id,
        partial(registered, run_id=run_id, parent_id=parent_id, task=None, task_id=None),
    )


def draft(run_id: RunId, event_id: str, **payload: str) -> EventDraft:
    return EventDraft("new_message", run_id, event_id, "2026-11-30T12:00:00Z", payload={**payload})


async def take(subscription: Subscription, count: int) -> list[int]:
    sequences: list[int] = []
    with anyio.fail_after(60):
        while len(sequences) < count:
            sequences += [event.sequence for event in await subscription.next()]
    return sequences


async def test_an_event_comes_back_as_it_was_published(log: EventLog) -> None:
    published = draft(A, "e1", text='quote " and ünïcode \u2028 \ud83d')
    (sequence,) = await log.append([published])
    (stored,) = (await log.read({A: 0})).events
    event = stored.event()
    assert event.sequence == stored.sequence == sequence
    assert (
        EventDraft(**{field.name: getattr(event, field.name) for field in attrs.fields(EventDraft)})
        == published
    )


async def test_sequences_grow_over_all_runs(log: EventLog) -> None:
    sequences = [(await log.append([draft(run, f"{run}-{number}")]))[0]
                 for number in range(5) for run in (A, B)]  # fmt: skip
    assert sequences == sorted(set(sequences))
    assert await log.last_sequence() == sequences[-1]
    page = await log.read({A: 0, B: 0})
    assert [event.sequence for event in page.events] == sequences


async def test_commit_order_is_sequence_order_for_concurrent_publishers(log: EventLog) -> None:
    answered: list[int] = []

    async def publish(number: int) -> None:
        answered.extend(await log.append([draft(A, f"e{number}")]))

    with log.subscribe({A: 0}) as subscription:
        async with anyio.create_task_group() as tasks:
            for number in range(300):
                tasks.start_soon(publish, number)
        seen = await take(subscription, 300)
    assert seen == sorted(answered)
    assert len(set(seen)) == 300


async def test_a_repeated_event_id_changes_nothing_and_has_the_first_sequence(
    log: EventLog,
) -> None:
    first = await log.append([draft(A, "e1"), draft(A, "e2")])
    again = await log.append([draft(A, "e2"), draft(A, "e3"), draft(A, "e3")])
    assert again[0] == first[1]
    assert again[1] == again[2]
    assert len((await log.read({A: 0})).events) == 3


async def test_an_event_id_of_another_run_is_refused_and_nothing_is_appended(
    log: EventLog,
) -> None:
    await log.append([draft(A, "e1")])
    with pytest.raises(InvalidParamsError) as refused:
        await log.append([draft(B, "e2"), draft(B, "e1")])
    assert refused.value.field == "event_id"
    assert (await log.read({B: 0})).events == []


async def test_an_unregistered_run_has_no_events_and_nothing_is_appended(log: EventLog) -> None:
    with pytest.raises(RunNotFoundError, match="nobody"):
        await log.append([draft(A, "e1"), draft(NOBODY, "e2")])
    assert (await log.read({A: 0, NOBODY: 0})).events == []


async def test_a_refused_append_does_not_spoil_its_neighbours(log: EventLog) -> None:
    failed: list[Exception] = []

    async def publish(run_id: RunId, number: int) -> None:
        try:
            await log.append([draft(run_id, f"e{number}")])
        except RunNotFoundError as error:
            failed.append(error)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(publish, A if number % 2 else NOBODY, number)
    assert len(failed) == 10
    assert len((await log.read({A: 0})).events) == 10


async def test_reading_starts_after_each_runs_own_cursor_and_keeps_its_limit(
    log: EventLog,
) -> None:
    sequences = await log.append([draft(run, f"{run}-{n}") for n in range(4) for run in (A, B)])
    page = await log.read({A: sequences[4], B: sequences[1]}, limit=3)
    assert [event.sequence for event in page.events] == sequences[3:4] + sequences[5:7]
    assert not page.is_last
    page = await log.read({A: sequences[6], B: sequences[5]}, limit=3)
    assert [event.sequence for event in page.events] == sequences[7:]
    assert page.is_last
    assert await log.read({}) == await log.read({NOBODY: 0})


async def test_a_subscription_brings_what_was_there_and_what_comes(log: EventLog) -> None:
    before = await log.append([draft(A, f"before-{number}") for number in range(600)])
    with log.subscribe({A: before[9]}) as subscription:
        assert await take(subscription, 590) == before[10:]
        for number in range(5):
            after = await log.append([draft(A, f"after-{number}"), draft(B, f"other-{number}")])
            assert await take(subscription, 1) == after[:1]


async def test_a_subscription_that_nobody_reads_loses_nothing(log: EventLog) -> None:
    with log.subscribe({A: 0}) as subscription:
        first = await log.append([draft(A, "first")])
        assert await take(subscription, 1) == first
        more = []
        for number in range(3):
            some = [draft(A, f"{number}-{n}") for n in range(PAGE_EVENTS_MAX)]
            more += await log.append(some)
        assert await take(subscription, len(more)) == more


async def test_a_cancelled_wait_loses_nothing(log: EventLog) -> None:
    sequences = await log.append([draft(A, f"e{number}") for number in range(30)])
    seen: list[int] = []
    with log.subscribe({A: 0}) as subscription:
        while len(seen) < 30:
            with anyio.CancelScope() as scope:
                scope.cancel()
                seen += [event.sequence for event in await subscription.next()]
            with anyio.fail_after(60):
                seen += [event.sequence for event in await subscription.next()]
    assert seen == sequences


async def test_large_events_make_small_pages(log: EventLog) -> None:
    large = [draft(A, f"e{number}", text="x" * 400_000) for number in range(6)]
    sequences = await log.append(large)
    page = await log.read({A: 0})
    assert len(page.events) == 3
    assert not page.is_last
    with log.subscribe({A: 0}) as subscription:
        assert await take(subscription, 6) == sequences


async def test_two_readers_see_the_same_order(log: EventLog) -> None:
    with log.subscribe({A: 0, B: 0}) as one, log.subscribe({A: 0, B: 0}) as other:
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(log.append, [draft(A if number % 2 else B, f"e{number}")])
        assert await take(one, 50) == await take(other, 50)


async def test_everything_is_there_after_a_restart(opener: Opener) -> None:
    async with opener() as log:
        epoch = log.epoch
        await register(log, A)
        await register(log, B, A)
        (sequence,) = await log.append([draft(A, "e1")])
    async with opener() as log:
        assert log.epoch == epoch
        assert await log.last_sequence() >= sequence
        assert await log.append([draft(A, "e1")]) == [sequence]
        assert (await log.append([draft(A, "e2")]))[0] > sequence
        assert await log.run(B) == Run(B, A)


async def test_runs_are_registered_once_with_their_parent(log: EventLog) -> None:
    child = RunId("child")
    assert await log.run(child) is None
    assert await register(log, child, A) == await register(log, child, A) == await log.run(child)
    with pytest.raises(RunConflictError, match="run-a"):
        await register(log, child, B)
    await register(log, RunId("child-2"), A)
    assert await log.children(A) == [child, "child-2"]
    assert await log.children(child) == []


async def test_of_many_workers_one_gets_a_run(log: EventLog) -> None:
    run_id = RunId("work")
    await log.change_run(
        run_id, partial(registered, run_id=run_id, parent_id=A, task={"do": "it"}, task_id="t1")
    )
    assert [run.run_id for run in await log.runs_in("waiting", 10)] == [run_id]
    winners: list[str] = []

    async def claim(worker: str) -> None:
        def change(run: Run | None) -> Run:
            assert run is not None
            return claimed(run, worker=worker, execution_id=f"x-{worker}", now_ms=0)

        try:
            await log.change_run(run_id, change)
            winners.append(worker)
        except RunConflictError:
            pass

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(claim, f"w{number}")
    run = await log.run(run_id)
    assert run is not None
    assert winners == [run.worker]
    assert await log.runs_in("waiting", 10) == []
    assert await log.runs_in("claimed", 10) == [run]
    await log.change_run(
        run_id, lambda run: settled(run or Run(run_id), run.execution_id or "" if run else "")
    )
    assert [one.state for one in await log.runs_in("settled", 10)] == ["settled"]


async def test_runs_longest_in_a_state_come_first(log: EventLog) -> None:
    def waits(run_id: RunId, task_id: str) -> Callable[[Run | None], Run]:
        return partial(registered, run_id=run_id, parent_id=None, task={}, task_id=task_id)

    for name in ("w1", "w2", "w3"):
        await log.change_run(RunId(name), waits(RunId(name), "first"))
    await log.change_run(RunId("w1"), lambda _: Run(RunId("w1"), state="settled"))
    await log.change_run(RunId("w1"), waits(RunId("w1"), "second"))
    assert [run.run_id for run in await log.runs_in("waiting", 2)] == ["w2", "w3"]
    assert [run.run_id for run in await log.runs_in("waiting", 9)] == ["w2", "w3", "w1"]


@pytest.mark.parametrize("url", ["", "sqlite", "sqlite:", "postgres://x", "redis"])
async def test_an_address_of_no_log_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="use sqlite:PATH or redis"):
        open_log(url)


async def test_an_unreachable_redis_is_one_sentence_without_its_password() -> None:
    with pytest.raises(StoreFailedError) as failed:
        async with open_log("redis://:secret@127.0.0.1:1/0"):
            pass
    assert "secret" not in failed.value.details


async def test_what_was_delivered_is_forgotten_but_for_its_end(opener: Opener) -> None:
    async with opener() as log:
        for run_id in (A, B):
            await register(log, run_id)
        told = [draft(A, f"a{number}", text="half \ud83d") for number in range(1200)]
        sequences = await log.append(told)
        (other,) = await log.append([draft(B, "b1")])
        (end,) = await log.append([draft(A, "end")])
        await log.prune(A, end + 1)  # no event of it: nothing is forgotten
        await log.prune(A, other)
        assert [event.sequence for event in (await log.read({A: 0}, 3)).events] == sequences[:3]
        await log.prune(A, end)
        assert [event.sequence for event in (await log.read({A: 0, B: 0})).events] == [other, end]
        assert await log.last_sequence() == end
        assert await log.append([draft(A, "end")]) == [end]  # known still
        (again,) = await log.append([draft(A, "a1")])
        assert again > end
    async with opener() as log:
        assert await log.last_sequence() >= again
        with log.subscribe({A: 0}) as subscription:
            assert await take(subscription, 2) == [end, again]
