"""The other end of an endpoint under test: writes raw lines, reads messages."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from acp_bridge.errors import MethodNotFoundError
from acp_bridge.vocabulary import JsonObject
from acp_bridge.wire.endpoint import CANCEL_REQUEST, Admit, Endpoint, Reply
from acp_bridge.wire.memory import BUFFER_BYTES_MAX, MemoryStream, stream_pair
from acp_bridge.wire.messages import Notification, Request


class Peer:
    """A client that reads only when it is told to."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self._unread = b""

    async def write(self, *messages: dict[str, Any] | bytes) -> None:
        """All in one write."""
        lines = [
            message
            if isinstance(message, bytes)
            else json.dumps({"jsonrpc": "2.0", **message}).encode()
            for message in messages
        ]
        await self.stream.send(b"".join(line + b"\n" for line in lines))

    async def read(self) -> dict[str, Any] | None:
        """The next message; None at the end."""
        while b"\n" not in self._unread:
            data = await self.stream.receive()
            if not data:
                assert not self._unread, "the last line was cut off"
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        assert message.pop("jsonrpc") == "2.0"
        return message

    async def read_some(self, count: int) -> list[dict[str, Any]]:
        """The next ``count`` messages."""
        messages = []
        for _ in range(count):
            message = await self.read()
            assert message is not None, "the connection ended"
            messages.append(message)
        return messages

    async def read_rest(self) -> list[dict[str, Any]]:
        """All messages up to the end."""
        messages = []
        while (message := await self.read()) is not None:
            messages.append(message)
        return messages


@asynccontextmanager
async def serving(
    admit: Admit, *, buffer_bytes_max: int = BUFFER_BYTES_MAX, **options: Any
) -> AsyncIterator[tuple[Endpoint, Peer]]:
    """A running endpoint and its peer; at the end the peer closes, and the endpoint must end."""
    ours, theirs = stream_pair(buffer_bytes_max)
    endpoint = Endpoint(ours, admit, **options)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(endpoint.run)
            yield endpoint, Peer(theirs)
            await theirs.aclose()


def admitting(**handlers: Callable[[Request | Notification], Any]) -> Admit:
    """A table of methods; a handler's result is what `Admit` may give."""

    def admit(call: Request | Notification) -> Any:
        return handlers[call.method](call)

    return admit


def error(message_id: int | str | None, code: int, details: str | None) -> dict[str, Any]:
    """The error reply that a plain sentence gives."""
    if details is None:
        return {"id": message_id, "error": {"code": code, "message": "Request cancelled"}}
    return {
        "id": message_id,
        "error": {"code": code, "message": details, "data": {"details": details}},
    }


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
