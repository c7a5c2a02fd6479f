"""The streams around the pure streamer: a scripted source, an inbox, a clock that tests move."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest
from service_rig import MemoryCursors, MemoryInbox
from streamer_world import run_event

from acp_bridge.errors import EventLogResetError, EventServiceError
from acp_bridge.runevents.delivery import StoredCursors
from acp_bridge.runevents.driver import REOPEN_S, Outside
from acp_bridge.runevents.model import RunEvent, RunId
from acp_bridge.runevents.streamer import ConsumerId
from acp_bridge.runevents.streaming import RunStreams, run_streams
from acp_bridge.vocabulary import SessionId

pytestmark = pytest.mark.anyio

P, C = SessionId("parent"), SessionId("child")
RP, RC, RD = RunId("run-p"), RunId("run-c"), RunId("run-d")
EDITOR, DRIVER = ConsumerId("editor"), ConsumerId("driver")


@dataclass
class FakeTime:
    """Sleeps end when the test says so; the clock stands until it is moved."""

    now_s: float = 0.0
    slept: list[float] = field(default_factory=list)
    sleepers: list[tuple[float, anyio.Event]] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        if seconds != REOPEN_S:
            self.slept.append(seconds)
        entry = (self.now_s + seconds, anyio.Event())
        self.sleepers.append(entry)
        try:
            await entry[1].wait()
        finally:
            self.sleepers.remove(entry)

    def move(self, seconds: float) -> None:
        self.now_s += seconds
        for until, woken in self.sleepers:
            if until <= self.now_s:
                woken.set()


@dataclass
class Line:
    """One open stream: the test sends batches into it, or ends it."""

    cursors: dict[RunId, int]
    epoch: str = "epoch-1"
    send: list[list[RunEvent] | Exception | None] = field(default_factory=list)
    came: anyio.Event = field(default_factory=anyio.Event)
    is_open: bool = True

    def bring(self, *batch: RunEvent) -> None:
        self._put(list(batch))

    def end(self, failure: Exception | None = None) -> None:
        self._put(failure)

    def _put(self, item: list[RunEvent] | Exception | None) -> None:
        self.send.append(item)
        came, self.came = self.came, anyio.Event()
        came.set()

    async def batches(self) -> AsyncGenerator[list[RunEvent], None]:
        while True:
            while not self.send:
                await self.came.wait()
            item = self.send.pop(0)
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item


@dataclass
class FakeSource:
    """Gives out lines; ``refusals`` come first."""

    lines: list[Line] = field(default_factory=list)
    refusals: list[Exception] = field(default_factory=list)
    kids: dict[RunId, list[RunId]] = field(default_factory=dict)
    kids_faults: list[Exception] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, cursors: Mapping[RunId, int], *, epoch: str | None) -> AsyncIterator[Line]:
        await anyio.lowlevel.checkpoint()
        if self.refusals:
            raise self.refusals.pop(0)
        line = Line(dict(cursors), epoch or "epoch-1")
        self.lines.append(line)
        try:
            yield line
        finally:
            line.is_open = False

    async def children(self, run_id: RunId) -> list[RunId]:
        await anyio.lowlevel.checkpoint()
        if self.kids_faults:
            raise self.kids_faults.pop(0)
        return self.kids.get(run_id, [])


@dataclass
class Rig:
    """Everything around the streams of one "process"; inbox and cursors outlive it."""

    source: FakeSource = field(default_factory=FakeSource)
    inbox: MemoryInbox = field(default_factory=MemoryInbox)
    cursors: MemoryCursors = field(default_factory=MemoryCursors)
    time: FakeTime = field(default_factory=FakeTime)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[RunStreams]:
        outside = Outside(now_s=lambda: self.time.now_s, sleep=self.time.sleep, chance=lambda: 0.5)
        with anyio.fail_after(60):
            async with run_streams(
                source=self.source, delivery=self.inbox, store=self.cursors, outside=outside
            ) as streams:
                yield streams

    async def line(self, number: int) -> Line:
        """The stream that is opened as this one, from 0."""
        with anyio.fail_after(60):
            while len(self.source.lines) <= number:
                await anyio.lowlevel.checkpoint()
        return self.source.lines[number]


async def rest() -> None:
    """Let every task come to where it waits."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


