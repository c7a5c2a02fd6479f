"""What a turn works with: one session's log, memory, model, tools, client, and the outer world."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import anyio
import attrs

from acp_bridge.harness.committer import Committer
from acp_bridge.harness.memory import SessionMemory
from acp_bridge.harness.project.lookout import Project
from acp_bridge.ports import ChildRunner, Client, Model, ModelCatalog, Tool, ToolFiles
from acp_bridge.vocabulary import Abort, Descendant, Mode, SessionId


@attrs.frozen(slots=True)
class World:
    """Time, chance and places outside a session.

    ``clock`` gives milliseconds since the epoch, ``new_id`` a fresh id, ``chance`` a float in
    [0, 1). ``spill_dir`` takes tool output too large for a log; ``env`` is what commands see.
    ``keep_attachment`` and ``find_attachment`` store and fetch image bytes by ``sha256:<hex>``;
    both block. ``runs_here``: commands run in this process, not with whoever drives the session.
    ``compacts``: a session whose model's window fills up is compacted without being asked.
    """

    clock: Callable[[], int]
    new_id: Callable[[], str]
    chance: Callable[[], float]
    keep_attachment: Callable[[str, bytes], None]
    find_attachment: Callable[[str], bytes | None]
    spill_dir: Path
    env: Mapping[str, str]
    runs_here: bool = True
    compacts: bool = True


class ToolBox(Mapping[str, Tool]):
    """Tools by name, loaded when a turn first looks: opening a session does not wait for them."""

    def __init__(self, load: Callable[[], Iterable[Tool]]) -> None:
        self._load = load

    @cached_property
    def _tools(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self._load()}

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def add(self, tool: Tool) -> Callable[[], None]:
        """Offer a tool from the next request on; the result takes it away again.

        A call that runs goes on, whatever becomes of its tool.
        """
        self._tools[tool.name] = tool

        def remove() -> None:
            self._tools.pop(tool.name, None)

        return remove


class Servers(Protocol):
    """A session's MCP servers, whose tools are among `Desk.tools`."""

    async def ready(self) -> None:
        """Wait, a bounded time and once, for those that are still connecting."""

    async def close(self) -> None:
        """End them all; bounded."""


class NoServers:
    """`Servers` of a session that has none of its own."""

    async def ready(self) -> None:
        """At once."""

    async def close(self) -> None:
        """There is nothing to end."""


class NoChildren:
    """A `ports.ChildRunner` for sessions that cannot delegate."""

    def owes(self, parent_id: SessionId) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def cancel_below(self, parent_id: SessionId, why: Abort) -> None:
        """There is nothing below."""

    async def settled(self, parent_id: SessionId) -> None:
        """Always."""

    async def descendants(self, root_id: SessionId) -> Sequence[Descendant]:  # noqa: ARG002
        """None."""
        return ()

    def cancel_child(self, root_id: SessionId, child_id: SessionId) -> None:
        """There is none."""

    async def give_mode(self, parent_id: SessionId) -> None:
        """There is nobody."""


@attrs.define(slots=True)
class Given:
    """What the client gave at the last opening, for a session and all its subagents.

    ``folders`` are more roots of the workspace, absolute; ``system_prompt`` stands behind our own
    instructions. Replaced at the next opening, never kept.
    """

    folders: Sequence[Path] = ()
    system_prompt: str = ""


@attrs.define(slots=True)
class Choices:
    """What the user chose: in force from the next request on. Replaced by `choosing`, as a whole.

    ``effort`` None: as the provider likes.
    """

    mode: Mode
    model: Model
    effort: str | None = None

    @property
    def model_id(self) -> str:
        """The catalog's name of the model."""
        return self.model.info.model_id


async def _no_fork() -> SessionId | None:
    return None


@attrs.define(slots=True)
class Desk:
    """One session's parts.

    ``asking`` lets one permission request be open at a time, ``choosing`` one choice be made,
    ``inbox`` one change of the log's inbox. ``abort`` is why a cancel came.
    ``notice`` is a sentence that the next turn begins with, of a model that is gone; ``news`` are
    more, of MCP servers and files. ``project`` is what people have written down for agents;
    ``fork`` stores a fork of the completed turns, None if there are none.
    """

    session_id: SessionId
    cwd: Path
    committer: Committer
    memory: SessionMemory
    choices: Choices
    catalog: ModelCatalog
    tools: Mapping[str, Tool]
    client: Client
    files: ToolFiles
    world: World
    place: str
    asking: anyio.Lock = attrs.field(factory=anyio.Lock)
    choosing: anyio.Lock = attrs.field(factory=anyio.Lock)
    inbox: anyio.Lock = attrs.field(factory=anyio.Lock)
    children: ChildRunner = attrs.field(factory=NoChildren)
    servers: Servers = attrs.field(factory=NoServers)
    given: Given = attrs.field(factory=Given)
    project: Project = attrs.field(factory=Project)
    fork: Callable[[], Awaitable[SessionId | None]] = _no_fork
    abort: Abort = "user"
    notice: str | None = None
    news: list[str] = attrs.field(factory=list)

    @property
    def folder(self) -> Path:
        """Where the tools work: the session's own folder, or one that it was moved to."""
        moved = self.memory.folder
        return self.cwd if moved is None else Path(moved)

    @property
    def model(self) -> Model:
        """The model that the next request goes to."""
        return self.choices.model
