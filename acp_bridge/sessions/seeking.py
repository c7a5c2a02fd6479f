"""Rows of a log whose places are known, without reading the rest."""

import os
from itertools import pairwise
from pathlib import Path

from acp_bridge.errors import SessionCorruptError, SessionUnsupportedError
from acp_bridge.sessions.codec import decode_header, ends_of, unpacker
from acp_bridge.sessions.digest import Digest
from acp_bridge.sessions.events import event_from_row
from acp_bridge.sessions.finding import HEAD_BYTES
from acp_bridge.sessions.header import Header, parse_header
from acp_bridge.sessions.jsontext import loads
from acp_bridge.sessions.known import Details, Entry
from acp_bridge.sessions.paths import Encoding
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
            data = os.pread(file.fileno(), end - start, start)
        return _row_in(data, encoding_of(path), row, seq)
    except (OSError, ValueError, SessionCorruptError):
        return None


def seek_descriptor(path: Path, known: Entry, seq: int) -> tuple[Header, Event] | None:
    """Header and descriptor row ``seq``, both read from the file that is known.

    None if none of the descriptor rows has this seq, or the whole log must tell.
    """
    places = known.descriptors or ()
    for at, start, end, before in zip(*(places[n::4] for n in range(4)), strict=True):
        if at != seq:
            continue
        encoding = encoding_of(path)
        try:
            with path.open("rb", buffering=0) as file:
                if stamp_of(os.fstat(file.fileno())) != known.stamp:
                    return None
                head = os.pread(file.fileno(), min(end, HEAD_BYTES), 0)
                data = head[start:end]
                if len(data) < end - start:
                    data = os.pread(file.fileno(), end - start, start)
            event = _row_in(data, encoding, before, seq)
            header = parse_header(decode_header(head, encoding))
        except (OSError, ValueError, SessionCorruptError, SessionUnsupportedError):
            return None
        return None if event is None else (header, event)
    return None


def _row_in(data: bytes, encoding: Encoding, row: int, seq: int) -> Event | None:
    """Row ``seq`` from frames of which the first begins with row ``row``."""
    unpack = unpacker(data, encoding)
    for first, last in pairwise([0, *ends_of(data, encoding)]):
        lines = unpack(first, last).split(b"\n")
        if seq < row + len(lines) - 1:
            return event_from_row(loads(lines[seq - row]), seq)
        row += len(lines) - 1
    return None


def _around(digest: Digest, seq: int, size: int) -> tuple[int, int, int]:
    """The nearest known place at or before a row (its first row and offset), and one after it."""
    places = [(0, digest.header_end)]
    places += [(one.before, one.start) for one in digest.turn_ends]
    places += [(one.before, one.start) for one in digest.descriptors]
    row, start = max(place for place in places if place[0] <= seq)
    end = min((offset for first, offset in places if first > seq), default=size)
    return row, start, end
