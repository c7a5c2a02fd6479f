"""One connection in memory: every request answered once, in order, whatever the peer does."""

import asyncio
import json
import logging
from collections.abc import Awaitable
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from wire_peer import Peer, admitting, error, serving

from acp_bridge.errors import (
    InvalidParamsError,
    MethodNotFoundError,
    PeerError,
    PeerGoneError,
    RemoteProtocolError,
)
from acp_bridge.vocabulary import JsonObject
from acp_bridge.wire import endpoint as endpoint_module
from acp_bridge.wire import writer as writer_module
from acp_bridge.wire.endpoint import CANCEL_REQUEST, Endpoint, Outcome, Reply
from acp_bridge.wire.memory import stream_pair
from acp_bridge.wire.messages import INTERNAL_DETAILS, Notification, Request, notification_frame
from acp_bridge.wire.writer import FLOW_BYTES_MAX

pytestmark = pytest.mark.anyio

CANCELLED = {"code": -32800, "message": "Request cancelled"}


def nothing_served(call: Request | Notification) -> None:
    raise MethodNotFoundError(f"No such method: {call.method}")


def echo(call: Request | Notification) -> Reply:
    return Reply({"params": call.params})


async def forever(_call: Request | Notification) -> JsonObject:
    await anyio.sleep_forever()
    raise AssertionError


def cancel(request_id: object) -> dict[str, Any]:
    return {"method": CANCEL_REQUEST, "params": {"requestId": request_id}}


# --- requests and replies -----------------------------------------------------------------------


async def test_the_sequence_of_r007_is_answered_line_by_line() -> None:
    async with serving(admitting(initialize=echo)) as (_, peer):
        await peer.write(
            b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"initialize"}\r',
            b"not json",
            b"{",
            b"",
            b"   ",
            b"[]",
            b"42",
            b'{"jsonrpc":"2.0","id":7}',
            b'{"jsonrpc":"2.0","id":8,"method":"initialize"}',
        )
        replies = await peer.read_some(7)
    codes = [(reply["id"], reply.get("error", {}).get("code")) for reply in replies]
    assert codes == [
        (1, None),
        (None, -32700),
        (None, -32700),
        (None, -32600),
        (None, -32600),
        (7, -32600),
        (8, None),
    ]


async def test_unknown_calls_are_answered_only_if_they_are_requests_as_r017_needs() -> None:
    async with serving(nothing_served) as (_, peer):
        await peer.write(
            {"method": "_x.dev/bar"},
            {"method": "foo/bar", "params": {}},
            cancel(99),
            {"method": CANCEL_REQUEST, "params": [1]},
            {"method": CANCEL_REQUEST},
            cancel(None),
            cancel(True),
            cancel({"a": 1}),
            {"id": 5, "method": "_x.dev/foo"},
        )
        assert await peer.read() == error(5, -32601, "No such method: _x.dev/foo")


@pytest.mark.parametrize("message_id", [0, -1, 2**70, "", "x" * 300, None])
async def test_ids_come_back_as_they_were(message_id: int | str | None) -> None:
    async with serving(admitting(echo=echo)) as (_, peer):
        await peer.write({"id": message_id, "method": "echo"})
        assert await peer.read() == {"id": message_id, "result": {"params": None}}


async def test_the_string_1_and_the_number_1_are_two_requests() -> None:
    async with serving(admitting(wait=forever)) as (_, peer):
        await peer.write({"id": 1, "method": "wait"}, {"id": "1", "method": "wait"}, cancel("1"))
        assert await peer.read() == {"id": "1", "error": CANCELLED}


async def test_requests_with_a_null_id_are_all_answered_and_cannot_be_cancelled() -> None:
    gate = anyio.Event()

    async def wait(_call: Request | Notification) -> JsonObject:
        await gate.wait()
        return {}

    async with serving(admitting(wait=wait)) as (_, peer):
        await peer.write({"id": None, "method": "wait"}, {"id": None, "method": "wait"})
        await peer.write(cancel(None))
        await wait_all_tasks_blocked()
        gate.set()
        assert await peer.read_some(2) == [{"id": None, "result": {}}] * 2


async def test_a_repeated_id_is_refused_while_the_first_request_runs() -> None:
    async with serving(admitting(wait=forever)) as (_, peer):
        await peer.write({"id": 1, "method": "wait"}, {"id": 1, "method": "wait"}, cancel(1))
        assert await peer.read() == error(1, -32600, "A request with this id is still running.")
        assert await peer.read() == {"id": 1, "error": CANCELLED}
        await peer.write({"id": 1, "method": "wait"}, cancel(1))
        assert await peer.read() == {"id": 1, "error": CANCELLED}


