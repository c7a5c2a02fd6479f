"""Frames and lines: what is torn, what is damaged, what is whole."""

import contextlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.errors import SessionCorruptError
from acp_bridge.sessions.codec import decode, decode_header, encode_batch
from acp_bridge.sessions.paths import Encoding

ENCODINGS: list[Encoding] = ["plain", "zstd"]
batches = st.lists(
    st.lists(st.binary(max_size=300).map(lambda b: b.replace(b"\n", b"?") + b"\n"), min_size=1).map(
        b"".join
    ),
    max_size=5,
)


def frames(*parts: bytes) -> bytes:
    return b"".join(encode_batch(part, "zstd") for part in parts)


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(parts=batches)
def test_what_was_encoded_is_decoded(encoding: Encoding, parts: list[bytes]) -> None:
    data = b"".join(encode_batch(part, encoding) for part in [b"head\n", *parts])
    decoded = decode(data, encoding)
    assert decoded.header_line == b"head"
    assert b"".join(line + b"\n" for line in decoded.lines) == b"".join(parts)
    assert decoded.good_length == len(data)
    assert not decoded.torn


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(parts=batches, place=st.floats(0, 1))
def test_a_cut_leaves_whole_batches_or_no_log(
    encoding: Encoding, parts: list[bytes], place: float
) -> None:
    data = b"".join(encode_batch(part, encoding) for part in [b"head\n", *parts])
    cut = data[: int(place * len(data))]
    whole = decode(data, encoding)
    try:
        decoded = decode(cut, encoding)
    except SessionCorruptError:
        assert len(cut) < len(encode_batch(b"head\n", encoding))
        return
    assert decoded.lines == whole.lines[: len(decoded.lines)]
    assert decoded.good_length <= len(cut)
    assert decoded.torn == (decoded.good_length < len(cut))
    assert decode(cut[: decoded.good_length], encoding) == decode(
        data[: decoded.good_length], encoding
    )


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(data=st.binary(max_size=200), good=st.booleans())
def test_no_bytes_raise_anything_but_corrupt(encoding: Encoding, data: bytes, good: bool) -> None:
    head = encode_batch(b"head\n", encoding) if good else b""
    with contextlib.suppress(SessionCorruptError):
        decode(head + data, encoding)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_flipped_byte_in_a_frame_never_gives_other_rows(place: int, flip: int) -> None:
    data = bytearray(frames(b"head\n", b"row one\nrow two\n", b"row three\n"))
    data[place % len(data)] ^= flip
    try:
        decoded = decode(bytes(data), "zstd")
    except SessionCorruptError:
        return
    assert [decoded.header_line, *decoded.lines] == [
        b"head",
        b"row one",
        b"row two",
        b"row three",
    ][: len(decoded.lines) + 1]


def test_frames_carry_checksum_and_size() -> None:
    parameters = zstandard.get_frame_parameters(encode_batch(b"row\n", "zstd"))
    assert parameters.has_checksum
    assert parameters.content_size == 4


def test_frames_without_checksum_and_size_and_empty_frames_are_read() -> None:
    bare = zstandard.ZstdCompressor(write_checksum=False, write_content_size=False)
    data = bare.compress(b"head\n") + bare.compress(b"") + bare.compress(b"row\n")
    assert decode(data, "zstd").lines == [b"row"]


def test_a_row_may_span_frames() -> None:
    compress = zstandard.ZstdCompressor().compress
    data = compress(b"head\n") + compress(b"ro") + compress(b"w\n")
    assert decode(data, "zstd").lines == [b"row"]


@pytest.mark.parametrize("tail", [b"\x28", b"\x28\xb5\x2f", b"\0", b"{}\n"])
def test_a_tail_too_short_for_a_frame_is_torn_whatever_it_holds(tail: bytes) -> None:
    whole = frames(b"head\n", b"row\n")
    decoded = decode(whole + tail, "zstd")
    assert (decoded.lines, decoded.torn, decoded.good_length) == ([b"row"], True, len(whole))


def test_a_row_that_lacks_its_end_in_the_last_whole_frame_is_damage() -> None:
    compress = zstandard.ZstdCompressor().compress
    with pytest.raises(SessionCorruptError, match="ends inside a row"):
        decode(compress(b"head\n") + compress(b"ro"), "zstd")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (bytes(100), "begins no compressed frame"),
        (b"\x28\xb5\x2f", "no complete first frame"),
        (frames(b"head\nrow\n"), "not exactly one line"),
        (frames(b"head\n") + b"garbage", "begins no compressed frame"),
        (frames(b"head\n") + bytes(20), "begins no compressed frame"),
        (frames(b"head\n") + b"\x28\xb5\x2f\xfd\x08", "reserved bit"),
        (frames(b"head\n") + b"\x28\xb5\x2f\xfd\x20\x04\x07\x00\x00", "reserved type"),
    ],
)
def test_damage_to_frames_is_named(data: bytes, why: str) -> None:
    with pytest.raises(SessionCorruptError, match=why):
        decode(data, "zstd")


def test_a_frame_that_promises_a_huge_size_costs_no_memory() -> None:
    huge = b"\x28\xb5\x2f\xfd\xe0" + (2**60).to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(SessionCorruptError, match="damaged"):
        decode(frames(b"head\n") + huge, "zstd")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_header_is_read_alone_whatever_follows(encoding: Encoding) -> None:
    head = encode_batch(b"head\n", encoding)
    assert decode_header(head + b"\x00garbage", encoding) == b"head"
    with pytest.raises(SessionCorruptError):
        decode_header(head[:-1], encoding)
