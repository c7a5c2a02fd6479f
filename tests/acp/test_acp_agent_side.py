"""The method table and the face: what is admitted, when, and how it is answered."""

import logging
from collections.abc import Awaitable
from typing import Any

import anyio
import pytest

from acp_bridge.acp import types
from acp_bridge.acp.agent_side import METHODS, Agent, AgentFace, Followed
from acp_bridge.errors import InvalidParamsError, MethodNotFoundError, SessionNotFoundError
from acp_bridge.vocabulary import JsonObject, JsonValue
from acp_bridge.wire.endpoint import Endpoint, Reply
from acp_bridge.wire.messages import Notification, Request

pytestmark = pytest.mark.anyio


class FakeAgent:
    """Records its calls; answers as told."""

    def __init__(self, outcome: Any = None) -> None:
        self.calls: list[tuple[str, object]] = []
        self.outcome = {} if outcome is None else outcome

    def __getattr__(self, name: str) -> Any:
        def call(params: object) -> Any:
            self.calls.append((name, params))
            return self.outcome

        return call


def request(method: str, params: JsonObject | list[JsonValue] | None = None) -> Request:
    return Request(7, method, params)


async def answer(outcome: Reply | Awaitable[Reply] | None) -> Reply:
    assert outcome is not None
    return outcome if isinstance(outcome, Reply) else await outcome


def test_the_table_and_the_protocol_name_the_same_calls_with_the_same_types() -> None:
    calls = {name for name in vars(Agent) if not name.startswith("_")}
    assert {method.call for method in METHODS.values()} == calls
    for method in METHODS.values():
        annotation = getattr(Agent, method.call).__annotations__["params"]
        assert annotation == (f"types.{method.params}" if method.params else "JsonValue")
        assert method.params is None or hasattr(types, method.params)


def test_a_call_reaches_the_agent_at_once_with_typed_parameters() -> None:
    agent = FakeAgent()
    AgentFace(agent).admit(request("session/new", {"cwd": "/w", "mcpServers": []}))
    assert agent.calls == [("new_session", types.NewSessionRequest(cwd="/w"))]


async def test_a_coroutine_is_called_at_once_and_answers_later() -> None:
    async def later() -> types.PromptResponse:
        await anyio.lowlevel.checkpoint()
        return types.PromptResponse(stop_reason="end_turn")

    agent = FakeAgent(later())
    outcome = AgentFace(agent).admit(request("session/prompt", {"sessionId": "s", "prompt": []}))
    assert [name for name, _ in agent.calls] == ["prompt"]
    assert not isinstance(outcome, Reply)
    assert await answer(outcome) == Reply({"stopReason": "end_turn"})


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("is_dict", [False, True])
async def test_what_follows_a_response_goes_with_its_reply(is_late: bool, is_dict: bool) -> None:
    def then() -> None: ...

    response = {"sessionId": "s"} if is_dict else types.NewSessionResponse(session_id="s")

    async def later() -> Followed[Any]:
        return Followed(response, then)

    agent = FakeAgent(later() if is_late else Followed(response, then))
    outcome = AgentFace(agent).admit(request("session/new", {"cwd": "/w"}))
    assert await answer(outcome) == Reply({"sessionId": "s"}, then)


def test_initialize_gets_its_parameters_as_they_came() -> None:
    agent = FakeAgent({"protocolVersion": 1})
    params: JsonObject = {"protocolVersion": "x", "extra": None}
    assert AgentFace(agent).admit(request("initialize", params)) == Reply({"protocolVersion": 1})
    assert agent.calls == [("initialize", params)]
    assert agent.calls[0][1] is params


def test_absent_params_are_an_empty_object() -> None:
    agent = FakeAgent(types.ListSessionsResponse(sessions=[]))
    assert AgentFace(agent).admit(request("session/list")) == Reply({"sessions": []})
    assert agent.calls == [("list_sessions", types.ListSessionsRequest())]


@pytest.mark.parametrize("method", ["_x.dev/foo", "session/teleport", "session/archive"])
def test_a_method_that_is_not_served_is_refused_by_name(method: str) -> None:
    """R017."""
    with pytest.raises(MethodNotFoundError, match=method):
        AgentFace(FakeAgent()).admit(request(method))


def test_params_in_an_array_are_refused() -> None:
    for method in METHODS:
        with pytest.raises(InvalidParamsError, match="must be an object, not an array") as caught:
            AgentFace(FakeAgent()).admit(request(method, ["/w"]))
        assert caught.value.field == "params"


def test_bad_params_are_refused_before_the_agent_is_called() -> None:
    agent = FakeAgent()
    with pytest.raises(InvalidParamsError) as caught:
        AgentFace(agent).admit(request("session/load", {"sessionId": "s"}))
    assert caught.value.field == "cwd"
    assert agent.calls == []


def test_a_refusal_of_the_agent_passes_as_it_is() -> None:
    def refuse(_: object) -> types.LoadSessionResponse:
        raise SessionNotFoundError("s")

    agent = FakeAgent()
    agent.load_session = refuse  # type: ignore[attr-defined]  # shadows __getattr__
    with pytest.raises(SessionNotFoundError):
        AgentFace(agent).admit(request("session/load", {"sessionId": "s", "cwd": "/w"}))


def test_a_cancel_takes_effect_in_admission() -> None:
    agent = FakeAgent()
    cancel = Notification("session/cancel", {"sessionId": "s"})
    assert AgentFace(agent).admit(cancel) is None
    assert agent.calls == [("cancel", types.CancelNotification(session_id="s"))]


def test_a_cancel_sent_as_a_request_takes_effect_and_is_answered() -> None:
    """R017."""
    agent = FakeAgent()
    assert AgentFace(agent).admit(request("session/cancel", {"sessionId": "s"})) == Reply({})
    assert agent.calls == [("cancel", types.CancelNotification(session_id="s"))]


@pytest.mark.parametrize("params", [None, [], {}, {"sessionId": 3}])
def test_a_cancel_with_bad_parameters_is_logged_and_ignored(
    params: JsonObject | list[JsonValue] | None, caplog: pytest.LogCaptureFixture
) -> None:
    agent = FakeAgent()
    with caplog.at_level(logging.WARNING):
        assert AgentFace(agent).admit(Notification("session/cancel", params)) is None
    assert agent.calls == []
    assert "ignored session/cancel" in caplog.text


@pytest.mark.parametrize("method", ["foo/bar", "_x.dev/bar", "session/prompt", "initialize"])
def test_other_notifications_are_ignored(method: str) -> None:
    """R017; a request without an id can be answered by nobody."""
    agent = FakeAgent()
    assert AgentFace(agent).admit(Notification(method, {"protocolVersion": 1})) is None
    assert agent.calls == []


def test_the_face_fits_the_endpoint() -> None:
    class NoStream:
        async def receive(self) -> bytes:
            return b""

        async def send(self, data: bytes) -> None: ...

        async def aclose(self) -> None: ...

    assert Endpoint(NoStream(), AgentFace(FakeAgent()).admit).queued_bytes == 0
