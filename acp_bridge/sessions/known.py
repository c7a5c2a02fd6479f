"""What is known of a store's sessions: values, and the place where they are remembered."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, TypeAlias, cast

import attrs

from acp_bridge.sessions.digest import Digest
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.paths import project_folder, session_folder
from acp_bridge.sessions.reading import Stamp
from acp_bridge.sessions.verdict import Status
from acp_bridge.vocabulary import BadSession, SessionId, SessionSummary

Key: TypeAlias = tuple[str, str]
"""Project folder and session folder, by name."""


class Entry(NamedTuple):
    """What is known of one session folder; flat, because ten thousand are held and compared.

    ``has_logs`` is False for a folder without any log; ``log`` names the one that counts. Then come
    the stamps of folder and log, the header's fields (``session_id`` None: no header could be
    read), what a list shows, and what is to be said of the log: ``status`` (None: there is no
    log), and as ``reason`` a sentence for every status but "sound". ``descriptors`` says of a
    subagent where the ``subagent/descriptor`` rows of its own range are, four numbers for each:
    its seq, start and end of the frame that holds its end, and the rows that ended before; None:
    the whole log must tell.
    """

    project: str
    folder: str
    settled: bool
    has_logs: bool
    log: str | None
    folder_inode: int
    folder_mtime_ns: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    session_id: str | None
    created_at_ms: int
    cwd: str | None
    is_seeded: bool
    depth: int
    parent_session: str | None
    origin: str | None
    agent_preset: str | None
    title: str | None
    updated_at_ms: int
    event_count: int
    status: Status | None
    reason: str | None
    descriptors: Sequence[int] | None

    @property
    def stamp(self) -> Stamp:
        """The log's stamp when it was read."""
        return Stamp(self.inode, self.size, self.mtime_ns, self.ctime_ns)

    @property
    def header(self) -> Header | None:
        """The log's header; None if it could not be read."""
        if self.session_id is None:
            return None
        return Header(
            session_id=self.session_id,
            created_at_ms=self.created_at_ms,
            cwd=self.cwd,
            is_seeded=self.is_seeded,
            delegation_depth=self.depth,
            parent_session=self.parent_session,
            origin=cast("Literal['subagent'] | None", self.origin),
            agent_preset=self.agent_preset,
        )

    @property
    def at_home(self) -> bool:
        """Whether the log's header belongs into its folder."""
        return (
            self.session_id is not None
            and session_folder(self.session_id) == self.folder
            and project_folder(self.cwd) == self.project
        )

    def summary(self) -> SessionSummary:
        """What a list shows of a sound session."""
        assert self.session_id is not None
        return SessionSummary(
            session_id=SessionId(self.session_id),
            cwd=None if self.cwd is None else Path(self.cwd),
            title=self.title,
            created_at_ms=self.created_at_ms,
            updated_at_ms=self.updated_at_ms,
            origin=cast("Literal['subagent'] | None", self.origin),
            parent_session=self.parent_session,
        )


@attrs.frozen(slots=True)
class Relations:
    """All entries whose header is known, by session id; and whom each id names as its creator.

    ``twins`` are the names that several folders with logs have.
    """

    by_id: Mapping[str, Sequence[Entry]]
    by_parent: Mapping[str, Collection[str]]
    twins: Collection[str]


def relations_of(entries: Iterable[Entry]) -> Relations:
    """Ten thousand entries by id and by parent; the same for the same entries."""
    by_id: dict[str, list[Entry]] = {}
    by_parent: dict[str, list[str]] = {}
    names: set[str] = set()
    twins: set[str] = set()
    for entry in entries:
        session_id, parent_id = entry.session_id, entry.parent_session
        if entry.has_logs:
            (twins if entry.folder in names else names).add(entry.folder)
        if session_id is not None:
            by_id.setdefault(session_id, []).append(entry)
            if parent_id is not None:
                by_parent.setdefault(parent_id, []).append(session_id)
    return Relations(by_id, by_parent, twins)


class Project(NamedTuple):
    """A project folder's stamp and the names of the folders in it."""

    settled: bool
    inode: int
    mtime_ns: int
    folders: tuple[str, ...]


@attrs.frozen(slots=True)
class Details:
    """The digest of a sound log, good for the file of this stamp, and what proves its growth.

    Not ``settled``: the file might change again without a new stamp.
    """

    settled: bool
    stamp: Stamp
    guard: int | None
    digest: Digest


@attrs.define(slots=True)
class Known:
    """What is known of a store: by a sweep, or by an index that remembers one."""

    keeps_details: ClassVar[bool] = False
    """Whether details are worth making."""

    projects: dict[str, Project] = attrs.field(factory=dict)
    entries: dict[Key, Entry] = attrs.field(factory=dict)
    revision: int = 0
    """Raised with every change of ``entries``."""

    looks: dict[str, list[Entry]] = attrs.field(factory=dict)
    """The settled entries by project folder; made from ``entries`` when one is missing."""

    unnamed: dict[str, list[str]] = attrs.field(factory=dict)
    """The folders whose header is not known, by project folder; made as ``looks`` is."""

    def outdate(self, project: str) -> None:
        """Take note that entries of this project folder come, go or change."""
        self.looks.pop(project, None)
        self.unnamed.pop(project, None)

    def looks_in(self, project: str, names: Iterable[str]) -> Sequence[Entry]:
        """The settled entries of a project folder, in which these folders are."""
        looks = self.looks.get(project)
        if looks is None:
            looks = self.settled(project, names)
            self.looks[project] = looks
        return looks

    def settled(self, project: str, names: Iterable[str]) -> list[Entry]:
        """The settled entries of these folders."""
        entries = (self.entries.get((project, name)) for name in names)
        return [one for one in entries if one is not None and one.settled]

    def unnamed_in(self, project: str, names: Iterable[str]) -> Sequence[str]:
        """The folders among these whose header is not known."""
        unnamed = self.unnamed.get(project)
        if unnamed is None:
            entries = ((name, self.entries.get((project, name))) for name in names)
            unnamed = [name for name, one in entries if one is None or one.session_id is None]
            self.unnamed[project] = unnamed
        return unnamed

    def details(self, key: Key) -> Details | None:  # noqa: ARG002
        """What is known of this log beyond its entry; nothing, unless a subclass knows."""
        return None

    def recall(self, key: Key) -> Entry | None:  # noqa: ARG002
        """What else may be known of a session whose looks changed; must be looked at itself."""
        return None


@attrs.define(slots=True)
class Changes:
    """What a sweep found to differ from what was known; applied to `Known` already.

    ``bad`` are the project folders that cannot be read; ``empty`` counts the session folders that
    were gone again when they were looked at.
    """

    projects: dict[str, Project | None] = attrs.field(factory=dict)
    entries: dict[Key, tuple[Entry, Details | None] | None] = attrs.field(factory=dict)
    bad: list[BadSession] = attrs.field(factory=list)
    empty: int = 0
