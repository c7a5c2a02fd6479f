"""The embedded runtime: the Python harness in this process, behind the `Runtime` port."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from acp_bridge.harness.choosing import first_choices, stored_choices
from acp_bridge.harness.committer import Committer
from acp_bridge.harness.desk import Choices, Desk, ToolBox, World
from acp_bridge.harness.files import SessionFiles
from acp_bridge.harness.memory import SCRIPTED, SessionMemory
from acp_bridge.harness.session import HarnessSession
from acp_bridge.ports import Client, ModelCatalog, SessionPage, Tool
from acp_bridge.runtime.attachments import AttachmentStore
from acp_bridge.runtime.opened import OpenSessions
from acp_bridge.runtime.spill import prune_spill
from acp_bridge.runtime.stored import (
    check_cwd,
    check_header,
    list_page,
    refuse_child,
    refuse_subagent,
)
from acp_bridge.sessions.fork import Fork
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.store import SessionStore
from acp_bridge.sessions.writer import LogWriter
from acp_bridge.vocabulary import Mode, SessionId


@attrs.frozen(slots=True)
class Outside:
    """What the runtime takes from the outside: see `harness.desk.World` for the shapes."""

    clock: Callable[[], int]
    new_id: Callable[[], str]
    chance: Callable[[], float]
    env: Mapping[str, str]


class EmbeddedRuntime:
    """Implements `ports.Runtime`. An async context manager: sessions live inside it.

    ``catalog`` is asked for each new or opened session and raises what `ports.Runtime` says;
    ``mode`` is what a session begins with; ``tools`` is called by the first turn. ``home`` holds
    ``sessions/``, ``attachments/`` and ``spill/``.
    """

    def __init__(
        self,
        *,
        home: Path,
        catalog: ModelCatalog,
        mode: Mode,
        tools: Callable[[], Iterable[Tool]],
        outside: Outside,
        runs_here: bool = True,
    ) -> None:
        self._store = SessionStore(
            home / "sessions", clock=outside.clock, index=home / "index.sqlite3"
        )
        self._catalog = catalog
        self._mode = mode
        self._tools = ToolBox(tools)
        self._outside = outside
        attachments = AttachmentStore(home / "attachments")
        self._world = World(
            clock=outside.clock,
            new_id=outside.new_id,
            chance=outside.chance,
            keep_attachment=attachments.keep,
            find_attachment=attachments.find,
            spill_dir=home / "spill",
            env=outside.env,
            runs_here=runs_here,
        )
        self._open: OpenSessions[HarnessSession] = OpenSessions()
        self._places = 0
        self._group: anyio.abc.TaskGroup | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        spill_dir, now_ms = self._world.spill_dir, self._outside.clock()
        self._group.start_soon(anyio.to_thread.run_sync, prune_spill, spill_dir, now_ms)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        with anyio.CancelScope(shield=True):
            await self.close()
        assert self._group is not None
        self._group.cancel_scope.cancel()  # what is left has had its time
        return await self._stack.__aexit__(kind, fault, traceback)

    def check_model(self) -> None:
        """Look again whether there is a model to talk to."""
        self._catalog.open(None)

    def forget_keys(self) -> None:
        """Sign out: forget every stored key."""
        self._catalog.forget()

    async def new_session(self, cwd: Path, client: Client) -> HarnessSession:
        """A session with an empty log; nothing is stored before its first prompt."""
        choices = first_choices(self._catalog, self._mode)
        return self._start(self._store.create(self._new_header(cwd)), choices, client)

    def _new_header(self, cwd: Path) -> Header:
        return Header(
            session_id=SessionId(self._outside.new_id()),
            created_at_ms=self._outside.clock(),
            cwd=str(cwd),
        )

    async def open_session(
        self, session_id: SessionId, cwd: Path, client: Client
    ) -> HarnessSession:
        """A stored session, opened for writing; one that is open already is given again."""
        open_it = partial(self._open_stored, session_id, cwd, client)
        live = await self._open.opened(session_id, open_it)
        check_cwd(live.cwd, cwd)
        return live

    async def list_sessions(self, cwd: Path | None, page_token: str | None) -> SessionPage:
        """Roots and forks, newest activity first, never a subagent's session."""
        return await list_page(self._store, cwd, page_token)

    async def fork_session(
        self, session_id: SessionId, cwd: Path, client: Client
    ) -> HarnessSession:
        """A new session that begins with the completed turns of another, which stays as it is."""
        source = self._open.get(session_id)
        fallback = first_choices(self._catalog, self._mode)
        if source is not None and not source.events:
            # Nothing is stored yet, so nothing is copied but what was chosen.
            header = self._new_header(cwd)
            return self._start(self._store.create(header), source.choices, client)
        new_id = SessionId(self._outside.new_id())
        made = await anyio.to_thread.run_sync(self._fork_stored, session_id, new_id, cwd)
        if made.is_stored:
            return await self.open_session(new_id, cwd, client)
        choices = fallback if source is None else source.choices
        return self._start(self._store.create(made.header), choices, client)

    def _fork_stored(self, session_id: SessionId, new_id: SessionId, cwd: Path) -> Fork:
        refuse_subagent(self._store.read_header(session_id))
        now_ms = self._outside.clock()
        return self._store.fork(session_id, new_id=new_id, created_at_ms=now_ms, cwd=str(cwd))

    async def delete_session(self, session_id: SessionId) -> None:
        """Close and remove a session and its subagents' sessions; an unknown id is fine."""
        async with self._open.moving(session_id):
            live = self._open.get(session_id)
            if live is not None:
                await live.close()
            await anyio.to_thread.run_sync(self._store.delete, session_id, refuse_child)

    async def close(self) -> None:
        """Close every session."""
        await self._open.close_all()

    async def _open_stored(
        self, session_id: SessionId, cwd: Path, client: Client
    ) -> HarnessSession:
        # Without any model nothing can be continued: say so before anything is opened.
        self._catalog.open(None)

        def check(header: Header) -> None:
            check_header(header, cwd)

        # A cancel must not lose the writer, which holds the lock: the thread's result is awaited.
        writer = await anyio.to_thread.run_sync(self._store.open, session_id, check)
        memory = SessionMemory(writer.events)
        choices, notice = stored_choices(self._catalog, memory, self._mode)
        session = self._start(writer, choices, client, memory=memory)
        if notice is not None:
            session.note(notice)
        return session

    def _start(
        self,
        writer: LogWriter,
        choices: Choices,
        client: Client,
        *,
        memory: SessionMemory | None = None,
    ) -> HarnessSession:
        assert self._group is not None, "use the runtime as a context manager"
        memory = memory or SessionMemory()
        place = memory.place if choices.model.provider == SCRIPTED else None
        if place is None:
            self._places += 1
            place = str(self._places)
        else:
            self._places = max(self._places, int(place.partition("/")[0]))
        header = writer.header
        assert header.cwd is not None
        desk = Desk(
            session_id=SessionId(header.session_id),
            cwd=Path(header.cwd),
            committer=Committer(writer),
            memory=memory,
            choices=choices,
            catalog=self._catalog,
            tools=self._tools,
            client=client,
            files=SessionFiles(client),
            world=self._world,
            place=place,
        )
        session = HarnessSession(desk)
        self._open.add(session.session_id, session)
        self._group.start_soon(self._serve, session)
        return session

    async def _serve(self, session: HarnessSession) -> None:
        try:
            await session.serve()
        finally:
            self._open.remove(session.session_id)
