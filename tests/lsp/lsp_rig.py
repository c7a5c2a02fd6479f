"""An LSP editor with its own few lines of framing and its own text edits, on a memory stream.

It counts characters by encoding them, so that it shares nothing with the code under test.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel

from acp_bridge.cli.lsp import serve
from acp_bridge.config import Settings
from acp_bridge.sessions.store import SessionStore
from acp_bridge.vocabulary import Event, JsonObject, JsonValue
from acp_bridge.wire.memory import MemoryStream, stream_pair

WAIT_S = 60.0

FULL: JsonObject = {
    "workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}},
    "textDocument": {
        "codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["quickfix"]}}}
    },
    "window": {
        "workDoneProgress": True,
        "showMessage": {"messageActionItem": {}},
        "showDocument": {"support": True},
    },
}
"""A client that can do all that the face uses."""

_UNIT_BYTES = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}

Answer = Callable[[JsonObject], JsonValue]


class LspEditor:
    """A client: open documents by URI, what it was sent, and answers to what it is asked."""

    def __init__(self, stream: MemoryStream) -> None:
        self._stream = stream
        self._next = 0
        self._news = anyio.Event()
        self.received: list[JsonObject] = []
        self.documents: dict[str, tuple[int, str]] = {}
        self.encoding = "utf-16"
        self.before_edit: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
        self.answers: dict[str, Answer] = {
            "window/workDoneProgress/create": lambda _params: None,
            "window/showDocument": lambda _params: {"success": True},
            "window/showMessageRequest": lambda params: objects(params["actions"])[0],
        }

    async def read(self) -> None:
        buffer = b""
        while data := await self._stream.receive():
            buffer += data
            while (end := buffer.find(b"\r\n\r\n")) >= 0:
                size = int(buffer[:end].split(b"Content-Length: ")[1].split(b"\r\n")[0])
                if len(buffer) < end + 4 + size:
                    break
                message = json.loads(buffer[end + 4 : end + 4 + size])
                buffer = buffer[end + 4 + size :]
                await self._take(message)

    async def _take(self, message: JsonObject) -> None:
        self.received.append(message)
        method = message.get("method")
        if "id" in message and isinstance(method, str):
            params = message["params"]
            assert isinstance(params, dict)
            if method == "workspace/applyEdit" and method not in self.answers:
                result: JsonValue = await self._apply(params)
            else:
                result = self.answers[method](params)
            if result != "no answer":
                await self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        news, self._news = self._news, anyio.Event()
        news.set()

    async def send(self, message: JsonObject) -> None:
        body = json.dumps(message).encode()
        await self.send_raw(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def send_raw(self, data: bytes) -> None:
        await self._stream.send(data)

    async def notify(self, method: str, params: JsonObject) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def call(self, method: str, params: JsonValue) -> JsonObject:
        """The whole answer, result or error."""
        self._next += 1
        number = self._next
        await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return await self.until(lambda m: m.get("id") == number and "method" not in m)

    async def until(self, wanted: Callable[[JsonObject], bool]) -> JsonObject:
        """The first message received that is wanted."""
        with anyio.fail_after(WAIT_S):
            while True:
                news = self._news
                for message in self.received:
                    if wanted(message):
                        return message
                await news.wait()

    async def command(self, name: str, *arguments: JsonValue) -> JsonObject:
        params: JsonObject = {"command": name, "arguments": list(arguments)}
        return await self.call("workspace/executeCommand", params)

    async def open(self, path: Path, text: str) -> str:
        uri = path.as_uri()
        self.documents[uri] = (1, text)
        item: JsonObject = {"uri": uri, "languageId": "x", "version": 1, "text": text}
        await self.notify("textDocument/didOpen", {"textDocument": item})
        return uri

    async def type(self, uri: str, text: str) -> None:
        version = self.documents[uri][0] + 1
        self.documents[uri] = (version, text)
        document: JsonObject = {"uri": uri, "version": version}
        params: JsonObject = {"textDocument": document, "contentChanges": [{"text": text}]}
        await self.notify("textDocument/didChange", params)

    async def actions(
        self,
        uri: str,
        first: tuple[int, int],
        last: tuple[int, int],
        *,
        problems: Sequence[JsonValue] = (),
        only: list[JsonValue] | None = None,
    ) -> list[JsonObject]:
        context: JsonObject = {"diagnostics": list(problems)}
        if only is not None:
            context["only"] = only
        params: JsonObject = {
            "textDocument": {"uri": uri},
            "range": {"start": place(*first), "end": place(*last)},
            "context": context,
        }
        answer = await self.call("textDocument/codeAction", params)
        return objects(answer["result"])

    async def run(self, action: JsonObject) -> JsonObject:
        command = action["command"]
        assert isinstance(command, dict)
        return await self.call(
            "workspace/executeCommand",
            {"command": command["command"], "arguments": command["arguments"]},
        )

    def progress(self) -> list[JsonObject]:
        """What ``$/progress`` said, in order."""
        found: list[JsonObject] = []
        for message in self.received:
            if message.get("method") == "$/progress":
                params = message["params"]
                assert isinstance(params, dict)
                value = params["value"]
                assert isinstance(value, dict)
                found.append(value)
        return found

    async def ended(self, count: int = 1) -> None:
        """Wait until this many pieces of work have ended."""
        with anyio.fail_after(WAIT_S):
            while sum(value["kind"] == "end" for value in self.progress()) < count:
                await self._news.wait()

    def told(self) -> list[str]:
        """What ``window/showMessage`` said."""
        return [
            str(message["params"]["message"])
            for message in self.received
            if message.get("method") == "window/showMessage" and isinstance(message["params"], dict)
        ]

    async def _apply(self, params: JsonObject) -> JsonObject:
        await self.before_edit()
        edit = params["edit"]
        assert isinstance(edit, dict)
        for change in objects(edit["documentChanges"]):
            document = change["textDocument"]
            assert isinstance(document, dict)
            uri = str(document["uri"])
            version, text = self.documents[uri]
            if document["version"] != version:
                return {"applied": False, "failureReason": "the document has changed"}
            for one in objects(change["edits"]):
                text = applied(text, one, self.encoding)
            await self.type(uri, text)
        return {"applied": True}


def applied(text: str, edit: JsonObject, encoding: str) -> str:
    """A text after an edit, the way an editor does it."""
    span = edit["range"]
    assert isinstance(span, dict)
    start, end = (_index(text, span[name], encoding) for name in ("start", "end"))
    return text[:start] + str(edit["newText"]) + text[end:]


def _index(text: str, position: JsonValue, encoding: str) -> int:
    assert isinstance(position, dict)
    line, character = position["line"], position["character"]
    assert isinstance(line, int)
    assert isinstance(character, int)
    at = 0
    for _ in range(line):
        ends = [place for end in "\r\n" if (place := text.find(end, at)) >= 0]
        assert ends, "the line is beyond the text"
        at = min(ends) + (2 if text[min(ends) : min(ends) + 2] == "\r\n" else 1)
    codec, size = _UNIT_BYTES[encoding]
    return at + len(text[at:].encode(codec)[: character * size].decode(codec))


def place(line: int, character: int) -> JsonObject:
    return {"line": line, "character": character}


def objects(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    return [one for one in value if isinstance(one, dict)]


def call(call_id: str, name: str, **arguments: JsonValue) -> JsonObject:
    """A tool call for a script."""
    return {"tool_call": {"id": call_id, "name": name, "arguments": arguments}}


class LspDesk:
    """A home, a workspace and a script for the model."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.workspace = folder / "work"
        self.workspace.mkdir()
        self.script_file = folder / "script.jsonl"

    def script(self, *answers: Sequence[JsonValue]) -> None:
        lines = [json.dumps({"agent": "1", "stream": list(answer)}) for answer in answers]
        self.script_file.write_text("".join(f"{line}\n" for line in lines))

    def script_for(self, agent: str, *answers: Sequence[JsonValue]) -> None:
        """Add answers for a subagent."""
        lines = [json.dumps({"agent": agent, "stream": list(answer)}) for answer in answers]
        with self.script_file.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def release(self, name: str) -> None:
        """Let the model go on at a ``wait``."""
        folder = self.script_file.with_name(self.script_file.name + ".releases")
        folder.mkdir(exist_ok=True)
        (folder / name).touch()

    def log(self) -> Sequence[Event]:
        """The events of the one stored session."""
        store = SessionStore(self.home / "sessions", clock=lambda: 0)
        (one,) = store.list().sessions
        return store.read(one.session_id).events

    def has_told(self, text: str) -> bool:
        """Whether the transcript holds a text by now."""
        return any(text in file.read_text() for file in self.home.glob("transcripts/*"))

    def transcript(self) -> str:
        (file,) = (self.home / "transcripts").iterdir()
        return file.read_text()

    @asynccontextmanager
    async def editor(
        self,
        capabilities: JsonObject | None = None,
        *,
        mode: str = "full",
        encodings: Sequence[JsonValue] = (),
        events: str | None = None,
    ) -> AsyncIterator[LspEditor]:
        """An initialized editor; the bridge is gone when it leaves.

        ``events``: subagents work elsewhere, by this events home.
        """
        if not self.script_file.exists():
            self.script_file.touch()
        ours, theirs = stream_pair()
        editor = LspEditor(ours)
        settings = Settings(
            home=self.home,
            model=f"scripted:{self.script_file}",
            mode=mode,
            delegation="local" if events is None else "remote",
            events=events,
        )
        offered = dict(FULL if capabilities is None else capabilities)
        if encodings:
            offered["general"] = {"positionEncodings": list(encodings)}
        async with anyio.create_task_group() as group:
            group.start_soon(serve, theirs, settings)
            group.start_soon(editor.read)
            params: JsonObject = {
                "processId": None,
                "rootUri": self.workspace.as_uri(),
                "capabilities": offered,
            }
            answer = (await editor.call("initialize", params))["result"]
            assert isinstance(answer, dict)
            can = answer["capabilities"]
            assert isinstance(can, dict)
            editor.encoding = str(can.get("positionEncoding", "utf-16"))
            await editor.notify("initialized", {})
            yield editor
            with anyio.fail_after(WAIT_S):
                await editor.call("shutdown", None)
                await editor.notify("exit", {})
            ours.send_eof()
