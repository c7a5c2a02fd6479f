"""A runtime whose sessions delegate, over a real store and a model that answers by place.

A place ("1", its first child "1/1") has a list of answers, each a list of chunks; an `anyio.Event`
among them holds the answer until a test sets it.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import attrs
from fake_models import OneModel, Said
from harness_rig import Clock, FakeClient

from acp_bridge.harness.session import HarnessSession
from acp_bridge.harness.tools import builtin_tools
from acp_bridge.harness.waiting import WaitingPrompt
from acp_bridge.ports import (
    Chunk,
    ModelInfo,
    ModelRequest,
    StopChunk,
    TextChunk,
    ToolCallChunk,
)
from acp_bridge.runtime.embedded import EmbeddedRuntime, Outside
from acp_bridge.sessions import SessionQuery, SessionStore
from acp_bridge.subagents.limits import Limits
from acp_bridge.vocabulary import (
    ChildFinished,
    ChildMessaged,
    ChildProgressed,
    ChildSaid,
    ChildStarted,
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

if TYPE_CHECKING:
    from acp_bridge.subagents.remote_home import RemoteHome

WAIT_S = 60.0


def say(text: str) -> Said:
    return [TextChunk(0, text), StopChunk("end_turn")]


def held(text: str, until: anyio.Event) -> Said:
    """An answer that begins, and waits."""
    return [TextChunk(0, text), until, StopChunk("end_turn")]


def calls(*made: tuple[str, Mapping[str, object]]) -> Said:
    """Tool calls side by side; their ids are ``c0``, ``c1`` and so on, as some providers give."""
    chunks: list[Chunk] = []
    for block, (name, arguments) in enumerate(made):
        call_id = f"c{block}"
        chunks.append(ToolCallChunk(block, call_id, name, ""))
        chunks.append(ToolCallChunk(block, call_id, None, json.dumps(arguments)))
    return [*chunks, StopChunk("tool_calls")]


def spawn(description: str = "look", prompt: str = "look around", **more: JsonValue) -> Said:
    return calls(("subagent", {"description": description, "prompt": prompt, **more}))


def fork(description: str = "look", prompt: str = "look around", **more: JsonValue) -> Said:
    return calls(("subagent_fork", {"description": description, "prompt": prompt, **more}))


class Cast:
    """A model that answers by the asker's place; "ok" when it has nothing left to say."""

    provider = "fake"
    name = "cast"
    context_window = 100_000

    def __init__(self, answers: Mapping[str, Sequence[Said]]) -> None:
        self.info = ModelInfo("fake:cast", "Cast", self.context_window)
        self.answers = {place: list(said) for place, said in answers.items()}
        self.asked: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.asked.append(request)
        left = self.answers.get(request.agent, [])
        for chunk in left.pop(0) if left else say("ok"):
            if isinstance(chunk, anyio.Event):
                await chunk.wait()
            else:
                yield chunk

    def requests(self, place: str) -> list[ModelRequest]:
        return [request for request in self.asked if request.agent == place]

    def heard(self, place: str) -> list[str]:
        """The texts of the user's side in the last request of a place."""
        texts: list[str] = []
        for message in self.requests(place)[-1].messages:
            if message["role"] == "user":
                content = message["content"]
                assert isinstance(content, list)
                texts += [str(block["text"]) for block in content if isinstance(block, dict)]
        return texts


@attrs.define
class Family:
    """A root session, what its consumer was told, and the runtime around it."""

    runtime: EmbeddedRuntime
    root: HarnessSession
    client: FakeClient
    model: Cast
    store: SessionStore
    told: list[RuntimeEvent] = attrs.field(factory=list)
    working: dict[str, str] = attrs.field(factory=dict)
    """Who was at work when the consumer came, by id, with its parent."""
    _news: anyio.Event = attrs.field(factory=anyio.Event)

    def hear(self, event: RuntimeEvent) -> None:
        self.told.append(event)
        self._news.set()
        self._news = anyio.Event()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until the consumer has heard enough."""
        with anyio.fail_after(WAIT_S):
            while not holds():
                await self._news.wait()

    async def prompt(self, text: str = "go") -> TurnEnd:
        with anyio.fail_after(WAIT_S):
            return await self.admit(text).ended()

    def admit(self, text: str = "go") -> WaitingPrompt:
        return self.root.admit(Prompt([{"type": "text", "text": text}], title=text))

    def started(self) -> list[ChildStarted]:
        return [event for event in self.told if isinstance(event, ChildStarted)]

    def finished(self) -> list[ChildFinished]:
        return [event for event in self.told if isinstance(event, ChildFinished)]

    def messaged(self) -> list[ChildMessaged]:
        return [event for event in self.told if isinstance(event, ChildMessaged)]

    def standing(self) -> list[str]:
        """How children stood with those who execute them."""
        return [event.words for event in self.told if isinstance(event, ChildProgressed)]

    def said(self, child_id: str) -> list[str]:
        """A child's streamed text."""
        return [
            event.event.text
            for event in self.told
            if isinstance(event, ChildSaid)
            and event.child_id == child_id
            and isinstance(event.event, StreamDelta)
        ]

    async def child_said(self, text: str) -> SessionId:
        """Wait until some child has streamed this; its id."""
        found: list[SessionId] = []

        def look() -> bool:
            found.extend(
                event.child_id
                for event in self.told
                if isinstance(event, ChildSaid)
                and isinstance(event.event, StreamDelta)
                and event.event.text == text
            )
            return bool(found)

        await self.until(look)
        return found[0]

    def own_text(self) -> str:
        """What the root itself streamed."""
        return "".join(event.text for event in self.told if isinstance(event, StreamDelta))

    def log(self, session_id: str) -> list[Event]:
        return list(self.store.read(session_id).events)

    def rows(self, session_id: str, kind: str) -> list[JsonObject]:
        found = [event.data for event in self.log(session_id) if event.type == kind]
        return [data for data in found if isinstance(data, dict)]

    def results(self, session_id: str | None = None) -> list[str]:
        """The text of every tool result of a session, the root's by default."""
        texts = []
        for data in self.rows(session_id or self.root.session_id, "tool/result"):
            message = data["message"]
            assert isinstance(message, dict)
            content = message["content"]
            assert isinstance(content, list)
            assert isinstance(content[0], dict)
            texts.append(str(content[0]["text"]))
        return texts


