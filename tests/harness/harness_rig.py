"""A live session over a real store and a scripted model, to drive in tests.

Retries in scripts name ``retry_after_s`` 0, so no test waits for a delay.
"""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import attrs
from fake_models import FakeCatalog, OneModel

from acp_bridge.errors import StoreFailedError
from acp_bridge.harness.choosing import stored_choices
from acp_bridge.harness.committer import Committer
from acp_bridge.harness.desk import Desk, World
from acp_bridge.harness.files import SessionFiles
from acp_bridge.harness.memory import SessionMemory
from acp_bridge.harness.project.lookout import Project
from acp_bridge.harness.session import HarnessSession
from acp_bridge.harness.tools import builtin_tools
from acp_bridge.harness.waiting import WaitingPrompt
from acp_bridge.models.script import script_from_text
from acp_bridge.models.scripted import ScriptedModel
from acp_bridge.ports import ClientCommand, CommandEnd, Model, PermissionAsk, QuestionsAsk, Tool
from acp_bridge.sessions import Header, SessionStore
from acp_bridge.sessions.writer import LogWriter
from acp_bridge.vocabulary import (
    Answer,
    Draft,
    Event,
    JsonObject,
    JsonValue,
    Mode,
    Prompt,
    RuntimeEvent,
    SessionId,
    StreamDelta,
    TurnEnd,
)

SESSION = SessionId("s")
WAIT_S = 60.0

Replier = Callable[[PermissionAsk], Awaitable[Answer]]


class FakeClient:
    """A `ports.Client` without files that answers questions from a list, or by a function."""

    reads_text = False
    writes_text = False
    runs_commands = False
    takes_questions = False

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asks: list[PermissionAsk] = []
        self.replier: Replier | None = None

    async def ask_permission(self, ask: PermissionAsk) -> Answer:
        self.asks.append(ask)
        if self.replier is not None:
            return await self.replier(ask)
        return self.answers.pop(0)

    async def ask_questions(self, ask: QuestionsAsk) -> None:
        raise AssertionError(ask)

    async def read_text(self, path: Path) -> str:
        raise AssertionError(f"read of {path} without the capability")

    async def write_text(self, path: Path, text: str) -> None:
        raise AssertionError(f"write of {text!r} to {path} without the capability")

    async def run_command(self, command: ClientCommand) -> CommandEnd:
        raise AssertionError(f"{command.line} without the capability")

    async def flow(self) -> None:
        return


class FlakyWriter(LogWriter):
    """A log whose disk fails when ``fail`` says so of a batch; ``batches`` are row types."""

    batches: list[list[str]]
    fail: Callable[[Sequence[Draft]], bool]

    @classmethod
    def around(cls, writer: LogWriter) -> "FlakyWriter":
        writer.__class__ = cls
        assert isinstance(writer, cls)
        writer.batches = []
        writer.fail = lambda _drafts: False
        return writer

    def append(self, drafts: Sequence[Draft]) -> list[Event]:
        if self.fail(drafts):
            raise StoreFailedError("The disk is full.")
        events = super().append(drafts)
        self.batches.append([event.type for event in events])
        return events


@attrs.define
class Rig:
    """``told`` is everything the consumer was told."""

    session: HarnessSession
    client: FakeClient
    writer: FlakyWriter
    cwd: Path
    told: list[RuntimeEvent]
    _news: anyio.Event = attrs.field(factory=anyio.Event)

    def hear(self, event: RuntimeEvent) -> None:
        self.told.append(event)
        self._news.set()
        self._news = anyio.Event()

    def admit(self, text: str = "hello") -> WaitingPrompt:
        return self.session.admit(Prompt([{"type": "text", "text": text}], title=text))

    async def prompt(self, text: str = "hello") -> TurnEnd:
        with anyio.fail_after(WAIT_S):
            return await self.admit(text).ended()

    async def ended(self, turn: WaitingPrompt) -> TurnEnd:
        with anyio.fail_after(WAIT_S):
            return await turn.ended()

    async def heard(self, wanted: Callable[[RuntimeEvent], bool]) -> None:
        with anyio.fail_after(WAIT_S):
            while not any(wanted(event) for event in self.told):
                await self._news.wait()

    async def heard_text(self, text: str) -> None:
        await self.heard(lambda event: isinstance(event, StreamDelta) and event.text == text)

    async def heard_row(self, kind: str) -> None:
        await self.heard(lambda event: isinstance(event, Event) and event.type == kind)

    @property
    def rows(self) -> list[Event]:
        """The rows that the consumer was told."""
        return [event for event in self.told if isinstance(event, Event)]

    def data(self, kind: str) -> list[JsonObject]:
        """The data of all rows of a type."""
        found = [event.data for event in self.session.events if event.type == kind]
        return [data for data in found if isinstance(data, dict)]

    def reason(self) -> JsonValue:
        """Why the last turn ended."""
        return self.data("turn/end")[-1]["reason"]

    def results(self) -> list[str]:
        """The text of every tool result."""
        texts = []
        for data in self.data("tool/result"):
            message = data["message"]
            assert isinstance(message, dict)
            content = message["content"]
            assert isinstance(content, list)
            block = content[0]
            assert isinstance(block, dict)
            texts.append(str(block["text"]))
        return texts


