"""What the streams need from whoever has the sessions: a place for events, and one for cursors."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs

from acp_bridge.runevents.model import RunEvent, RunId
from acp_bridge.vocabulary import SessionId


class Delivery(Protocol):
    """Takes the events of sessions. One call at a time for a session, in order for each run."""

    async def deliver(self, session_id: SessionId, event: RunEvent) -> bool:
        """Make the event durable in the session's inbox, keyed by its event id; then True.

        A message to a child of the session comes too: whoever keeps the child's log takes it, and
        to all others it is of no concern, which is True.

        An event id that is there already is True at once. False, or an exception, means that it is
        not durable: it comes again, after a while, and nothing later of its run comes before it.
        """

    def show(self, session_id: SessionId, event: RunEvent) -> None:
        """Show the user how a run gets on. Enters no inbox, and may be missed."""

    def gave_up(self, session_id: SessionId, details: str) -> None:
        """The session's stream ended for good; the sentence says why and what to do."""


@attrs.frozen
class StoredCursors:
    """A session's cursors as they were stored.

    ``epoch`` is the log that they are of, ``run_id`` what was the session's own run then.
    """

    epoch: str | None = None
    run_id: RunId | None = None
    cursors: Mapping[RunId, int] = attrs.field(factory=dict)


class CursorStore(Protocol):
    """Keeps cursors over restarts. What it loses is delivered again, and recognised."""

    async def save(self, session_id: SessionId, stored: StoredCursors) -> None:
        """Keep these instead of the session's earlier ones."""

    async def load(self, session_id: SessionId) -> StoredCursors:
        """The session's cursors; empty ones for a session that has none."""


class EventStream(Protocol):
    """An open stream of events."""

    @property
    def epoch(self) -> str:
        """Which log it comes from."""

    def batches(self) -> AsyncGenerator[list[RunEvent], None]:
        """Events as they come, in order for each run; ends when the server ends it."""


class EventSource(Protocol):
    """Where streams and the registrations of runs come from: the service's client."""

    def open(
        self, cursors: Mapping[RunId, int], *, epoch: str | None
    ) -> AbstractAsyncContextManager[EventStream]:
        """A stream of all later events of these runs.

        Raises:
            EventServiceError: refused, not reached, or lost later.
            EventLogResetError: the log is not the one of ``epoch``, or a cursor is ahead of it.
        """

    async def children(self, run_id: RunId) -> list[RunId]:
        """The runs that are registered with this one as their parent.

        Raises:
            EventServiceError: refused or not reached.
        """