def message(child_id: str, text: str) -> Said:
    return calls(("send_message", {"agent_id": child_id, "message": text}))


def interrupt(child_id: str) -> Said:
    return calls(("interrupt_agent", {"agent_id": child_id}))


LIST: Said = calls(("list_agents", {}))


def reasons(family: Family, session_id: str) -> list[object]:
    return [row["reason"] for row in family.rows(session_id, "turn/end")]


def aborted(why: str) -> JsonObject:
    return {"kind": "aborted", "reason": {"kind": why}}


async def begun(family: Family, text: str = "busy") -> SessionId:
    """A child that streams this and waits."""
    return await family.child_said(text)


class Home:
    """Where a family lives over restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cwd = folder / "work"
        self.cwd.mkdir(exist_ok=True)
        self.clock = Clock()
        self._ids = iter(range(1_000_000))
        self.remote: Callable[[], RemoteHome] | None = None
        """Makes what lets children work elsewhere, for each runtime anew."""

    def new_id(self) -> str:
        return f"id-{next(self._ids):04}"

    @property
    def store(self) -> SessionStore:
        return SessionStore(self.folder / "home" / "sessions", clock=self.clock, durable=False)

    @property
    def query(self) -> SessionQuery:
        return SessionQuery(self.store)

    @asynccontextmanager
    async def runtime(
        self,
        model: Cast,
        *,
        limits: Limits | None = None,
        detaches: bool = False,
        mode: Mode = "ask",
    ) -> AsyncIterator[EmbeddedRuntime]:
        outside = Outside(self.clock, self.new_id, lambda: 0.5, {})
        with anyio.fail_after(60):
            async with EmbeddedRuntime(
                home=self.folder / "home",
                catalog=OneModel(lambda: model),
                mode=mode,
                tools=builtin_tools,
                outside=outside,
                limits=limits or Limits(),
                detaches=detaches,
                remote=None if self.remote is None else self.remote(),
            ) as runtime:
                yield runtime

    @asynccontextmanager
    async def family(
        self,
        answers: Mapping[str, Sequence[Said]],
        *,
        session_id: str | None = None,
        limits: Limits | None = None,
        detaches: bool = False,
        mode: Mode = "ask",
        leaves: bool = False,
    ) -> AsyncIterator[Family]:
        """A new root, or the stored one of this id. Checked on the way out: see `check`.

        ``leaves``: children go on elsewhere, with their turns open.
        """
        model, client = Cast(answers), FakeClient()
        async with self.runtime(model, limits=limits, detaches=detaches, mode=mode) as runtime:
            if session_id is None:
                root = await runtime.new_session(self.cwd, client)
            else:
                root = await runtime.open_session(SessionId(session_id), self.cwd, client)
            made = Family(runtime, root, client, model, self.store)
            for one in await root.descendants():
                if one.is_running:
                    made.working[one.session_id] = one.parent_id
            root.attach(made.hear)
            yield made
        check(made, leaves=leaves)


def check(family: Family, *, leaves: bool = False) -> None:
    """Every child began and ended once each time, inside its parent; every log is sound."""
    working = dict(family.working)
    for event in family.told:
        match event:
            case ChildStarted(parent_id=parent_id, child_id=child_id):
                assert child_id not in working
                assert parent_id == family.root.session_id or parent_id in working
                working[child_id] = parent_id
            case ChildSaid(child_id=child_id) | ChildMessaged(child_id=child_id):
                assert child_id in working
            case ChildFinished(parent_id=parent_id, child_id=child_id):
                assert working.pop(child_id) == parent_id
                assert child_id not in working.values(), "its own children end first"
            case _:
                pass
    assert working == {}
    for summary in family.store.list().sessions:
        log = family.store.read(summary.session_id)
        assert not log.torn
        state = [event.type for event in log.events if event.type in {"turn/start", "turn/end"}]
        assert leaves or state == ["turn/start", "turn/end"] * (len(state) // 2)
    assert family.store.list().bad == []
