"""The in-memory connection behaves as a pair of pipes."""

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from acp_bridge.wire.memory import stream_pair

pytestmark = pytest.mark.anyio


async def test_a_writer_waits_while_the_buffer_is_full() -> None:
    near, far = stream_pair(4)
    sent: list[bytes] = []

    async def send() -> None:
        await near.send(b"0123456789")
        sent.append(b"all")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await wait_all_tasks_blocked()
            assert sent == []
            assert await far.receive() == b"0123"
            await wait_all_tasks_blocked()
            assert await far.receive() == b"4567"
            assert await far.receive() == b"89"
    assert sent == [b"all"]


async def test_closing_halves_is_seen_on_the_other_side() -> None:
    near, far = stream_pair()
    with anyio.fail_after(60):
        await near.send(b"last")
        near.send_eof()
        assert [await far.receive() for _ in range(3)] == [b"last", b"", b""]
        await far.send(b"still")
        assert await near.receive() == b"still"
        near.stop_reading()
        with pytest.raises(BrokenPipeError):
            await far.send(b"x")
        with pytest.raises(BrokenPipeError):
            await near.send(b"x")
        with pytest.raises(anyio.ClosedResourceError):
            await near.receive()


async def test_closing_wakes_whoever_waits() -> None:
    near, far = stream_pair(1)
    seen: list[str] = []

    async def receive() -> None:
        assert await far.receive() == b""
        seen.append("end")

    async def send() -> None:
        with pytest.raises(BrokenPipeError):
            await far.send(b"xx")
        seen.append("broken")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            tasks.start_soon(send)
            await wait_all_tasks_blocked()
            await near.aclose()
    assert sorted(seen) == ["broken", "end"]
