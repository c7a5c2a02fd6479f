"""A runtime whose sessions act plays: it tells the events of subagents through the real agent.

A play is a coroutine that gets the stage at each prompt and gives the turn's end. The stage keeps
the logs, so that another connection can load what was played.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.abc
import attrs
import pytest
from acp_rig import WAIT_S, Editor
from story_rows import Story

from acp_bridge.cli import assemble
from acp_bridge.cli.assemble import serve
from acp_bridge.config import Settings
from acp_bridge.errors import InvalidParamsError
from acp_bridge.ports import Client, Consumer, ModelInfo, PermissionAsk, SessionOptions, SessionPage
from acp_bridge.testing.check import problems
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import (
    Answer,
    CallId,
    Command,
    CommandInfo,
    Descendant,
    Event,
    JsonObject,
    Prompt,
    SessionId,
    TurnEnd,
)
from acp_bridge.wire.memory import stream_pair


class Stage(Story):
    """A story that a play tells: with someone to ask, cues to wait for, and cancels."""

    def __init__(self, cwd: Path) -> None:
        super().__init__(cwd)
        self.client: Client | None = None
        self.while_reading: Callable[[], None] = lambda: None
        self.reads_on = anyio.Event()
        self.reads_on.set()
        self.prompts: list[Prompt | Command] = []
        self.answers: dict[str, Answer] = {}
        self.cancelled = anyio.Event()
        self.child_cancels: dict[SessionId, anyio.Event] = {}
        self._cues: dict[str, anyio.Event] = {}

    def cue(self, name: str) -> anyio.Event:
        """What the test and the play meet at."""
        return self._cues.setdefault(name, anyio.Event())

    def cancel_of(self, child: SessionId) -> anyio.Event:
        return self.child_cancels.setdefault(child, anyio.Event())

    async def ask(self, session: SessionId, call_id: str, command: str) -> Answer:
        """A gated command from call to result."""
        arguments: JsonObject = {"command": command}
        self.calls(session, (call_id, "bash", arguments))
        self.asked(session, call_id)
        assert self.client is not None
        child_id = None if session == self.root_id else session
        ask = PermissionAsk(CallId(call_id), "bash", "runs a command", None, child_id)
        try:
            answer = await self.client.ask_permission(ask)
        except anyio.get_cancelled_exc_class():
            answer = Answer.CANCELLED
            raise
        finally:
            self.answers[session] = answer
            ok = answer in {Answer.ALLOW_ONCE, Answer.ALLOW_ALWAYS}
            self.decided(session, call_id, "allowed-once" if ok else "rejected")
            self.call(session, call_id, "bash", arguments, said=False)
            self.result(session, call_id, "done" if ok else "not allowed", is_error=not ok)
        return answer

    def restart(self) -> None:
        """The process died: who worked works no more."""
        self.consumers.clear()
        self.cancelled = anyio.Event()
        for member in self.members.values():
            member.running = False


Play = Callable[[Stage], Awaitable[TurnEnd]]


class ActedTurn:
    """Implements `ports.PendingTurn`."""

    def __init__(self) -> None:
        self._end: TurnEnd | None = None
        self._over = anyio.Event()

    def settle(self, end: TurnEnd) -> None:
        self._end = end
        self._over.set()

    async def ended(self) -> TurnEnd:
        await self._over.wait()
        assert self._end is not None
        return self._end

    @property
    def runs(self) -> bool:
        raise AssertionError("no play withdraws a prompt")

    def withdraw(self) -> None:
        raise AssertionError("no play withdraws a prompt")


class ActedSession:
    """Implements `ports.LiveSession` over a stage."""

    commands: Sequence[CommandInfo] = ()
    folders: Sequence[Path] = ()
    busy = False

    def __init__(self, stage: Stage, play: Play, group: anyio.abc.TaskGroup) -> None:
        self._stage = stage
        self._play = play
        self._group = group
        self.session_id = stage.root_id
        self.cwd = stage.root.cwd

    @property
    def events(self) -> Sequence[Event]:
        return self._stage.root.events

    def attach(self, consumer: Consumer) -> None:
        self._stage.consumers.append(consumer)

    async def interject(self, prompt: Prompt) -> bool:
        raise NotImplementedError

    def admit(self, prompt: Prompt | Command) -> ActedTurn:
        self._stage.prompts.append(prompt)
        turn = ActedTurn()

        async def act() -> None:
            turn.settle(await self._play(self._stage))

        self._group.start_soon(act)
        return turn

    def options(self) -> SessionOptions:
        return SessionOptions("ask", "acted:play", None, [ModelInfo("acted:play", "Play", 1000)])

    async def choose(self, option: object, value: str) -> None:
        raise InvalidParamsError(f"{option} cannot be {value}.", field="value")

    async def attachment(self, attachment_id: str) -> bytes | None:
        raise AssertionError(f"no play has images: {attachment_id}")

    async def descendants(self) -> Sequence[Descendant]:
        read = [attrs.evolve(one, events=list(one.events)) for one in self._stage.descendants()]
        self._stage.while_reading()
        await self._stage.reads_on.wait()
        return read

    def cancel(self) -> None:
        self._stage.cancelled.set()

    def cancel_child(self, child_id: SessionId) -> None:
        self._stage.cancel_of(child_id).set()

    async def close(self) -> None:
        self._stage.cancelled.set()


class ActingRuntime:
    """Implements `ports.Runtime` with one session, the stage's."""

    def __init__(self, stage: Stage, play: Play) -> None:
        self._stage = stage
        self._play = play
        self._live: ActedSession | None = None
        self._group = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._group.cancel_scope.cancel()
        return await self._group.__aexit__(kind, fault, traceback)

    def check_model(self) -> None:
        pass

    def forget_keys(self) -> None:
        pass

    async def new_session(self, cwd: Path, client: Client, **_more: object) -> ActedSession:
        return await self.open_session(self._stage.root_id, cwd, client)

    async def open_session(
        self, session_id: SessionId, cwd: Path, client: Client, **_more: object
    ) -> ActedSession:
        assert (session_id, cwd) == (self._stage.root_id, self._stage.root.cwd)
        if self._live is None:
            self._stage.client = client
            self._live = ActedSession(self._stage, self._play, self._group)
        return self._live

    async def fork_session(
        self, session_id: SessionId, cwd: Path, client: Client, **_more: object
    ) -> ActedSession:
        raise AssertionError(f"no play is forked: {session_id}, {cwd}, {client}")

    async def delete_session(self, session_id: SessionId) -> None:
        raise AssertionError(f"no play is deleted: {session_id}")

    async def list_sessions(self, cwd: Path | None, page_token: str | None) -> SessionPage:
        assert (cwd, page_token) == (None, None)
        return SessionPage([], [], None)

    async def close(self) -> None:
        pass


NATIVE: JsonObject = {"subagents": {}}
FALLBACK: JsonObject = {}


@asynccontextmanager
async def audience(
    stage: Stage,
    play: Play,
    entries: list[Entry],
    capabilities: JsonObject,
    *,
    info: JsonObject | None = None,
    judge: Callable[[list[Entry]], list[str]] = problems,
) -> AsyncIterator[Editor]:
    """An initialized editor before a stage; on the way out every message so far is judged."""
    run = 1 + max((entry.run for entry in entries), default=0)
    ours, theirs = stream_pair(64 * 1024)
    editor = Editor(ours, entries, run)
    async with anyio.create_task_group() as group:
        group.start_soon(serve, theirs, Settings(home=stage.root.cwd, model="demo"))
        group.start_soon(editor.read)
        params: JsonObject = {"protocolVersion": 1, "clientCapabilities": capabilities}
        if info is not None:
            params["clientInfo"] = info
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(assemble, "any_runtime", lambda *_: ActingRuntime(stage, play))
            await editor.call("initialize", params)
        with anyio.fail_after(WAIT_S):
            yield editor
        ours.send_eof()
    found = judge(entries)
    assert not found, "\n".join(found)
