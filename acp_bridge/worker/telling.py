"""What a child's session tells its consumers, as items for the home. Pure.

The home keeps a log of every descendant. What runs here tells of one only what it shows, so the
rows before (a fork's seed, the mark of another opening) are told when a descendant begins to work.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import assert_never

from acp_bridge.sessions.query import LiveLog
from acp_bridge.subagents.remote_payloads import (
    ChildFinishedItem,
    ChildMessagedItem,
    ChildStartedItem,
    Item,
    RowItem,
    TransientItem,
)
from acp_bridge.vocabulary import (
    ChildFinished,
    ChildMessaged,
    ChildProgressed,
    ChildSaid,
    ChildStarted,
    CommandsChanged,
    Event,
    OptionsChanged,
    OwnEvent,
    RuntimeEvent,
    SessionId,
    StreamDelta,
    ToolOutput,
    ToolPreview,
    ToolTerminal,
)


class Teller:
    """Turns events of one child into items; each row of each log becomes one, in order.

    ``told`` is how many rows of the child's log the home has already; ``find`` gives a descendant
    that has begun to work.
    """

    def __init__(
        self, child_id: SessionId, told: int, find: Callable[[SessionId], LiveLog | None]
    ) -> None:
        self._child_id = child_id
        self._told = {child_id: told}
        self._find = find

    def items(self, event: RuntimeEvent) -> Iterator[Item]:
        """What the home is to be told."""
        match event:
            case ChildStarted():
                yield from self._started(event)
            case ChildSaid():
                yield from self._said(event.child_id, event.event)
            case ChildMessaged():
                yield ChildMessagedItem(event.parent_id, event.child_id, event.call_id, event.text)
            case ChildProgressed():
                return  # what works below a child works beside it
            case ChildFinished():
                yield ChildFinishedItem(event.parent_id, event.child_id, event.end, event.answer)
            case _:
                yield from self._said(self._child_id, event)

    def rows(self, session_id: SessionId, events: Iterable[Event]) -> Iterator[Item]:
        """Those of these rows of a log that were not told yet."""
        for event in events:
            told = self._told.get(session_id, 0)
            if event.seq >= told:
                assert event.seq == told, "a log has no gaps"
                self._told[session_id] = told + 1
                yield RowItem(session_id, event)

    def _started(self, event: ChildStarted) -> Iterator[Item]:
        child = self._find(event.child_id)
        assert child is not None, "it has a session before it is told of"
        yield ChildStartedItem(
            parent_id=event.parent_id,
            child_id=event.child_id,
            label=event.label,
            task=event.task,
            call_id=event.call_id,
            cwd=event.cwd,
            header=child.header,
        )
        yield from self.rows(event.child_id, child.events)

    def _said(self, session_id: SessionId, event: OwnEvent) -> Iterator[Item]:
        match event:
            case Event():
                yield from self.rows(session_id, [event])
            case StreamDelta() | ToolPreview() | ToolOutput():
                yield TransientItem(session_id, event)
            case ToolTerminal() | OptionsChanged() | CommandsChanged():
                return  # nobody here has a terminal or a menu
            case _:
                assert_never(event)
