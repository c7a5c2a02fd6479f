"""Messages of other agents in a child's log: each once, by its id. What reads a log blocks."""

from collections.abc import Iterator, Mapping, Sequence

from acp_bridge.harness.inbox import splice
from acp_bridge.sessions import SessionStore
from acp_bridge.vocabulary import Event, JsonObject, SessionId


def inserted_ids(row: Event) -> Iterator[str]:
    """The ids of the messages that a row puts into the log's inbox."""
    data: Mapping[str, object] = row.data if isinstance(row.data, dict) else {}
    inserted = data.get("inserted")
    if row.type == "agent/inbox/spliced" and isinstance(inserted, list):
        for message in inserted:
            if isinstance(message, dict) and isinstance(message.get("id"), str):
                yield message["id"]


def came_in(events: Sequence[Event], message: JsonObject) -> bool:
    """Whether a log's inbox has or had this message."""
    return any(message["id"] in set(inserted_ids(row)) for row in reversed(events))


def is_stored(store: SessionStore, child_id: SessionId, message: JsonObject) -> bool:
    """Whether a stored log's inbox has or had it. Blocking.

    Raises:
        BridgeError: the log cannot be read.
    """
    return came_in(store.read(child_id).events, message)


def put(store: SessionStore, child_id: SessionId, message: JsonObject) -> None:
    """Put it into a stored log's inbox, for whatever wakes the child next. Blocking.

    Raises:
        BridgeError: the log cannot be opened or written.
    """
    writer = store.open(child_id)
    try:
        start = len(writer.state.inbox["next-step"])
        writer.append([splice("next-step", start=start, inserted=[message])])
    finally:
        writer.close()
