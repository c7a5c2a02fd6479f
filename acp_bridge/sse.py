"""Server-sent events: bytes in, the data of events out. Pure.

Source: the HTML standard, "Server-sent events", on interpreting an event stream. Ours, because
httpx-sse takes 7 us an event, a third of what a delta may cost, and sets no bound to one.
"""

from typing import Final

EVENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""The longest event: a whole file as the arguments of a call fits many times."""

_BOM: Final = b"\xef\xbb\xbf"


class EventTooLongError(Exception):
    """An event does not end where every real one does."""


class EventBuffer:
    """Feed it bytes as they come; it gives the data of each event that they complete.

    An event without data gives nothing, nor does one that the end of the stream cuts off.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._after_return = False
        self._begun = False

    def receive(self, data: bytes) -> list[str]:
        """The data of the events that are complete now.

        Raises:
            EventTooLongError: an event outgrew its bound.
        """
        if self._after_return or b"\r" in data:
            data = self._with_plain_ends(data)
        if not self._buffer and self._begun and data.endswith(b"\n\n"):
            # Whole events, as they nearly always come: no bytes to move about.
            found = [_data_of(event) for event in data[:-2].split(b"\n\n")]
            return found if all(found) else [event for event in found if event]
        return self._pieced(data)

    def _pieced(self, data: bytes) -> list[str]:
        buffer = self._buffer
        # One byte back: the first half of an empty line may have come before.
        search = max(0, len(buffer) - 1)
        buffer += data
        if not self._begun:
            search = self._skip_mark()
        found: list[str] = []
        start = 0
        while (end := buffer.find(b"\n\n", search)) >= 0:
            event = _data_of(bytes(buffer[start:end]))
            if event:
                found.append(event)
            start = search = end + 2
        del buffer[:start]
        if len(buffer) > EVENT_BYTES_MAX:
            raise EventTooLongError
        return found

    def _with_plain_ends(self, data: bytes) -> bytes:
        """The same lines with plain ends; a pair of return and newline that was cut counts once."""
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
            self._after_return = False
        if data:
            self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _skip_mark(self) -> int:
        if len(self._buffer) >= len(_BOM) or not _BOM.startswith(self._buffer):
            self._begun = True
            if self._buffer.startswith(_BOM):
                del self._buffer[: len(_BOM)]
        return 0


def _data_of(event: bytes) -> str:
    """The data lines of an event, joined."""
    first, _, rest = event.partition(b"\n")
    if rest.startswith(b"data: ") and b"\n" not in rest and not first.startswith(b"data"):
        return rest[6:].decode("utf-8", "replace")
    values = []
    for line in event.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            values.append(value.removeprefix(b" "))
    return b"\n".join(values).decode("utf-8", "replace")
