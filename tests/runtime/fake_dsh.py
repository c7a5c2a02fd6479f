"""A scripted runtime at the other end of a stream pair: it says what a test makes it say."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from acp_bridge.runtime.dsh.client import HarnessClient
from acp_bridge.vocabulary import JsonObject, JsonValue
from acp_bridge.wire.memory import MemoryStream, stream_pair

Handler = Callable[[JsonObject], Awaitable[JsonObject | None]]
"""Params to a result; None: no answer."""


class FakeRuntime:
    """``on[method]`` answers a request; a method without a handler is answered ``{}``.

    The answer to ``session/prompt`` is a message id, ``m1`` and so on.
    """

    def __init__(self, stream: MemoryStream) -> None:
        self._stream = stream
        self.on: dict[str, Handler] = {}
        self.asked: list[tuple[str, JsonObject]] = []
        self.prompts = 0

    async def serve(self) -> None:
        rest = b""
        async with anyio.create_task_group() as tasks:
            while data := await self._stream.receive():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    if "method" in message and "id" in message:
                        tasks.start_soon(self._answer, message)
                    else:
                        self.asked.append(("", message))

    async def _answer(self, message: JsonObject) -> None:
        method, params = message["method"], message.get("params")
        assert isinstance(method, str)
        assert isinstance(params, dict)
        self.asked.append((method, params))
        result: JsonObject | None = {}
        if method in self.on:
            result = await self.on[method](params)
        elif method == "session/prompt":
            result = {"messageId": self.next_message()}
        if result is not None:
            kind = "error" if "code" in result else "result"
            await self.send({"id": message["id"], kind: result})

    def next_message(self) -> str:
        self.prompts += 1
        return f"m{self.prompts}"

    async def send(self, message: JsonObject) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        await self._stream.send(line)

    async def say(self, raw: bytes) -> None:
        await self._stream.send(raw)

    async def notify(self, method: str, **params: JsonValue) -> None:
        await self.send({"method": method, "params": params})

    async def row(self, session: str, seq: int, kind: str, data: JsonObject) -> None:
        surface = {"surfaceOp": "append"} if kind.endswith("message") else {}
        event: JsonObject = {"type": kind, "seq": seq, "time": 1, "data": data, **surface}
        await self.notify("session.event", sessionId=session, event=event)

    async def status(self, session: str, status: str) -> None:
        await self.notify("session.status", sessionId=session, status=status)

    async def started(self, child: str, parent: str) -> None:
        await self.notify("subagent.started", parentSessionId=parent, childSessionId=child)

    async def finished(self, child: str, parent: str) -> None:
        await self.notify(
            "subagent.finished", parentSessionId=parent, childSessionId=child, status="ok"
        )

    async def turn(self, session: str, answer: str, message: str, *, turn: int = 1) -> None:
        """The rows of a whole turn, as far as a client looks at them."""
        await self.row(session, 0, "turn/start", {"turn": turn})
        await self.row(session, 1, "user/message", {"id": message})
        text: JsonValue = [{"type": "text", "text": answer}]
        said: JsonObject = {"turn": turn, "step": 1, "message": {"content": text}}
        await self.row(session, 2, "assistant/message", said)
        await self.row(session, 3, "turn/end", {"turn": turn, "reason": {"kind": "completed"}})

    def stop(self) -> None:
        self._stream.send_eof()


@asynccontextmanager
async def connected(
    *, forks: frozenset[str] = frozenset(), queued_max: int = 100
) -> AsyncIterator[tuple[HarnessClient, FakeRuntime]]:
    """A client and the runtime that it talks to; ``forks`` are sessions that are no subagents."""
    ours, theirs = stream_pair()
    noise: list[bytes] = []
    client = HarnessClient(
        ours,
        is_subagent=lambda child: child not in forks,
        queued_max=queued_max,
        stray=noise.append,
    )
    runtime = FakeRuntime(theirs)
    async with anyio.create_task_group() as group:
        group.start_soon(client.run)
        group.start_soon(runtime.serve)
        with anyio.fail_after(60):
            yield client, runtime
        client.stop("The test is over.")
