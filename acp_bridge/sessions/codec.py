"""Bytes of a log file to lines and back, without reading a file.

Two encodings. **plain**: LF-ended lines. **zstd**: concatenated frames, the first with exactly the
header line, each later one a durable batch of whole lines. A line may span frames, but the last
complete frame ends with a newline. What an interrupted append leaves behind, an incomplete last
line or frame, is *torn* and not damage: it is left out, and ``good_length`` tells where to cut.
Refusals say what is wrong and leave the sentence to `store`.
"""

import threading
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NoReturn

import attrs

from acp_bridge.errors import SessionCorruptError
from acp_bridge.sessions.paths import Encoding

if TYPE_CHECKING:
    import zstandard

_LEVEL: Final = 3
"""Zstd's default: higher levels cost more time than the disk saves."""

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SINGLE_SEGMENT: Final = 0x20
_RESERVED: Final = 0x08
_CHECKSUM: Final = 0x04
_DICT_ID_BYTES: Final = (0, 1, 2, 4)
_SIZE_BYTES: Final = (0, 2, 4, 8)
_BLOCK_HEADER: Final = 3
_RLE: Final = 1
_RESERVED_BLOCK: Final = 3


_READ_BYTES: Final = 1 << 20
"""A file is read in windows of about this size: a large log is never held as bytes."""

_PIECE_BYTES: Final = 1 << 18
"""A plain log has no frames; it is decoded in pieces of whole lines of about this size."""


@attrs.frozen(slots=True)
class Window:
    """Neighbouring frames of a log file, or pieces of whole lines of a plain one.

    ``data`` begins at the file offset ``base``; ``cuts`` are the places in it where the first frame
    begins and where each one ends.
    """

    base: int
    data: bytes
    cuts: list[int]


class Frames:
    """The frames of a log file from its beginning, or from a place where one begins; once.

    ``read`` gives the next bytes, at most so many, none at the end. ``start`` is the file offset of
    the first row. Once all frames were seen, ``good_length`` is where a torn tail begins and
    ``torn`` whether there is one.
    """

    def __init__(self, read: Callable[[int], bytes], encoding: Encoding, start: int = 0) -> None:
        self.start = start
        self.good_length = start
        self.torn = False
        self._read = read
        self._encoding = encoding
        self._windows = self._walk()

    def __iter__(self) -> Iterator[Window]:
        return self._windows

    def header_line(self) -> bytes:
        """The header line without its newline; the frames that follow are those of the rows.

        Raises:
            SessionCorruptError: the file does not begin with one.
        """
        first = next(self._windows, None)
        what = "line" if self._encoding == "plain" else "frame"
        if first is None:
            _damaged(f"the file has no complete first {what}" if self.torn else "the file is empty")
        data, (_, end, *ends) = first.data, first.cuts
        if self._encoding == "plain":
            ends = [end, *ends]
            end = data.find(b"\n") + 1
            line = data[:end]
            ends = [one for one in ends if one > end]
        else:
            line = unpacker(data, self._encoding)(0, end)
            if line.find(b"\n") != len(line) - 1 or not line:
                _damaged("the first frame is not exactly one line")
        self.start = end
        self._windows = chain([Window(first.base, data, [end, *ends])], self._windows)
        return line[:-1]

    def _walk(self) -> Iterator[Window]:
        rest = b""
        # A frame that is larger than what was read is walked again with twice as much.
        while more := self._read(max(_READ_BYTES, len(rest))):
            rest += more
            ends = ends_of(rest, self._encoding, base=self.good_length)
            if ends:
                base, self.good_length = self.good_length, self.good_length + ends[-1]
                data, rest = rest, rest[ends[-1] :]
                yield Window(base, data, [0, *ends])
        self.torn = rest != b""


@attrs.frozen(slots=True)
class Decoded:
    """A log's lines, each without its newline, and how many leading bytes of the file hold them."""

    header_line: bytes
    lines: list[bytes]
    good_length: int
    torn: bool


def decode(data: bytes, encoding: Encoding) -> Decoded:
    """All complete lines of a log file that is held whole.

    Raises:
        SessionCorruptError: the bytes are damaged before their torn end.
    """
    frames = Frames(BytesIO(data).read, encoding)
    header_line = frames.header_line()
    body = b"".join(text for window in frames for text in contents(window, encoding))
    if body and not body.endswith(b"\n"):
        refuse_open_row()
    lines = body[:-1].split(b"\n") if body else []
    return Decoded(header_line, lines, frames.good_length, frames.torn)


