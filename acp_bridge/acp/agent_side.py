"""What a client may call: the table of methods, and the face that admits calls by it.

`AgentFace.admit` is the endpoint's admission hook. It finds the method, gives its parameters their
type and calls the agent's method at once, in arrival order; only what that returns may take time.
The generated types are imported with the first call that has typed parameters, after
``initialize`` is answered.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from acp_bridge.errors import InvalidParamsError, MethodNotFoundError
from acp_bridge.wire.endpoint import Reply
from acp_bridge.wire.messages import Notification, Request

if TYPE_CHECKING:
    from acp_bridge.acp import types
    from acp_bridge.vocabulary import JsonObject, JsonValue

__all__ = ["METHODS", "Agent", "AgentFace", "Followed", "Method", "Outcome"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Method(NamedTuple):
    """``call`` is the name in `Agent`; ``params`` the type in `types`, None for untyped JSON."""

    call: str
    params: str | None
    is_notification: bool = False


METHODS: Final = {
    "initialize": Method("initialize", None),
    "authenticate": Method("authenticate", "AuthenticateRequest"),
    "logout": Method("logout", "LogoutRequest"),
    "session/new": Method("new_session", "NewSessionRequest"),
    "session/load": Method("load_session", "LoadSessionRequest"),
    "session/resume": Method("resume_session", "ResumeSessionRequest"),
    "session/fork": Method("fork_session", "ForkSessionRequest"),
    "session/list": Method("list_sessions", "ListSessionsRequest"),
    "session/delete": Method("delete_session", "DeleteSessionRequest"),
    "session/set_mode": Method("set_mode", "SetSessionModeRequest"),
    "session/set_config_option": Method("set_config_option", "SetSessionConfigOptionRequest"),
    "session/prompt": Method("prompt", "PromptRequest"),
    "_session/steering": Method("steer", "PromptRequest"),
    "session/close": Method("close_session", "CloseSessionRequest"),
    "session/cancel": Method("cancel", "CancelNotification", is_notification=True),
}
"""Every method that we serve, by its name on the wire. A method is served when it stands here and
in `Agent`; ``initialize`` alone is untyped, because it is answered before types are loaded.
``_session/steering`` is no part of ACP, but what several agents and their clients have agreed on:
its parameters are those of a prompt."""


class Followed(NamedTuple, Generic[T]):
    """A response with what comes right behind it: ``then`` runs once the response is queued."""

    response: T
    then: Callable[[], None]


Outcome: TypeAlias = "T | JsonObject | Followed[T] | Followed[JsonObject] | Awaitable[T | JsonObject | Followed[T] | Followed[JsonObject]]"  # noqa: E501
"""A response (an instance of `types` or an object that is written as it is), or what gives one."""


class Agent(Protocol):
    """What serves the calls. Each method is called in arrival order and must not block.

    A method raises, or its awaitable does, a `BridgeError`: the endpoint answers with it.
    """

    def initialize(self, params: JsonValue) -> Outcome[JsonObject]:
        """``initialize``, with parameters as they came."""

    def authenticate(
        self, params: types.AuthenticateRequest
    ) -> Outcome[types.AuthenticateResponse]:
        """``authenticate``."""

    def logout(self, params: types.LogoutRequest) -> Outcome[types.LogoutResponse]:
        """``logout``."""

    def new_session(self, params: types.NewSessionRequest) -> Outcome[types.NewSessionResponse]:
        """``session/new``."""

    def load_session(self, params: types.LoadSessionRequest) -> Outcome[types.LoadSessionResponse]:
        """``session/load``."""

    def resume_session(
        self, params: types.ResumeSessionRequest
    ) -> Outcome[types.ResumeSessionResponse]:
        """``session/resume``."""

    def delete_session(
        self, params: types.DeleteSessionRequest
    ) -> Outcome[types.DeleteSessionResponse]:
        """``session/delete``."""

    def set_mode(
        self, params: types.SetSessionModeRequest
    ) -> Outcome[types.SetSessionModeResponse]:
        """``session/set_mode``."""

    def set_config_option(
        self, params: types.SetSessionConfigOptionRequest
    ) -> Outcome[types.SetSessionConfigOptionResponse]:
        """``session/set_config_option``."""

    def fork_session(self, params: types.ForkSessionRequest) -> Outcome[types.ForkSessionResponse]:
        """``session/fork``."""

    def list_sessions(
        self, params: types.ListSessionsRequest
    ) -> Outcome[types.ListSessionsResponse]:
        """``session/list``."""

    def prompt(self, params: types.PromptRequest) -> Outcome[types.PromptResponse]:
        """``session/prompt``."""

    def steer(self, params: types.PromptRequest) -> Outcome[JsonObject]:
        """``_session/steering``."""

    def close_session(
        self, params: types.CloseSessionRequest
    ) -> Outcome[types.CloseSessionResponse]:
        """``session/close``."""

    def cancel(self, params: types.CancelNotification) -> None:
        """``session/cancel``: takes effect before this returns; unknown sessions are ignored."""


class AgentFace:
    """Puts an `Agent` behind an endpoint: ``Endpoint(stream, AgentFace(agent).admit)``."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def admit(self, message: Request | Notification) -> Reply | Awaitable[Reply] | None:
        """Take one call.

        Raises:
            MethodNotFoundError: a request for a method that we do not serve.
            InvalidParamsError: a request whose parameters cannot be used.
            BridgeError: whatever the agent refuses with.
        """
        if isinstance(message, Notification):
            self._admit_notification(message)
            return None
        method = METHODS.get(message.method)
        if method is None:
            raise MethodNotFoundError(f"Method not found: {message.method[:100]}")
        outcome = self._call(method, message.params)
        if method.is_notification:
            # A notification sent with an id by mistake still takes effect and is answered (R017).
            return Reply({})
        if isinstance(outcome, Awaitable):
            return _reply_later(outcome)
        return _reply(outcome)

    def _admit_notification(self, message: Notification) -> None:
        method = METHODS.get(message.method)
        if method is None or not method.is_notification:
            logger.debug("ignored notification %.100s", message.method)
            return
        try:
            self._call(method, message.params)
        except InvalidParamsError as error:
            logger.warning("ignored %s with bad parameters: %s", message.method, error.details)

    def _call(self, method: Method, params: JsonValue) -> object:
        if params is None:
            params = {}
        if not isinstance(params, dict):
            raise InvalidParamsError("`params` must be an object, not an array.", field="params")
        call: Callable[[object], object] = getattr(self._agent, method.call)
        return call(params if method.params is None else _typed(params, method.params))


def _typed(params: JsonObject, name: str) -> object:
    from acp_bridge.acp import converter, types

    return converter.structure(params, getattr(types, name))


async def _reply_later(outcome: Awaitable[object]) -> Reply:
    return _reply(await outcome)


def _reply(outcome: object) -> Reply:
    response, then = outcome if isinstance(outcome, Followed) else (outcome, None)
    if isinstance(response, dict):
        return Reply(response, then)
    from acp_bridge.acp import converter

    return Reply(converter.unstructure(response), then)
