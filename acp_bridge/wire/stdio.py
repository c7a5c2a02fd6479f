"""Own fds 0 and 1: nobody else reads the protocol's input or writes its output.

Imports no event loop, so that the first answer can be written before one is loaded.
"""

from __future__ import annotations

import fcntl
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from acp_bridge.wire.stdio_stream import FdStream

FIRST_LINE_BYTES_MAX: Final = 1024 * 1024
"""Where `Stdio.read_first_line` stops looking for a newline; the endpoint goes on from there."""

_READ_BYTES: Final = 64 * 1024
_PARENT_POLL_MS: Final = 1000


class Stdio:
    """The protocol's private descriptors. Made by `claim`, once per process.

    ``parent_pid`` is the parent's process id as it was at the start: another one later means that
    the parent has died.
    """

    __slots__ = ("_read_fd", "_write_fd", "parent_pid")

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self.parent_pid = os.getppid()

    def read_first_line(self) -> bytes:
        """Block until a newline came in; all bytes read so far, which may be more than the line.

        Returns what there is at the end of the input, when the parent dies, or after 1 MiB; empty
        means that nothing will come. Raises OSError.
        """
        data = bytearray()
        while b"\n" not in data[-_READ_BYTES:] and len(data) < FIRST_LINE_BYTES_MAX:
            if not self._wait_for_input():
                break
            try:
                chunk = os.read(self._read_fd, _READ_BYTES)
            except BlockingIOError:
                continue
            if not chunk:
                break
            data += chunk
        return bytes(data)

    def write_now(self, frame: bytes) -> None:
        """Block until the frame is written. Raises OSError (BrokenPipeError: nobody reads)."""
        view = memoryview(frame)
        while view:
            try:
                view = view[os.write(self._write_fd, view) :]
            except BlockingIOError:
                # Whoever started us left the descriptor non-blocking.
                import select

                poll = select.poll()
                poll.register(self._write_fd, select.POLLOUT)
                poll.poll(_PARENT_POLL_MS)

    def stream(self) -> FdStream:
        """The connection for an event loop; owns the descriptors from now on."""
        from acp_bridge.wire.stdio_stream import FdStream

        return FdStream(self._read_fd, self._write_fd)

    def _wait_for_input(self) -> bool:
        import select

        poll = select.poll()
        poll.register(self._read_fd, select.POLLIN)
        while not poll.poll(_PARENT_POLL_MS):
            if os.getppid() != self.parent_pid:
                return False
        return True


def claim() -> Stdio:
    """Take fds 0 and 1 for the protocol; everyone else finds /dev/null and stderr there.

    So a stray print goes to stderr (R001), and a child that reads its inherited stdin sees the end
    of the file instead of eating the client's next request (R029).
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    if null <= 2:  # noqa: PLR2004  # some standard descriptor was closed; keep out of its place
        null = fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, 3)
    read_fd, write_fd = _private_copy(0, null), _private_copy(1, null)
    os.dup2(null, 0)
    try:
        os.fstat(2)
    except OSError:
        os.dup2(null, 2)
    os.dup2(2, 1)
    os.close(null)
    if sys.stderr is not None:
        # The object made for fd 1 would keep what is printed until the exit.
        sys.stdout = sys.stderr
    return Stdio(read_fd, write_fd)


def _private_copy(fd: int, null: int) -> int:
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError:  # it was closed: nothing to read, nobody to write to
        return fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, 3)
