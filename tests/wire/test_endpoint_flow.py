"""Order, back-pressure and the end of a connection."""

import asyncio
import json

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from wire_peer import (
    CANCELLED,
    Peer,
    admitting,
    cancel,
    echo,
    error,
    forever,
    nothing_served,
    serving,
)

from acp_bridge.errors import (
    PeerGoneError,
)
from acp_bridge.vocabulary import JsonObject
from acp_bridge.wire import endpoint as endpoint_module
from acp_bridge.wire import writer as writer_module
from acp_bridge.wire.endpoint import Endpoint, Reply
from acp_bridge.wire.memory import stream_pair
from acp_bridge.wire.messages import Notification, Request
from acp_bridge.wire.writer import FLOW_BYTES_MAX

pytestmark = pytest.mark.anyio


async def test_notifications_are_on_the_wire_before_the_response_that_follows_them_as_r041_needs() -> (  # noqa: E501
    None
):
    async def prompt(_call: Request | Notification) -> JsonObject:
        for n in range(500):
            endpoint.notify("update", {"n": n})
        return {}

    async with serving(admitting(prompt=prompt)) as (endpoint, peer):
        await peer.write({"id": 1, "method": "prompt"})
        messages = await peer.read_some(501)
    assert [message["params"]["n"] for message in messages[:500]] == list(range(500))
    assert messages[500] == {"id": 1, "result": {}}


async def test_a_stalled_reader_stalls_the_producer_but_not_the_reading_of_cancel() -> None:
    sent = 0
    ended = anyio.Event()

    async def prompt(_call: Request | Notification) -> JsonObject:
        nonlocal sent
        try:
            for n in range(300_000):
                endpoint.notify("update", {"n": n, "text": "x" * 100})
                await endpoint.flow()
                sent = n + 1
        finally:
            ended.set()
        return {}

    async with serving(admitting(prompt=prompt)) as (endpoint, peer):
        await peer.write({"id": 1, "method": "prompt"})
        await wait_all_tasks_blocked()
        assert 0 < sent < 10_000
        assert FLOW_BYTES_MAX < endpoint.queued_bytes < FLOW_BYTES_MAX + 1000
        await peer.write(cancel(1))
        await ended.wait()
        messages = await peer.read_some(sent + 2)
    assert messages[-1] == {"id": 1, "error": CANCELLED}


async def test_flow_returns_at_once_while_little_is_queued() -> None:
    async with serving(nothing_served) as (endpoint, _):
        endpoint.notify("update", {})
        waiting = endpoint.flow()
        with pytest.raises(StopIteration):
            waiting.send(None)


async def test_a_producer_goes_on_when_the_reader_does() -> None:
    async def prompt(_call: Request | Notification) -> JsonObject:
        for n in range(5000):
            endpoint.notify("update", {"n": n, "text": "x" * 200})
            await endpoint.flow()
        return {}

    async with serving(admitting(prompt=prompt), buffer_bytes_max=1024) as (endpoint, peer):
        await peer.write({"id": 1, "method": "prompt"})
        await wait_all_tasks_blocked()
        messages = await peer.read_some(5001)
    assert [message["params"]["n"] for message in messages[:-1]] == list(range(5000))


async def test_requests_above_the_cap_are_refused_and_cancel_is_still_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint_module, "REQUESTS_MAX", 3)
    async with serving(admitting(wait=forever)) as (_, peer):
        await peer.write(*({"id": n, "method": "wait"} for n in range(5)), {"method": "wait"})
        assert await peer.read_some(2) == [
            error(n, -32603, "Too many requests in flight.") for n in (3, 4)
        ]
        await peer.write(cancel(0))
        assert await peer.read() == {"id": 0, "error": CANCELLED}
        await peer.write({"id": 3, "method": "wait"}, cancel(3))
        assert await peer.read() == {"id": 3, "error": CANCELLED}


