"""A log that grew: its digest from the rows after its bookmark, without decoding the rest again.

The rest is read, as bytes for a checksum: a file that grew may also have been spoilt before its
end, or be another file under a reused inode.
"""

import os
import zlib
from pathlib import Path
from typing import Final

from acp_bridge.errors import SessionCorruptError, SessionUnsupportedError
from acp_bridge.sessions.codec import Frames
from acp_bridge.sessions.digest import Digest, extended
from acp_bridge.sessions.reading import Stamp, encoding_of, fold_rows, stamp_of
from acp_bridge.sessions.validation.resume import NeedsWholeLogError, ResumedState

_READ_BYTES: Final = 1 << 20


def guard_of(path: Path, digest: Digest, stamp: Stamp) -> int | None:
    """A checksum of a file that was read, up to its digest's bookmark.

    None if there is no bookmark or the file changed since.
    """
    if digest.bookmark is None:
        return None
    try:
        with path.open("rb") as file:
            if stamp_of(os.fstat(file.fileno())) != stamp:
                return None
            return _checksum(file.fileno(), digest.bookmark.offset)
    except OSError:
        return None


def _checksum(descriptor: int, end: int) -> int:
    value = at = 0
    while at < end and (data := os.pread(descriptor, min(_READ_BYTES, end - at), at)):
        value = zlib.crc32(data, value)
        at += len(data)
    return value


def grown(
    path: Path, known: Stamp, guard: int | None, digest: Digest
) -> tuple[Stamp, Digest] | None:
    """Stamp and digest of a log that grew since ``known``; None if only a whole reading can tell.

    Every doubt is None: the whole reading gives the verdict and its words.
    """
    mark = digest.bookmark
    if mark is None or guard is None:
        return None
    encoding = encoding_of(path)
    try:
        with path.open("rb") as file:
            stamp = stamp_of(os.fstat(file.fileno()))
            if stamp.inode != known.inode or stamp.size <= known.size:
                return None
            if _checksum(file.fileno(), mark.offset) != guard:
                return None
            file.seek(mark.offset)
            frames = Frames(file.read, encoding, mark.offset)
            state = ResumedState(digest.header, mark)
            events, places = fold_rows(frames, encoding, state)
            state.require_supported()
    except (OSError, NeedsWholeLogError, SessionCorruptError, SessionUnsupportedError):
        return None
    return stamp, extended(digest, events, places)
