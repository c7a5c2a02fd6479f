"""Redis is killed, emptied, or started again: nothing durable is lost, nothing new is hidden."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest
import redis as redis_client
from redis_rig import RedisServer, redis_server

from acp_bridge.errors import StoreFailedError
from acp_bridge.runevents.log import EventLog, open_log
from acp_bridge.runevents.model import EventDraft, RunId
from acp_bridge.runevents.runs import registered

pytestmark = [pytest.mark.anyio, pytest.mark.process]

RUN = RunId("run")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path, "--appendfsync", "always") as running:
        yield running


def draft(event_id: str) -> EventDraft:
    return EventDraft("new_message", RUN, event_id, "2026-11-30T12:00:00Z")


async def register(log: EventLog) -> None:
    await log.change_run(
        RUN, partial(registered, run_id=RUN, parent_id=None, task=None, task_id=None)
    )


async def eventually_appended(log: EventLog, event_id: str) -> int:
    with anyio.fail_after(60):
        while True:
            try:
                return (await log.append([draft(event_id)]))[0]
            except StoreFailedError:
                await anyio.sleep(0.02)  # until the server is back


async def test_what_was_answered_survives_a_kill_and_sequences_rise_above_what_may_be_lost(
    server: RedisServer,
) -> None:
    async with open_log(server.url) as log:
        await register(log)
        sequences = [await eventually_appended(log, f"e{number}") for number in range(20)]
        with log.subscribe({RUN: 0}) as subscription:
            assert [one.sequence for one in await subscription.next()] == sequences
            server.kill()
            with pytest.raises(StoreFailedError, match="is it up"):
                await log.append([draft("lost")])
            server.start()
            after = await eventually_appended(log, "after")
            assert after >= sequences[-1] + 1_000_000
            with anyio.fail_after(60):
                assert [one.sequence for one in await subscription.next()][-1] == after
        stored = [one.sequence for one in (await log.read({RUN: 0})).events]
        assert stored[:20] == sequences
        assert await eventually_appended(log, "e3") == sequences[3]


async def test_27_an_emptied_redis_is_another_log_and_ends_its_streams(server: RedisServer) -> None:
    async with open_log(server.url) as log:
        await register(log)
        await log.append([draft("e1")])
        epoch = log.epoch
        with log.subscribe({RUN: 0}) as subscription:
            await subscription.next()
            with redis_client.Redis.from_url(server.url) as redis:
                redis.flushall()
            with pytest.raises(StoreFailedError, match="reset"):
                await log.append([draft("e2")])
            with anyio.fail_after(60), pytest.raises(StoreFailedError, match="reset"):
                await subscription.next()
        assert log.epoch != epoch


async def test_two_processes_serve_one_log(server: RedisServer) -> None:
    async with open_log(server.url) as one, open_log(server.url) as other:
        assert one.epoch == other.epoch
        await register(one)
        with other.subscribe({RUN: 0}) as subscription:
            sequences = []
            seen: list[int] = []
            for number in range(20):
                log = one if number % 2 else other
                sequences += await log.append([draft(f"e{number}")])
            with anyio.fail_after(60):
                while len(seen) < 20:
                    seen += [event.sequence for event in await subscription.next()]
        assert seen == sequences
