"""The embedded runtime: the Python harness in this process, behind the `Runtime` port."""

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from acp_bridge.config import McpSettings
from acp_bridge.errors import InvalidParamsError, SessionConflictError
from acp_bridge.harness.choosing import first_choices, stored_choices
from acp_bridge.harness.commands import COMMAND_NAMES
from acp_bridge.harness.committer import Committer
from acp_bridge.harness.desk import Choices, Desk, Given, ToolBox, World
from acp_bridge.harness.files import SessionFiles
from acp_bridge.harness.memory import SCRIPTED, SessionMemory
from acp_bridge.harness.project.lookout import Project, Sources
from acp_bridge.harness.session import HarnessSession
from acp_bridge.harness.tools import asking_tools
from acp_bridge.ports import NO_EXTRAS, Client, Extras, ModelCatalog, SessionPage, Tool
from acp_bridge.runtime.attachments import AttachmentStore
from acp_bridge.runtime.late_children import LateChildren
from acp_bridge.runtime.opened import OpenSessions
from acp_bridge.runtime.spill import prune_spill
from acp_bridge.runtime.stored import (
    belongs_to_subagent,
    check_cwd,
    check_header,
    deleted_with_parent,
    list_page,
    refuse_child,
    refuse_subagent,
)
from acp_bridge.runtime.tasks import TaskHolder
from acp_bridge.sessions.fork import Fork
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.paths import INDEX_NAME, session_folder
from acp_bridge.sessions.store import SessionStore
from acp_bridge.sessions.writer import LogWriter
from acp_bridge.subagents.limits import Limits
from acp_bridge.vocabulary import Event, McpServer, Mode, SessionId

if TYPE_CHECKING:
    from acp_bridge.sessions.query import LiveLog
    from acp_bridge.subagents.remote_home import RemoteHome
    from acp_bridge.subagents.service import SubagentService

logger = logging.getLogger(__name__)


@attrs.frozen(slots=True)
class Outside:
    """What the runtime takes from the outside: see `harness.desk.World` for the shapes."""

    clock: Callable[[], int]
    new_id: Callable[[], str]
    chance: Callable[[], float]
    env: Mapping[str, str]


