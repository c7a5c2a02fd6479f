"""The real runtime behind the `Runtime` port: DeepSeek Harness in processes of our own.

Sessions are those of its home (``$DSH_HOME/sessions``), listed, read, forked and deleted by
`sessions`, as the embedded runtime does with its own.
"""

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from acp_bridge.config import McpSettings
from acp_bridge.errors import BridgeError
from acp_bridge.harness.mcp.merging import merged
from acp_bridge.ports import NO_EXTRAS, Client, Extras, SessionPage
from acp_bridge.runtime.attachments import AttachmentStore
from acp_bridge.runtime.dsh.asking import Asking
from acp_bridge.runtime.dsh.control import PATCH_FILE, Control
from acp_bridge.runtime.dsh.control_types import ModelChoice
from acp_bridge.runtime.dsh.host import START_WAIT_S, Host
from acp_bridge.runtime.dsh.hosts import Hosts
from acp_bridge.runtime.dsh.launch import Launch, find_dsh
from acp_bridge.runtime.dsh.logs import continue_log, is_subagent, until_stored
from acp_bridge.runtime.dsh.models import DshModels
from acp_bridge.runtime.dsh.residence import Shop
from acp_bridge.runtime.dsh.session import DshSession
from acp_bridge.runtime.opened import OpenSessions
from acp_bridge.runtime.stored import (
    check_cwd,
    check_header,
    list_page,
    refuse_child,
    refuse_subagent,
)
from acp_bridge.runtime.tasks import TaskHolder
from acp_bridge.sessions.fork import Fork
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.store import SessionStore
from acp_bridge.vocabulary import Event, McpServer, Mode, SessionId

logger = logging.getLogger(__name__)

PLAIN_PATCH: Final = """\
# This home's logs are plain; the runtime refuses a home that mixes two encodings.
- id: session-persistence-jsonl
  config: {root: !!js dshHomePath('sessions'), compression: none}
"""

UNINSTRUCTED_PATCH: Final = """\
# AGENTS.md files do not count: the settings say so.
- {id: agent-instructions, disabled: true}
"""


@attrs.frozen(slots=True)
class Outside:
    """What the adapter takes from the outside.

    ``clock`` gives milliseconds since the epoch; ``command`` is the configured ``dsh``; ``scratch``
    a folder of ours for what it must be given as files.
    """

    clock: Callable[[], int]
    new_id: Callable[[], str]
    env: Mapping[str, str]
    command: str | None
    scratch: Path
    patch: Path = PATCH_FILE
    start_wait_s: float = START_WAIT_S


