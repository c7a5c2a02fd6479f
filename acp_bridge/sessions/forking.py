"""From a source's log file to the pieces of its fork's: where it is cut, what is copied.

Reads, and writes nothing. With details of the file as it is now, no more is decoded than the frame
that holds the boundary, and not even that if the frame ends there.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import attrs

from acp_bridge.errors import SessionConflictError
from acp_bridge.sessions.codec import encode_batch, ends_of, unpacker
from acp_bridge.sessions.digest import Boundary, Digest, digest_of
from acp_bridge.sessions.events import dump_events
from acp_bridge.sessions.fork import Shape, Span, boundary_in, leading_lines, renamed_parts
from acp_bridge.sessions.header import Header, dump_header
from acp_bridge.sessions.known import Details
from acp_bridge.sessions.logfile import Copied
from acp_bridge.sessions.paths import Encoding
from acp_bridge.sessions.reading import Loaded, Stamp, encoding_of, load, stamp_of
from acp_bridge.vocabulary import Event


@attrs.frozen(slots=True)
class Cut:
    """A validated source and the row after which it is cut; None: nothing is copied."""

    path: Path
    stamp: Stamp
    digest: Digest
    boundary: Boundary | None


def cut_of(path: Path, session_id: str, at_seq: int | None, known: Details | None) -> Cut:
    """Where to cut a source: at its last completed turn, or at an explicit row.

    Raises:
        InvalidParamsError: there is no such row, or a turn is open there.
        SessionCorruptError, SessionUnsupportedError, SessionMisplacedError, StoreFailedError: as
            for `load`.
    """
    if known is not None and known.digest.header.session_id == session_id:
        if at_seq is None:
            return Cut(path, known.stamp, known.digest, known.digest.default)
        for one in known.digest.turn_ends:
            if one.seq == at_seq:
                return Cut(path, known.stamp, known.digest, one)
    loaded = load(path, session_id)
    digest = digest_of(loaded.log.header, loaded.log.events, loaded.places)
    boundary = digest.default
    if at_seq is not None:
        boundary = None if at_seq == -1 else _boundary_at(loaded, at_seq)
    return Cut(path, loaded.stamp, digest, boundary)


def _boundary_at(loaded: Loaded, seq: int) -> Boundary:
    log, places = loaded.log, loaded.places
    state = boundary_in(log.header, log.events, seq)
    start, end, before = places.frame_of(seq)
    return Boundary(
        seq=seq,
        time_ms=log.events[seq].time_ms,
        queued=(len(state.inbox["next-turn"]), len(state.inbox["next-step"])),
        moved="working-directory/change" in state.last_seqs,
        start=start,
        end=end,
        before=before,
        whole=places.ends_frame(seq),
    )


def pieces_of(
    cut: Cut, header: Header, own: Sequence[Event], source: int, shape: Shape
) -> Iterator[bytes | Copied]:
    """The fork's file: header, copied rows, own rows. ``source`` is the open source file.

    Raises:
        SessionConflictError: the file is not the one that the cut was made for.
        OSError: it cannot be read.
    """
    boundary, digest = cut.boundary, cut.digest
    assert boundary is not None
    now = stamp_of(os.fstat(source))
    if now.inode != cut.stamp.inode or now.size < boundary.end:
        raise SessionConflictError(
            f"The log of session {digest.header.session_id:.100} was changed by another program"
            " while it was forked; try again."
        )
    encoding = encoding_of(cut.path)
    yield encode_batch(dump_header(header), encoding)
    is_renamed = digest.delivery_seq is not None and digest.delivery_seq <= boundary.seq
    if shape == "dsh-0.2.1" and is_renamed:
        data = os.pread(source, boundary.end - digest.header_end, digest.header_end)
        for part in renamed_parts(_frames(data, encoding), header.session_id, boundary.seq):
            if isinstance(part, Span):
                place = digest.header_end
                yield Copied(source, place + part.start, place + part.end)
            else:
                yield encode_batch(part, encoding)
    elif boundary.whole:
        yield Copied(source, digest.header_end, boundary.end)
    else:
        yield Copied(source, digest.header_end, boundary.start)
        frame = os.pread(source, boundary.end - boundary.start, boundary.start)
        text = unpacker(frame, encoding)(0, len(frame))
        yield encode_batch(leading_lines(text, boundary.seq + 1 - boundary.before), encoding)
    yield encode_batch(dump_events(own), encoding)


def _frames(data: bytes, encoding: Encoding) -> Iterator[tuple[int, int, bytes]]:
    unpack = unpacker(data, encoding)
    for start, end in pairwise([0, *ends_of(data, encoding)]):
        yield start, end, unpack(start, end)
