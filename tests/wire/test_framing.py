"""Lines out of bytes: nothing but 0x0A ends one, and no line can take the connection down."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.wire.framing import (
    LINE_BYTES_MAX,
    NEED_DATA,
    LineBuffer,
    Oversize,
    is_lsp_header,
    take_first_line,
)


def lines_of(*chunks: bytes, line_bytes_max: int = LINE_BYTES_MAX) -> list[bytes | Oversize]:
    buffer = LineBuffer(line_bytes_max)
    lines: list[bytes | Oversize] = []
    for chunk in chunks:
        buffer.receive(chunk)
        while (line := buffer.next_line()) is not NEED_DATA:
            lines.append(line)
    return lines


def test_the_stated_cap_is_64_mib_or_more() -> None:
    assert LINE_BYTES_MAX >= 64 * 1024 * 1024


def test_only_byte_0a_ends_a_line_as_r003_needs() -> None:
    text = '"a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1d\x1ee\rf"'
    assert lines_of(text.encode() + b"\n") == [text.encode()]


def test_crlf_bom_and_blank_lines_are_taken_as_r007_and_r009_need() -> None:
    assert lines_of(b"\xef\xbb\xbf{}\r\n\r\n   \n\n\t\n[]\n") == [b"{}", b"[]"]


def test_a_bom_is_dropped_in_front_of_the_first_line_only() -> None:
    assert lines_of(b"1\n\xef\xbb\xbf2\n") == [b"1", b"\xef\xbb\xbf2"]
    _, second = lines_of(b"xxxxxxxxx\n\xef\xbb\xbf2\n", line_bytes_max=8)
    assert second == b"\xef\xbb\xbf2"


def test_a_bom_split_over_chunks_is_dropped() -> None:
    assert lines_of(b"\xef", b"\xbb", b"\xbf{", b"}\n") == [b"{}"]


def test_a_line_without_its_newline_is_not_a_line_before_the_end_of_input() -> None:
    buffer = LineBuffer()
    buffer.receive(b"{}")
    assert buffer.next_line() is NEED_DATA
    buffer.receive_eof()
    assert buffer.next_line() == b"{}"
    buffer.receive_eof()
    assert buffer.next_line() is NEED_DATA


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1024 * 1024, 11 * 1024 * 1024])
def test_long_lines_are_taken_whole_as_r004_needs(size: int) -> None:
    line = b"x" * size
    stream = line + b"\nnext\n"
    chunks = [stream[at : at + 65_536] for at in range(0, len(stream), 65_536)]
    assert lines_of(*chunks) == [line, b"next"]


@pytest.mark.parametrize("chunk_size", [1, 3, 1000])
def test_an_oversize_line_is_one_marker_and_its_neighbours_are_taken_as_r005_needs(
    chunk_size: int,
) -> None:
    stream = b"before\n" + b"x" * 100 + b"\n" + b"y" * 10 + b"\nafter\n"
    chunks = [stream[at : at + chunk_size] for at in range(0, len(stream), chunk_size)]
    before, marker, exact, after = lines_of(*chunks, line_bytes_max=10)
    assert (before, exact, after) == (b"before", b"y" * 10, b"after")
    assert isinstance(marker, Oversize)
    assert marker.head == b"x" * len(marker.head)


def test_the_marker_comes_before_the_oversize_line_has_ended() -> None:
    assert lines_of(b"x" * 11, line_bytes_max=10) == [Oversize(b"x" * 11)]


def test_memory_stays_flat_while_an_oversize_line_is_dropped() -> None:
    buffer = LineBuffer(1000)
    for _ in range(1000):
        buffer.receive(b"x" * 1000)
    assert len(buffer._tail) == 0
    marker = buffer.next_line()
    assert isinstance(marker, Oversize)
    assert len(marker.head) <= 1024
    assert buffer.next_line() is NEED_DATA


def test_small_chunks_of_a_long_line_take_linear_time() -> None:
    def seconds(size: int) -> float:
        buffer = LineBuffer()
        started = time.perf_counter()
        for _ in range(size // 64):
            buffer.receive(b"x" * 64)
        buffer.receive(b"\n")
        assert buffer.next_line() != NEED_DATA
        return time.perf_counter() - started

    short = min(seconds(1024 * 1024) for _ in range(3))
    # Four times the bytes would take sixteen times as long if each chunk scanned the buffer.
    assert seconds(4 * 1024 * 1024) < 10 * short + 0.05


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=20), st.integers(1, 50))
def test_any_split_of_the_bytes_gives_the_same_lines(
    data: bytes, cuts: list[int], line_bytes_max: int
) -> None:
    def seen(*chunks: bytes) -> list[bytes | type[Oversize]]:
        lines = lines_of(*chunks, line_bytes_max=line_bytes_max)
        return [Oversize if isinstance(line, Oversize) else line for line in lines]

    data = data.replace(b"\x01", b"\n").replace(b"\x02", b"\r\n")
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    chunks = [data[start:end] for start, end in pairwise(places)]
    assert seen(*chunks) == seen(data)


def test_an_lsp_header_is_recognised_whatever_its_case_as_r010_needs() -> None:
    assert is_lsp_header(b"Content-Length: 12")
    assert is_lsp_header(b"content-length:12")
    assert not is_lsp_header(b'{"Content-Length": 1}')


@pytest.mark.parametrize(
    ("data", "line", "rest"),
    [
        (b"\xef\xbb\xbf{}\r\nrest", b"{}", b"rest"),
        (b"{}\n", b"{}", b""),
        (b"{}", b"", b"{}"),
        (b"\n{}\n", b"", b"\n{}\n"),
        (b"", b"", b""),
    ],
)
def test_the_first_line_is_taken_before_any_buffer_exists(
    data: bytes, line: bytes, rest: bytes
) -> None:
    assert take_first_line(data) == (line, rest)
