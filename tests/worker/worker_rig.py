"""A small home of remote children over a real service, and workers as processes.

The home keeps logs as a real one does: it takes the rows of each log in the order of their seqs, a
row that comes again is dropped, and a gap is an error.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from pace import patient

from acp_bridge.errors import EventServiceError
from acp_bridge.harness.inbox import splice
from acp_bridge.harness.modes import delegated_rows
from acp_bridge.ports import PermissionAsk
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.model import ASK, ROWS, SETTLEMENTS, RunEvent, RunId, draft_from_json
from acp_bridge.sessions import Header, LogState
from acp_bridge.subagents.descriptor import Descriptor, descriptor_draft
from acp_bridge.subagents.messages import relay_message, task_message
from acp_bridge.subagents.remote_asks import Ask, answer_json, ask_from_json
from acp_bridge.subagents.remote_payloads import (
    AskWithdrawnItem,
    Cancel,
    ChildFinishedItem,
    ChildMessagedItem,
    ChildStartedItem,
    Item,
    Message,
    RowItem,
    Settlement,
    Task,
    TransientItem,
    addressed,
    cancel_json,
    items_from_payload,
    message_json,
    settlement_from_event,
    task_json,
)
from acp_bridge.vocabulary import (
    Answer,
    Draft,
    Event,
    JsonObject,
    Mode,
    SessionId,
    StreamDelta,
)

WAIT_S = 60.0
PARENT = RunId("parent")
TIME_MS = 1_700_000_000_000


@dataclass
class RemoteChild:
    """What the home knows of one run."""

    header: Header
    place: str
    model_id: str
    mode: Mode = "ask"
    task_id: str = ""
    logs: dict[SessionId, list[Event]] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    asks: dict[str, Ask] = field(default_factory=dict)
    withdrawn: set[str] = field(default_factory=set)
    settlements: list[tuple[str, Settlement]] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)
    repeated: int = 0

    @property
    def run_id(self) -> RunId:
        return RunId(self.header.session_id)

    @property
    def log(self) -> list[Event]:
        return self.logs[SessionId(self.run_id)]

    def rows(self, kind: str, session_id: str | None = None) -> list[JsonObject]:
        log = self.logs[SessionId(session_id or self.run_id)]
        found = [event.data for event in log if event.type == kind]
        return [data for data in found if isinstance(data, dict)]

    def reasons(self) -> list[object]:
        return [row["reason"] for row in self.rows("turn/end")]

    def streamed(self, session_id: str | None = None) -> str:
        """The text of all pieces."""
        wanted = session_id or self.run_id
        return "".join(
            item.event.text
            for item in self.items
            if isinstance(item, TransientItem)
            and item.session_id == wanted
            and isinstance(item.event, StreamDelta)
        )

    def said(self, session_id: str | None = None) -> list[str]:
        """The texts of its messages, as its log holds them."""
        texts = []
        for row in self.rows("assistant/message", session_id):
            message = row["message"]
            assert isinstance(message, dict)
            content = message["content"]
            assert isinstance(content, list)
            texts += [str(one["text"]) for one in content if isinstance(one, dict) if "text" in one]
        return texts

    def started(self) -> list[ChildStartedItem]:
        return [item for item in self.items if isinstance(item, ChildStartedItem)]

    def finished(self) -> list[ChildFinishedItem]:
        return [item for item in self.items if isinstance(item, ChildFinishedItem)]

    def check_logs(self) -> None:
        """Every log that is kept is sound."""
        headers = {item.child_id: item.header for item in self.started()}
        headers[SessionId(self.run_id)] = self.header
        for session_id, log in self.logs.items():
            state = LogState(headers[session_id])
            for event in log:
                state.apply(event)
            state.settle()
            state.require_supported()

    # --- what it is told ------------------------------------------------------------------------

    def hear(self, event: RunEvent) -> None:
        if event.event_type == ROWS:
            for item in items_from_payload(event.payload):
                self._take(item)
        elif event.event_type == ASK:
            payload = ask_from_json(event.payload)
            asker = payload.child_id
            assert asker is not None
            kind = "approval/asked" if isinstance(payload, PermissionAsk) else "tool/call"
            asked = self.rows(kind, asker)
            assert asked[-1]["callId"] == payload.call_id, "its row was told before"
            self.asks[event.event_id] = payload
        elif event.event_type in SETTLEMENTS:
            self.settlements.append(
                (event.event_type, settlement_from_event(event.event_type, event.payload))
            )
        elif event.event_type == "run_in_progress":
            self.workers.append(str(event.payload["worker"]))

    def _take(self, item: Item) -> None:
        match item:
            case RowItem():
                log = self.logs[item.session_id]
                if item.event.seq < len(log):
                    assert item.event.data == log[item.event.seq].data
                    self.repeated += 1
                    return
                assert item.event.seq == len(log), "a gap"
                log.append(item.event)
            case ChildStartedItem():
                self.logs.setdefault(item.child_id, [])
            case AskWithdrawnItem():
                self.withdrawn.add(item.ask_id)
            case ChildFinishedItem() | ChildMessagedItem() | TransientItem():
                pass
        self.items.append(item)


@dataclass
class TestHome:
    """Registers runs and hears of them; one stream for all of its children."""

    __test__ = False

    client: EventClient
    cwd: Path
    children: dict[RunId, RemoteChild] = field(default_factory=dict)
    seen: list[RunEvent] = field(default_factory=list)
    _cursors: dict[RunId, int] = field(default_factory=dict)
    _changed: anyio.Event = field(default_factory=anyio.Event)
    _scope: anyio.CancelScope | None = None
    _tasks: int = 0

    @asynccontextmanager
    async def hearing(self) -> AsyncIterator["TestHome"]:
        await self._again(lambda: self.client.register(PARENT))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            yield self
            tasks.cancel_scope.cancel()

    async def delegate(
        self,
        name: str,
        prompt: str = "do it",
        *,
        model_id: str = "demo",
        place: str = "1/1",
        mode: Mode = "ask",
        cwd: Path | None = None,
        **more: Any,
    ) -> RemoteChild:
        """A new child, registered for a worker."""
        header = Header(
            session_id=name,
            created_at_ms=TIME_MS,
            cwd=str(cwd or self.cwd),
            delegation_depth=1,
            parent_session=PARENT,
            origin="subagent",
        )
        child = RemoteChild(header, place, model_id, mode)
        child.logs[SessionId(name)] = []
        self.children[child.run_id] = child
        descriptor = Descriptor("remote", name, *model_id.partition(":")[::2])
        rows = [descriptor_draft(descriptor), *delegated_rows(mode, before=None)]
        message = task_message(prompt, message_id=f"task-{name}")
        put = splice("next-turn", start=0, inserted=[message])
        self._adopt(child, [*rows, put])
        self._cursors[child.run_id] = 0
        await self.register(child, **more)
        if self._scope is not None:
            self._scope.cancel()  # the stream is to watch it too
        return child

    async def wake(self, child: RemoteChild, text: str) -> None:
        """Continue a settled child with a message."""
        state = LogState(child.header)
        for event in child.log:
            state.apply(event)
        message = relay_message(text, sender=SessionId(PARENT), message_id=f"more-{len(child.log)}")
        rows = [*_closers(state), splice("next-step", start=0, inserted=[message])]
        self._adopt(child, rows)
        await self.register(child)

    async def register(
        self, child: RemoteChild, *, spoil: JsonObject | None = None, **more: Any
    ) -> None:
        self._tasks += 1
        child.task_id = f"{child.run_id}-task-{self._tasks}"
        task = Task(
            **{
                "header": child.header,
                "events": list(child.log),
                "place": child.place,
                "title": child.header.session_id,
                "label": child.header.session_id,
                "model_id": child.model_id,
                "effort": None,
                "mode": child.mode,
                "depth_max": 3,
                "live_max": 4,
                **more,
            }
        )
        task_id, sent = child.task_id, {**task_json(task), **(spoil or {})}
        await self._again(
            lambda: self.client.register(child.run_id, parent_id=PARENT, task=sent, task_id=task_id)
        )

    async def say(self, child: RemoteChild, message: Message, event_id: str) -> None:
        payload = addressed(message_json(message), child.task_id)
        await self._again(lambda: self.client.message(child.run_id, event_id, payload))

    async def cancel(
        self,
        child: RemoteChild,
        cancel: Cancel,
        *,
        event_id: str = "cancel-1",
        task_id: str | None = "its own",
    ) -> None:
        """Publish a cancel, for its task of now unless another one, or none, is named."""
        named = child.task_id if task_id == "its own" else task_id
        payload = cancel_json(cancel)
        item: JsonObject = {
            "event_type": "cancel",
            "run_id": child.run_id,
            "event_id": event_id,
            "occurred_at": "2026-11-30T12:00:00+00:00",
            "payload": payload if named is None else addressed(payload, named),
        }
        draft = draft_from_json(item)
        await self._again(lambda: self.client.publish(child.run_id, [draft]))

    async def answer(self, child: RemoteChild, ask_id: str, answer: Answer) -> None:
        payload = answer_json(answer)
        await self._again(lambda: self.client.answer(child.run_id, ask_id=ask_id, payload=payload))

    async def until(self, holds: Callable[[], object], *, wait_s: float = WAIT_S) -> None:
        """Wait until what it has heard makes ``holds`` true."""
        with anyio.move_on_after(wait_s):
            while not holds():
                await self._changed.wait()
            return
        raise AssertionError(f"it never came true; heard: {self.told()}")

    def told(self) -> str:
        lines = [f"{event.run_id} {event.event_type} {event.payload}"[:300] for event in self.seen]
        return "\n".join(lines[-30:])

    def _adopt(self, child: RemoteChild, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            event = Event(len(child.log), TIME_MS, draft.type, draft.data, draft.surface_op,
                          draft.source_event_seqs, draft.ignorable)  # fmt: skip
            child.log.append(event)

    async def _listen(self) -> None:
        while True:
            with anyio.CancelScope() as self._scope:
                try:
                    await self._hear()
                except EventServiceError:
                    await anyio.sleep(0.05)

    async def _hear(self) -> None:
        if not self._cursors:
            await anyio.sleep_forever()
        async with (
            self.client.open(dict(self._cursors), epoch=None) as stream,
            aclosing(stream.batches()) as batches,
        ):
            async for batch in batches:
                for event in batch:
                    assert event.sequence > self._cursors[event.run_id]
                    self._cursors[event.run_id] = event.sequence
                    self.seen.append(event)
                    self.children[event.run_id].hear(event)
                changed, self._changed = self._changed, anyio.Event()
                changed.set()

    async def _again(self, call: Callable[[], Any]) -> Any:
        """A call that outlives a service that is started again."""
        with anyio.fail_after(WAIT_S):
            while True:
                try:
                    return await call()
                except EventServiceError as error:
                    if error.status is not None and error.status < 500:
                        raise
                    await anyio.sleep(0.05)


def _closers(state: LogState) -> list[Draft]:
    from acp_bridge.sessions.repair import boundary, closers

    return [*closers(state), *boundary(state)]


_ABOUT_SERVICE = re.compile(r"\d\d:\d\d:\d\d .*(?:Trying again|is back)\.")
"""Where nobody watches, a worker says of its service that it is away and back, and nothing else."""


class WorkerProcess:
    """``acp-bridge worker`` as a process, with a home and a script of its own."""

    def __init__(self, root: Path, name: str, url: str, *flags: str, script: Path | None) -> None:
        self.name = name
        self.home = root / f"home-{name}"
        self.stderr = root / f"stderr-{name}"
        model = [] if script is None else ["--model", f"scripted:{script}"]
        self.command = [
            sys.executable, "-m", "acp_bridge", "worker", "--events", url, "--name", name,
            "--home", str(self.home), *model, *flags,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *before: str, **variables: str) -> "WorkerProcess":
        """Start it, behind a command that runs it if one is given."""
        self.stop()
        env = {key: value for key, value in os.environ.items() if not key.startswith("ACP_BRIDGE_")}
        with self.stderr.open("ab") as errors:
            self.process = subprocess.Popen(
                [*before, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**env, **variables},
            )
        return self

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, within_s: float) -> int:
        assert self.process is not None
        return self.process.wait(patient(within_s))

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            said = self.process.stdout.read()
            self.process.stdout.close()
            self.process = None
            assert said == b"", "stdout is nobody's"
            said_to_people = self.stderr.read_text().splitlines()
            assert [line for line in said_to_people if not _ABOUT_SERVICE.fullmatch(line)] == []

    def left(self) -> list[str]:
        """What lies in its folder of executions."""
        return sorted(path.name for path in (self.home / "worker").glob("*"))

    def log(self) -> str:
        file = self.home / "logs" / "acp-bridge.log"
        return file.read_text() if file.exists() else ""


StartWorker = Callable[..., WorkerProcess]
"""Starts a worker: its name, then more flags; variables by name."""


def write_script(path: Path, answers: dict[str, list[list[Any]]]) -> Path:
    """A script of a scripted model: answers by place."""
    lines = [
        json.dumps({"agent": place, "stream": stream})
        for place, streams in answers.items()
        for stream in streams
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def release(script: Path, name: str) -> None:
    folder = script.with_name(script.name + ".releases")
    folder.mkdir(exist_ok=True)
    (folder / name).touch()


def text(*words: str) -> list[Any]:
    return [{"text": word} for word in words]


def call(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"tool_call": {"id": call_id, "name": name, "arguments": arguments}}


def bash(command: str, call_id: str = "c1") -> dict[str, Any]:
    return call("bash", call_id, command=command, description="Runs a command")


async def eventually(holds: Callable[[], object], wait_s: float = WAIT_S) -> None:
    until = time.monotonic() + wait_s
    while not holds():
        assert time.monotonic() < until, "it never came true"
        await anyio.sleep(0.02)
