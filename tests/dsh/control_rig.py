"""The real runtime with the control plugin, driven through its Python face over a real pipe."""

import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import attrs
from dsh_rig import WAIT_S, Message, Model, dsh_command, loopback_model, text

from acp_bridge.errors import BridgeError, PeerError, PeerGoneError
from acp_bridge.runtime.dsh.control import PATCH_FILE, Control, Judge
from acp_bridge.runtime.dsh.control_types import Hello, Opening
from acp_bridge.runtime.dsh.wire import Listener, RequestHandler
from acp_bridge.vocabulary import JsonObject, JsonValue, SessionId


class DshWire:
    """Implements `Wire` on a process, and keeps every message of the runtime, in order."""

    def __init__(self, process: anyio.abc.Process, group: anyio.abc.TaskGroup) -> None:
        self.process = process
        self.heard: list[Message] = []
        self.noise: list[bytes] = []
        """Lines on stdout that are no messages."""
        self.unread = anyio.Event()
        """Replaced by one that is not set, nothing is read any more."""
        self.unread.set()
        self._group = group
        self._next = 0
        self._answers: dict[int, tuple[anyio.Event, list[Message]]] = {}
        self._handlers: dict[str, RequestHandler] = {}
        self._listeners: dict[str, Listener] = {}
        self._news = anyio.Event()
        self.ended = anyio.Event()

    async def request(self, method: str, params: JsonObject) -> JsonValue:
        self._next += 1
        done, box = anyio.Event(), list[Message]()
        self._answers[self._next] = (done, box)
        await self._send({"id": self._next, "method": method, "params": params})
        with anyio.fail_after(WAIT_S):
            await done.wait()
        if not box:
            raise PeerGoneError("dsh ended")
        if "error" in box[0]:
            raise PeerError(box[0]["error"]["message"], code=box[0]["error"]["code"])
        result: JsonValue = box[0]["result"]
        return result

    def serve(self, method: str, handler: RequestHandler) -> None:
        self._handlers[method] = handler

    def listen(self, method: str, listener: Listener) -> None:
        self._listeners[method] = listener

    async def read(self) -> None:
        """Until the process closes its stdout."""
        assert self.process.stdout is not None
        buffer = b""
        try:
            while True:
                await self.unread.wait()
                buffer += await self.process.stdout.receive()
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    self._take(line)
        except anyio.EndOfStream:
            self.ended.set()
            for done, _ in self._answers.values():
                done.set()

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            self.noise.append(line)
            return
        if "method" not in message:
            done, box = self._answers.pop(message["id"])
            box.append(message)
            done.set()
            return
        self.heard.append(message)
        if "id" in message:
            self._group.start_soon(self._answer, message)
        elif message["method"] in self._listeners:
            self._listeners[message["method"]](message["params"])
        self._news.set()
        self._news = anyio.Event()

    async def _answer(self, call: Message) -> None:
        handler = self._handlers.get(call["method"])
        try:
            if handler is None:
                raise PeerError("nobody serves it", code=-32601)
            await self._send({"id": call["id"], "result": await handler(call["params"])})
        except BridgeError as fault:
            await self._send(
                {"id": call["id"], "error": {"code": fault.code, "message": str(fault)}}
            )

    async def _send(self, message: Message) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    # --- what tests ask ---------------------------------------------------------------------

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until a message makes it so."""
        with anyio.fail_after(WAIT_S):
            while not is_so():
                await self._news.wait()

    def notes(self, method: str, session_id: str) -> list[Message]:
        """The params of the notifications or requests of a session, in order."""
        found = (one["params"] for one in self.heard if one["method"] == method)
        return [params for params in found if params.get("sessionId") == session_id]

    def rows(self, session_id: str, type_: str | None = None) -> list[Message]:
        """The log rows that were told of a session."""
        rows = [params["event"] for params in self.notes("session.event", session_id)]
        return [row for row in rows if type_ is None or row["type"] == type_]

    def ends(self, session_id: str) -> list[str]:
        """How the turns of a session ended."""
        return [row["data"]["reason"]["kind"] for row in self.rows(session_id, "turn/end")]

    def results(self, session_id: str) -> dict[str, str]:
        """The text of each tool result of a session, by call id."""
        found = [row["data"]["message"] for row in self.rows(session_id, "tool/result")]
        return {one["toolCallId"]: "".join(b["text"] for b in one["content"]) for one in found}

    def children(self, session_id: str) -> list[str]:
        """The subagents of a session that were announced."""
        told = [one["params"] for one in self.heard if one["method"] == "subagent.started"]
        return [one["childSessionId"] for one in told if one["parentSessionId"] == session_id]


@attrs.define
class Rig:
    """A running runtime, what drives it, and the model that it talks to."""

    wire: DshWire
    control: Control
    model: Model
    cwd: Path
    home: Path
    hello: Hello | None
    opened: int = 0

    def check_quiet(self) -> None:
        """Nothing but frames came from it, and the plugin told of no fault of its own."""
        assert self.wire.noise == []
        assert [one for one in self.wire.heard if one["method"] == "bridge.fault"] == []

    async def open(self, **more: Any) -> SessionId:
        """A new session; its id."""
        self.opened += 1
        session_id = SessionId(f"s{self.opened}")
        await self.control.open_session(Opening(session_id, str(self.cwd), **more))
        return session_id

    async def send(self, session_id: str, words: str) -> None:
        """A prompt, not waited for."""
        params: JsonObject = {"sessionId": session_id, "contentBlocks": [text(words)]}
        await self.wire.request("session/prompt", params)

    async def wait(self, session_id: str) -> None:
        """Until the session and its subagents are quiet."""
        await self.wire.request("session/wait", {"sessionId": session_id})

    async def prompt(self, session_id: str, words: str = "go on") -> str:
        """A whole turn; how it ended."""
        await self.send(session_id, words)
        await self.wait(session_id)
        return self.wire.ends(session_id)[-1]


@asynccontextmanager
async def dsh_rig(
    folder: Path, *, judge: Judge | None = None, patch: Path = PATCH_FILE
) -> AsyncIterator[Rig]:
    """The runtime with the plugin, initialized and greeted; killed at the end."""
    command = dsh_command()
    cwd, home = folder / "work", folder / "home"
    for made in (cwd, home):
        made.mkdir(parents=True, exist_ok=True)
    errors = home / "dsh-stderr.txt"
    with loopback_model() as model, errors.open("ab") as stderr:
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DSH_")},
            "DSH_HOME": str(home),
            "DSH_TELEMETRY_MODE": "DISABLED",
            "DEEPSEEK_API_KEY": "dummy",
            "DEEPSEEK_BASE_URL": model.url,
        }
        async with (
            await anyio.open_process(
                [command, "--profile", "sdk", "--patch", str(patch)],
                stderr=stderr,
                env=env,
                cwd=cwd,
                start_new_session=True,
            ) as process,
            anyio.create_task_group() as group,
        ):
            wire = DshWire(process, group)
            group.start_soon(wire.read)
            try:
                control = Control(wire, judge=judge)
                route: JsonObject = {"provider": "deepseek-official", "model": "deepseek-flash"}
                await wire.request("initialize", {"cwd": str(cwd), **route})
                hello = await control.hello()
                yield Rig(wire, control, model, cwd, home, hello)
            finally:
                model.over.set()
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                with anyio.CancelScope(shield=True):
                    wire.unread.set()
                    await wire.ended.wait()
                group.cancel_scope.cancel()