class EmbeddedRuntime(TaskHolder):
    """Implements `ports.Runtime`. An async context manager: sessions live inside it.

    ``catalog`` is asked for each new or opened session and raises what `ports.Runtime` says;
    ``mode`` is what a session begins with; ``tools`` is called by the first turn, and those of
    `subagents` come behind them. ``home`` holds ``sessions/``, ``attachments/`` and ``spill/``.
    ``limits`` are those of subagents; ``detaches``: no prompt waits for them. ``servers`` are the
    user's MCP servers by name, for every session. ``reads_instructions``: AGENTS.md files count;
    that of all projects is in ``people_home``, None: in ``home``. ``durable`` is as for
    `SessionStore`. ``remote`` lets subagents work on other machines.
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
        compacts: bool = True,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        detaches: bool = False,
        servers: Mapping[str, McpSettings] = MappingProxyType({}),
        reads_instructions: bool = True,
        people_home: Path | None = None,
        durable: bool = True,
        remote: "RemoteHome | None" = None,
    ) -> None:
        super().__init__()
        self._people_home = people_home or home
        self._reads_instructions = reads_instructions
        self._store = SessionStore(
            home / "sessions", clock=outside.clock, index=home / INDEX_NAME, durable=durable
        )
        self._catalog = catalog
        self._mode = mode
        self._detaches = detaches
        self._servers = servers
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
            compacts=compacts,
        )
        self._limits = limits
        self._remote = remote
        self._children = LateChildren(self._made_subagents, lambda: self._subagents)
        self._tools = ToolBox(lambda: [*tools(), *self._control_tools()])
        self._tools_that_ask = ToolBox(lambda: [*self._tools.values(), *asking_tools()])
        self._open: OpenSessions[HarnessSession] = OpenSessions()
        self._places = 0
        if remote is not None:
            remote.bind(self._subagents, self._store, limits)

    @cached_property
    def _subagents(self) -> "SubagentService":
        from acp_bridge.sessions.query import SessionQuery
        from acp_bridge.subagents.service import SubagentService

        return SubagentService(
            self,
            store=self._store,
            query=SessionQuery(self._store, self._live),
            catalog=self._catalog,
            clock=self._outside.clock,
            new_id=self._outside.new_id,
            limits=self._limits,
            elsewhere=self._remote,
        )

    def _made_subagents(self) -> "SubagentService | None":
        """The service, if anybody has needed it."""
        return self.__dict__.get("_subagents")

    def _works_below(self, session_id: SessionId) -> bool:
        """Whether this is a subagent that works here."""
        made = self._made_subagents()
        return made is not None and made.is_live(session_id)

    async def __aenter__(self) -> Self:
        if self._remote is not None:  # its streams end after the sessions
            await self.surround(self._remote.running())
        return await super().__aenter__()

    def begin(self) -> None:
        """Clear away old spilled output, beside the first sessions."""
        spill_dir, now_ms = self._world.spill_dir, self._outside.clock()
        self.group.start_soon(anyio.to_thread.run_sync, prune_spill, spill_dir, now_ms)

    def check_model(self) -> None:
        """Look again whether there is a model to talk to."""
        self._catalog.open(None)

    def forget_keys(self) -> None:
        """Sign out: forget every stored key."""
        self._catalog.forget()

    async def new_session(
        self,
        cwd: Path,
        client: Client,
        session_id: SessionId | None = None,
        *,
        extras: Extras = NO_EXTRAS,
    ) -> HarnessSession:
        """A session with an empty log; nothing is stored before its first prompt.

        ``session_id`` is the name that the client wants for it.

        Raises:
            InvalidParamsError: no session can have this name.
            SessionConflictError: one has it already.
        """
        choices = first_choices(self._catalog, self._mode)
        if session_id is None:
            writer = self._store.create(self._new_header(cwd))
            return await self._start(writer, choices, client, extras)
        if session_folder(session_id) is None:
            raise InvalidParamsError(
                f"No session can have the id {session_id!r:.100}: it is empty, or too long.",
                field="sessionId",
            )
        if self._open.is_taken(session_id):
            raise SessionConflictError(f"Session {session_id} is open already.")
        async with self._open.moving(session_id):
            await anyio.to_thread.run_sync(self._store.check_unused, session_id)
            header = attrs.evolve(self._new_header(cwd), session_id=session_id)
            return await self._start(self._store.create(header), choices, client, extras)

    def _new_header(self, cwd: Path) -> Header:
        return Header(
            session_id=SessionId(self._outside.new_id()),
            created_at_ms=self._outside.clock(),
            cwd=str(cwd),
        )

    async def open_session(
        self,
        session_id: SessionId,
        cwd: Path | None,
        client: Client,
        *,
        extras: Extras = NO_EXTRAS,
    ) -> HarnessSession:
        """A stored session, opened for writing; one that is open already is given again.

        ``cwd`` None: whatever folder it was made in.
        """
        if self._works_below(session_id):
            raise belongs_to_subagent(session_id)
        is_ours = False

        async def open_it() -> HarnessSession:
            nonlocal is_ours
            is_ours = True
            return await self._open_stored(session_id, cwd, client, extras)

        live = await self._open.opened(session_id, open_it)
        if cwd is not None:
            check_cwd(live.cwd, cwd)
        if not is_ours:
            await live.take(extras)  # what was given at another opening is not kept
        return live

    async def list_sessions(self, cwd: Path | None, page_token: str | None) -> SessionPage:
        """Roots and forks, newest activity first, never a subagent's session."""
        return await list_page(self._store, cwd, page_token)

    async def fork_session(
        self,
        session_id: SessionId,
        cwd: Path,
        client: Client,
        *,
        extras: Extras = NO_EXTRAS,
    ) -> HarnessSession:
        """A new session that begins with the completed turns of another, which stays as it is."""
        source = self._open.get(session_id)
        fallback = first_choices(self._catalog, self._mode)
        if source is not None and not source.events:
            # Nothing is stored yet, so nothing is copied but what was chosen.
            header = self._new_header(cwd)
            return await self._start(self._store.create(header), source.choices, client, extras)
        new_id = SessionId(self._outside.new_id())
        made = await anyio.to_thread.run_sync(self._fork_stored, session_id, new_id, cwd)
        if made.is_stored:
            return await self.open_session(new_id, cwd, client, extras=extras)
        choices = fallback if source is None else source.choices
        return await self._start(self._store.create(made.header), choices, client, extras)

    async def _fork_of(self, session_id: SessionId, cwd: Path) -> SessionId | None:
        """Store a fork and leave it closed; None: no turn is completed."""
        new_id = SessionId(self._outside.new_id())
        made = await anyio.to_thread.run_sync(self._fork_stored, session_id, new_id, cwd)
        return new_id if made.is_stored else None

    def _fork_stored(self, session_id: SessionId, new_id: SessionId, cwd: Path) -> Fork:
        refuse_subagent(self._store.read_header(session_id))
        now_ms = self._outside.clock()
        return self._store.fork(session_id, new_id=new_id, created_at_ms=now_ms, cwd=str(cwd))

    async def take_child(
        self,
        header: Header,
        events: Sequence[Event],
        *,
        choices: Choices,
        place: str,
        client: Client,
        system_prompt: str = "",
        images: Mapping[str, bytes] = MappingProxyType({}),
    ) -> HarnessSession:
        """A subagent that another process has delegated: a session on a log of its own here.

        ``header`` and ``events`` are the log as that process has it, ``place`` counts if it names
        none. ``system_prompt`` is what the client there gave, ``images`` those of the events by
        their ids. Its own subagents work here too.

        Raises:
            SessionConflictError: it is here already, or the rows are not a log's from its start.
            LocalProtocolError: they are no sound log.
            StoreFailedError: the disk refused.
        """
        session_id = SessionId(header.session_id)
        if self._open.is_taken(session_id):
            raise SessionConflictError(f"Session {session_id} is open already.")
        async with self._open.moving(session_id):
            writer = self._store.create(header)
            await anyio.to_thread.run_sync(writer.adopt, events)
            for name, data in images.items():
                await anyio.to_thread.run_sync(self._world.keep_attachment, name, data)
            memory = SessionMemory(events)
            place = memory.place or place
            desk = self._desk(writer, choices, client, memory, place, self._tools_for(client))
            desk.given.system_prompt = system_prompt
            self._give_servers(desk, ())
            session = HarnessSession(desk)
            self._open.add(session_id, session)
            self.run(partial(self._serve, session))
        await desk.servers.ready()  # its first turn is not a prompt's, which would wait
        return session

    def live(self, session_id: SessionId) -> "LiveLog | None":
        """The log of the session that is open here under this id, a subagent's included."""
        return next((one for one in self._live() if one.header.session_id == session_id), None)

    def interrupt(self, caller_id: SessionId, child_id: SessionId) -> None:
        """End the current turn of a subagent below a session.

        Raises:
            SubagentRefusedError: it is none of it, or no turn of it runs.
        """
        self._subagents.interrupt(caller_id, child_id)

    async def delete_session(self, session_id: SessionId) -> None:
        """Close and remove a session and its subagents' sessions; an unknown id is fine."""
        if self._works_below(session_id):
            raise deleted_with_parent(session_id)
        async with self._open.moving(session_id):
            live = self._open.get(session_id)
            if live is not None:
                await live.close()
            await anyio.to_thread.run_sync(self._store.delete, session_id, refuse_child)
            if self._remote is not None:
                await self._remote.deleted(session_id)

    async def close(self) -> None:
        """Close every session."""
        await self._open.close_all()

    async def _open_stored(
        self,
        session_id: SessionId,
        cwd: Path | None,
        client: Client,
        extras: Extras,
    ) -> HarnessSession:
        # Without any model nothing can be continued: say so before anything is opened.
        self._catalog.open(None)

        def check(header: Header) -> None:
            check_header(header, cwd)

        # A cancel must not lose the writer, which holds the lock: the thread's result is awaited.
        writer = await anyio.to_thread.run_sync(self._store.open, session_id, check)
        memory = SessionMemory(writer.events)
        choices, notice = stored_choices(self._catalog, memory, self._mode)
        session = await self._start(writer, choices, client, extras, memory=memory)
        if self._remote is not None:
            await self._subagents.pick_up(session)
        if notice is not None:
            session.note(notice)
        return session

    async def _start(
        self,
        writer: LogWriter,
        choices: Choices,
        client: Client,
        extras: Extras,
        *,
        memory: SessionMemory | None = None,
    ) -> HarnessSession:
        memory = memory or SessionMemory()
        place = memory.place if choices.model.provider == SCRIPTED else None
        if place is None:
            self._places += 1
            place = str(self._places)
        else:
            self._places = max(self._places, int(place.partition("/")[0]))
        desk = self._desk(writer, choices, client, memory, place, self._tools_for(client))
        self._give_servers(desk, extras.servers)
        desk.fork = partial(self._fork_of, desk.session_id, desk.cwd)
        session = HarnessSession(desk, detaches=self._detaches)
        self._open.add(session.session_id, session)
        if self._remote is not None:
            self._remote.opened(session, is_new=not session.events)
        self.run(partial(self._serve, session))
        with anyio.CancelScope(shield=True):  # else a cancel would leave it open for nobody
            await session.take(extras)
        return session

    def _tools_for(self, client: Client) -> ToolBox:
        return self._tools_that_ask if client.takes_questions else self._tools

    def _desk(
        self,
        writer: LogWriter,
        choices: Choices,
        client: Client,
        memory: SessionMemory,
        place: str,
        tools: Mapping[str, Tool],
        given: Given | None = None,
    ) -> Desk:
        header = writer.header
        assert header.cwd is not None
        cwd, given = Path(header.cwd), given or Given()

        def sources() -> Sources:
            return Sources(
                home=self._people_home,
                cwd=cwd,
                folders=given.folders,
                reads_instructions=self._reads_instructions,
                taken=COMMAND_NAMES,
            )

        return Desk(
            session_id=SessionId(header.session_id),
            cwd=cwd,
            committer=Committer(writer),
            memory=memory,
            choices=choices,
            catalog=self._catalog,
            tools=tools,
            client=client,
            files=SessionFiles(client),
            world=self._world,
            place=place,
            children=self._children,
            given=given,
            project=Project(sources),
        )

    def _give_servers(self, desk: Desk, given: Sequence[McpServer]) -> None:
        """Let its MCP servers connect beside it."""
        if not self._servers and not given:
            return
        from acp_bridge.harness.mcp.merging import merged

        wanted = merged(self._servers, given)
        if not wanted:
            return
        from acp_bridge.harness.mcp.servers import SessionServers, SessionTools, Surroundings

        surroundings = Surroundings(desk.cwd, self._world.env)
        servers = SessionServers(desk.session_id, wanted, surroundings, desk.news.append)
        desk.servers, desk.tools = servers, SessionTools(desk.tools, servers)
        self.run(servers.serve)

    async def _serve(self, session: HarnessSession) -> None:
        try:
            await session.serve()
        except Exception:  # one session's fault must not end the others
            logger.exception("session %s: it could not be served", session.session_id)
        finally:
            self._open.remove(session.session_id)
            if self._remote is not None:
                self._remote.closed(session.session_id)

    # --- what subagents need (`subagents.service.Host`) -----------------------------------------

    def root(self, session_id: SessionId) -> HarnessSession | None:
        """The session that a client has open under this id."""
        return self._open.get(session_id)

    def start_child(
        self,
        writer: LogWriter,
        *,
        choices: Choices,
        client: Client,
        memory: SessionMemory,
        place: str,
        root: HarnessSession,
    ) -> HarnessSession:
        """A subagent's session on this log, served until it is closed."""
        desk = self._desk(writer, choices, client, memory, place, root.tools, root.given)
        session = HarnessSession(desk)
        self.run(partial(self._serve, session))
        return session

    def run(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run ``work`` in a task of this runtime."""
        self.group.start_soon(work)

    def _live(self) -> "Sequence[LiveLog]":
        """Every session that is open here, children included; called from threads."""
        made = self._made_subagents()
        return [*self._open.all(), *(() if made is None else made.sessions())]

    def _control_tools(self) -> Iterable[Tool]:
        from acp_bridge.subagents.tools import control_tools

        return control_tools(self._subagents)
