"""Descriptors as a stream, within the process: readiness, partial writes, flags, closing."""

import os
import socket
import threading
from pathlib import Path

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from acp_bridge.wire.stdio import FIRST_LINE_BYTES_MAX, Stdio
from acp_bridge.wire.stdio_stream import FdStream

pytestmark = pytest.mark.anyio


async def test_a_write_longer_than_the_pipe_waits_for_the_reader_and_blocks_nobody() -> None:
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    stream, peer = FdStream(in_read, out_write), FdStream(out_read, in_write)
    data = os.urandom(300_000)
    received = b""
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.send, data)
            await wait_all_tasks_blocked()
            await peer.send(b"still reading")
            assert await stream.receive() == b"still reading"
            while len(received) < len(data):
                received += await peer.receive()
        assert received == data
        await stream.aclose()
        await stream.aclose()
        assert await peer.receive() == b""
        with pytest.raises(BrokenPipeError):
            await peer.send(b"x")
    await peer.aclose()


async def test_the_end_of_input_stays_the_end() -> None:
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    stream = FdStream(in_read, out_write)
    os.close(in_write)
    with anyio.fail_after(60):
        assert [await stream.receive() for _ in range(3)] == [b""] * 3
    await stream.aclose()
    os.close(out_read)


async def test_flags_are_put_back_where_no_description_of_our_own_can_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    other_holder = os.dup(out_write)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        stream = FdStream(in_read, out_write)
    assert not os.get_blocking(other_holder)
    await stream.send(b"x")
    await stream.aclose()
    assert os.get_blocking(other_holder)
    for fd in (in_write, out_read, other_holder):
        os.close(fd)


async def test_a_socket_keeps_its_flags_for_its_other_holders_after_the_close() -> None:
    near, far = socket.socketpair()
    stream = FdStream(os.dup(far.fileno()), os.dup(far.fileno()))
    with anyio.fail_after(60):
        await stream.send(b"x")
        assert near.recv(10) == b"x"
        near.send(b"y")
        assert await stream.receive() == b"y"
    await stream.aclose()
    assert os.get_blocking(far.fileno())
    near.close()
    far.close()


async def test_closing_ends_whoever_waits() -> None:
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    spare_read, spare_write = os.pipe()
    stream = FdStream(in_read, out_write)
    read_number, write_number = stream._read_fd, stream._write_fd

    async def receive() -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await stream.receive()

    async def send() -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await stream.send(b"x" * 1_000_000)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            tasks.start_soon(send)
            await wait_all_tasks_blocked()
            await stream.aclose()
        await receive()
        await send()
        # The numbers must be as good as new for whoever gets them next.
        os.dup2(spare_read, read_number)
        os.dup2(spare_write, write_number)
        successor = FdStream(read_number, write_number)
        assert successor._read_waits
        assert successor._write_waits
        await successor.send(b"x")
        assert await successor.receive() == b"x"
        await successor.aclose()
    for fd in (in_write, out_read, spare_read, spare_write):
        os.close(fd)


async def test_a_full_disk_is_an_error_of_the_write(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    script = os.open(tmp_path / "script", os.O_RDONLY | os.O_CREAT)
    stream = FdStream(script, full)
    with anyio.fail_after(60):
        assert await stream.receive() == b""
        with pytest.raises(OSError, match="No space left"):
            await stream.send(b"x")
    await stream.aclose()


def test_the_first_line_comes_with_all_that_was_read_and_has_a_bound() -> None:
    read_fd, write_fd = os.pipe()
    stdio = Stdio(read_fd, write_fd)
    stdio.write_now(b"one\ntwo\nthr")
    assert stdio.read_first_line() == b"one\ntwo\nthr"
    os.close(write_fd)
    assert stdio.read_first_line() == b""
    os.close(read_fd)


def test_a_first_answer_waits_for_its_reader_even_on_a_non_blocking_pipe() -> None:
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    frame = os.urandom(300_000)
    received = bytearray()

    def read_all() -> None:
        while len(received) < len(frame):
            received.extend(os.read(read_fd, 65_536))

    reader = threading.Thread(target=read_all)
    reader.start()
    Stdio(read_fd, write_fd).write_now(frame)
    reader.join(60)
    assert bytes(received) == frame
    os.close(read_fd)
    os.close(write_fd)


def test_a_first_line_without_end_is_given_up_at_its_bound(tmp_path: Path) -> None:
    endless = tmp_path / "endless"
    endless.write_bytes(b"x" * (2 * FIRST_LINE_BYTES_MAX))
    with endless.open("rb") as stdin:
        data = Stdio(stdin.fileno(), 1).read_first_line()
    assert FIRST_LINE_BYTES_MAX <= len(data) < FIRST_LINE_BYTES_MAX + 65_536
