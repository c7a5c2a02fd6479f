"""Bytes of a log file to lines and back, without reading a file.

Two encodings. **plain**: LF-ended lines. **zstd**: concatenated frames, the first with exactly the
header line, each later one a durable batch of whole lines. A line may span frames, but the last
complete frame ends with a newline. What an interrupted append leaves behind, an incomplete last
line or frame, is *torn* and not damage: it is left out, and ``good_length`` tells where to cut.
Refusals say what is wrong and leave the sentence to `store`.
"""

import threading
from functools import cache
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


@attrs.frozen(slots=True)
class Decoded:
    """A log's lines, each without its newline, and how many leading bytes of the file hold them."""

    header_line: bytes
    lines: list[bytes]
    good_length: int
    torn: bool


def decode(data: bytes, encoding: Encoding) -> Decoded:
    """All complete lines of a log file.

    Raises:
        SessionCorruptError: the bytes are damaged before their torn end.
    """
    return _decode_plain(data) if encoding == "plain" else _decode_zstd(data)


def decode_header(head: bytes, encoding: Encoding) -> bytes:
    """The header line alone, from enough leading bytes of a log file.

    Raises:
        SessionCorruptError: they do not begin with one.
    """
    if encoding == "plain":
        return _decode_plain(head).header_line
    end = _frame_end(head, 0)
    return _decode_zstd(head[:end] if end is not None else b"").header_line


def _damaged(why: str) -> NoReturn:
    raise SessionCorruptError(why)


def _decode_plain(data: bytes) -> Decoded:
    end = data.rfind(b"\n") + 1
    if not end:
        _damaged("the file is empty" if not data else "the file has no complete first line")
    header, *lines = data[: end - 1].split(b"\n")
    return Decoded(header, lines, end, torn=end < len(data))


def _decode_zstd(data: bytes) -> Decoded:
    import zstandard

    first = _frame_end(data, 0)
    if first is None:
        _damaged("the file is empty" if not data else "the file has no complete first frame")
    good = first
    while good < len(data):
        end = _frame_end(data, good)
        if end is None:
            break
        good = end
    view = memoryview(data)
    try:
        header = _decompress(view[:first])
        body = _decompress(view[first:good])
    except zstandard.ZstdError:
        _damaged("a compressed frame is damaged")
    if header.find(b"\n") != len(header) - 1 or not header:
        _damaged("the first frame is not exactly one line")
    if body and not body.endswith(b"\n"):
        _damaged("the last complete frame ends inside a row")
    lines = body[:-1].split(b"\n") if body else []
    return Decoded(header[:-1], lines, good, torn=good < len(data))


def _decompress(frames: memoryview) -> bytes:
    """The content of whole frames. Streamed, so that a false size in a frame costs no memory."""
    import zstandard

    if not frames:
        return b""
    decompressor = zstandard.ZstdDecompressor()
    with decompressor.stream_reader(frames, read_across_frames=True) as reader:
        return reader.readall()


def _frame_end(data: bytes, start: int) -> int | None:
    """Where the frame that begins at ``start`` ends; None where the data ends inside it.

    Walks block headers only (RFC 8878, section 3.1.1), so the cost is that of a few bytes per
    128 KiB, and damage to a frame's structure shows before anything is decompressed.
    """
    size = len(data)
    if start + len(_MAGIC) > size:
        return None  # too short to tell: torn, whatever it holds
    if not data.startswith(_MAGIC, start):
        _damaged(f"byte {start} begins no compressed frame")
    if start + len(_MAGIC) == size:
        return None
    descriptor = data[start + 4]
    if descriptor & _RESERVED:
        _damaged(f"the frame at byte {start} sets a reserved bit")
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
            _damaged(f"the frame at byte {start} has a block of a reserved type")
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
