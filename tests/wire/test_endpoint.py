"""One connection in memory: every request answered once, whatever the line says."""

from collections.abc import Awaitable
from typing import Any

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
    InvalidParamsError,
    RemoteProtocolError,
)
from acp_bridge.vocabulary import JsonObject
from acp_bridge.wire.endpoint import CANCEL_REQUEST, Endpoint, Outcome, Reply
from acp_bridge.wire.memory import stream_pair
from acp_bridge.wire.messages import INTERNAL_DETAILS, Notification, Request

pytestmark = pytest.mark.anyio


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
    with anyio.fail_after(60):
        await endpoint.run(b'{"jsonrpc":"2.0","id":1,"method"')
        assert [reply["id"] for reply in await peer.read_rest()] == [1, 2]


async def test_an_lsp_client_ends_the_connection_with_the_right_advice_as_r010_needs() -> None:
    ours, theirs = stream_pair()
    peer = Peer(theirs)
    await peer.write(b"Content-Length: 2\r", b"\r", b"{}")
    with anyio.fail_after(60), pytest.raises(RemoteProtocolError, match="acp-bridge lsp"):
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
