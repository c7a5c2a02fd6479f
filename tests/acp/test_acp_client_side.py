"""Typed calls to the client, and what becomes of answers that are none."""

from collections.abc import Callable

import pytest

from acp_bridge.acp import types
from acp_bridge.acp.client_side import ClientCalls, Unusable
from acp_bridge.errors import PeerError, PeerGoneError
from acp_bridge.vocabulary import JsonObject, JsonValue

pytestmark = pytest.mark.anyio


class FakePeer:
    """Answers every request with one result, or raises it."""

    def __init__(self, result: "JsonValue | Exception" = None) -> None:
        self.result = result
        self.sent: list[tuple[str, JsonObject]] = []
        self.flowed = 0
        self.late: Callable[[JsonValue], None] | None = None

    def notify(self, method: str, params: JsonObject) -> None:
        self.sent.append((method, params))

    def post(self, method: str, params: JsonObject) -> None:
        self.sent.append((method, params))

    async def request(
        self, method: str, params: JsonObject, *, late: Callable[[JsonValue], None] | None = None
    ) -> JsonValue:
        self.sent.append((method, params))
        self.late = late
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    async def flow(self) -> None:
        self.flowed += 1


def ask() -> types.RequestPermissionRequest:
    return types.RequestPermissionRequest(
        session_id="s",
        tool_call=types.PermissionToolCall(tool_call_id="c", title="Run", kind="execute"),
        options=[
            types.PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
            types.PermissionOption(option_id="no", name="Reject", kind="reject_once"),
        ],
    )


async def test_an_update_is_queued_at_once_and_flow_waits_apart() -> None:
    peer = FakePeer()
    client = ClientCalls(peer)
    client.session_update("s", types.PlanRemoved(plan_id="p"))
    assert peer.sent == [
        (
            "session/update",
            {"sessionId": "s", "update": {"sessionUpdate": "plan_removed", "planId": "p"}},
        )
    ]
    assert peer.flowed == 0
    await client.flow()
    assert peer.flowed == 1


