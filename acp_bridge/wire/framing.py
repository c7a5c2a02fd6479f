"""Cut newline-delimited frames out of a byte stream; never reads or writes."""

from collections import deque
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest line taken, in bytes without its newline.

Clients send whole files and images in one line (R004: 11 MiB seen), so the cap only keeps a peer
that never ends its line from taking all memory.
"""

_HEAD_BYTES: Final = 1024
"""How much of an oversize line is kept: enough to find the id in front of its params."""

_BOM: Final = b"\xef\xbb\xbf"


class _Need(Enum):
    DATA = "data"


NEED_DATA: Final = _Need.DATA
"""No whole line is left; give `LineBuffer.receive` more bytes."""

NeedData: TypeAlias = Literal[_Need.DATA]


class Oversize(NamedTuple):
    """Stands for one line above the cap; ``head`` is how it began (at most 1024 bytes)."""

    head: bytes


class LineBuffer:
    """Bytes in, lines out, in time linear in the bytes whatever the chunks are.

    Only byte 0x0A ends a line: U+2028, U+0085 and their like are content (R003). A line above
    ``line_bytes_max`` gives one `Oversize` as soon as it passes the cap; the rest of it is
    dropped as it comes in, and the next line is taken as usual (R005).
    """

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._lines: deque[bytes | Oversize] = deque()
        self._tail = bytearray()
        self._discarding = False
        self._at_start = True

    def receive(self, data: bytes) -> None:
        """Add what was read, of any length."""
        pieces = data.split(b"\n")
        last = pieces.pop()
        for piece in pieces:
            self._end_line(piece)
        if last:
            self._extend_tail(last)

    def receive_eof(self) -> None:
        """The stream is over: a last line without a newline counts as a line."""
        if self._tail:
            self._end_line(b"")

    def next_line(self) -> bytes | Oversize | NeedData:
        """The next line without its line end; blank ones are skipped (R007, R009)."""
        return self._lines.popleft() if self._lines else NEED_DATA

    def _extend_tail(self, piece: bytes) -> None:
        if self._discarding:
            return
        self._tail += piece
        if len(self._tail) > self._line_bytes_max:
            self._lines.append(Oversize(bytes(self._tail[:_HEAD_BYTES])))
            self._tail = bytearray()
            self._discarding = True

    def _end_line(self, piece: bytes) -> None:
        if self._discarding or self._tail or len(piece) > self._line_bytes_max:
            self._extend_tail(piece)
            if self._discarding:
                self._discarding = self._at_start = False
                return
            piece = bytes(self._tail)
            self._tail = bytearray()
        # Windows tools put a byte order mark before the first message (R007).
        if self._at_start:
            self._at_start = False
            piece = piece.removeprefix(_BOM)
        if piece and not piece.isspace():
            self._lines.append(piece.removesuffix(b"\r"))


LSP_HEADER_ADVICE: Final = (
    "The client speaks LSP (it sent a Content-Length header), but this is the ACP face, which"
    " takes one JSON message a line. Start `acp-bridge lsp` for an LSP client."
)
"""What to tell whoever started the wrong face (R010)."""


def is_lsp_header(line: bytes) -> bool:
    """Whether a line is the header of an LSP frame, so that the peer was started wrongly."""
    return line[:15].lower() == b"content-length:"


def take_first_line(data: bytes) -> tuple[bytes, bytes]:
    """The first line of a connection and what follows it, for an answer before `LineBuffer` runs.

    The line comes without line end and byte order mark. If there is no whole line yet, or it is
    blank, the line is ``b""`` and everything follows.
    """
    line, newline, rest = data.partition(b"\n")
    line = line.removeprefix(_BOM).removesuffix(b"\r")
    if not newline or not line or line.isspace():
        return b"", data
    return line, rest
