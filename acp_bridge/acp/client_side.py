"""What the agent side asks of a client or tells it, with types in place of JSON."""

from typing import Protocol, TypeAlias, TypeVar

import attrs

from acp_bridge.acp.converter import structure, unstructure
from acp_bridge.acp.types import (
    CancelledPermissionOutcome,
    ReadTextFileRequest,
    ReadTextFileResponse,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SelectedPermissionOutcome,
    SessionUpdate,
    WriteTextFileRequest,
)
from acp_bridge.errors import InvalidParamsError, PeerError, RequestCancelledError
from acp_bridge.vocabulary import JsonObject, JsonValue

__all__ = ["ClientCalls", "Peer", "PermissionOutcome", "Unusable"]

T = TypeVar("T")

REASON_LENGTH_MAX = 300
"""Characters of a client's own failure text that are passed on: it may be a whole file."""


class Peer(Protocol):
    """The part of `wire.endpoint.Endpoint` that is used here."""

    def notify(self, method: str, params: JsonObject) -> None:
        """Queue a notification."""

    async def request(self, method: str, params: JsonObject) -> JsonValue:
        """Send a request and wait for its result.

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
        try:
            return structure(result, ReadTextFileResponse).content
        except InvalidParamsError as error:
            reason = f"The client's answer to {method} cannot be used: {error.details}"
        raise PeerError(reason, code=InvalidParamsError.code)

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
