"""Two descriptors as a `ByteStream`: readiness of the event loop for pipe, socket and terminal.

Regular files (``agent > log``, ``agent < script``) and /dev/null have no readiness: epoll refuses
them. Those are read and written in a worker thread.

Reading never makes the descriptor non-blocking: it reads once, after the loop said that there is
something. Writing has to, since a write longer than the pipe's free space would block the loop.
``O_NONBLOCK`` belongs to the open file description, which others may share: a terminal is stdin,
stdout and stderr at once, and ``2>&1`` makes stderr the same pipe. So the writer opens a
description of its own where the system can (pipes and terminals on Linux), which also leaves
nothing behind when we are killed; elsewhere the flags are put back on close.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

READ_BYTES: Final = 64 * 1024
"""Most bytes taken by one read: what a pipe holds on Linux."""


class FdStream:
    """Reads one descriptor, writes another, and closes both."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._read_fd = read_fd
        self._read_waits = _can_wait(self._loop, read_fd)
        self._write_waits = _can_wait(self._loop, write_fd)
        self._flags_changed = False
        if self._write_waits:
            write_fd, self._flags_changed = _made_nonblocking(write_fd)
        self._write_fd = write_fd
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._closed = False
        self._broken = False
        if self._write_waits and _tells_of_its_reader(read_fd, write_fd):
            self._loop.add_reader(write_fd, self._look_for_the_reader)

    async def receive(self) -> bytes:
        """Some bytes; ``b""`` at the end.

        Raises:
            BrokenPipeError: whoever read our output has gone, though the input is still open.
            OSError: the descriptor failed.
        """
        if not self._read_waits:
            return await anyio.to_thread.run_sync(os.read, self._read_fd, READ_BYTES)
        while True:
            if self._closed:
                raise anyio.ClosedResourceError
            if not self._broken:
                await self._wait_readable()
            # A client that exits closes both at once: what it wrote, and the end, come first.
            if self._broken and not _polled(self._read_fd, select.POLLIN):
                raise BrokenPipeError
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
            if not self._write_waits:
                written = await anyio.to_thread.run_sync(os.write, self._write_fd, view)
            else:
                try:
                    written = os.write(self._write_fd, view)
                except BlockingIOError:
                    await self._wait_writable()
                    continue
            view = view[written:]

    async def aclose(self) -> None:
        """Put the flags back and close both descriptors."""
        if self._closed:
            return
        self._closed = True
        # Before the close: the numbers may belong to somebody else right after it.
        for fd, waits in ((self._read_fd, self._read_waits), (self._write_fd, self._write_waits)):
            if waits:
                self._loop.remove_reader(fd)
                self._loop.remove_writer(fd)
        for waiting in (self._reading, self._writing):
            if waiting is not None and not waiting.done():
                waiting.set_exception(anyio.ClosedResourceError())
        if self._flags_changed:
            os.set_blocking(self._write_fd, True)
        os.close(self._read_fd)
        os.close(self._write_fd)

    async def _wait_readable(self) -> None:
        self._reading = self._loop.create_future()
        self._loop.add_reader(self._read_fd, _settle, self._reading)
        try:
            await self._reading
        finally:
            if not self._closed:
                self._loop.remove_reader(self._read_fd)
            self._reading = None

    async def _wait_writable(self) -> None:
        self._writing = self._loop.create_future()
        self._loop.add_writer(self._write_fd, _settle, self._writing)
        try:
            await self._writing
        finally:
            if not self._closed:
                self._loop.remove_writer(self._write_fd)
            self._writing = None

    def _look_for_the_reader(self) -> None:
        self._loop.remove_reader(self._write_fd)
        # Woken without a hang-up, the peer wrote into our output's socket: not worth watching.
        self._broken = _polled(self._write_fd, 0)
        if self._broken and self._reading is not None:
            _settle(self._reading)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _polled(fd: int, events: int) -> bool:
    """Whether one of ``events``, an error or a hang-up is there right now."""
    poll = select.poll()
    poll.register(fd, events)
    return bool(poll.poll(0))


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


def _made_nonblocking(fd: int) -> tuple[int, bool]:
    """A descriptor for the same pipe, terminal or socket that never blocks, in place of ``fd``.

    Second: whether the flags of a description that others may share were changed.
    """
    if not os.get_blocking(fd):
        return fd, False
    try:
        own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:  # a socket, another user's pipe, or no /proc
        os.set_blocking(fd, False)
        return fd, True
    os.close(fd)
    return own, False


def _tells_of_its_reader(read_fd: int, write_fd: int) -> bool:
    """Whether a hang-up of ``write_fd`` means that nobody reads our output (R011).

    A pipe's writing end says so, and a socket that serves as output alone; on a socket that is
    our input as well, the end of the input says it.
    """
    output, incoming = os.fstat(write_fd), os.fstat(read_fd)
    if stat.S_ISFIFO(output.st_mode):
        return True
    return stat.S_ISSOCK(output.st_mode) and not os.path.samestat(output, incoming)
