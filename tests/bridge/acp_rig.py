"""An editor on one end of a stream, the assembled bridge on the other; every message is judged.

On the way out the whole transcript must fit the official schema and the rules for all clients, and
each load must show what was seen live.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import anyio
import anyio.abc
import pytest
from fake_models import FakeCatalog

from acp_bridge.cli import assemble
from acp_bridge.cli.assemble import serve
from acp_bridge.config import Settings
from acp_bridge.testing.check import problems
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import JsonObject, JsonValue
from acp_bridge.wire.memory import MemoryStream, stream_pair

WAIT_S = 60.0

Reply = JsonObject | None
"""``{"result": …}`` or ``{"error": …}``; None: no answer for now."""


def allow(_request: JsonObject) -> Reply:
    return selected("allow-once")


def selected(option: str) -> JsonObject:
    return {"result": {"outcome": {"outcome": "selected", "optionId": option}}}


class Editor:
    """A client with its own few lines of NDJSON.

    ``reply`` answers what the agent asks; ``watch`` is told each message before the next is read.
    """

    def __init__(self, stream: MemoryStream, entries: list[Entry], run: int) -> None:
        self._stream = stream
        self._run = run
        self._next = 0
        self._news = anyio.Event()
        self.entries = entries
        self.reply: Callable[[JsonObject], Reply] = allow
        self.watch: Callable[[JsonObject], Awaitable[None]] | None = None
        self.sessions: list[str] = []

    @property
    def received(self) -> list[JsonObject]:
        return [e.message for e in self.entries if e.to == "client" and e.run == self._run]

    async def read(self) -> None:
        rest = b""
        while data := await self._stream.receive():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.entries.append(Entry(self._run, "client", message))
                if self.watch is not None:
                    await self.watch(message)
                if "method" in message and "id" in message:
                    answer = self.reply(message)
                    if answer is not None:
                        await self.send({"id": message["id"], **answer})
            self._news.set()
            self._news = anyio.Event()
        assert rest == b""

    async def send(self, *messages: JsonObject) -> None:
        """All of them in one write."""
        whole: list[JsonObject] = [{"jsonrpc": "2.0", **message} for message in messages]
        self.entries += [Entry(self._run, "agent", message) for message in whole]
        await self._stream.send(b"".join(json.dumps(m).encode() + b"\n" for m in whole))

    def request(self, method: str, params: JsonObject) -> JsonObject:
        """A request with a fresh id, not sent."""
        self._next += 1
        return {"id": f"{self._run}-{self._next}", "method": method, "params": params}

    async def start(self, method: str, params: JsonObject) -> JsonValue:
        """Send a request; its id."""
        request = self.request(method, params)
        await self.send(request)
        return request["id"]

    async def answer(self, request_id: JsonValue) -> JsonObject:
        """The response to a request, waited for."""

        def is_answer(message: JsonObject) -> bool:
            return message.get("id") == request_id and "method" not in message

        return await self.seen(is_answer)

    async def seen(self, wanted: Callable[[JsonObject], bool]) -> JsonObject:
        """The first message so far, or to come, that is wanted."""
        with anyio.fail_after(WAIT_S):
            while True:
                news = self._news
                for message in self.received:
                    if wanted(message):
                        return message
                await news.wait()

    async def seen_text(self, text: str) -> None:
        await self.seen(lambda m: text in json.dumps(m.get("params"), ensure_ascii=False))

    async def call(self, method: str, params: JsonObject) -> JsonObject:
        """The result of a request that must succeed."""
        response = await self.answer(await self.start(method, params))
        assert "result" in response, response
        result = response["result"]
        assert isinstance(result, dict)
        return result

    async def refused(self, method: str, params: JsonObject) -> JsonObject:
        """The error of a request that must fail."""
        response = await self.answer(await self.start(method, params))
        assert "error" in response, response
        error = response["error"]
        assert isinstance(error, dict)
        return error

    async def new(self, cwd: Path) -> str:
        result = await self.call("session/new", {"cwd": str(cwd), "mcpServers": []})
        return str(result["sessionId"])

    async def load(self, session_id: str, cwd: Path) -> JsonObject:
        params: JsonObject = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": []}
        return await self.call("session/load", params)

    async def prompt(self, session_id: str, text: str = "hello") -> JsonValue:
        """Its stop reason."""
        return (await self.call("session/prompt", said(session_id, text)))["stopReason"]

    async def cancel(self, session_id: str) -> None:
        await self.send({"method": "session/cancel", "params": {"sessionId": session_id}})

    def updates(self, session_id: str | None = None) -> list[JsonObject]:
        """The bodies of the updates of one session, or of all."""
        found = []
        for message in self.received:
            params = message.get("params")
            if message.get("method") == "session/update" and isinstance(params, dict):
                update = params["update"]
                if session_id in {None, params["sessionId"]} and isinstance(update, dict):
                    found.append(update)
        return found

    def text(self, session_id: str | None = None) -> str:
        """All that the agent said."""
        return "".join(
            str(update["content"]["text"])  # type: ignore[call-overload,index]
            for update in self.updates(session_id)
            if update["sessionUpdate"] == "agent_message_chunk"
        )


def said(session_id: str, text: str = "hello") -> JsonObject:
    """The parameters of a prompt."""
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}


class Bench:
    """A home and a workspace that outlive the bridges on them; scripts, and one transcript."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.cwd = folder / "work"
        self.home.mkdir()
        self.cwd.mkdir()
        self.script = folder / "model.jsonl"
        self.entries: list[Entry] = []
        self.judge: Callable[[list[Entry]], list[str]] = problems
        self._runs = 0

    def answers(self, *streams: object, agent: str = "1") -> None:
        """Add answers for one agent to the script."""
        with self.script.open("a") as file:
            for stream in streams:
                file.write(json.dumps({"agent": agent, "stream": stream}) + "\n")

    def summaries(self, *streams: object, agent: str = "1") -> None:
        """Add answers to requests for a summary."""
        with self.script.open("a") as file:
            for stream in streams:
                line = {"agent": agent, "for": "compact", "stream": stream}
                file.write(json.dumps(line) + "\n")

    def release(self, name: str) -> None:
        folder = self.script.with_name(self.script.name + ".releases")
        folder.mkdir(exist_ok=True)
        (folder / name).touch()

    @asynccontextmanager
    async def editor(
        self,
        capabilities: JsonObject | None = None,
        *,
        model: str | None = "",
        execution: str = "local",
        buffer_bytes: int = 64 * 1024,
        is_judged: bool = True,
        catalog: FakeCatalog | None = None,
        info: JsonObject | None = None,
        events: str | None = None,
    ) -> AsyncIterator[Editor]:
        """An initialized editor. ``model`` "" is the bench's script, unless there is a catalog.

        ``events``: subagents work elsewhere, by this events home.
        """
        if not self.script.exists():
            self.script.touch()
        self._runs += 1
        ours, theirs = stream_pair(buffer_bytes)
        editor = Editor(ours, self.entries, self._runs)
        settings = Settings(
            home=self.home,
            model=f"scripted:{self.script}" if model == "" else model,
            execution=execution,
            delegation="local" if events is None else "remote",
            events=events,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(serve, theirs, settings)
            group.start_soon(editor.read)
            params: JsonObject = {
                "protocolVersion": 1,
                "clientCapabilities": capabilities or {},
            }
            if info is not None:
                params["clientInfo"] = info
            with pytest.MonkeyPatch.context() as patch:
                if catalog is not None:
                    patch.setattr(assemble, "open_catalog", lambda _settings: nullcontext(catalog))
                await editor.call("initialize", params)
            yield editor
            ours.send_eof()
        if is_judged:
            found = self.judge(self.entries)
            assert not found, "\n".join(found)


HI: list[JsonValue] = [{"text": "Hi."}]
HOLD: list[JsonValue] = [{"text": "Half"}, {"wait": "go"}, {"text": " done"}]


def write(call_id: str, path: str = "a.txt", content: str = "x\n") -> JsonObject:
    arguments: JsonObject = {"file_path": path, "content": content}
    return {"tool_call": {"id": call_id, "name": "write", "arguments": arguments}}


def bash(call_id: str, command: str) -> JsonObject:
    arguments: JsonObject = {"command": command, "description": "test"}
    return {"tool_call": {"id": call_id, "name": "bash", "arguments": arguments}}
