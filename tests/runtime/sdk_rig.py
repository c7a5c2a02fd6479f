"""A host of scripted sessions behind the SDK wire's server, and what its client is told."""

from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import attrs
import pytest

from acp_bridge.errors import BridgeError, InvalidParamsError, PlainError
from acp_bridge.ports import Consumer
from acp_bridge.runtime.sdk.feed import Notice
from acp_bridge.runtime.sdk.server import SdkServer
from acp_bridge.runtime.sdk.session import HostedSession, SdkClient
from acp_bridge.vocabulary import (
    CallId,
    ChildFinished,
    ChildStarted,
    Event,
    JsonObject,
    JsonValue,
    Prompt,
    RuntimeEvent,
    SessionId,
    TurnEnd,
)
from acp_bridge.wire.endpoint import Reply
from acp_bridge.wire.messages import Notification, Request, error_parts

WAIT_S = 60.0
ROOT, CHILD, GRANDCHILD = SessionId("root"), SessionId("child"), SessionId("grand")


def row(kind: str, seq: int = 0, **data: JsonValue) -> Event:
    return Event(seq, 1, kind, data)


def message(message_id: str) -> JsonObject:
    return {"id": message_id, "role": "user", "content": []}


def turn(message_id: str, number: int = 1) -> list[Event]:
    """The rows that matter of a turn, in the harness' order."""
    queued: list[JsonValue] = [message(message_id)]
    return [
        row("agent/inbox/spliced", target="next-turn", start=0, inserted=queued),
        row("turn/start", turn=number),
        row("agent/inbox/spliced", target="next-turn", start=0, removedCount=1, inserted=[]),
        Event(3, 1, "user/message", message(message_id), surface_op="append"),
        row("turn/end", turn=number, reason={"kind": "completed"}),
    ]


def started(parent: SessionId, child: SessionId) -> ChildStarted:
    return ChildStarted(parent, child, "Label", "task", CallId("c"), Path("/w"))


def finished(
    parent: SessionId, child: SessionId, kind: str = "completed", answer: str | None = "said"
) -> ChildFinished:
    return ChildFinished(parent, child, TurnEnd(kind), answer)  # type: ignore[arg-type]


def brief(notices: Iterable[Notice]) -> list[str]:
    """``session status`` or ``session row``, or the edge of a subagent."""
    told = []
    for method, params in notices:
        event = params.get("event")
        if isinstance(event, dict):
            told.append(f"{params['sessionId']} {event['type']}")
        elif method == "session.status":
            told.append(f"{params['sessionId']} {params['status']}")
        else:
            told.append(f"{method} {params['parentSessionId']} {params['childSessionId']}")
    return told


class ScriptedTurn:
    """An admitted prompt, whose turn the test ends."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self._end: TurnEnd | None = None
        self._done = anyio.Event()

    @property
    def message_id(self) -> str:
        assert self.prompt.message_id is not None
        return self.prompt.message_id

    def end(self, end: TurnEnd) -> None:
        self._end = end
        self._done.set()

    async def ended(self) -> TurnEnd:
        await self._done.wait()
        assert self._end is not None
        return self._end

    @property
    def runs(self) -> bool:
        raise AssertionError("the SDK's wire withdraws nothing")

    def withdraw(self) -> None:
        raise AssertionError("the SDK's wire withdraws nothing")


class ScriptedSession:
    """A `HostedSession` that tells what the test says; as far as the server uses one."""

    def __init__(self, session_id: SessionId, cwd: Path | None, client: SdkClient) -> None:
        self.session_id = session_id
        self.cwd = cwd or Path("/stored")
        self.client = client
        self.turns: list[ScriptedTurn] = []
        self.chosen: list[tuple[str, str]] = []
        self.closed = False
        self._tell: Consumer = lambda _event: None
        self._folder = self.cwd

    def attach(self, consumer: Consumer) -> None:
        self._tell = consumer

    def admit(self, prompt: Prompt) -> ScriptedTurn:
        self.turns.append(ScriptedTurn(prompt))
        return self.turns[-1]

    async def close(self) -> None:
        self.closed = True

    async def choose(self, option: str, value: str) -> None:
        if value == "extreme":
            raise InvalidParamsError("There is no effort 'extreme'.", field="value")
        self.chosen.append((option, value))

    async def working_folder(self) -> Path:
        return self._folder

    async def move(self, path: str) -> Path:
        if path == "missing":
            raise InvalidParamsError("'missing' is no folder.", field="path")
        self._folder /= path
        return self._folder

    def tell(self, *events: RuntimeEvent) -> None:
        for event in events:
            self._tell(event)

    def begin(self, number: int = 0) -> None:
        """Tell the beginning of a prompt's turn."""
        self.tell(*turn(self.turns[number].message_id)[:-1])

    async def finish(self, number: int = 0) -> None:
        """Tell its end, and let whoever waits for it know."""
        self.tell(turn(self.turns[number].message_id)[-1])
        self.turns[number].end(TurnEnd("completed"))
        await anyio.wait_all_tasks_blocked()


