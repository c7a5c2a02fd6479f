"""Two descriptors as a `ByteStream`: readiness of the event loop for pipe, socket and terminal.

Regular files (``agent > log``, ``agent < script``) and /dev/null have no readiness: epoll refuses
them. Those are read and written in a worker thread.

Reading never makes the descriptor non-blocking: it reads once, after the loop said that there is
something. Writing has to, since a write longer than the pipe's free space would block the loop.
``O_NONBLOCK`` belongs to the open file description, which others may share (a terminal is stdin,
stdout and stderr at once), so the flags are put back on close.
"""

from __future__ import annotations

import asyncio
import os
import stat
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

READ_BYTES: Final = 256 * 1024
"""Most bytes taken by one read: what a pipe can be made to hold by default limits, and more."""


class FdStream:
    """Reads one descriptor, writes another, and closes both."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._loop = asyncio.get_running_loop()
        self._read_ready = _can_wait(self._loop, read_fd)
        self._write_ready = _can_wait(self._loop, write_fd)
        self._write_was_blocking = self._write_ready and os.get_blocking(write_fd)
        if self._write_was_blocking:
            os.set_blocking(write_fd, False)
        self._broken = False
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._closed = False
        # A pipe's writing end is never readable, but it wakes up when its reader goes (R011).
        self._watching = self._write_ready and stat.S_ISFIFO(os.fstat(write_fd).st_mode)
        if self._watching:
            self._loop.add_reader(write_fd, self._on_reader_gone)

    async def receive(self) -> bytes:
        """Some bytes; ``b""`` at the end.

        Raises:
            BrokenPipeError: whoever read our output has gone, though the input is still open.
            OSError: the descriptor failed.
        """
        if not self._read_ready:
            return await anyio.to_thread.run_sync(os.read, self._read_fd, READ_BYTES)
        while True:
            await self._wait_readable()
            try:
                return os.read(self._read_fd, READ_BYTES)
            except BlockingIOError:
                continue

    async def send(self, data: bytes) -> None:
        """Write all of it. Raises OSError (BrokenPipeError: nobody reads)."""
        view = memoryview(data)
        while view:
            if self._closed:
                raise anyio.ClosedResourceError
            if not self._write_ready:
                written = await anyio.to_thread.run_sync(os.write, self._write_fd, view)
            else:
                try:
                    written = os.write(self._write_fd, view)
                except BlockingIOError:
                    await self._wait_writable()
                    continue
            view = view[written:]

    async def aclose(self) -> None:
        """Give back the flags and close both descriptors."""
        if self._closed:
            return
        self._closed = True
        if self._watching:
            self._loop.remove_reader(self._write_fd)
        for waiting in (self._reading, self._writing):
            if waiting is not None and not waiting.done():
                waiting.set_exception(anyio.ClosedResourceError())
        if self._write_was_blocking:
            os.set_blocking(self._write_fd, True)
        os.close(self._read_fd)
        if self._write_fd != self._read_fd:
            os.close(self._write_fd)

    async def _wait_readable(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._broken:
            raise BrokenPipeError
        self._reading = self._loop.create_future()
        self._loop.add_reader(self._read_fd, _settle, self._reading)
        try:
            await self._reading
        finally:
            self._loop.remove_reader(self._read_fd)
            self._reading = None

    async def _wait_writable(self) -> None:
        self._writing = self._loop.create_future()
        self._loop.add_writer(self._write_fd, _settle, self._writing)
        try:
            await self._writing
        finally:
            self._loop.remove_writer(self._write_fd)
            self._writing = None

    def _on_reader_gone(self) -> None:
        self._loop.remove_reader(self._write_fd)
        self._watching = False
        self._broken = True
        if self._reading is not None and not self._reading.done():
            self._reading.set_exception(BrokenPipeError())


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _can_wait(loop: asyncio.AbstractEventLoop, fd: int) -> bool:
    """Whether the loop can tell when ``fd`` is ready; epoll refuses regular files with EPERM."""
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return False
    ignore: Callable[[], None] = lambda: None  # noqa: E731
    try:
        loop.add_reader(fd, ignore)
    except OSError:
        return False
    loop.remove_reader(fd)
    return True
