"""What becomes of a command's output: told live in pieces, kept short for the model, all in a file.

Nothing here reads a clock: the time comes in.
"""

import codecs
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import anyio
from anyio import to_thread

SHOWN_CHARS_MAX = 30_000
"""What the model sees of one command: about 8,000 tokens."""

HEAD_CHARS = 10_000
"""Of that, from the start; the rest is from the end, where errors are."""

FILE_BYTES_MAX = 64 * 1024 * 1024
"""The file with the full output; what a command prints beyond it is lost."""

LIVE_INTERVAL_S = 0.05
"""Between two pieces: 20 a second look fluent."""

LIVE_PIECE_BYTES_MAX = 32 * 1024
"""One piece, in UTF-8: a line of the wire must stay far below 1 MiB."""

LIVE_WAITING_CHARS_MAX = 512 * 1024
"""What may wait to be told; of a faster command the viewer misses the oldest."""


class LiveOutput:
    """Output on its way to whoever watches: coalesced, at most 20 pieces a second."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._waiting = ""
        self._missed = 0
        self._told_at = float("-inf")

    def add(self, text: str, now: float) -> None:
        """Take text, and tell a piece if it is time; ``now`` in seconds of any steady clock."""
        self._waiting += text
        over = len(self._waiting) - LIVE_WAITING_CHARS_MAX
        if over > 0:
            self._waiting = self._waiting[over:]
            self._missed += over
        self.tell(now)

    def due_in(self, now: float) -> float:
        """Seconds until the next piece may be told; infinite if nothing waits."""
        if not self._waiting:
            return float("inf")
        return max(0.0, self._told_at + LIVE_INTERVAL_S - now)

    def tell(self, now: float) -> None:
        """Tell one piece, if something waits and it is time."""
        if self._waiting and self.due_in(now) <= 0:
            self._told_at = now
            self._tell_piece()

    def finish(self) -> None:
        """Tell all that waits."""
        while self._waiting:
            self._tell_piece()

    def _tell_piece(self) -> None:
        note = ""
        if self._missed:
            note = f"\n[… {self._missed} characters were too fast to be shown …]\n"
            self._missed = 0
        size = LIVE_PIECE_BYTES_MAX - len(note.encode())
        while len(self._waiting[:size].encode()) > LIVE_PIECE_BYTES_MAX - len(note.encode()):
            size //= 2
        piece, self._waiting = self._waiting[:size], self._waiting[size:]
        self._emit(note + piece)


class KeptOutput:
    """Output for the result: all of it while short, else head and tail, and a file with the rest.

    ``file`` is the path of the full output once there is one; ``stem`` begins its name.
    """

    def __init__(self, folder: Path, *, stem: str = "bash") -> None:
        self.file: Path | None = None
        self._stem = stem
        self._folder = folder
        self._raw: bytearray | None = bytearray()
        self._stream: BinaryIO | None = None
        self._stored = 0
        self._head = ""
        self._tail = ""
        self._chars = 0

    async def add(self, data: bytes, text: str) -> None:
        """Take a piece, as bytes and as text. A disk that refuses costs the file, nothing else."""
        self._chars += len(text)
        if not self._tail:
            self._head += text
            text = ""
            if len(self._head) > SHOWN_CHARS_MAX:
                self._head, text = self._head[:HEAD_CHARS], self._head[HEAD_CHARS:]
        if text:
            self._tail = (self._tail + text)[HEAD_CHARS - SHOWN_CHARS_MAX :]
        if self._raw is not None:
            self._raw += data
            if not self._tail:
                return
            data = bytes(self._raw)
            self._raw = None
            await to_thread.run_sync(self._open)
        if self._stream is not None and self._stored < FILE_BYTES_MAX:
            await to_thread.run_sync(self._store, data[: FILE_BYTES_MAX - self._stored])

    def text(self) -> str:
        """What the model sees: at most 30,000 characters and a marker between head and tail."""
        if not self._tail:
            return self._head
        missing = self._chars - len(self._head) - len(self._tail)
        if self.file is None:
            where = "The full output could not be kept."
        elif self._stored >= FILE_BYTES_MAX:
            where = f"Its first {FILE_BYTES_MAX // 1024**2} MiB are in {self.file}"
        else:
            where = f"The full output is in {self.file}"
        return f"{self._head}\n[… {missing} characters left out. {where} …]\n{self._tail}"

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()

    def _open(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in self._names():
                try:
                    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                except FileExistsError:
                    continue
                self.file, self._stream = path, os.fdopen(number, "wb", buffering=0)
                return
        except OSError:  # full, or not ours: the result says that the full output was not kept
            return

    def _names(self) -> Iterator[Path]:
        # Counted, not random: a session reads the same when it is done again.
        for number in range(1, 100_000):
            yield self._folder / f"{self._stem}-{number}.txt"

    def _store(self, data: bytes) -> None:
        assert self._stream is not None
        try:
            self._stream.write(data)
            self._stored += len(data)
        except OSError:
            self._stream.close()
            self._stream = None
            self.file = None


class CommandOutput:
    """The output of one command, from bytes to both places."""

    def __init__(self, live: LiveOutput, kept: KeptOutput) -> None:
        self.live = live
        self.kept = kept
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def add(self, data: bytes, now: float) -> None:
        """Take a piece as it was read; a character that was cut waits for its rest."""
        text = self._decoder.decode(data)
        self.live.add(text, now)
        # Shielded: a piece that was read is kept whole, also when the time is up meanwhile.
        with anyio.CancelScope(shield=True):
            await self.kept.add(data, text)

    async def finish(self) -> None:
        """Tell what waits, and close the file. Once."""
        text = self._decoder.decode(b"", final=True)
        if text:
            self.live.add(text, float("-inf"))
            await self.kept.add(b"", text)
        self.live.finish()
        self.kept.close()
