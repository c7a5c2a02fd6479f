"""What is on its way to the home: order, batches, and what is sent again. Pure.

Items leave in the order in which they were put, a batch at a time. A batch that was sent stays as
it is until the service has accepted it, under one event id, so that sending it again after a lost
answer adds nothing. Pieces of one stream that still wait are joined: a slow line gets fewer and
longer pieces, never a longer queue of them.
"""

from collections import deque
from typing import Final

import attrs

from acp_bridge.errors import EventServiceError
from acp_bridge.runevents.model import json_text
from acp_bridge.subagents.remote_payloads import Item, TransientItem, item_json
from acp_bridge.vocabulary import StreamDelta, ToolOutput

BATCH_BYTES_MAX: Final = 256 * 1024
"""What goes in one request, but for a single item that is longer: it passes any line quickly."""

BATCH_ITEMS_MAX: Final = 256

ITEM_BYTES_MAX: Final = 4 * 1024 * 1024 - 4096
"""The longest item: the service's bound for a body, less what stands around it."""

FULL_BYTES: Final = 1024 * 1024
"""From here on whoever makes the items waits, where it can."""

QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most that may wait: rows cannot wait for the line, since a turn must not stop halfway."""


@attrs.frozen(slots=True)
class Batch:
    """Items of one request. ``position`` counts all items up to and with its last one."""

    event_id: str
    items: tuple[Item, ...]
    position: int


@attrs.define(slots=True)
class _Waiting:
    item: Item
    size: int


class Outbox:
    """The items of one execution. Its id makes those of the events, which are unique that way."""

    def __init__(self, execution_id: str) -> None:
        self._execution_id = execution_id
        self._waiting: deque[_Waiting] = deque()
        self._sent: Batch | None = None
        self._sent_size = 0
        self._batches = 0
        self.size = 0
        """Bytes that wait or were sent and are not accepted, about."""
        self.position = 0
        """How many items were put in all, joined ones counted once."""
        self.accepted_position = 0
        """How many of them the service has accepted."""

    @property
    def is_empty(self) -> bool:
        """Whether everything that was put was accepted."""
        return self.accepted_position == self.position

    @property
    def is_full(self) -> bool:
        """Whether it is time to wait before more is made."""
        return self.size >= FULL_BYTES

    @property
    def is_urgent(self) -> bool:
        """Whether anything but pieces of a stream waits."""
        return any(not _is_piece(one.item) for one in self._waiting)

    def put(self, item: Item) -> None:
        """Put an item behind the others. What is only shown is left out if it is too long.

        Raises:
            EventServiceError: a row is longer than the service takes, or too much waits already.
        """
        size = len(json_text(item_json(item)))
        if size > ITEM_BYTES_MAX:
            if isinstance(item, TransientItem):
                return
            raise EventServiceError(
                f"The child made a row of {size} bytes, and the event service takes "
                f"{ITEM_BYTES_MAX} at most: let it work with smaller files or outputs.",
                status=413,
            )
        if self.size + size > QUEUE_BYTES_MAX:
            raise EventServiceError(
                "The child makes more than the line to the event service takes: "
                f"{QUEUE_BYTES_MAX} bytes wait already.",
                status=None,
            )
        self.size += size
        last = self._waiting[-1] if self._waiting else None
        joined = None if last is None else _joined(last.item, item)
        if last is not None and joined is not None and last.size + size <= BATCH_BYTES_MAX:
            last.item, last.size = joined, last.size + size
            return
        self._waiting.append(_Waiting(item, size))
        self.position += 1

    def batch(self) -> Batch | None:
        """What to send now: a batch that is not accepted yet, else the next one; None: nothing."""
        if self._sent is None and self._waiting:
            taken = [self._waiting.popleft()]
            size = taken[0].size
            while (
                self._waiting
                and len(taken) < BATCH_ITEMS_MAX
                and size + self._waiting[0].size <= BATCH_BYTES_MAX
            ):
                taken.append(self._waiting.popleft())
                size += taken[-1].size
            self._batches += 1
            self._sent_size = size
            self._sent = Batch(
                f"{self._execution_id}:{self._batches}",
                tuple(one.item for one in taken),
                self.position - len(self._waiting),
            )
        return self._sent

    def accepted(self, batch: Batch) -> None:
        """The service has it: it is never sent again."""
        assert batch is self._sent
        self._sent = None
        self.size -= self._sent_size
        self.accepted_position = batch.position


def _is_piece(item: Item) -> bool:
    return isinstance(item, TransientItem) and isinstance(item.event, StreamDelta | ToolOutput)


def _joined(first: Item, second: Item) -> Item | None:
    """Two pieces of one stream as one; None: they are none."""
    if not isinstance(first, TransientItem) or not isinstance(second, TransientItem):
        return None
    if first.session_id != second.session_id:
        return None
    match first.event, second.event:
        case StreamDelta() as one, StreamDelta() as other if _place(one) == _place(other):
            return attrs.evolve(first, event=attrs.evolve(one, text=one.text + other.text))
        case ToolOutput() as one, ToolOutput() as other if one.call_id == other.call_id:
            return attrs.evolve(first, event=attrs.evolve(one, text=one.text + other.text))
        case _:
            return None


def _place(delta: StreamDelta) -> tuple[int, int, int, int, str]:
    return (delta.turn, delta.step, delta.attempt, delta.block, delta.kind)
