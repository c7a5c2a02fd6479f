"""A connection within the process, with bounded buffers, for tests and scenarios."""

from __future__ import annotations

from typing import Final

import anyio

BUFFER_BYTES_MAX: Final = 64 * 1024
"""As much as a pipe holds on Linux: a reader that stalls stalls the writer as a pipe would."""


class _Pipe:
    """One direction."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._writer_closed = False
        self._reader_closed = False
        self._changed = anyio.Event()

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if self._reader_closed or self._writer_closed:
                raise BrokenPipeError
            room = self._bytes_max - len(self._buffer)
            if room:
                self._buffer += view[:room]
                view = view[room:]
                self._wake()
            else:
                await self._changed.wait()

    async def read(self) -> bytes:
        while not self._buffer:
            if self._writer_closed:
                return b""
            if self._reader_closed:
                raise anyio.ClosedResourceError
            await self._changed.wait()
        data = bytes(self._buffer)
        self._buffer.clear()
        self._wake()
        return data

    def close_writer(self) -> None:
        self._writer_closed = True
        self._wake()

    def close_reader(self) -> None:
        self._reader_closed = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class MemoryStream:
    """One end of a pair; a `ByteStream`."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def receive(self) -> bytes:
        """Some bytes, or ``b""`` once the other end has closed its sending half."""
        return await self._incoming.read()

    async def send(self, data: bytes) -> None:
        """Write all of it; waits while the other end's buffer is full.

        Raises:
            BrokenPipeError: the other end reads no more.
        """
        await self._outgoing.write(data)

    def send_eof(self) -> None:
        """Close the sending half alone: the other end reads what is there, and then the end."""
        self._outgoing.close_writer()

    def stop_reading(self) -> None:
        """Close the receiving half alone: the other end's writes fail."""
        self._incoming.close_reader()

    async def aclose(self) -> None:
        """Close both halves."""
        self.send_eof()
        self.stop_reading()


def stream_pair(
    buffer_bytes_max: int = BUFFER_BYTES_MAX,
) -> tuple[MemoryStream, MemoryStream]:
    """Two ends of one connection; each direction holds at most ``buffer_bytes_max`` bytes."""
    one, other = _Pipe(buffer_bytes_max), _Pipe(buffer_bytes_max)
    return MemoryStream(one, other), MemoryStream(other, one)