async def test_a_permission_request_carries_the_whole_call() -> None:
    peer = FakePeer({"outcome": {"outcome": "cancelled"}})
    await ClientCalls(peer).request_permission(ask())
    ((method, params),) = peer.sent
    assert method == "session/request_permission"
    assert params["toolCall"] == {"toolCallId": "c", "title": "Run", "kind": "execute"}
    assert params["options"] == [
        {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
        {"optionId": "no", "name": "Reject", "kind": "reject_once"},
    ]


@pytest.mark.parametrize("option", ["yes", "no"])
async def test_an_offered_option_is_the_outcome(option: str) -> None:
    peer = FakePeer({"outcome": {"outcome": "selected", "optionId": option, "extra": 1}})
    outcome = await ClientCalls(peer).request_permission(ask())
    assert outcome == types.SelectedPermissionOutcome(option_id=option)


@pytest.mark.parametrize(
    "result",
    [{"outcome": {"outcome": "cancelled"}}, PeerError("Request cancelled", code=-32800)],
)
async def test_cancelled_is_an_outcome_in_either_form(result: "JsonValue | Exception") -> None:
    outcome = await ClientCalls(FakePeer(result)).request_permission(ask())
    assert outcome == types.CancelledPermissionOutcome()


@pytest.mark.parametrize(
    "result",
    [
        None,
        "yes",
        True,
        [],
        {},
        {"outcome": None},
        {"outcome": "selected"},
        {"outcome": {}},
        {"outcome": {"outcome": "selected"}},
        {"outcome": {"outcome": "selected", "optionId": None}},
        {"outcome": {"outcome": "selected", "optionId": "other"}},
        {"outcome": {"outcome": "maybe", "optionId": "yes"}},
        {"optionId": "yes"},
        PeerError("The client refused", code=-32601),
        PeerError("The client refused", code=-32603),
    ],
)
async def test_anything_else_is_an_unusable_answer_never_an_exception(
    result: "JsonValue | Exception",
) -> None:
    outcome = await ClientCalls(FakePeer(result)).request_permission(ask())
    assert isinstance(outcome, Unusable)
    assert outcome.reason


async def test_the_end_of_the_connection_is_told_apart_from_a_rejection() -> None:
    with pytest.raises(PeerGoneError):
        await ClientCalls(FakePeer(PeerGoneError("gone"))).request_permission(ask())


async def test_a_file_is_read_as_the_client_has_it() -> None:
    peer = FakePeer({"content": "x\n", "_meta": {}})
    client = ClientCalls(peer)
    assert await client.read_text_file("s", "/a") == "x\n"
    assert await client.read_text_file("s", "/a", line=1, limit=2) == "x\n"
    assert peer.sent == [
        ("fs/read_text_file", {"sessionId": "s", "path": "/a"}),
        ("fs/read_text_file", {"sessionId": "s", "path": "/a", "line": 1, "limit": 2}),
    ]


@pytest.mark.parametrize("result", [None, "text", {}, {"content": None}, ["x"]])
async def test_an_answer_without_a_content_is_a_failed_read(result: JsonValue) -> None:
    with pytest.raises(PeerError, match="fs/read_text_file cannot be used"):
        await ClientCalls(FakePeer(result)).read_text_file("s", "/a")


@pytest.mark.parametrize("result", [None, {}, {"_meta": {}}, {"ok": True}])
async def test_null_and_any_object_mean_that_the_file_was_written(result: JsonValue) -> None:
    peer = FakePeer(result)
    await ClientCalls(peer).write_text_file("s", "/a", "x")
    assert peer.sent == [("fs/write_text_file", {"sessionId": "s", "path": "/a", "content": "x"})]


@pytest.mark.parametrize("result", ["permission denied", "", False, True, 3, []])
async def test_a_string_and_anything_else_means_that_it_was_not(result: JsonValue) -> None:
    """avante.nvim reports a failed write as a string result."""
    with pytest.raises(PeerError, match="did not write the file"):
        await ClientCalls(FakePeer(result)).write_text_file("s", "/a", "x")


async def test_a_failed_write_tells_why_but_not_at_any_length() -> None:
    with pytest.raises(PeerError, match="permission denied"):
        await ClientCalls(FakePeer("permission denied")).write_text_file("s", "/a", "x")
    with pytest.raises(PeerError) as caught:
        await ClientCalls(FakePeer("x" * 9999)).write_text_file("s", "/a", "x")
    assert len(caught.value.details) < 400


async def test_refusals_of_file_calls_pass_as_they_are() -> None:
    refusal = PeerError("The client refused", code=-32002)
    with pytest.raises(PeerError) as caught:
        await ClientCalls(FakePeer(refusal)).read_text_file("s", "/a")
    assert caught.value.peer_code == -32002
    with pytest.raises(PeerError):
        await ClientCalls(FakePeer(refusal)).write_text_file("s", "/a", "x")


TERMINAL: JsonObject = {"sessionId": "s", "terminalId": "t"}


def make() -> types.CreateTerminalRequest:
    return types.CreateTerminalRequest(
        session_id="s", command="bash", args=["-c", "ls"], cwd="/w", output_byte_limit=9
    )


async def test_a_terminal_is_made_waited_for_read_killed_and_released() -> None:
    peer = FakePeer({"terminalId": "t"})
    client = ClientCalls(peer)
    assert await client.create_terminal(make()) == "t"
    peer.result = {"exitCode": None, "signal": "SIGKILL"}
    end = await client.wait_for_terminal_exit("s", "t")
    assert end == types.WaitForTerminalExitResponse(signal="SIGKILL")
    peer.result = {"output": "x", "truncated": True, "exitStatus": {"exitCode": 3}}
    said = await client.terminal_output("s", "t")
    assert (said.output, said.truncated) == ("x", True)
    assert said.exit_status == types.TerminalExitStatus(exit_code=3)
    client.kill_terminal("s", "t")
    client.release_terminal("s", "t")
    assert peer.sent == [
        (
            "terminal/create",
            {
                "sessionId": "s",
                "command": "bash",
                "args": ["-c", "ls"],
                "cwd": "/w",
                "outputByteLimit": 9,
            },
        ),
        ("terminal/wait_for_exit", TERMINAL),
        ("terminal/output", TERMINAL),
        ("terminal/kill", TERMINAL),
        ("terminal/release", TERMINAL),
    ]


@pytest.mark.parametrize("result", [None, {}, "t", {"terminalId": None}, {"terminalId": 3}])
async def test_a_terminal_without_an_id_is_none(result: JsonValue) -> None:
    peer = FakePeer(result)
    with pytest.raises(PeerError, match="terminal/create cannot be used"):
        await ClientCalls(peer).create_terminal(make())


@pytest.mark.parametrize("result", [None, "x", {}, {"output": None, "truncated": False}])
async def test_output_that_is_none_is_a_failure(result: JsonValue) -> None:
    with pytest.raises(PeerError, match="terminal/output cannot be used"):
        await ClientCalls(FakePeer(result)).terminal_output("s", "t")


@pytest.mark.parametrize("result", [{}, {"exitCode": -1}, {"exitCode": "3", "signal": 9}])
async def test_an_exit_without_a_code_is_an_exit(result: JsonValue) -> None:
    end = await ClientCalls(FakePeer(result)).wait_for_terminal_exit("s", "t")
    assert (end.exit_code, end.signal) == (None, None)
    with pytest.raises(PeerError, match="terminal/wait_for_exit cannot be used"):
        await ClientCalls(FakePeer(None)).wait_for_terminal_exit("s", "t")


async def test_a_terminal_that_comes_too_late_is_released_r103() -> None:
    peer = FakePeer({"terminalId": "kept"})
    await ClientCalls(peer).create_terminal(make())
    assert peer.late is not None
    peer.sent.clear()
    peer.late({"terminalId": "t"})
    peer.late({"nonsense": 1})
    assert peer.sent == [("terminal/release", TERMINAL)]
