"""A loopback server that speaks the providers' APIs byte for byte, from a script.

One `Answer` a request, in order: its steps are bytes to write, events to wait for, HANG (until the
client leaves) and CUT (close without a word). Requests are kept as they came.
"""

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import anyio
import anyio.abc
import attrs

from acp_bridge.models.catalog import Catalog
from acp_bridge.models.http_model import HttpModel
from acp_bridge.ports import Chunk, ModelRequest
from acp_bridge.vocabulary import JsonObject

KEY: Final = "sk-loopback-0123456789"
HANG: Final = "hang"
CUT: Final = "cut"
Step: TypeAlias = bytes | anyio.Event | Literal["hang", "cut"]
WAIT_S: Final = 30.0

EVENTS_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)
LAST_CHUNK: Final = b"0\r\n\r\n"


@attrs.frozen
class Received:
    """A request as it came; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class ProviderServer:
    """Plays ``answers`` in order, one a request. ``left`` is set when a client leaves a HANG."""

    def __init__(self) -> None:
        self.answers: list[Sequence[Step]] = []
        self.requests: list[Received] = []
        self.connections = 0
        self.left = anyio.Event()
        self.asked = anyio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def bodies(self) -> list[Any]:
        return [request.body for request in self.requests]

    def then(self, *steps: Step) -> None:
        """One more answer."""
        self.answers.append(steps)

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        self.connections += 1
        buffer = b""
        try:
            async with stream:
                while True:
                    while b"\r\n\r\n" not in buffer:
                        buffer += await stream.receive()
                    head, _, buffer = buffer.partition(b"\r\n\r\n")
                    first, *lines = head.decode().split("\r\n")
                    pairs = (line.partition(":") for line in lines)
                    headers = {name.lower(): value.strip() for name, _, value in pairs}
                    length = int(headers.get("content-length", "0"))
                    while len(buffer) < length:
                        buffer += await stream.receive()
                    body, buffer = buffer[:length], buffer[length:]
                    method, path, _ = first.split(" ")
                    self.requests.append(Received(method, path, headers, json.loads(body)))
                    self.asked.set()
                    self.asked = anyio.Event()
                    steps = self.answers.pop(0) if self.answers else (refusal(500, {}),)
                    if not await self._play(stream, steps):
                        return
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            self.left.set()

    async def _play(self, stream: anyio.abc.SocketStream, steps: Sequence[Step]) -> bool:
        for step in steps:
            if isinstance(step, bytes):
                await stream.send(step)
            elif isinstance(step, anyio.Event):
                await step.wait()
            elif step == HANG:
                await stream.receive()
                raise AssertionError("the client spoke out of turn")
            else:
                return False
        return True


@asynccontextmanager
async def provider_server() -> AsyncIterator[ProviderServer]:
    server = ProviderServer()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, server.serve)
        yield server
        group.cancel_scope.cancel()


# --- what a provider writes ----------------------------------------------------------------------


def chunked(data: bytes, *cuts: int) -> bytes:
    """``data`` in HTTP chunks that end at the cuts: how a client gets it in pieces."""
    places = [0, *sorted(set(cuts)), len(data)]
    pieces = [data[a:b] for a, b in pairwise(places) if a < b]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def refusal(status: int, error: object, *headers: str) -> bytes:
    """An answer that is no stream: ``error`` is its JSON body, or its raw bytes."""
    body = error if isinstance(error, bytes) else json.dumps(error).encode()
    lines = [
        f"HTTP/1.1 {status} Some Words",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def messages_events(*events: JsonObject) -> bytes:
    """Events of the Messages API: each has its type twice."""
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
        for event in events
    )


def chat_events(*events: JsonObject, done: bool = True) -> bytes:
    """Events of chat completions: data alone, and a last one that is no JSON."""
    data = b"".join(
        f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode() for event in events
    )
    return data + (b"data: [DONE]\n\n" if done else b"")


def stream(data: bytes, *cuts: int) -> bytes:
    """A whole answer of events."""
    return EVENTS_HEAD + chunked(data, *cuts) + LAST_CHUNK


def message_start(**usage: int) -> JsonObject:
    message: JsonObject = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 25, "output_tokens": 1, **usage},
    }
    return {"type": "message_start", "message": message}


def block(index: int, start: JsonObject, *deltas: JsonObject) -> list[JsonObject]:
    """A content block: start, deltas, stop."""
    inner: list[JsonObject] = [
        {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
    ]
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *inner,
        {"type": "content_block_stop", "index": index},
    ]


def text_block(index: int, *texts: str) -> list[JsonObject]:
    deltas: list[JsonObject] = [{"type": "text_delta", "text": text} for text in texts]
    return block(index, {"type": "text", "text": ""}, *deltas)


def thinking_block(index: int, signature: str, *texts: str) -> list[JsonObject]:
    deltas: list[JsonObject] = [{"type": "thinking_delta", "thinking": text} for text in texts]
    if signature:
        deltas.append({"type": "signature_delta", "signature": signature})
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas)


def tool_block(index: int, call_id: str, name: str, *pieces: str) -> list[JsonObject]:
    deltas: list[JsonObject] = [
        {"type": "input_json_delta", "partial_json": piece} for piece in pieces
    ]
    start: JsonObject = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block(index, start, *deltas)


def message_end(stop: str | None, **usage: int) -> list[JsonObject]:
    delta: JsonObject = {"stop_reason": stop, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 15, **usage}},
        {"type": "message_stop"},
    ]


def messages_answer(*blocks: Iterable[JsonObject], stop: str = "end_turn") -> bytes:
    """The events of a whole good answer, with the ping that the API sends."""
    inner = [event for one in blocks for event in one]
    return messages_events(message_start(), {"type": "ping"}, *inner, *message_end(stop))


def chat_delta(finish: str | None = None, **delta: object) -> JsonObject:
    choice: dict[str, object] = {"index": 0, "delta": delta, "finish_reason": finish}
    made: Any = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }
    return made  # type: ignore[no-any-return]


def chat_usage(prompt: int, completion: int, cached: int = 0) -> JsonObject:
    usage: JsonObject = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": usage}


# --- who asks -----------------------------------------------------------------------------------


def catalog(server: ProviderServer, home: Path, **more: str) -> Catalog:
    """A catalog whose three providers are the server. OpenAI's address ends in /v1, as its own."""
    environment = {
        "DEEPSEEK_API_KEY": KEY,
        "DEEPSEEK_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": server.url,
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{server.url}/v1",
        **more,
    }
    return Catalog(home=home, environment=environment)


@asynccontextmanager
async def opened(model_id: str, home: Path) -> AsyncIterator[tuple[HttpModel, ProviderServer]]:
    """A model on a server of its own."""
    async with provider_server() as server:
        models = catalog(server, home)
        model = models.open(model_id)
        assert isinstance(model, HttpModel)
        try:
            yield model, server
        finally:
            await models.aclose()


def asked(text: str = "hello", **more: Any) -> ModelRequest:
    """A request with one user message."""
    message: JsonObject = {
        "role": "user",
        "source": {"kind": "user"},
        "content": [{"type": "text", "text": text}],
    }
    fields: dict[str, Any] = {
        "system": "Be brief.",
        "messages": [message],
        "tools": [],
        "purpose": "turn",
        "agent": "1",
        "position": 0,
        **more,
    }
    return ModelRequest(**fields)


async def answer(model: HttpModel, request: ModelRequest | None = None) -> list[Chunk]:
    """Every chunk of an answer."""
    with anyio.fail_after(WAIT_S):
        return [chunk async for chunk in model.stream(request or asked())]
