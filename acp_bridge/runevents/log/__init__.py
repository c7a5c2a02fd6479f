"""The log of run events: the interface, what both logs share, SQLite, Redis Streams.

Owns: the sequence, what is durable, the registered runs, and who is told of new events.

Does not know: HTTP, sessions, streams' generations, or what an event means.

Invariants:

* A sequence is given out where it is committed: nobody can see a later event before an earlier one.
* An append returns after its event is durable; a repeated event id has the first one's sequence.
* Nothing is removed but by `EventLog.prune`, which leaves the highest sequence where it is.
* A slow subscription holds a bounded buffer, then reads the log instead; it never loses an event.

Decided here: a subscription is told of new events from memory and falls back to reading. Reading
the log for each subscription and wake would cost a query for each of a thousand readers.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Final, Protocol

import attrs

from acp_bridge.errors import ConfigError
from acp_bridge.runevents.model import EventDraft, RunId, StoredEvent
from acp_bridge.runevents.runs import Run, RunState

PAGE_EVENTS_MAX: Final = 256
PAGE_BYTES_MAX: Final = 1024 * 1024
"""What is read, buffered and sent in one go; an event that is larger goes alone."""


@attrs.frozen(slots=True)
class Page:
    """Events in the order of their sequences; ``is_last``: there were no more at that moment."""

    events: list[StoredEvent]
    is_last: bool


class Subscription(Protocol):
    """Events of some runs from their cursors on."""

    async def next(self) -> list[StoredEvent]:
        """The next events, at least one; waits for them. Not for two tasks; may be cancelled.

        Raises:
            StoreFailedError: the log cannot be read.
        """


class EventLog(Protocol):
    """The log. Everything raises `StoreFailedError` when the disk or the server refuses."""

    @property
    def epoch(self) -> str:
        """Names this log: another one, made after this was lost, has another epoch."""

    async def append(self, drafts: Sequence[EventDraft]) -> list[int]:
        """Append events, all or none; their sequences, once they are durable.

        Raises:
            RunNotFoundError: a run is not registered.
            InvalidParamsError: an event id is another run's.
        """

    async def read(self, cursors: Mapping[RunId, int], limit: int = PAGE_EVENTS_MAX) -> Page:
        """The first events of these runs after their cursors."""

    def subscribe(self, cursors: Mapping[RunId, int]) -> AbstractContextManager[Subscription]:
        """All events of these runs after their cursors, also those that come later."""

    async def last_sequence(self) -> int:
        """The highest sequence given out; 0 for an empty log."""

    async def change_run(self, run_id: RunId, change: Callable[[Run | None], Run]) -> Run:
        """Change a run, or register it, by a pure function of what is known of it; the outcome.

        ``change`` may be called again when somebody else was faster. What it raises comes through.
        """

    async def prune(self, run_id: RunId, before: int) -> None:
        """Forget the events of a run whose sequences are below this one, and their event ids.

        The event at ``before`` stays, and with it the highest sequence that was given out.
        """

    async def run(self, run_id: RunId) -> Run | None:
        """What is known of a run; None: it is not registered."""

    async def children(self, run_id: RunId) -> list[RunId]:
        """The runs that have this one as their parent."""

    async def runs_in(self, state: RunState, limit: int) -> list[Run]:
        """Some runs in this state, those longest in it first."""


def open_log(url: str) -> AbstractAsyncContextManager[EventLog]:
    """The log of ``sqlite:PATH`` or ``redis://…``.

    Raises:
        ConfigError: the address is of no log.
        StoreFailedError: it cannot be opened.
    """
    scheme, separator, rest = url.partition(":")
    if separator and scheme == "sqlite" and rest:
        from acp_bridge.runevents.log.sqlite import open_sqlite_log

        return open_sqlite_log(rest.removeprefix("//"))
    if separator and scheme in {"redis", "rediss", "unix"}:
        return _open_redis(url)
    raise ConfigError(f"The log {url!r} is none: use sqlite:PATH or redis://HOST:PORT/NUMBER.")


@asynccontextmanager
async def _open_redis(url: str) -> AsyncIterator[EventLog]:
    try:
        from acp_bridge.runevents.log.redis import open_redis_log
    except ImportError as fault:
        raise ConfigError(
            "A log in Redis needs the package redis: "
            "pip install 'harness-acp-bridge[events,events-redis]'."
        ) from fault
    async with open_redis_log(url) as log:
        yield log