async def test_a_nested_object_that_looks_like_a_message_is_data() -> None:
    params = {"x": {"jsonrpc": "2.0", "id": 3, "method": "wait"}}
    async with serving(admitting(echo=echo)) as (_, peer):
        await peer.write({"id": 1, "method": "echo", "params": params})
        assert await peer.read() == {"id": 1, "result": {"params": params}}


async def test_requests_start_in_arrival_order() -> None:
    started: list[object] = []

    async def note(call: Request | Notification) -> JsonObject:
        started.append(call.params)
        return {}

    async with serving(admitting(note=note)) as (_, peer):
        await peer.write(*({"id": n, "method": "note", "params": [n]} for n in range(50)))
        replies = await peer.read_some(50)
    assert started == [[n] for n in range(50)]
    assert [reply["id"] for reply in replies] == list(range(50))


async def test_admission_sees_calls_in_arrival_order_before_any_of_them_runs() -> None:
    seen: list[str] = []

    def admit(call: Request | Notification) -> Awaitable[Outcome] | None:
        seen.append(f"admit {call.method}")
        return run(call.method) if isinstance(call, Request) else None

    async def run(method: str) -> Outcome:
        seen.append(f"run {method}")
        return {}

    async with serving(admit) as (_, peer):
        await peer.write({"id": 1, "method": "a"}, {"method": "b"}, {"id": 2, "method": "c"})
        await peer.read_some(2)
    assert seen == ["admit a", "admit b", "admit c", "run a", "run c"]


async def test_what_a_handler_raises_on_purpose_is_the_reply() -> None:
    def refuse(_call: Request | Notification) -> None:
        raise InvalidParamsError("The cwd must be absolute.", field="cwd")

    async def refuse_later(call: Request | Notification) -> JsonObject:
        await anyio.lowlevel.checkpoint()
        refuse(call)
        return {}

    async with serving(admitting(now=refuse, later=refuse_later)) as (_, peer):
        await peer.write({"id": 1, "method": "now"}, {"id": 2, "method": "later"})
        for reply in await peer.read_some(2):
            assert reply["error"] == {
                "code": -32602,
                "message": "The cwd must be absolute.",
                "data": {"field": "cwd", "details": "The cwd must be absolute."},
            }


async def test_foreign_exception_text_never_crosses(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_call: Request | Notification) -> None:
        raise OSError("key sk-123")

    async def fail_later(_call: Request | Notification) -> JsonObject:
        await anyio.lowlevel.checkpoint()
        raise ExceptionGroup("many", [OSError("key sk-123")])

    async with serving(admitting(now=fail, later=fail_later)) as (_, peer):
        await peer.write({"id": 1, "method": "now"}, {"id": 2, "method": "later"})
        for reply in await peer.read_some(2):
            assert reply["error"] == {
                "code": -32603,
                "message": "Internal error",
                "data": {"details": INTERNAL_DETAILS},
            }
    assert caplog.text.count("key sk-123") >= 2


@pytest.mark.parametrize("result", [{"odd": object()}, None], ids=["unwritable", "nothing"])
async def test_a_result_that_cannot_be_sent_still_gives_a_reply(result: Any) -> None:
    async def give(_call: Request | Notification) -> Any:
        return result

    async with serving(admitting(give=give, at_once=lambda _: result and Reply(result))) as (
        _,
        peer,
    ):
        await peer.write({"id": 1, "method": "give"}, {"id": 2, "method": "at_once"})
        replies = await peer.read_some(2)
    assert {reply["id"]: reply["error"]["code"] for reply in replies} == {1: -32603, 2: -32603}


async def test_a_reply_may_be_null() -> None:
    async with serving(admitting(give=lambda _: Reply(None))) as (_, peer):
        await peer.write({"id": 1, "method": "give"})
        assert await peer.read() == {"id": 1, "result": None}


async def test_what_follows_a_reply_is_behind_it_on_the_wire() -> None:
    async def later(_call: Request | Notification) -> Reply:
        await anyio.lowlevel.checkpoint()
        endpoint.notify("before", {})
        return Reply({}, then=lambda: endpoint.notify("after", {}))

    def now(_call: Request | Notification) -> Reply:
        return Reply({}, then=lambda: endpoint.notify("after", {}))

    async with serving(admitting(now=now, later=later)) as (endpoint, peer):
        await peer.write({"id": 1, "method": "now"}, {"id": 2, "method": "now"})
        assert [message.get("method") for message in await peer.read_some(4)] == [
            None,
            "after",
            None,
            "after",
        ]
        await peer.write({"id": 3, "method": "later"})
        assert [message.get("method") for message in await peer.read_some(3)] == [
            "before",
            None,
            "after",
        ]