def watch_child(streams: RunStreams) -> None:
    streams.register_consumer(P, EDITOR)
    streams.run_assigned(P, RP)
    streams.register_child(P, RC)


async def test_events_reach_the_inbox_and_cursors_are_stored_once_a_batch() -> None:
    """14."""
    rig = Rig()
    async with rig.running() as streams:
        watch_child(streams)
        line = await rig.line(0)
        assert line.cursors == {RP: 0, RC: 0}
        line.bring(
            run_event(RC, 1, "run_in_progress"),
            run_event(RC, 2),
            run_event(RP, 3, "new_message"),
            run_event(RC, 2),
        )
        assert await rig.inbox.until(P, 2) == ["e2", "e3"]
        await rest()
        assert rig.inbox.shown == [(P, "e1")]
        assert rig.cursors.saves == 1
        assert rig.cursors.stored[P] == StoredCursors("epoch-1", RP, {RP: 3, RC: 2})


async def test_06_a_batch_in_hand_is_handed_over_when_the_last_consumer_leaves() -> None:
    rig = Rig()
    rig.inbox.pauses = 3
    async with rig.running() as streams:
        watch_child(streams)
        line = await rig.line(0)
        line.bring(*(run_event(RC, number) for number in range(1, 6)))
        await rig.inbox.until(P, 1)
        streams.unregister_consumer(P, EDITOR)
        line.bring(run_event(RC, 6))
        assert await rig.inbox.until(P, 5) == ["e1", "e2", "e3", "e4", "e5"]
        await rest()
        assert not line.is_open
        assert "e6" not in rig.inbox.of(P)
        streams.register_consumer(P, EDITOR)
        assert (await rig.line(1)).cursors == {RP: 0, RC: 5}


async def test_24_a_child_that_a_stream_tells_of_widens_it_and_loses_nothing() -> None:
    rig = Rig()
    async with rig.running() as streams:
        watch_child(streams)
        line = await rig.line(0)
        line.bring(run_event(RP, 5, "child_agent_started", ref_id=RD), run_event(RC, 6))
        wider = await rig.line(1)
        assert (wider.cursors[RD], wider.cursors[RP]) == (0, 5)
        wider.bring(run_event(RD, 4), run_event(RC, 6), run_event(RC, 7))
        assert await rig.inbox.until(P, 3) == ["e6", "e4", "e7"]


async def test_13_a_lost_stream_is_opened_again_after_the_table() -> None:
    rig = Rig()
    async with rig.running() as streams:
        watch_child(streams)
        for number, wait_s in enumerate((1.0, 2.0, 5.0, 10.0, 10.0)):
            (await rig.line(number)).end(EventServiceError("gone", status=None))
            await rest()
            assert rig.time.slept[-1] == wait_s
            rig.time.move(wait_s)
        await rig.line(5)


@pytest.mark.parametrize("how", ["an event", "its age"])
async def test_15_a_stream_that_lived_makes_earlier_failures_forgotten(how: str) -> None:
    rig = Rig()
    async with rig.running() as streams:
        watch_child(streams)
        for number in range(2):
            (await rig.line(number)).end()
            await rest()
            rig.time.move(10)
        line = await rig.line(2)
        if how == "an event":
            line.bring(run_event(RC, 1))
            await rig.inbox.until(P, 1)
        else:
            rig.time.move(10)
        line.end()
        await rest()
        assert rig.time.slept == [1.0, 2.0, 1.0]


async def test_17_a_refused_token_ends_the_stream_with_a_sentence() -> None:
    rig = Rig()
    rig.source.refusals = [EventServiceError("The token is wrong.", status=401) for _ in range(3)]
    async with rig.running() as streams:
        watch_child(streams)
        for _ in range(2):
            await rest()
            rig.time.move(30)
        await rest()
        ((session_id, details),) = rig.inbox.ended
        assert session_id == P
        assert details.startswith("The token is wrong. Session parent hears nothing")
        assert rig.time.slept == [30.0, 30.0]
        assert rig.source.lines == []


