"""What the adapter does to a log while the runtime does not have it open. Mostly blocking.

The runtime marks every opening with a row that it tells nobody of, and closes a cut-off turn
likewise. Done here instead, just before it opens the log, nothing is left for it to add in silence.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from acp_bridge.errors import BridgeError
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.store import SessionStore
from acp_bridge.sessions.writer import LogWriter
from acp_bridge.vocabulary import Draft, Event

DISK_WAIT_S: Final = 1.0
"""How long to wait for rows that were told: they are on the disk 10 ms later, mostly."""

_DISK_POLL_S: Final = 0.01


def begin_log(store: SessionStore, header: Header, drafts: Sequence[Draft]) -> list[Event]:
    """Store a new log with its first rows; all of them.

    Raises:
        As `SessionStore.create` and `LogWriter.append`.
    """
    return _written(store.create(header), drafts)


def continue_log(
    store: SessionStore,
    session_id: str,
    drafts: Sequence[Draft] = (),
    *,
    check: Callable[[Header], None] = lambda _header: None,
) -> tuple[Header, list[Event]]:
    """Close what was cut off, append rows, and mark the opening that comes; header and all rows.

    Raises:
        As `SessionStore.open`: among others when another program has the session open.
    """
    writer = store.open(session_id, check)
    return writer.header, _written(writer, drafts)


def _written(writer: LogWriter, drafts: Sequence[Draft]) -> list[Event]:
    try:
        if drafts:
            writer.append(drafts)
        writer.repair()
        return list(writer.events)
    finally:
        writer.close()


async def until_stored(store: SessionStore, session_id: str, seq: int) -> None:
    """Wait until the runtime has written a row that it told; after a bound take what is there.

    Raises:
        As `SessionStore.read_event`.
    """
    with anyio.move_on_after(DISK_WAIT_S):
        while True:
            ask = partial(store.read_event, session_id, seq)
            _, event = await anyio.to_thread.run_sync(ask)
            if event is not None:
                return
            await anyio.sleep(_DISK_POLL_S)


def is_subagent(store: SessionStore, session_id: str) -> bool:
    """Whether a stored session is a subagent's; what is not stored or cannot be read is none.

    The runtime has the header on the disk before it announces a session (measured).
    """
    try:
        return store.read_header(session_id).origin == "subagent"
    except BridgeError:
        return False


def first_difference(told: Sequence[Event], stored: Sequence[Event]) -> int:
    """The first place where what was told is not what is stored: mostly where the former ends.

    A runtime that was killed may have told rows that never reached the disk.
    """
    for at, (one, other) in enumerate(zip(told, stored, strict=False)):
        if (one.seq, one.type, one.time_ms) != (other.seq, other.type, other.time_ms):
            return at
    return min(len(told), len(stored))
