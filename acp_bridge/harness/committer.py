"""The one way into a session's log: first in first out, durable, then told.

Appends from tasks that finish together share a batch: whoever holds the lock writes what all
waiters brought. A commit cannot be cancelled, so a cancel never leaves rows that nobody was told.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import anyio
import anyio.to_thread

from acp_bridge.ports import Consumer
from acp_bridge.sessions.writer import LogWriter
from acp_bridge.vocabulary import Draft, Event, RuntimeEvent

Rows: TypeAlias = Sequence[Draft] | Callable[[int], Sequence[Draft]]
"""Rows to append, or what makes them once the seq of the first one is known."""


class _Ticket:
    """One caller's rows and, later, their events or the failure."""

    __slots__ = ("events", "failure", "rows")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.events: list[Event] | None = None
        self.failure: Exception | None = None


class Committer:
    """Appends rows to a log and tells consumers."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self._lock = anyio.Lock()
        self._waiting: list[_Ticket] = []
        self._consumers: list[Consumer] = []
        self.told: list[Event] = list(writer.events)
        """The log as consumers know it; a replay of it never overlaps what is told next."""

    @property
    def writer(self) -> LogWriter:
        """The log's writer, for its state."""
        return self._writer

    def attach(self, consumer: Consumer) -> None:
        """Tell ``consumer`` everything from now on."""
        self._consumers.append(consumer)

    def emit(self, event: RuntimeEvent) -> None:
        """Tell consumers something; synchronous."""
        for consumer in self._consumers:
            consumer(event)

    async def commit(self, rows: Rows) -> list[Event]:
        """Append ``rows`` in one durable batch, tell consumers, return the events.

        Raises:
            StoreFailedError: the disk refused; the log is as it was.
            LocalProtocolError: the rows break the format; the log is as it was.
        """
        ticket = _Ticket(rows)
        self._waiting.append(ticket)
        with anyio.CancelScope(shield=True):
            async with self._lock:
                if ticket.events is None and ticket.failure is None:
                    tickets, self._waiting = self._waiting, []
                    await self._write(tickets)
        if ticket.failure is not None:
            raise ticket.failure
        assert ticket.events is not None
        return ticket.events

    async def repair(self) -> None:
        """Close a turn or a compaction that a failing disk left open; a no-op without one.

        Raises:
            StoreFailedError: the disk still refuses.
        """
        state = self._writer.state
        if state.turn is not None or state.compaction is not None:
            with anyio.CancelScope(shield=True):
                async with self._lock:
                    self._tell(await anyio.to_thread.run_sync(self._writer.repair))

    def _tell(self, events: Sequence[Event]) -> None:
        self.told.extend(events)
        for event in events:
            self.emit(event)

    async def _write(self, tickets: list[_Ticket]) -> None:
        drafts: list[Draft] = []
        ends: list[int] = []
        for ticket in tickets:
            rows = ticket.rows
            drafts += rows(len(self.told) + len(drafts)) if callable(rows) else rows
            ends.append(len(drafts))
        try:
            events = await anyio.to_thread.run_sync(self._writer.append, drafts)
        except Exception as failure:  # noqa: BLE001  # raised again for whoever brought the rows
            if len(tickets) == 1:
                tickets[0].failure = failure
            else:
                # One bad row must not sink the others: each batch on its own, in order.
                for ticket in tickets:
                    await self._write([ticket])
            return
        start = 0
        for ticket, end in zip(tickets, ends, strict=True):
            ticket.events = events[start:end]
            start = end
        self._tell(events)