async def test_it_is_opened_again_before_a_proxy_would_cut_it_without_a_wait() -> None:
    rig = Rig()
    async with rig.running() as streams:
        watch_child(streams)
        line = await rig.line(0)
        line.bring(run_event(RC, 7))
        await rig.inbox.until(P, 1)
        await rest()
        rig.time.move(REOPEN_S)
        again = await rig.line(1)
        assert again.cursors == {RP: 0, RC: 7}
        assert not line.is_open
        assert rig.time.slept == []
        assert streams.snapshot().entries[0].generation == 1


@pytest.mark.parametrize("kind", ["run_in_progress", "run_succeeded"])
async def test_16_a_fault_of_the_session_is_contained(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    rig.inbox.faults = [RuntimeError("a bug of the session")]
    async with rig.running() as streams:
        watch_child(streams)
        streams.run_assigned(C, RC, parent_run=RP)
        streams.register_consumer(C, DRIVER)
        (await rig.line(0)).bring(run_event(RC, 1, kind))
        await rest()
        (await rig.line(1)).bring(run_event(RC, 2, "new_message"))
        await rig.inbox.until(C, 1)  # the other session's stream goes on
        rig.time.move(1)
        await rest()
        line = rig.source.lines[-1] if kind == "run_succeeded" else rig.source.lines[0]
        line.bring(run_event(RC, 1, kind), run_event(RC, 3))
        await rig.inbox.until(P, 1)
        await rest()
    expected = {"run_succeeded": ["e1", "e3"], "run_in_progress": ["e3"]}
    assert rig.inbox.of(P) == expected[kind]
    assert "of run-c not" in caplog.text


async def test_an_event_that_is_not_accepted_comes_again_before_any_later_one() -> None:
    rig = Rig()
    rig.inbox.refusals = 2
    async with rig.running() as streams:
        watch_child(streams)
        for number, wait_s in enumerate((1.0, 2.0)):
            line = await rig.line(number)
            line.bring(run_event(RC, 1), run_event(RC, 2))
            await rest()
            assert rig.time.slept[-1] == wait_s
            rig.time.move(wait_s)
        line = await rig.line(2)
        assert line.cursors[RC] == 0
        line.bring(run_event(RC, 1), run_event(RC, 2))
        assert await rig.inbox.until(P, 2) == ["e1", "e2"]


async def test_22_and_25_what_comes_again_after_a_crash_is_seen_once() -> None:
    rig = Rig()
    async with rig.running() as streams:
        watch_child(streams)
        (await rig.line(0)).bring(run_event(RC, 1), run_event(RC, 2))
        await rig.inbox.until(P, 2)
        await rest()
    # The rows were appended, but the process died before the cursors of the last were stored,
    rig.cursors.stored[P] = StoredCursors("epoch-1", RP, {RP: 0, RC: 1})
    async with rig.running() as streams:
        streams.restore([P])
        watch_child(streams)
        line = await rig.line(1)
        await rest()
        assert streams.core.watched_by(P)[RC] == 1
        line.bring(run_event(RC, 2), run_event(RC, 3))
        await rig.inbox.until(P, 3)
        rig.inbox.pauses = 1_000_000  # and another between receipt and append.
        line.bring(run_event(RC, 4))
        await rest()
    rig.inbox.pauses = 0
    async with rig.running() as streams:
        streams.restore([P])
        await rest()
        watch_child(streams)
        line = await rig.line(2)
        assert line.cursors[RC] == 3
        line.bring(run_event(RC, 4))
        assert await rig.inbox.until(P, 4) == ["e1", "e2", "e3", "e4"]
    assert rig.inbox.calls.count((P, "e2")) == 2  # it was redelivered, and recognised
    assert rig.inbox.calls.count((P, "e4")) == 2


async def test_20_a_restore_finds_cursors_and_children_and_tries_again() -> None:
    rig = Rig()
    rig.cursors.stored[P] = StoredCursors("epoch-1", RP, {RP: 4, RC: 9})
    rig.source.kids = {RP: [RC, RD]}
    rig.source.kids_faults = [EventServiceError("not yet", status=503)]
    async with rig.running() as streams:
        streams.restore([P, C])
        streams.register_consumer(P, EDITOR)
        assert (await rig.line(0)).cursors == {RP: 4, RC: 9}
        await rest()
        assert rig.time.slept == [1.0]
        rig.time.move(1)
        assert (await rig.line(1)).cursors == {RP: 4, RC: 9, RD: 0}


async def test_20_a_session_removed_meanwhile_is_not_tried_again() -> None:
    rig = Rig()
    rig.cursors.stored[P] = StoredCursors("epoch-1", RP, {RP: 4, RC: 9})
    rig.source.kids_faults = [EventServiceError("not yet", status=503)]
    async with rig.running() as streams:
        streams.restore([P])
        await rest()
        streams.removed(P)
        rig.time.move(1)
        await rest()
        assert not streams.core.knows(P)
        assert rig.source.lines == []


async def test_20_cursors_of_another_log_begin_at_0() -> None:
    rig = Rig()
    rig.cursors.stored[P] = StoredCursors("epoch-0", RP, {RP: 4, RC: 9})
    async with rig.running() as streams:
        streams.epoch = "epoch-1"
        streams.restore([P])
        streams.register_consumer(P, EDITOR)
        assert (await rig.line(0)).cursors == {RP: 0, RC: 0}


async def test_27_a_reset_log_is_noticed_once_and_read_from_its_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    async with rig.running() as streams:
        watch_child(streams)
        streams.run_assigned(C, RC, parent_run=RP)
        streams.register_consumer(C, DRIVER)
        for number in (0, 1):
            line = await rig.line(number)
            line.bring(run_event(RC, 40, "run_succeeded"), run_event(RC, 41, "new_message"))
        await rig.inbox.until(P, 1)
        await rest()
        rig.source.refusals = [EventLogResetError("reset", epoch="epoch-2")] * 2
        for line in rig.source.lines[:2]:
            line.end()
        await rest()
        rig.time.move(1)
        for number in (2, 3):
            line = await rig.line(number)
            assert set(line.cursors.values()) == {0}
            assert line.epoch == "epoch-2"
    assert caplog.text.count("the event log was reset") == 1


async def test_30_a_hosted_run_without_its_driver_is_logged_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Rig().running() as streams:
        streams.run_assigned(C, RC, parent_run=RP, hosted_by=DRIVER)
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert "register the driver first" in record.getMessage()


async def test_a_stop_ends_a_stream_that_is_still_being_opened_or_waits() -> None:
    rig = Rig()
    rig.source.refusals = [EventServiceError("down", status=None)]
    async with rig.running() as streams:
        watch_child(streams)
        await rest()
        assert rig.time.slept == [1.0]
        streams.unregister_consumer(P, EDITOR)
        await rest()
        assert [one for one in rig.time.sleepers if one[0] < REOPEN_S] == []
        streams.register_consumer(P, EDITOR)
        await rig.line(0)


async def test_a_stream_and_its_successor_hand_over_one_after_the_other() -> None:
    rig = Rig()
    rig.inbox.pauses = 20
    async with rig.running() as streams:
        watch_child(streams)
        (await rig.line(0)).bring(run_event(RC, 1), run_event(RC, 2))
        while not rig.inbox.calls:
            await anyio.lowlevel.checkpoint()
        streams.register_child(P, RD)
        (await rig.line(1)).bring(run_event(RC, 1), run_event(RC, 2), run_event(RC, 3))
        await rig.inbox.until(P, 3)
    assert [event_id for _, event_id in rig.inbox.calls] == ["e1", "e2", "e3"]