class DshRuntime(TaskHolder):
    """Implements `ports.Runtime`. An async context manager: sessions and processes live inside it.

    ``home`` is the runtime's home, ``people_home`` holds what the user has written for all
    projects; ``mode`` is what a session begins with; ``reads_instructions``: AGENTS.md files count;
    ``detaches``: no prompt waits for subagents; ``servers`` are the user's MCP servers by name, for
    every session. Entering starts the first process and waits for nothing.
    """

    def __init__(
        self,
        *,
        home: Path,
        people_home: Path,
        models: DshModels,
        mode: Mode,
        outside: Outside,
        reads_instructions: bool = True,
        detaches: bool = False,
        servers: Mapping[str, McpSettings] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self._home = home
        self._people_home = people_home
        self._reads_instructions = reads_instructions
        self._servers = servers
        self._models = models
        self._mode = mode
        self._outside = outside
        self._detaches = detaches
        self._store = SessionStore(
            home / "sessions", clock=outside.clock, index=outside.scratch / "index-dsh.sqlite3"
        )
        self._attachments = AttachmentStore(home / "attachments")
        self._open: OpenSessions[DshSession] = OpenSessions()
        self._client: Client | None = None
        temp_dir = Path(tempfile.gettempdir()).resolve()
        self._asking = Asking(self._open.get, self._above, temp_dir)
        self._hosts: Hosts | None = None

    def begin(self) -> None:
        """Start the first process, and wait for nothing."""
        self._hosts = Hosts(self.group, self._new_host, self._is_fresh)
        self.group.start_soon(self._prewarm)

    async def _prewarm(self) -> None:
        """Start a process ahead; who lacks a key or dsh is told of it where it matters."""
        assert self._hosts is not None
        try:
            self._models.check()
            self._hosts.prewarm()
        except BridgeError as failure:
            logger.info("no process is started ahead: %s", failure.details)

    # --- what the port asks -------------------------------------------------------------------

    def check_model(self) -> None:
        """Look again whether there is a key."""
        self._models.check()

    def forget_keys(self) -> None:
        """Sign out: forget the stored keys; the runtime's own are its own."""
        self._models.forget()

    async def new_session(
        self, cwd: Path, client: Client, *, extras: Extras = NO_EXTRAS
    ) -> DshSession:
        """A session with an empty log; nothing is stored before its first prompt."""
        self._models.check()
        return await self._start(self._new_header(cwd), client, extras, model=self._models.first())

    async def open_session(
        self,
        session_id: SessionId,
        cwd: Path,
        client: Client,
        *,
        extras: Extras = NO_EXTRAS,
    ) -> DshSession:
        """A stored session; one that is open already is given again."""
        is_ours = False

        async def open_it() -> DshSession:
            nonlocal is_ours
            is_ours = True
            return await self._open_stored(session_id, cwd, client, extras)

        live = await self._open.opened(session_id, open_it)
        check_cwd(live.cwd, cwd)
        if not is_ours:
            await live.take(extras)  # what was given at another opening is not kept
        return live

    async def fork_session(
        self,
        session_id: SessionId,
        cwd: Path,
        client: Client,
        *,
        extras: Extras = NO_EXTRAS,
    ) -> DshSession:
        """A new session that begins with the completed turns of another, which stays as it is.

        It is made as a file, in the shape that 0.2.1rc2 takes; the source may be running.
        """
        self._models.check()
        source = self._open.get(session_id)
        if source is not None and not source.events:
            return await self._start(
                self._new_header(cwd), client, extras, model=source.model, mode=source.mode
            )
        made = await self._fork_stored(session_id, cwd)
        if made.is_stored:
            new_id = SessionId(made.header.session_id)
            return await self.open_session(new_id, cwd, client, extras=extras)
        return await self._start(made.header, client, extras, model=self._models.first())

    async def delete_session(self, session_id: SessionId) -> None:
        """Close and remove a session and its subagents' sessions; an unknown id is fine."""
        async with self._open.moving(session_id):
            live = self._open.get(session_id)
            if live is not None:
                await live.close()
            await anyio.to_thread.run_sync(self._store.delete, session_id, refuse_child)

    async def list_sessions(self, cwd: Path | None, page_token: str | None) -> SessionPage:
        """Roots and forks, newest activity first, never a subagent's session."""
        return await list_page(self._store, cwd, page_token)

    async def close(self) -> None:
        """Close every session, and end every process."""
        await self._open.close_all()
        if self._hosts is not None:
            await self._hosts.close()

    # --- sessions -----------------------------------------------------------------------------

    def _above(self, child_id: SessionId) -> DshSession | None:
        return next((one for one in self._open.all() if one.has_child(child_id)), None)

    def _new_header(self, cwd: Path) -> Header:
        return Header(
            session_id=SessionId(self._outside.new_id()),
            created_at_ms=self._outside.clock(),
            cwd=str(cwd),
        )

    async def _open_stored(
        self, session_id: SessionId, cwd: Path, client: Client, extras: Extras
    ) -> DshSession:
        self._models.check()  # without a key nothing can be continued: say so before anything

        def check(header: Header) -> None:
            check_header(header, cwd)

        read = partial(continue_log, self._store, session_id, check=check)
        header, events = await anyio.to_thread.run_sync(read)
        return await self._start(header, client, extras, model=self._models.first(), events=events)

    async def _start(
        self,
        header: Header,
        client: Client,
        extras: Extras,
        *,
        model: ModelChoice,
        mode: Mode | None = None,
        events: list[Event] | None = None,
    ) -> DshSession:
        assert self._hosts is not None
        self._client = client
        shop = Shop(
            store=self._store,
            hosts=self._hosts,
            models=self._models,
            attachments=self._attachments,
            group=self.group,
            new_id=self._outside.new_id,
            people_home=self._people_home,
            reads_instructions=self._reads_instructions,
            fork=self._fork_of,
            detaches=self._detaches,
        )
        session = DshSession(
            shop,
            header,
            client,
            mode=mode or self._mode,
            model=model,
            events=events or (),
        )
        self._give_servers(session, extras.servers)
        self._open.add(session.session_id, session)
        self.group.start_soon(self._serve, session)
        with anyio.CancelScope(shield=True):  # else a cancel would leave it open for nobody
            await session.take(extras)
        session.prepare()
        return session

    def _give_servers(self, session: DshSession, given: Sequence[McpServer]) -> None:
        """Let its MCP servers connect beside it."""
        wanted = merged(self._servers, given)
        if not wanted:
            return
        from acp_bridge.harness.mcp.servers import Surroundings
        from acp_bridge.runtime.dsh.servers import DshServers

        session.servers = DshServers(
            session.session_id,
            wanted,
            Surroundings(session.cwd, self._outside.env),
            group=self.group,
            host=lambda: session.host,
        )
        self.group.start_soon(session.servers.serve)

    async def _serve(self, session: DshSession) -> None:
        try:
            await session.serve()
        finally:
            self._open.remove(session.session_id)

    async def _fork_of(self, session_id: SessionId, cwd: Path) -> SessionId | None:
        """Store a fork and leave it closed; None: no turn is completed."""
        made = await self._fork_stored(session_id, cwd)
        return SessionId(made.header.session_id) if made.is_stored else None

    async def _fork_stored(self, session_id: SessionId, cwd: Path) -> Fork:
        """The source may be open, and running."""
        source = self._open.get(session_id)
        if source is not None and source.events:
            await until_stored(self._store, session_id, source.events[-1].seq)
        new_id = SessionId(self._outside.new_id())

        def fork() -> Fork:
            refuse_subagent(self._store.read_header(session_id))
            return self._store.fork(
                session_id,
                new_id=new_id,
                created_at_ms=self._outside.clock(),
                cwd=str(cwd),
                shape="dsh-0.2.1",
            )

        return await anyio.to_thread.run_sync(fork)

    # --- processes ----------------------------------------------------------------------------

    def _new_host(self) -> Host:
        """Raises RuntimeFailedError: dsh is not there."""
        return Host(
            self.launch(),
            model=self._models.first(),
            is_subagent=partial(is_subagent, self._store),
            flow=self._flow,
            judge=self._asking.judge,
            prepare=self._asking.listen,
            learn=self._learn,
            start_wait_s=self._outside.start_wait_s,
        )

    async def _learn(self, control: Control) -> None:
        """Offer the models that the runtime has, in place of those that we know of."""
        try:
            models = await control.models()
        except BridgeError as failure:
            logger.warning("the runtime does not tell its models: %s", failure.details)
            return
        if self._models.learn(models):
            for session in self._open.all():
                session.offer_anew()

    def launch(self) -> Launch:
        """How a process is started now.

        Raises:
            RuntimeFailedError: dsh is not there.
            ConfigError: its key cannot be used.
        """
        return Launch(
            command=find_dsh(self._outside.command, self._outside.env),
            home=self._home,
            env=self._outside.env,
            key=self._models.find_key(),
            patches=self._patches(),
        )

    def _patches(self) -> list[Path]:
        patches = [self._outside.patch]
        if self._store.encoding() == "plain":
            patches.append(self._patch("plain-logs", PLAIN_PATCH))
        if not self._reads_instructions:
            patches.append(self._patch("no-instructions", UNINSTRUCTED_PATCH))
        return patches

    def _patch(self, name: str, text: str) -> Path:
        path = self._outside.scratch / f"dsh-{name}.yml"
        path.write_text(text, encoding="utf-8")
        return path

    def _is_fresh(self, host: Host) -> bool:
        return host.launch.key == self._models.find_key()

    async def _flow(self) -> None:
        """All sessions are shown on one connection: any client knows whether it is read."""
        if self._client is not None:
            await self._client.flow()
