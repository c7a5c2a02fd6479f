"""What the agent side asks of a client or tells it, with types in place of JSON."""

import logging
from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

import attrs

from acp_bridge.acp.converter import structure, unstructure
from acp_bridge.acp.types import (
    CancelledPermissionOutcome,
    CreateTerminalRequest,
    CreateTerminalResponse,
    KillTerminalRequest,
    ReadTextFileRequest,
    ReadTextFileResponse,
    ReleaseTerminalRequest,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SelectedPermissionOutcome,
    SessionUpdate,
    TerminalOutputRequest,
    TerminalOutputResponse,
    WaitForTerminalExitRequest,
    WaitForTerminalExitResponse,
    WriteTextFileRequest,
)
from acp_bridge.errors import InvalidParamsError, PeerError, RequestCancelledError
from acp_bridge.vocabulary import JsonObject, JsonValue

__all__ = ["ClientCalls", "Peer", "PermissionOutcome", "Unusable"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

REASON_LENGTH_MAX = 300
"""Characters of a client's own failure text that are passed on: it may be a whole file."""


class Peer(Protocol):
    """The part of `wire.endpoint.Endpoint` that is used here."""

    def notify(self, method: str, params: JsonObject) -> None:
        """Queue a notification."""

    def post(self, method: str, params: JsonObject) -> None:
        """Send a request and wait for nothing."""

    async def request(
        self, method: str, params: JsonObject, *, late: Callable[[JsonValue], None] | None = None
    ) -> JsonValue:
        """Send a request and wait for its result; ``late`` takes one that comes after a cancel.

        Raises:
            PeerError: the client answered with an error.
            PeerGoneError: the connection ended first.
        """

    async def flow(self) -> None:
        """Wait while the client reads slower than we write."""


@attrs.frozen
class Unusable:
    """An answer to a permission request that answers nothing; ``reason`` is for the log."""

    reason: str


PermissionOutcome: TypeAlias = SelectedPermissionOutcome | CancelledPermissionOutcome | Unusable
"""A selected option is one of those that were offered."""


class ClientCalls:
    """Typed calls to the client of one connection.

    Whether a call may be made at all (capabilities, a running prompt) is the caller's business.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def session_update(self, session_id: str, update: SessionUpdate) -> None:
        """Queue one ``session/update``; back-pressure is waited for with `flow`."""
        self._peer.notify(
            "session/update", {"sessionId": session_id, "update": unstructure(update)}
        )

    async def flow(self) -> None:
        """Wait while the client reads slower than we write."""
        await self._peer.flow()

    async def request_permission(self, request: RequestPermissionRequest) -> PermissionOutcome:
        """Ask the user. A malformed or refusing answer is a value: it must count as a rejection.

        Raises:
            PeerGoneError: the connection ended first.
        """
        try:
            result = await self._peer.request("session/request_permission", unstructure(request))
            outcome = structure(result, RequestPermissionResponse).outcome
        except PeerError as error:
            # The client may withdraw the question itself when the turn is cancelled.
            if error.peer_code == RequestCancelledError.code:
                return CancelledPermissionOutcome()
            return Unusable(f"the client answered with error {error.peer_code}")
        except InvalidParamsError as error:
            return Unusable(error.details)
        match outcome:
            case CancelledPermissionOutcome():
                return outcome
            case SelectedPermissionOutcome(option_id=chosen) if any(
                option.option_id == chosen for option in request.options
            ):
                return outcome
            case SelectedPermissionOutcome():
                return Unusable("the selected option was not offered")
            case _:
                return Unusable("the outcome is neither selected nor cancelled")

    async def create_elicitation(self, request: JsonObject) -> JsonValue:
        """Put a form to the user; the client's answer as it came.

        Raises:
            PeerError: the client answered with an error.
            PeerGoneError: the connection ended first.
        """
        return await self._peer.request("elicitation/create", request)

    async def read_text_file(
        self, session_id: str, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """A text file as the client has it; ``path`` absolute, ``line`` from 1, ``limit`` lines.

        Raises:
            PeerError: the client could not, or answered something else.
            PeerGoneError: the connection ended first.
        """
        request = ReadTextFileRequest(session_id=session_id, path=path, line=line, limit=limit)
        method = "fs/read_text_file"
        result = await self._peer.request(method, unstructure(request))
        return _usable(method, result, ReadTextFileResponse).content

    async def write_text_file(self, session_id: str, path: str, content: str) -> None:
        """Write a whole text file through the client; ``path`` absolute.

        Null or any object is success; a string is a failure, which some clients report so.

        Raises:
            PeerError: the client could not.
            PeerGoneError: the connection ended first.
        """
        request = WriteTextFileRequest(session_id=session_id, path=path, content=content)
        result = await self._peer.request("fs/write_text_file", unstructure(request))
        if result is None or isinstance(result, dict):
            return
        told = f": {result[:REASON_LENGTH_MAX]}" if isinstance(result, str) and result else "."
        raise PeerError(f"The client did not write the file{told}", code=PeerError.code)

    async def create_terminal(self, request: CreateTerminalRequest) -> str:
        """Start a command in a terminal of the client; the terminal's id.

        Cancelled, it leaves nothing behind: a terminal that comes later is released at once.

        Raises:
            PeerError: the client could not, or answered something else.
            PeerGoneError: the connection ended first.
        """
        method = "terminal/create"

        def late(result: JsonValue) -> None:
            try:
                terminal_id = structure(result, CreateTerminalResponse).terminal_id
            except InvalidParamsError as error:
                logger.warning("a late answer to %s cannot be used: %s", method, error.details)
            else:
                self.release_terminal(request.session_id, terminal_id)

        result = await self._peer.request(method, unstructure(request), late=late)
        return _usable(method, result, CreateTerminalResponse).terminal_id

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str
    ) -> WaitForTerminalExitResponse:
        """Wait for the command's end.

        Raises:
            PeerError: the client could not, or answered something else.
            PeerGoneError: the connection ended first.
        """
        request = WaitForTerminalExitRequest(session_id=session_id, terminal_id=terminal_id)
        method = "terminal/wait_for_exit"
        result = await self._peer.request(method, unstructure(request))
        return _usable(method, result, WaitForTerminalExitResponse)

    async def terminal_output(self, session_id: str, terminal_id: str) -> TerminalOutputResponse:
        """The command's output so far.

        Raises:
            PeerError: the client could not, or answered something else.
            PeerGoneError: the connection ended first.
        """
        request = TerminalOutputRequest(session_id=session_id, terminal_id=terminal_id)
        method = "terminal/output"
        result = await self._peer.request(method, unstructure(request))
        return _usable(method, result, TerminalOutputResponse)

    def kill_terminal(self, session_id: str, terminal_id: str) -> None:
        """End the command. Nothing is waited for: its exit tells whether it worked."""
        request = KillTerminalRequest(session_id=session_id, terminal_id=terminal_id)
        self._peer.post("terminal/kill", unstructure(request))

    def release_terminal(self, session_id: str, terminal_id: str) -> None:
        """Give the terminal back; it is not to be named any more. Nothing is waited for."""
        request = ReleaseTerminalRequest(session_id=session_id, terminal_id=terminal_id)
        self._peer.post("terminal/release", unstructure(request))


def _usable(method: str, result: JsonValue, wanted: type[T]) -> T:
    try:
        return structure(result, wanted)
    except InvalidParamsError as error:
        reason = f"The client's answer to {method} cannot be used: {error.details}"
    raise PeerError(reason, code=InvalidParamsError.code)
