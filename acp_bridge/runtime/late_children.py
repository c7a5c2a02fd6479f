"""Who runs subagents, made when the first is asked for: most sessions open without any."""

from collections.abc import Callable, Sequence

from acp_bridge.ports import ChildRunner
from acp_bridge.vocabulary import Abort, Descendant, SessionId


class LateChildren:
    """Implements `ports.ChildRunner`: ``made`` gives the real one, if any, ``make`` makes it."""

    def __init__(
        self, made: Callable[[], ChildRunner | None], make: Callable[[], ChildRunner]
    ) -> None:
        self._made = made
        self._make = make

    def owes(self, parent_id: SessionId) -> bool:
        """Whether a child of it works, or has ended and its parent was not told yet."""
        made = self._made()
        return made is not None and made.owes(parent_id)

    def cancel_below(self, parent_id: SessionId, why: Abort) -> None:
        """End what runs below it."""
        if (made := self._made()) is not None:
            made.cancel_below(parent_id, why)

    async def settled(self, parent_id: SessionId) -> None:
        """Wait until it is owed nothing."""
        if (made := self._made()) is not None:
            await made.settled(parent_id)

    async def descendants(self, root_id: SessionId) -> Sequence[Descendant]:
        """Those of the store: they may be of another process."""
        return await self._make().descendants(root_id)

    def cancel_child(self, root_id: SessionId, child_id: SessionId) -> None:
        """End a running subagent's turn."""
        if (made := self._made()) is not None:
            made.cancel_child(root_id, child_id)

    async def give_mode(self, parent_id: SessionId) -> None:
        """Put its mode into force in all that works below it."""
        if (made := self._made()) is not None:
            await made.give_mode(parent_id)
