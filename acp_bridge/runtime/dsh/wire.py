"""What the control plugin's Python face needs of the wire to the runtime. No behaviour."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from acp_bridge.vocabulary import JsonObject, JsonValue

RequestHandler: TypeAlias = Callable[[JsonObject], Awaitable[JsonValue]]
"""Answers a request of the runtime. Whatever `BridgeError` it raises is the error answer.

Cancelled when the runtime withdraws the request or the wire ends."""

Listener: TypeAlias = Callable[[JsonObject], None]
"""Told a notification's params, synchronously and in wire order; must not block or raise."""


class Wire(Protocol):
    """One runtime process's stdio wire, as `Control` uses it."""

    async def request(self, method: str, params: JsonObject) -> JsonValue:
        """The result of a request. Cancelling the wait does not stop the work.

        Raises:
            PeerError: the runtime answered with an error; the text is its own.
            PeerGoneError: the process ended first.
        """

    def serve(self, method: str, handler: RequestHandler) -> None:
        """Answer the runtime's requests of this method. Each runs beside the others."""

    def listen(self, method: str, listener: Listener) -> None:
        """Tell ``listener`` the runtime's notifications of this method."""