class ScriptedHost:
    """Makes and opens sessions; ``hold`` keeps them from opening until it is set."""

    def __init__(self) -> None:
        self.sessions: dict[str, ScriptedSession] = {}
        self.refuse: Exception | None = None
        self.hold = anyio.Event()
        self.hold.set()
        self.closed = 0

    async def new_session(
        self, cwd: Path, client: SdkClient, session_id: SessionId
    ) -> HostedSession:
        return await self._give(ScriptedSession(session_id, cwd, client))

    async def open_session(
        self, session_id: SessionId, cwd: None, client: SdkClient
    ) -> HostedSession:
        return await self._give(ScriptedSession(session_id, cwd, client))

    async def close(self) -> None:
        self.closed += 1
        for session in self.sessions.values():
            for open_turn in session.turns:
                open_turn.end(TurnEnd("aborted"))
        await anyio.wait_all_tasks_blocked()

    async def _give(self, session: ScriptedSession) -> HostedSession:
        await self.hold.wait()
        if self.refuse is not None:
            raise self.refuse
        self.sessions[session.session_id] = session
        return cast("HostedSession", session)


@attrs.define
class Wire:
    """The server's client: calls it, and keeps what it is told in ``told``."""

    cwd: Path
    host: ScriptedHost = attrs.field(factory=ScriptedHost)
    told: list[tuple[str, JsonObject]] = attrs.field(factory=list)
    stopped: list[str] = attrs.field(factory=list)
    named: list[tuple[str, str]] = attrs.field(factory=list)
    unusable: BridgeError | None = None
    server: SdkServer = attrs.field(init=False)

    def notify(self, method: str, params: object) -> None:
        self.told.append((method, cast("JsonObject", params)))

    async def flow(self) -> None:
        return

    def stop(self, cause: str) -> None:
        self.stopped.append(cause)

    def name_model(self, provider: str, model: str, effort: str | None) -> str | None:
        if self.unusable is not None:
            raise self.unusable
        self.named.append((provider, model))
        return effort

    def send(self, method: str, params: JsonValue = None) -> Awaitable[Reply] | Reply:
        """Admit a request; raises what it is refused with."""
        request = Request(1, method, cast("JsonObject | None", params))
        outcome = self.server.admit(request)
        assert outcome is not None
        return outcome

    def ignore(self, method: str, params: JsonObject) -> None:
        assert self.server.admit(Notification(method, params)) is None

    async def call(self, method: str, **params: JsonValue) -> JsonValue:
        with anyio.fail_after(WAIT_S):
            outcome = self.send(method, params)
            reply = outcome if isinstance(outcome, Reply) else await outcome
        if reply.then is not None:
            reply.then()
        return reply.result

    async def refusal(self, method: str, **params: JsonValue) -> str:
        """The text that a request is refused with: all that the wire tells."""
        with pytest.raises(PlainError) as refused:
            await self.call(method, **params)
        assert error_parts(refused.value) == (-32603, refused.value.details, None)
        return refused.value.details

    async def initialize(self, **more: JsonValue) -> JsonValue:
        hello: JsonObject = {"cwd": str(self.cwd), "provider": "p", "model": "m", **more}
        return await self.call("initialize", **hello)

    def prompt(self, session_id: str, text: str = "hello") -> Awaitable[Reply]:
        blocks: list[JsonValue] = [{"type": "text", "text": text}]
        outcome = self.send("session/prompt", {"sessionId": session_id, "contentBlocks": blocks})
        assert not isinstance(outcome, Reply)
        return outcome


class Calls:
    """Requests that run beside the test; `ended` has the results of those that are answered."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group
        self.ended: dict[str, JsonValue] = {}

    async def start(self, name: str, outcome: Awaitable[Reply]) -> None:
        self._group.start_soon(self._run, name, outcome)
        await anyio.wait_all_tasks_blocked()

    async def _run(self, name: str, outcome: Awaitable[Reply]) -> None:
        try:
            self.ended[name] = (await outcome).result
        except PlainError as refused:
            self.ended[name] = refused.details


@asynccontextmanager
async def wire(cwd: Path, *, initialize: bool = True) -> AsyncIterator[tuple[Wire, Calls]]:
    """A server with its client, initialized; nothing is left running."""
    made = Wire(cwd)
    numbers = iter(range(1000))
    with anyio.fail_after(60):
        async with (
            anyio.create_task_group() as group,
            SdkServer(
                made.host,
                made,
                name_model=made.name_model,
                new_id=lambda: f"message-{next(numbers)}",
                version="1",
            ) as made.server,
        ):
            if initialize:
                await made.initialize()
            yield made, Calls(group)
            group.cancel_scope.cancel()
