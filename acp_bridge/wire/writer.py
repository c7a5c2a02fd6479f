"""One queue of frames and the one task that writes them, in order, with back-pressure."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

FLOW_BYTES_MAX: Final = 256 * 1024
"""High-water mark of the queue in bytes: above it producers wait in `Writer.flow`.

Some thousand updates: enough that a reader with hiccups costs no throughput.
"""

WRITE_BYTES_MAX: Final = 256 * 1024
"""How many queued bytes are joined into one write; a longer frame is written alone."""

STREAM_ERRORS: Final = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""What a stream that broke or was closed raises."""


class Writer:
    """Queueing is synchronous and never fails; `run` writes, in the order of queueing.

    ``send`` writes all of some bytes; ``on_broken`` is told why it failed, and what is queued from
    then on goes nowhere.
    """

    def __init__(
        self, send: Callable[[bytes], Awaitable[None]], on_broken: Callable[[Exception], None]
    ) -> None:
        self._send = send
        self._on_broken = on_broken
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._idle = False
        self._wake = anyio.Event()
        self._room = anyio.Event()
        self._done = anyio.Event()
        self._ending = self._closed = self._released = False
        self._scope: anyio.CancelScope | None = None

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait, those of the write in progress included."""
        return self._queued_bytes

    def enqueue(self, frame: bytes) -> None:
        """Queue whole lines."""
        if self._closed:
            return
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        if self._idle:
            self._idle = False
            self._wake.set()

    async def flow(self, bytes_max: int = FLOW_BYTES_MAX) -> None:
        """Wait while more than ``bytes_max`` are queued; return at once otherwise."""
        if self._released:
            # Nothing holds a producer back any more, so let it hear that it was cancelled.
            await checkpoint()
        while self._queued_bytes > bytes_max and not self._released:
            await self._room.wait()

    def release(self) -> None:
        """Nobody waits in `flow` from now on."""
        self._released = True
        self._tell_room()

    async def run(self) -> None:
        """Write what is queued until `finish`, or until the stream breaks."""
        # Shielded: `finish` alone ends it, and knows how long the last frames may take.
        with anyio.CancelScope(shield=True) as self._scope:
            try:
                while await self._have_frames():
                    data = self._take_frames()
                    await self._send(data)
                    self._queued_bytes -= len(data)
                    if self._queued_bytes <= FLOW_BYTES_MAX:
                        self._tell_room()
            except STREAM_ERRORS as exc:
                self._on_broken(exc)
        self._closed = True
        self._frames.clear()
        self._queued_bytes = 0
        self._tell_room()
        self._done.set()

    async def finish(self, within_s: float) -> None:
        """Write what is queued if the peer reads it within ``within_s`` seconds; then stop."""
        self._ending = True
        self._wake.set()
        with anyio.move_on_after(within_s):
            await self._done.wait()
        if not self._done.is_set():
            logger.warning("%d bytes were not written: nobody read them", self._queued_bytes)
            if self._scope is not None:
                self._scope.cancel()
                await self._done.wait()

    async def _have_frames(self) -> bool:
        while not self._frames:
            if self._ending:
                return False
            self._idle = True
            self._wake = anyio.Event()
            await self._wake.wait()
        return True

    def _take_frames(self) -> bytes:
        frames = [self._frames.popleft()]
        size = len(frames[0])
        while self._frames and size + len(self._frames[0]) <= WRITE_BYTES_MAX:
            frames.append(self._frames.popleft())
            size += len(frames[-1])
        return b"".join(frames) if len(frames) > 1 else frames[0]

    def _tell_room(self) -> None:
        room, self._room = self._room, anyio.Event()
        room.set()
