"""Who is told of new events: subscriptions by run, fed from memory, backed by the log.

A subscription is behind, or it is not. Behind, it reads pages of the log until one is the last;
what comes meanwhile is buffered, and what it has read already is left out by its cursors. Then it
lives on what it is offered. A full buffer is dropped, and it is behind again.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import anyio

from acp_bridge.errors import BridgeError
from acp_bridge.runevents.log import PAGE_BYTES_MAX, PAGE_EVENTS_MAX, Page
from acp_bridge.runevents.model import RunId, StoredEvent

Read: TypeAlias = Callable[[Mapping[RunId, int]], Awaitable[Page]]


class LiveSubscription:
    """A `Subscription` of a `Fanout`; ``read`` gives pages of the log."""

    def __init__(self, cursors: Mapping[RunId, int], read: Read) -> None:
        self._cursors = dict(cursors)
        self._read = read
        self._is_behind = True
        self._buffer: list[StoredEvent] = []
        self._buffered_bytes = 0
        self._woken: anyio.Event | None = None
        self._failure: BridgeError | None = None

    async def next(self) -> list[StoredEvent]:
        """The next events, at least one."""
        while True:
            events = await self._read_page() if self._is_behind else self._take_buffer()
            if events:
                return events
            if not self._is_behind and not self._buffer:
                # No await between the look and the wait, so that no offer falls between them.
                self._woken = anyio.Event()
                await self._woken.wait()

    def offer(self, event: StoredEvent) -> None:
        """An event of a watched run is durable now. Order is the log's."""
        if self._is_behind:
            return
        self._buffer.append(event)
        self._buffered_bytes += len(event.text)
        if len(self._buffer) > PAGE_EVENTS_MAX or self._buffered_bytes > PAGE_BYTES_MAX:
            self.fall_behind()
        elif self._woken is not None:
            self._woken.set()

    def fall_behind(self) -> None:
        """Read the log again: something may have been missed."""
        self._is_behind = True
        self._clear()
        if self._woken is not None:
            self._woken.set()

    def fail(self, error: BridgeError) -> None:
        """The log is not the one any more that this reads: whoever waits hears of it."""
        self._failure = error
        self.fall_behind()

    async def _read_page(self) -> list[StoredEvent]:
        if self._failure is not None:
            raise self._failure
        # What is offered during the read is buffered, or makes it fall behind again.
        self._is_behind = False
        is_whole = False
        try:
            page = await self._read(self._cursors)
            is_whole = page.is_last
        finally:
            if not is_whole:
                self.fall_behind()
        return self._new_of(page.events)

    def _take_buffer(self) -> list[StoredEvent]:
        events = self._buffer
        self._clear()
        return self._new_of(events)

    def _clear(self) -> None:
        self._buffer = []
        self._buffered_bytes = 0

    def _new_of(self, events: list[StoredEvent]) -> list[StoredEvent]:
        fresh = []
        for event in events:
            if event.sequence > self._cursors[event.run_id]:
                self._cursors[event.run_id] = event.sequence
                fresh.append(event)
        return fresh


class Fanout:
    """The subscriptions of one process to one log."""

    def __init__(self) -> None:
        self._by_run: defaultdict[RunId, set[LiveSubscription]] = defaultdict(set)

    @contextmanager
    def subscribe(self, cursors: Mapping[RunId, int], read: Read) -> Iterator[LiveSubscription]:
        """A subscription for as long as the context is open."""
        subscription = LiveSubscription(cursors, read)
        for run_id in cursors:
            self._by_run[run_id].add(subscription)
        try:
            yield subscription
        finally:
            for run_id in cursors:
                self._by_run[run_id].discard(subscription)
                if not self._by_run[run_id]:
                    del self._by_run[run_id]

    def offer(self, events: Iterable[StoredEvent]) -> None:
        """These are durable now, in this order, and none before them is untold."""
        for event in events:
            for subscription in self._by_run.get(event.run_id, ()):
                subscription.offer(event)

    def fall_behind(self) -> None:
        """Some events may have passed us by: every subscription reads the log again."""
        for subscription in self._all():
            subscription.fall_behind()

    def fail(self, error: BridgeError) -> None:
        """The log is another one: every subscription ends."""
        for subscription in self._all():
            subscription.fail(error)

    def _all(self) -> set[LiveSubscription]:
        return {one for found in self._by_run.values() for one in found}
