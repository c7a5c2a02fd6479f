"""One row of a log whose places are known, without reading the rest."""

import os
from itertools import pairwise
from pathlib import Path

from acp_bridge.errors import SessionCorruptError
from acp_bridge.sessions.codec import ends_of, unpacker
from acp_bridge.sessions.digest import Digest
from acp_bridge.sessions.events import event_from_row
from acp_bridge.sessions.jsontext import loads
from acp_bridge.sessions.known import Details
from acp_bridge.sessions.reading import encoding_of, stamp_of
from acp_bridge.vocabulary import Event


def seek(path: Path, known: Details, seq: int) -> Event | None:
    """Row ``seq`` of the file that is known; None: there is none, or the whole log must tell."""
    if known.digest.spans or not 0 <= seq < known.digest.event_count:
        return None
    row, start, end = _around(known.digest, seq, known.stamp.size)
    try:
        with path.open("rb") as file:
            if stamp_of(os.fstat(file.fileno())) != known.stamp:
                return None
            file.seek(start)
            data = file.read(end - start)
        encoding = encoding_of(path)
        unpack = unpacker(data, encoding)
        for first, last in pairwise([0, *ends_of(data, encoding)]):
            lines = unpack(first, last).split(b"\n")
            if seq < row + len(lines) - 1:
                return event_from_row(loads(lines[seq - row]), seq)
            row += len(lines) - 1
    except (OSError, ValueError, SessionCorruptError):
        pass
    return None


def _around(digest: Digest, seq: int, size: int) -> tuple[int, int, int]:
    """The nearest known place at or before a row (its first row and offset), and one after it."""
    places = [(0, digest.header_end)]
    places += [(one.before, one.start) for one in digest.turn_ends]
    places += [(one.before, one.offset) for one in digest.descriptors]
    row, start = max(place for place in places if place[0] <= seq)
    end = min((offset for first, offset in places if first > seq), default=size)
    return row, start, end
