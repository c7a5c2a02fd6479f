"""Cancelling the peer's requests, and asking the peer: no call is lost, none is left waiting."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

import anyio
import pytest
from wire_peer import (
    CANCELLED,
    admitting,
    cancel,
    echo,
    error,
    forever,
    nothing_served,
    serving,
)

from acp_bridge.errors import (
    PeerError,
    PeerGoneError,
)
from acp_bridge.vocabulary import JsonObject
from acp_bridge.wire.endpoint import Outcome
from acp_bridge.wire.messages import Notification, Request, Response

pytestmark = pytest.mark.anyio


async def test_a_cancel_in_the_same_burst_as_its_prompt_is_never_lost_as_r031_and_r032_need() -> (
    None
):
    cancelled: set[str] = set()
    gates: dict[str, anyio.Event] = {}

    def prompt(call: Request | Notification) -> Awaitable[Outcome]:
        assert isinstance(call.params, dict)
        session = str(call.params["session"])
        gates[session] = anyio.Event()

        async def turn() -> Outcome:
            await gates[session].wait()
            return {"stopReason": "cancelled"}

        return turn()

    def cancel_session(call: Request | Notification) -> None:
        assert isinstance(call.params, dict)
        gates[str(call.params["session"])].set()
        cancelled.add(str(call.params["session"]))

    async with serving(admitting(prompt=prompt, cancel=cancel_session)) as (_, peer):
        for n in range(200):
            params = {"session": str(n)}
            await peer.write(
                {"id": n, "method": "prompt", "params": params},
                {"method": "cancel", "params": params},
            )
            assert await peer.read() == {"id": n, "result": {"stopReason": "cancelled"}}
    assert len(cancelled) == 200


async def test_a_cancel_request_in_the_same_burst_as_its_request_is_never_lost() -> None:
    async with serving(admitting(wait=forever)) as (_, peer):
        for n in range(200):
            await peer.write({"id": n, "method": "wait"}, cancel(n), cancel(n))
            assert await peer.read() == {"id": n, "error": CANCELLED}


async def test_a_cancelled_request_may_still_give_its_result() -> None:
    async def stop_kindly(_call: Request | Notification) -> JsonObject:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            return {"stopReason": "cancelled"}
        return {}

    async with serving(admitting(prompt=stop_kindly)) as (_, peer):
        await peer.write({"id": 1, "method": "prompt"}, cancel(1))
        assert await peer.read() == {"id": 1, "result": {"stopReason": "cancelled"}}


async def test_a_library_that_fails_when_cancelled_still_counts_as_cancelled_as_r035_needs() -> (
    None
):
    async def fail(_call: Request | Notification) -> JsonObject:
        try:
            await anyio.sleep_forever()
        finally:
            raise RuntimeError("aborted")  # as careless libraries do

    async with serving(admitting(prompt=fail)) as (_, peer):
        await peer.write({"id": 1, "method": "prompt"}, cancel(1))
        assert await peer.read() == {"id": 1, "error": CANCELLED}


async def test_a_cancel_after_the_answer_is_ignored() -> None:
    async def quick(_call: Request | Notification) -> JsonObject:
        return {}

    async with serving(admitting(quick=quick, echo=echo)) as (_, peer):
        await peer.write({"id": 1, "method": "quick"}, cancel(1))
        assert await peer.read() == {"id": 1, "result": {}}
        await peer.write(cancel(1), {"id": 2, "method": "echo"})
        assert await peer.read() == {"id": 2, "result": {"params": None}}


async def test_a_cancellation_that_a_library_lets_escape_does_not_end_the_connection() -> None:
    async def stray(_call: Request | Notification) -> JsonObject:
        raise asyncio.CancelledError

    async with serving(admitting(stray=stray, echo=echo)) as (_, peer):
        await peer.write({"id": 1, "method": "stray"}, {"method": "stray"})
        reply = await peer.read()
        assert reply is not None
        assert reply["error"]["code"] == -32603
        await peer.write({"id": 2, "method": "echo"})
        assert await peer.read() == {"id": 2, "result": {"params": None}}


# --- asking the peer ----------------------------------------------------------------------------


async def test_an_answer_goes_to_the_request_that_asked() -> None:
    answers: dict[str, Any] = {}

    async def ask(method: str) -> None:
        answers[method] = await endpoint.request(method, {"a": 1})

    async with serving(nothing_served) as (endpoint, peer), anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "x/a")
        tasks.start_soon(ask, "x/b")
        first, second = await peer.read_some(2)
        assert first["params"] == {"a": 1}
        assert first["id"] != second["id"]
        await peer.write({"id": second["id"], "result": second["method"], "error": None})
        await peer.write({"id": first["id"], "result": None})
    assert answers == {"x/a": None, "x/b": "x/b"}


async def test_our_ids_and_those_of_the_peer_never_mix() -> None:
    async def ask(_call: Request | Notification) -> JsonObject:
        return {"answer": await endpoint.request("ask", None)}

    async with serving(admitting(go=ask)) as (endpoint, peer):
        await peer.write({"id": 1, "method": "go"})
        question = await peer.read()
        assert question == {"id": 1, "method": "ask"}
        await peer.write({"id": 1, "result": "yes"})
        assert await peer.read() == {"id": 1, "result": {"answer": "yes"}}


async def test_a_refusal_keeps_the_code_and_a_short_text() -> None:
    async with serving(nothing_served) as (endpoint, peer), anyio.create_task_group() as tasks:

        async def refuse() -> None:
            asked = await peer.read()
            assert asked is not None
            reply = {"id": asked["id"], "error": {"code": -32002, "message": "x" * 5000}}
            await peer.write(reply)

        tasks.start_soon(refuse)
        with pytest.raises(PeerError) as caught:
            await endpoint.request("fs/read_text_file", {})
    assert caught.value.peer_code == -32002
    assert caught.value.details.startswith("The client refused fs/read_text_file: xxx")
    assert len(caught.value.details) < 300


async def test_a_malformed_or_oversize_answer_fails_its_own_request_only() -> None:
    async with serving(nothing_served, line_bytes_max=1000) as (endpoint, peer):
        for answer in ('{"id":%d,"result":{}}', '{"jsonrpc":"2.0","id":%d,"result":"' + "x" * 2000):

            async def reply(answer: str = answer) -> None:
                asked = await peer.read()
                assert asked is not None
                await peer.write((answer % asked["id"]).encode())

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reply)
                with pytest.raises(PeerError, match="malformed"):
                    await endpoint.request("ask", {})
        await peer.write({"id": 1, "method": "x"})
        assert await peer.read() == error(1, -32601, "No such method: x")


async def test_answers_that_nobody_waits_for_are_dropped_with_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(nothing_served) as (endpoint, peer), anyio.create_task_group() as tasks:
        tasks.start_soon(endpoint.request, "ask", {})
        asked = await peer.read()
        assert asked is not None
        await peer.write(
            {"id": 999, "result": {}},
            {"id": None, "error": {"code": -32700, "message": "what?"}},
            {"id": str(asked["id"]), "result": {}},
            {"id": asked["id"], "result": {}},
            {"id": asked["id"], "result": {}},
            {"id": 5, "method": "x"},
        )
        assert await peer.read() == error(5, -32601, "No such method: x")
    assert caplog.text.count("dropped an answer") == 4


async def test_a_cancelled_waiter_tells_the_peer_and_a_late_answer_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(nothing_served) as (endpoint, peer):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(endpoint.request, "ask", {})
            [asked] = await peer.read_some(1)
            tasks.cancel_scope.cancel()
        assert await peer.read() == cancel(asked["id"])
        await peer.write({"id": asked["id"], "result": {}}, {"id": 1, "method": "x"})
        assert await peer.read() == error(1, -32601, "No such method: x")
        assert endpoint._waiters == {}
    assert caplog.text.count("dropped an answer") == 1


async def test_a_handler_cancelled_while_it_asks_is_answered_and_withdraws_its_question() -> None:
    async def ask(_call: Request | Notification) -> JsonObject:
        return {"answer": await endpoint.request("ask", None)}

    async with serving(admitting(prompt=ask)) as (endpoint, peer):
        await peer.write({"id": "p", "method": "prompt"})
        asked = await peer.read()
        assert asked is not None
        await peer.write(cancel("p"))
        assert await peer.read_some(2) == [
            cancel(asked["id"]),
            {"id": "p", "error": CANCELLED},
        ]


async def test_at_the_end_of_input_our_requests_fail_with_that_cause_as_r025_needs() -> None:
    caught: list[PeerGoneError] = []

    async def ask(_call: Request | Notification) -> JsonObject:
        with pytest.raises(PeerGoneError) as gone:
            await endpoint.request("session/request_permission", {})
        caught.append(gone.value)
        return {"stopReason": "cancelled"}

    async with serving(admitting(prompt=ask)) as (endpoint, peer):
        await peer.write({"id": 1, "method": "prompt"}, {"id": 2, "method": "prompt"})
        await peer.read_some(2)
        peer.stream.send_eof()
        replies = await peer.read_rest()
        with pytest.raises(PeerGoneError):
            await endpoint.request("more", {})
        endpoint.notify("more", {})
    assert replies == [{"id": n, "result": {"stopReason": "cancelled"}} for n in (1, 2)]
    assert [gone.details for gone in caught] == ["The client closed its end of the connection."] * 2
    assert caught[0] is not caught[1]


async def test_a_broken_pipe_is_the_cause_that_waiters_see_as_r011_needs() -> None:
    async with serving(nothing_served) as (endpoint, peer):
        peer.stream.stop_reading()
        with pytest.raises(PeerGoneError, match="BrokenPipeError") as caught:
            await endpoint.request("ask", {})
    assert isinstance(caught.value.__cause__, BrokenPipeError)
    assert endpoint.gone is not None


async def test_a_posted_request_is_sent_at_once_and_its_answer_goes_nowhere() -> None:
    async with serving(nothing_served) as (endpoint, peer):
        endpoint.post("release", {"n": 1})
        endpoint.post("release", {"n": 2})
        assert await peer.read_some(2) == [
            {"id": 1, "method": "release", "params": {"n": 1}},
            {"id": 2, "method": "release", "params": {"n": 2}},
        ]
        await peer.write({"id": 1, "result": {}}, {"id": 2, "error": {"code": 1, "message": "no"}})
        async with anyio.create_task_group() as group:
            group.start_soon(endpoint.request, "ask", {})
            assert await peer.read() == {"id": 3, "method": "ask", "params": {}}
            await peer.write({"id": 3, "result": {}})
    endpoint.post("release", {})  # after the end: nothing


@pytest.mark.parametrize("is_late", [True, False])
async def test_what_was_asked_for_is_not_lost_when_the_wait_for_it_is_cancelled(
    is_late: bool,
) -> None:
    """The answer comes with the cancel, or after it: neither is dropped, and it counts once."""
    taken: list[Any] = []
    async with serving(nothing_served) as (endpoint, peer):
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                taken.append(await endpoint.request("make", {}, late=taken.append))

            group.start_soon(ask)
            assert await peer.read() == {"id": 1, "method": "make", "params": {}}
            if not is_late:
                endpoint._settle(1, Response(1, {"made": "x"}))
            group.cancel_scope.cancel()
        if is_late:
            assert taken == []
            await peer.write({"id": 1, "result": {"made": "x"}})
        await peer.write({"id": 7, "method": "x"})
        assert await peer.read() == error(7, -32601, "No such method: x"), "no cancel was sent"
        assert taken == [{"made": "x"}]


async def test_a_late_error_is_dropped_and_a_fault_in_who_takes_a_result_stays_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_result: object) -> None:
        raise RuntimeError("broken")

    async with serving(nothing_served) as (endpoint, peer):
        answers: list[JsonObject] = [{"error": {"code": 1, "message": "no"}}, {"result": {}}]
        for number, answer in enumerate(answers):
            with anyio.move_on_after(0.01):
                await endpoint.request("make", {}, late=fail)
            await peer.read()
            await peer.write({"id": number + 1, **answer}, {"id": "x", "method": "x"})
            assert await peer.read() == error("x", -32601, "No such method: x")
    assert "what takes a late answer to make failed" in caplog.text
