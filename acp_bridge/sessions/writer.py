"""A session's log open for writing: drafts in, durable events out."""

import threading
from collections.abc import Callable, Sequence

from acp_bridge.errors import (
    BridgeError,
    LocalProtocolError,
    SessionConflictError,
    SessionCorruptError,
    SessionUnsupportedError,
)
from acp_bridge.sessions.events import dump_events
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.logfile import LogFile
from acp_bridge.sessions.repair import boundary, closers
from acp_bridge.sessions.validation import LogState
from acp_bridge.sessions.validation.strict import check_draft
from acp_bridge.vocabulary import Draft, Event


class LogWriter:
    """The only writer of one log, until `close`. Made by `SessionStore`.

    ``events`` grows with every append; ``state`` is their fold. While `append` runs in another
    thread, ``state`` may be ahead of ``events``; both are settled when it returns or raises.
    ``file`` is the log, or what publishes a new one with its first rows.
    """

    def __init__(
        self,
        state: LogState,
        events: list[Event],
        *,
        clock: Callable[[], int],
        file: LogFile | Callable[[bytes], LogFile],
    ) -> None:
        self.state = state
        self.events = events
        self._clock = clock
        self._file = file
        self._mutex = threading.Lock()
        self._is_closed = False

    @property
    def header(self) -> Header:
        """The session's header."""
        return self.state.header

    def append(self, drafts: Sequence[Draft]) -> list[Event]:
        """Give the drafts seq and time and write them as one durable batch, all or nothing.

        Blocks for the disk; safe to call from any thread, one at a time.

        Raises:
            LocalProtocolError: a row would make the log unsound; nothing changed.
            StoreFailedError: the disk refused; nothing changed.
            SessionConflictError: the log exists already, or another program wrote to it.
        """
        now = self._clock()
        return self._append(drafts, [now] * len(drafts))

    def adopt(self, events: Sequence[Event]) -> None:
        """Take rows that another process has made of this log, with the seq and time they have.

        One durable batch, all or nothing; blocks, and is called, as `append`.

        Raises:
            SessionConflictError: they do not continue the log; nothing changed.
            LocalProtocolError: a row would make the log unsound; nothing changed.
            StoreFailedError: the disk refused; nothing changed.
        """
        with self._mutex:
            self._check_open()
            for place, event in enumerate(events, start=self.state.next_seq):
                if event.seq != place:
                    raise SessionConflictError(
                        f"Session {self.header.session_id:.100} goes on with row {place}, and row "
                        f"{event.seq} was brought."
                    )
            self._take(events)

    def repair(self) -> list[Event]:
        """Close a turn that was cut off and mark the new opening: one batch, [] if none is needed.

        Raises:
            StoreFailedError: the disk refused; nothing changed.
        """
        ends = closers(self.state)
        marks = boundary(self.state)
        last_ms = self.state.last.time_ms if self.state.last is not None else 0
        times = [last_ms] * len(ends) + [self._clock()] * len(marks)
        return self._append([*ends, *marks], times)

    def _append(self, drafts: Sequence[Draft], times_ms: Sequence[int]) -> list[Event]:
        with self._mutex:
            self._check_open()
            for draft in drafts:
                check_draft(draft)
            events = _placed(drafts, self.state.next_seq, times_ms)
            self._take(events)
            return events

    def _check_open(self) -> None:
        if self._is_closed:
            raise LocalProtocolError(
                f"The log of session {self.header.session_id:.100} was closed before."
            )

    def _take(self, events: Sequence[Event]) -> None:
        if not events:
            return
        try:
            self._write(self._checked(events))
        except BaseException:
            self.state.rebuild(self.events)
            raise
        self.events.extend(events)

    def _checked(self, events: Sequence[Event]) -> bytes:
        """The batch's lines, after the state machine that judges stored logs has taken them."""
        try:
            for event in events:
                self.state.apply(event)
            self.state.settle()
            self.state.require_supported()
            return dump_events(events)
        except (SessionCorruptError, SessionUnsupportedError) as error:
            raise self._refusal(error.details) from error
        except (TypeError, ValueError) as error:
            raise self._refusal("a row's data is no JSON") from error

    def _refusal(self, why: str) -> BridgeError:
        return LocalProtocolError(
            f"Session {self.header.session_id:.100} would become unreadable: {why}."
        )

    def _write(self, lines: bytes) -> None:
        if isinstance(self._file, LogFile):
            self._file.append(lines)
        else:
            self._file = self._file(lines)

    def close(self) -> None:
        """Release the lock. Idempotent; waits for an append that runs."""
        with self._mutex:
            self._is_closed = True
            if isinstance(self._file, LogFile):
                self._file.close()


def _placed(drafts: Sequence[Draft], seq: int, times_ms: Sequence[int]) -> list[Event]:
    return [
        Event(
            seq + index,
            time_ms,
            draft.type,
            draft.data,
            draft.surface_op,
            draft.source_event_seqs,
            draft.ignorable,
        )
        for index, (draft, time_ms) in enumerate(zip(drafts, times_ms, strict=True))
    ]
