"""Where children stand among their parent's: the first "1/1", its own second child "1/1/2"."""

from weakref import WeakKeyDictionary

import anyio
import attrs

from acp_bridge.harness.session import HarnessSession
from acp_bridge.subagents.tree import CATALOG_ROW
from acp_bridge.vocabulary import SessionId


@attrs.define(slots=True)
class _Nursery:
    """How many children a session has had, and who of them comes first."""

    count: int
    lock: anyio.Lock = attrs.field(factory=anyio.Lock)


class Places:
    """Gives each new child of the sessions of this process its place."""

    def __init__(self) -> None:
        self._nurseries: WeakKeyDictionary[HarnessSession, _Nursery] = WeakKeyDictionary()

    def lock(self, parent: HarnessSession) -> anyio.Lock:
        """To be held while a child is made.

        Calls side by side have their children in the order of the calls, so that a log, and what is
        told of it, does not depend on which disk access is the quickest.
        """
        return self._nursery(parent).lock

    def next(self, parent: HarnessSession) -> str:
        """The place of a parent's next child; those that its log names count."""
        nursery = self._nursery(parent)
        nursery.count += 1
        return f"{parent.place}/{nursery.count}"

    def _nursery(self, parent: HarnessSession) -> _Nursery:
        found = self._nurseries.get(parent)
        if found is None:
            found = self._nurseries[parent] = _Nursery(len(_listed(parent)))
        return found


def place_among_listed(parent: HarnessSession, child_id: SessionId) -> str:
    """Where a child stands that its own log gives no place."""
    listed = _listed(parent)
    number = listed.index(child_id) if child_id in listed else len(listed)
    return f"{parent.place}/{number + 1}"


def _listed(parent: HarnessSession) -> list[str]:
    """The children that a session's own catalog rows name, oldest first."""
    found: list[str] = []
    for event in parent.events:
        if event.type == "session/end-seed" and event.data == {"inherited": True}:
            found.clear()  # another session's children
        elif event.type == CATALOG_ROW and isinstance(event.data, dict):
            found.append(str(event.data.get("childId")))
    return found
