"""Where a child stands among its parent's others: "1/2" is the second child of the first root."""

import anyio
import attrs

from acp_bridge.harness.session import HarnessSession
from acp_bridge.subagents.tree import CATALOG_ROW
from acp_bridge.vocabulary import SessionId


@attrs.define(slots=True)
class Nursery:
    """How many children a session has had, and who of them comes first.

    ``lock``: calls side by side have their children in the order of the calls, so that a log, and
    what is told of it, does not depend on which disk access is the quickest.
    """

    count: int
    lock: anyio.Lock = attrs.field(factory=anyio.Lock)


def listed(parent: HarnessSession) -> list[str]:
    """The children that a session's own catalog rows name, oldest first."""
    found: list[str] = []
    for event in parent.events:
        if event.type == "session/end-seed" and event.data == {"inherited": True}:
            found.clear()  # another session's children
        elif event.type == CATALOG_ROW and isinstance(event.data, dict):
            found.append(str(event.data.get("childId")))
    return found


def place_among_listed(parent: HarnessSession, child_id: SessionId) -> str:
    """Where a child stands that its own log gives no place."""
    children = listed(parent)
    number = children.index(child_id) if child_id in children else len(children)
    return f"{parent.place}/{number + 1}"