async def test_a_flood_of_requests_by_a_peer_that_reads_nothing_stays_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint_module, "QUEUED_BYTES_MAX", 400_000)
    flood = 20_000

    async def write_flood() -> None:
        for n in range(flood):
            await peer.write({"id": n, "method": "x"})

    async with serving(nothing_served) as (endpoint, peer), anyio.create_task_group() as tasks:
        tasks.start_soon(write_flood)
        await wait_all_tasks_blocked()
        assert 400_000 < endpoint.queued_bytes < 401_000
        replies = await peer.read_some(flood)
    assert [reply["id"] for reply in replies] == list(range(flood))


async def test_buffered_messages_leave_other_tasks_their_turns() -> None:
    turns = 0
    counts: list[int] = []

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with (
        serving(admitting(note=lambda _: counts.append(turns), echo=echo)) as (_, peer),
        anyio.create_task_group() as tasks,
    ):
        await peer.write(*({"method": "note"} for _ in range(400)), {"id": 1, "method": "echo"})
        tasks.start_soon(count)
        await peer.read()
        tasks.cancel_scope.cancel()
    assert len(counts) == 400
    assert counts[-1] - counts[0] >= 20


async def test_queued_frames_are_joined_into_few_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "WRITE_BYTES_MAX", 1000)
    sizes: list[int] = []
    ours, theirs = stream_pair()
    send = ours.send

    async def counted(data: bytes) -> None:
        sizes.append(len(data))
        await send(data)

    monkeypatch.setattr(ours, "send", counted)
    endpoint = Endpoint(ours, nothing_served)
    for n in range(30):
        endpoint.notify("update", {"n": n, "text": "x" * 50})
    endpoint.notify("update", {"text": "x" * 3000})
    theirs.send_eof()
    with anyio.fail_after(60):
        await endpoint.run()
    assert len(await Peer(theirs).read_rest()) == 31
    assert 3 < len(sizes) < 7
    assert all(size <= 1000 for size in sizes[:-1])


# --- the end ------------------------------------------------------------------------------------


async def test_replies_queued_at_the_end_of_input_are_delivered() -> None:
    async with serving(
        admitting(big=lambda _: Reply("x" * 2000), wait=forever), buffer_bytes_max=1024
    ) as (_, peer):
        await peer.write(*({"id": n, "method": "big"} for n in range(50)))
        await peer.write({"id": 50, "method": "wait"})
        peer.stream.send_eof()
        await wait_all_tasks_blocked()
        replies = await peer.read_rest()
    assert [reply["id"] for reply in replies] == list(range(51))
    assert replies[50]["error"] == CANCELLED


async def test_a_last_line_without_a_newline_is_served() -> None:
    async with serving(admitting(echo=echo)) as (_, peer):
        await peer.stream.send(b'{"jsonrpc":"2.0","id":1,"method":"echo"}')
        peer.stream.send_eof()
        assert await peer.read_rest() == [{"id": 1, "result": {"params": None}}]


async def test_a_peer_that_reads_nothing_cannot_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint_module, "END_WRITE_S", 0.01)
    async with serving(nothing_served) as (endpoint, peer):
        endpoint.notify("update", {"text": "x" * 200_000})
        peer.stream.send_eof()
        await wait_all_tasks_blocked()
        while endpoint.queued_bytes:
            await anyio.lowlevel.checkpoint()
    assert "were not written" in caplog.text


async def test_a_handler_that_will_not_end_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint_module, "END_CALLS_S", 0.01)
    gate = anyio.Event()

    async def hold(_call: Request | Notification) -> JsonObject:
        with anyio.CancelScope(shield=True):
            await gate.wait()
        return {}

    async with serving(admitting(hold=hold)) as (_, peer):
        await peer.write({"id": "h1", "method": "hold"})
        peer.stream.send_eof()
        assert await peer.read_rest() == []
        gate.set()
    assert "'h1' does not end" in caplog.text


