"""Messages of other agents in a child's log: each once, by its id. What reads a log blocks."""

from acp_bridge.harness.inbox import splice, was_put
from acp_bridge.sessions import SessionStore
from acp_bridge.vocabulary import JsonObject, SessionId


def is_stored(store: SessionStore, child_id: SessionId, message: JsonObject) -> bool:
    """Whether a stored log's inbox has or had it. Blocking.

    Raises:
        BridgeError: the log cannot be read.
    """
    return was_put(store.read(child_id).events, message["id"])


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
