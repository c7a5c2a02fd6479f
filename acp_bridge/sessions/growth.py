"""A log that grew: its digest from the rows after its bookmark, without reading the rest again."""

import os
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from acp_bridge.errors import SessionCorruptError, SessionUnsupportedError
from acp_bridge.sessions.codec import ends_of
from acp_bridge.sessions.digest import Digest, extended
from acp_bridge.sessions.reading import Places, Stamp, encoding_of, fold_rows, stamp_of
from acp_bridge.sessions.validation.resume import NeedsWholeLogError, ResumedState

_TAIL_BYTES: Final = 256
"""Enough to hold the checksum of the last frame before the bookmark, and then some."""


class Guard(NamedTuple):
    """Checksums of a log's header and of the bytes before its bookmark.

    A file that only grew has them still. Another file under a reused inode has not.
    """

    head: int
    tail: int


def guard_of(path: Path, digest: Digest, stamp: Stamp) -> Guard | None:
    """The guard of a file that was read; None if there is no bookmark or the file changed since."""
    if digest.bookmark is None:
        return None
    try:
        with path.open("rb") as file:
            if stamp_of(os.fstat(file.fileno())) != stamp:
                return None
            return _guard(file.fileno(), digest.header_end, digest.bookmark.offset)
    except OSError:
        return None


def _guard(descriptor: int, header_end: int, offset: int) -> Guard:
    tail = min(offset, _TAIL_BYTES)
    return Guard(
        zlib.crc32(os.pread(descriptor, header_end, 0)),
        zlib.crc32(os.pread(descriptor, tail, offset - tail)),
    )


def grown(
    path: Path, known: Stamp, guard: Guard | None, digest: Digest
) -> tuple[Stamp, Digest] | None:
    """Stamp and digest of a log that grew since ``known``; None if only a whole reading can tell.

    Every doubt is None: the whole reading gives the verdict and its words.
    """
    mark = digest.bookmark
    if mark is None or guard is None:
        return None
    try:
        with path.open("rb") as file:
            stamp = stamp_of(os.fstat(file.fileno()))
            if stamp.inode != known.inode or stamp.size <= known.size:
                return None
            if _guard(file.fileno(), digest.header_end, mark.offset) != guard:
                return None
            file.seek(mark.offset)
            data = file.read(stamp.size - mark.offset)
    except OSError:
        return None
    encoding = encoding_of(path)
    state = ResumedState(digest.header, mark)
    try:
        ends = [0, *ends_of(data, encoding, 0)]
        events, places = fold_rows(data, encoding, ends, state)
        state.require_supported()
    except (NeedsWholeLogError, SessionCorruptError, SessionUnsupportedError):
        return None
    there = Places([mark.offset + end for end in places.ends], places.rows, places.spans)
    return stamp, extended(digest, events, there)