async def test_stop_ends_everything_with_its_cause() -> None:
    asked: list[str] = []

    async def ask() -> None:
        with pytest.raises(PeerGoneError) as gone:
            await endpoint.request("ask", {})
        asked.append(gone.value.details)

    async with serving(admitting(wait=forever)) as (endpoint, peer):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await peer.write({"id": 1, "method": "wait"})
            await wait_all_tasks_blocked()
            endpoint.stop("Stopped by SIGTERM.")
            endpoint.stop("Something later.")
        replies = await peer.read_rest()
    assert asked == ["Stopped by SIGTERM."]
    assert replies[-1] == {"id": 1, "error": CANCELLED}


async def test_cancelling_the_endpoint_from_outside_still_answers_what_runs() -> None:
    async def clean_up(_call: Request | Notification) -> JsonObject:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(1)
        return {}

    cleaned: list[int] = []
    ours, theirs = stream_pair()
    endpoint, peer = Endpoint(ours, admitting(wait=forever, clean_up=clean_up)), Peer(theirs)
    with anyio.fail_after(60):
        with anyio.CancelScope() as endpoint_scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(endpoint.run)
                for n in range(20):
                    await peer.write({"id": n, "method": "clean_up" if n % 2 else "wait"})
                await wait_all_tasks_blocked()
                endpoint_scope.cancel()
        replies = await peer.read_rest()
    assert len(cleaned) == 10
    assert sorted(reply["id"] for reply in replies) == list(range(20))
    assert all(reply["error"] == CANCELLED for reply in replies)


async def test_a_producer_without_a_peer_still_hears_that_it_is_cancelled() -> None:
    async with serving(nothing_served) as (endpoint, peer):
        peer.stream.send_eof()
        await peer.read_rest()
        with anyio.CancelScope() as scope:
            scope.cancel()
            while True:
                endpoint.notify("update", {})
                await endpoint.flow()
        assert scope.cancelled_caught


async def test_a_question_of_a_cancelled_call_is_not_even_sent() -> None:
    async with serving(nothing_served) as (endpoint, peer):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await endpoint.request("ask", {})
        await peer.write({"id": 1, "method": "x"})
        assert await peer.read() == error(1, -32601, "No such method: x")


async def test_flow_waits_for_nobody_after_the_end() -> None:
    async with serving(nothing_served) as (endpoint, peer), anyio.create_task_group() as tasks:
        endpoint.notify("update", {"text": "x" * (2 * FLOW_BYTES_MAX)})
        tasks.start_soon(endpoint.flow)
        await wait_all_tasks_blocked()
        await peer.stream.aclose()


async def test_a_failure_to_read_ends_the_connection_with_its_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, _ = stream_pair()

    async def fail() -> bytes:
        raise ConnectionResetError

    monkeypatch.setattr(ours, "receive", fail)
    endpoint = Endpoint(ours, nothing_served)
    with anyio.fail_after(60):
        await endpoint.run()
    assert endpoint.gone is not None
    assert endpoint.gone.details == "Reading from the client failed (ConnectionResetError)."


async def test_every_frame_is_one_line_of_json() -> None:
    ours, theirs = stream_pair()
    endpoint = Endpoint(ours, admitting(echo=echo))
    await Peer(theirs).write({"id": 1, "method": "echo", "params": ["a\nb\u2028c\u0085"]}, b"{")
    theirs.send_eof()
    with anyio.fail_after(60):
        await endpoint.run()
        data = await theirs.receive()
    lines = data.decode().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [1, None]


def test_an_endpoint_can_be_made_and_told_things_before_a_loop_runs() -> None:
    ours, theirs = stream_pair()
    endpoint = Endpoint(ours, nothing_served)
    endpoint.notify("early", {})
    endpoint.stop("Stopped early.")
    asyncio.run(endpoint.run())
    received = asyncio.run(Peer(theirs).read_rest())
    assert received == [{"method": "early", "params": {}}]