def decode_header(head: bytes, encoding: Encoding) -> bytes:
    """The header line alone, from enough leading bytes of a log file.

    Raises:
        SessionCorruptError: they do not begin with one.
    """
    if encoding == "zstd":
        end = _frame_end(head, 0, 0)
        head = head[:end] if end is not None else head[:4]
    return Frames(BytesIO(head).read, encoding).header_line()


def contents(window: Window, encoding: Encoding) -> Iterator[bytes]:
    """What is in the frames of a window, one by one.

    Raises:
        SessionCorruptError: a frame is damaged.
    """
    unpack = unpacker(window.data, encoding)
    for start, end in pairwise(window.cuts):
        yield unpack(start, end)


def ends_of(data: bytes, encoding: Encoding, *, base: int = 0) -> list[int]:
    """Where the complete frames, or pieces of whole lines, end; none: empty.

    ``base`` is the place of the data in its file, for what is said about damage.

    Raises:
        SessionCorruptError: the frames' structure is damaged.
    """
    ends: list[int] = []
    at, size = 0, len(data)
    if encoding == "plain":
        while at < size:
            cut = data.rfind(b"\n", at, at + _PIECE_BYTES) + 1
            cut = cut or data.find(b"\n", at + _PIECE_BYTES) + 1
            if not cut:
                break
            ends.append(at := cut)
        return ends
    while at < size:
        end = _frame_end(data, at, base)
        if end is None:
            break
        ends.append(at := end)
    return ends


def unpacker(data: bytes, encoding: Encoding) -> Callable[[int, int], bytes]:
    """What gives the content of the one frame or piece that lies between two offsets.

    It raises `SessionCorruptError` for a damaged frame.
    """
    if encoding == "plain":
        return lambda start, end: data[start:end]
    import zstandard

    # One context for all frames: making one costs more than a small frame.
    decompressor = zstandard.ZstdDecompressor()
    view = memoryview(data)

    def unpack(start: int, end: int) -> bytes:
        frame = view[start:end]
        try:
            size = zstandard.frame_content_size(frame)
            if 0 < size <= _TRUSTED_BYTES:
                return decompressor.decompress(frame)
            # Streamed, so that a false size costs no memory.
            with decompressor.stream_reader(frame) as reader:
                return reader.readall()
        except zstandard.ZstdError:
            _damaged("a compressed frame is damaged")

    return unpack


_TRUSTED_BYTES: Final = 1 << 24
"""A promised size up to this is allocated at once; 16 MiB for a lie do no harm."""


def refuse_open_row() -> NoReturn:
    """The rows do not end where the frames end."""
    _damaged("the last complete frame ends inside a row")


def _damaged(why: str) -> NoReturn:
    raise SessionCorruptError(why)


def _frame_end(data: bytes, start: int, base: int) -> int | None:
    """Where the frame that begins at ``start`` ends; None where the data ends inside it.

    Walks block headers only (RFC 8878, section 3.1.1), so the cost is that of a few bytes per
    128 KiB, and damage to a frame's structure shows before anything is decompressed.
    """
    size = len(data)
    if start + len(_MAGIC) > size:
        return None  # too short to tell: torn, whatever it holds
    if not data.startswith(_MAGIC, start):
        _damaged(f"byte {base + start} begins no compressed frame")
    if start + len(_MAGIC) == size:
        return None
    descriptor = data[start + 4]
    if descriptor & _RESERVED:
        _damaged(f"the frame at byte {base + start} sets a reserved bit")
    single = bool(descriptor & _SINGLE_SEGMENT)
    size_flag = descriptor >> 6
    size_bytes = 1 if single and not size_flag else _SIZE_BYTES[size_flag]
    at = start + 5 + (not single) + _DICT_ID_BYTES[descriptor & 3] + size_bytes
    last = False
    while not last:
        if at + _BLOCK_HEADER > size:
            return None
        block = int.from_bytes(data[at : at + _BLOCK_HEADER], "little")
        last = bool(block & 1)
        kind = block >> 1 & 3
        if kind == _RESERVED_BLOCK:
            _damaged(f"the frame at byte {base + start} has a block of a reserved type")
        at += _BLOCK_HEADER + (1 if kind == _RLE else block >> 3)
    end = at + 4 if descriptor & _CHECKSUM else at
    return end if end <= size else None


_compress_lock = threading.Lock()


@cache
def _compressor() -> "zstandard.ZstdCompressor":
    """One for the process: making one costs more than a small batch, and each holds a megabyte."""
    import zstandard

    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True)


def encode_batch(lines: bytes, encoding: Encoding) -> bytes:
    """The bytes to append for a batch of whole lines: the header line, or some rows."""
    assert lines.endswith(b"\n")
    if encoding == "plain":
        return lines
    with _compress_lock:
        return _compressor().compress(lines)