async def test_a_failure_of_what_follows_a_reply_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    async with serving(admitting(x=lambda _: Reply({}, then=fail))) as (_, peer):
        await peer.write({"id": 1, "method": "x"}, {"id": 2, "method": "x"})
        assert await peer.read_some(2) == [{"id": 1, "result": {}}, {"id": 2, "result": {}}]
    assert "ZeroDivisionError" in caplog.text


async def test_a_notification_may_run_as_a_task_and_is_never_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran = anyio.Event()

    async def run(_call: Request | Notification) -> None:
        await anyio.lowlevel.checkpoint()
        ran.set()
        raise ValueError("odd")

    def fail(_call: Request | Notification) -> None:
        raise ValueError("even")

    async with serving(admitting(run=run, fail=fail, echo=echo)) as (_, peer):
        await peer.write({"method": "run"}, {"method": "fail"})
        await ran.wait()
        await peer.write({"method": "echo"}, {"id": 1, "method": "echo"})
        assert await peer.read() == {"id": 1, "result": {"params": None}}
    assert "odd" in caplog.text
    assert "even" in caplog.text


async def test_bytes_read_before_the_endpoint_ran_are_served_first() -> None:
    ours, theirs = stream_pair()
    endpoint, peer = Endpoint(ours, admitting(echo=echo)), Peer(theirs)
    await peer.write(b':"echo"}', {"id": 2, "method": "echo"})
    theirs.send_eof()
    with anyio.fail_after(5):
        await endpoint.run(b'{"jsonrpc":"2.0","id":1,"method"')
        assert [reply["id"] for reply in await peer.read_rest()] == [1, 2]


async def test_an_lsp_client_ends_the_connection_with_the_right_advice_as_r010_needs() -> None:
    ours, theirs = stream_pair()
    peer = Peer(theirs)
    await peer.write(b"Content-Length: 2\r", b"\r", b"{}")
    with anyio.fail_after(5), pytest.raises(RemoteProtocolError, match="acp-bridge lsp"):
        await Endpoint(ours, nothing_served).run()
    reply = await peer.read()
    assert reply is not None
    assert "acp-bridge lsp" in reply["error"]["message"]


async def test_a_header_line_later_on_is_just_a_bad_line() -> None:
    async with serving(admitting(echo=echo)) as (_, peer):
        await peer.write({"id": 1, "method": "echo"}, b"Content-Length: 2")
        await peer.write({"id": 2, "method": "echo"})
        replies = await peer.read_some(3)
    assert [reply["id"] for reply in replies] == [1, None, 2]


async def test_an_oversize_request_is_refused_alone_as_r004_and_r005_need() -> None:
    async with serving(admitting(echo=echo, wait=forever), line_bytes_max=1000) as (_, peer):
        await peer.write({"id": 1, "method": "wait"})
        await peer.write({"id": 2, "method": "echo", "params": ["x" * 5000]})
        await peer.write({"id": 3, "method": "echo"}, cancel(1))
        refused, served, cancelled = await peer.read_some(3)
    assert (refused["id"], refused["error"]["code"]) == (2, -32600)
    assert served["id"] == 3
    assert cancelled["id"] == 1


async def test_long_lines_are_served_as_r004_needs() -> None:
    def size(call: Request | Notification) -> Reply:
        assert isinstance(call.params, list)
        return Reply(len(str(call.params[0])))

    async with serving(admitting(size=size), buffer_bytes_max=1024 * 1024) as (_, peer):
        for length in (65_400, 65_536, 65_600, 1024 * 1024, 11 * 1024 * 1024):
            await peer.write({"id": length, "method": "size", "params": ["x" * length]})
            assert await peer.read() == {"id": length, "result": length}


# --- cancelling ---------------------------------------------------------------------------------


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


# --- order and back-pressure --------------------------------------------------------------------


async def test_notifications_are_on_the_wire_before_the_response_that_follows_them_as_r041_needs() -> (  # noqa: E501
    None
):
    async def prompt(_call: Request | Notification) -> JsonObject:
        for n in range(500):
            if n % 2:
                endpoint.notify("update", {"n": n})
            else:
                endpoint.notify_frame(notification_frame("update", {"n": n}))
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
    with anyio.fail_after(5):
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
    with anyio.fail_after(5):
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
    with anyio.fail_after(5):
        await endpoint.run()
    assert endpoint.gone is not None
    assert endpoint.gone.details == "Reading from the client failed (ConnectionResetError)."


async def test_every_frame_is_one_line_of_json() -> None:
    ours, theirs = stream_pair()
    endpoint = Endpoint(ours, admitting(echo=echo))
    await Peer(theirs).write({"id": 1, "method": "echo", "params": ["a\nb\u2028c\u0085"]}, b"{")
    theirs.send_eof()
    with anyio.fail_after(5):
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