def call(call_id: str, name: str, /, **arguments: JsonValue) -> JsonObject:
    """A script item."""
    return {"tool_call": {"id": call_id, "name": name, "arguments": arguments}}


def bash(call_id: str, command: str) -> JsonObject:
    """A shell call that needs permission."""
    return call(call_id, "bash", command=command, description="test")


def script(*streams: Sequence[object], releases: Path) -> ScriptedModel:
    """A model with one answer for each stream."""
    text = "\n".join(json.dumps({"stream": stream}) for stream in streams)
    return ScriptedModel(script_from_text(text, name="s"), name="s", releases=releases)


class Clock:
    """Milliseconds that count up by one at each look."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


def store(folder: Path, clock: Clock | None = None) -> SessionStore:
    return SessionStore(folder / "sessions", clock=clock or Clock(), durable=False)


def ids() -> Callable[[], str]:
    count = iter(range(1_000_000))
    start = os.urandom(4).hex()
    return lambda: f"id-{start}-{next(count)}"


@asynccontextmanager
async def rig(
    folder: Path,
    model: Model | FakeCatalog,
    *,
    client: FakeClient | None = None,
    tools: Iterable[Tool] = (),
    spill: str = "spill",
    mode: Mode = "ask",
    compacts: bool = True,
    project: Project | None = None,
) -> AsyncIterator[Rig]:
    """A session ``s`` in ``folder``: new, or opened when it is stored.

    ``model`` is the only one, or all that there are; ``mode`` what a new session begins with;
    ``project`` what is written down for it. Checked on the way out: the log is sound, closed, and
    what the consumer was told.
    """
    client = client or FakeClient()
    cwd = folder / "work"
    cwd.mkdir(exist_ok=True)
    clock, new_id = Clock(), ids()
    sessions = store(folder, clock)
    stored = SESSION in sessions.session_ids()
    header = Header(SESSION, clock(), str(cwd))
    writer = FlakyWriter.around(sessions.open(SESSION) if stored else sessions.create(header))
    kept: dict[str, bytes] = {}
    world = World(
        clock=clock,
        new_id=new_id,
        chance=lambda: 0.5,
        keep_attachment=kept.__setitem__,
        find_attachment=kept.get,
        spill_dir=folder / spill,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        compacts=compacts,
    )
    memory = SessionMemory(writer.events)
    catalog = model if isinstance(model, FakeCatalog) else OneModel(lambda: model)
    choices, notice = stored_choices(catalog, memory, mode)
    desk = Desk(
        session_id=SESSION,
        cwd=cwd,
        committer=Committer(writer),
        memory=memory,
        choices=choices,
        catalog=catalog,
        tools={tool.name: tool for tool in tools or builtin_tools()},
        client=client,
        files=SessionFiles(client),
        world=world,
        place=memory.place or "1",
        notice=notice,
        project=project or Project(),
    )
    session = HarnessSession(desk)
    made = Rig(session, client, writer, cwd, [])
    session.attach(made.hear)
    before = list(session.events)
    async with anyio.create_task_group() as group:
        group.start_soon(session.serve)
        yield made
        with anyio.fail_after(WAIT_S):
            await session.close()
    assert before + made.rows == list(session.events) == writer.events
    if writer.events:
        check_sound(folder, writer.events)


def check_sound(folder: Path, events: Sequence[Event]) -> None:
    """The stored log is what was told, sound, and needs no repair."""
    log = store(folder).read(SESSION)
    assert log.events == list(events)
    assert not log.torn
    again = store(folder).open(SESSION)
    try:
        marks = [event.type for event in again.events[len(events) :]]
        assert marks in ([], ["session/end-seed"])
    finally:
        again.close()
