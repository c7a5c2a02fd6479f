"""pygls' reader and writer over one of our byte streams, with bounds."""

import re
from typing import Final

from acp_bridge.errors import RemoteProtocolError
from acp_bridge.wire.endpoint import ByteStream
from acp_bridge.wire.framing import NEED_DATA, NeedData
from acp_bridge.wire.messages import INVALID_REQUEST
from acp_bridge.wire.writer import Writer

HEADER_BYTES_MAX: Final = 8 * 1024
"""A header line is some dozen bytes; whoever sends more is no LSP client."""

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""A document in full, as JSON: no editor opens a larger one in a language server."""


class MessageReader:
    """Reads header lines and bodies; pygls decides which."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def readline(self) -> bytes:
        """A line with its end; ``b""`` at the end of the input.

        Raises:
            RemoteProtocolError: the line is longer than a header can be.
        """
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > HEADER_BYTES_MAX:
                raise RemoteProtocolError(
                    "The input is no LSP: a header line is too long. Editors that speak ACP start "
                    "acp-bridge without `lsp`.",
                    code=INVALID_REQUEST,
                )
            if not await self._more():
                return b""
        return self._take(end + 1)

    async def readexactly(self, n: int) -> bytes:
        """``n`` bytes; ``b""`` if the input ends before.

        Raises:
            RemoteProtocolError: the body is larger than any document.
        """
        if n > BODY_BYTES_MAX:
            raise RemoteProtocolError(
                f"A message of {n} bytes is too large to be read.", code=INVALID_REQUEST
            )
        while len(self._buffer) < n:
            if not await self._more():
                return b""
        return self._take(n)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _more(self) -> bool:
        data = await self._stream.receive()
        self._buffer += data
        return bool(data)


class MessageWriter:
    """Queues messages in the order in which pygls sends them."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        """Queue a message with its headers."""
        self._writer.enqueue(data)

    def close(self) -> None:
        """Nothing: whoever runs the writer ends it."""


_LENGTH: Final = re.compile(rb"^Content-Length: *(\d+)", re.IGNORECASE | re.MULTILINE)


class BodyBuffer:
    """Bytes in, message bodies out, as `wire.framing.LineBuffer` does for lines: for a trace.

    What has no length is skipped up to the next empty line.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive(self, data: bytes) -> None:
        """Add what was read, of any length."""
        self._buffer += data

    def next_line(self) -> bytes | NeedData:
        """The next body."""
        while True:
            head, end, _ = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return NEED_DATA
            found = _LENGTH.search(head)
            start = len(head) + len(end)
            stop = start + (int(found[1]) if found else 0)
            if len(self._buffer) < stop:
                return NEED_DATA
            body = bytes(self._buffer[start:stop])
            del self._buffer[:stop]
            if body:
                return body
