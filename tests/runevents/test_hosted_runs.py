"""Runs that this process hosts, each with its driver as a consumer, over a real service.

The numbers are those of the list of tests in the design of orchestration.
"""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from service_rig import NOW, MemoryCursors, MemoryInbox, draft, served

from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.driver import Outside
from acp_bridge.runevents.log import open_log
from acp_bridge.runevents.model import EventDraft, RunId
from acp_bridge.runevents.streamer import ConsumerId
from acp_bridge.runevents.streaming import RunStreams, run_streams
from acp_bridge.vocabulary import SessionId

pytestmark = pytest.mark.anyio

P, C = SessionId("parent"), SessionId("child")
RP, RC, RD = RunId("run-p"), RunId("run-c"), RunId("run-d")
P_DRIVER, C_DRIVER = ConsumerId("driver of p"), ConsumerId("driver of c")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EventClient]:
    async with (
        open_log(f"sqlite:{tmp_path / 'events.sqlite'}") as log,
        served(log) as service,
        EventClient(service.url) as opened,
    ):
        await opened.register(RP)
        await opened.register(RC, parent_id=RP)
        await opened.register(RD, parent_id=RP)
        yield opened


@pytest.fixture
def inbox() -> MemoryInbox:
    return MemoryInbox()


@pytest.fixture
async def streams(client: EventClient, inbox: MemoryInbox) -> AsyncIterator[RunStreams]:
    outside = Outside(now_s=lambda: 0.0, sleep=anyio.sleep, chance=lambda: 0.5)
    store = MemoryCursors()
    async with run_streams(source=client, delivery=inbox, store=store, outside=outside) as made:
        yield made


def told(run_id: RunId, event_id: str) -> EventDraft:
    return EventDraft("new_message", run_id, event_id, NOW)


async def test_12_a_driver_alone_gets_the_events_of_all_children(
    client: EventClient, streams: RunStreams, inbox: MemoryInbox
) -> None:
    streams.register_consumer(P, P_DRIVER)
    streams.run_assigned(P, RP, hosted_by=P_DRIVER)
    streams.register_child(P, RC)
    await client.publish(RC, [draft(RC, "c-ended")])
    await client.publish(RD, [draft(RD, "d-ended")])  # one that its stream tells of
    assert sorted(await inbox.until(P, 2)) == ["c-ended", "d-ended"]
    assert set(streams.core.watched_by(P)) == {RP, RC, RD}


async def test_29_each_driver_closes_its_own_stream_only(
    client: EventClient, streams: RunStreams, inbox: MemoryInbox
) -> None:
    for session_id, driver in ((P, P_DRIVER), (C, C_DRIVER)):
        streams.register_consumer(session_id, driver)
    streams.run_assigned(P, RP, hosted_by=P_DRIVER)
    streams.register_child(P, RC)
    streams.run_assigned(C, RC, parent_run=RP, hosted_by=C_DRIVER)
    await client.publish(RC, [told(RC, "to-c")])
    assert await inbox.until(C, 1) == ["to-c"]
    assert streams.snapshot().open_connections == 2
    streams.unregister_consumer(C, C_DRIVER)
    assert streams.snapshot().open_connections == 1
    await client.publish(RC, [draft(RC, "c-ended")])
    # What a child is told comes to its parent too, who may be keeping its log.
    assert await inbox.until(P, 2) == ["to-c", "c-ended"]
    streams.register_consumer(C, C_DRIVER)  # it is continued
    streams.unregister_consumer(P, P_DRIVER)
    await client.publish(RC, [told(RC, "to-c-again")])
    assert await inbox.until(C, 2) == ["to-c", "to-c-again"]
    (one,) = [entry for entry in streams.snapshot().entries if entry.generation is not None]
    assert (one.session_id, one.role) == (C, "child")


async def test_30_a_hosted_run_without_its_driver_is_an_error_and_still_watched_later(
    client: EventClient,
    streams: RunStreams,
    inbox: MemoryInbox,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        streams.run_assigned(C, RC, parent_run=RP, hosted_by=C_DRIVER)
    (message,) = caplog.messages
    assert RC in message
    assert C in message
    assert streams.snapshot().open_connections == 0
    await client.publish(RC, [told(RC, "to-c")])
    streams.register_consumer(C, C_DRIVER)
    assert await inbox.until(C, 1) == ["to-c"]
