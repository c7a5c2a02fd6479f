"""What the view of subagents and its forms share: the sessions as the client has them. Pure."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import attrs

from acp_bridge.acp.types import SessionUpdate
from acp_bridge.bridge.clients import View
from acp_bridge.bridge.projector import ChildLook, Projector, ShownCall
from acp_bridge.vocabulary import (
    ChildFinished,
    ChildMessaged,
    ChildStarted,
    JsonObject,
    OwnEvent,
    SessionId,
)

Shown: TypeAlias = tuple[SessionId, SessionUpdate]
"""An update, and the session that it is sent for."""


@attrs.define(slots=True, eq=False)
class Child:
    """A subagent as the view knows it.

    ``runs`` counts how often it was set to work, ``messages`` what it was told in this run,
    ``asking`` its open questions, ``standing`` the words of the last `ChildProgressed`: where it
    stands with whoever executes it, which nobody says of one that works here. ``announced``: the
    client has been told of it, as one that can work. The rest belongs to the forms: ``entry`` is
    the tool call that shows its run, which is the root's ``own_call`` where that began it,
    ``progress`` what that entry last said, ``flat`` the calls of its own that are shown beside it,
    ``is_waited`` whether its answer is its parent's tool result.
    """

    session_id: SessionId
    parent_id: SessionId
    label: str
    cwd: Path
    projector: Projector
    depth: int
    runs: int = 0
    messages: int = 0
    asking: int = 0
    standing: str = ""
    state: Literal["running", "idle"] = "idle"
    announced: bool = False
    entry: str | None = None
    own_call: ShownCall | None = None
    progress: str = ""
    flat: dict[str, ShownCall] = attrs.field(factory=dict)
    is_waited: bool = False


@attrs.frozen(slots=True)
class Family:
    """What a form sees of the sessions."""

    root_id: SessionId
    root_cwd: Path
    root: Projector
    children: dict[SessionId, Child]
    view: View
    replay: bool

    def projector(self, session_id: SessionId) -> Projector:
        """The projector of the root or of a child."""
        return self.root if session_id == self.root_id else self.children[session_id].projector

    def cwd(self, session_id: SessionId) -> Path:
        """The working folder of the root or of a child."""
        return self.root_cwd if session_id == self.root_id else self.children[session_id].cwd


@attrs.frozen(slots=True)
class Asked:
    """Where a question is asked: the session, the call as the client has it, who asks.

    ``asker`` is the subagent's name, where the session does not say it.
    """

    session_id: SessionId
    call: ShownCall
    title: str
    meta: JsonObject | None = None
    asker: str | None = None


class Form(Protocol):
    """How subagents are shown to one client."""

    def look(self, child_id: SessionId) -> ChildLook:
        """How the child's own calls are shown."""

    def started(self, child: Child, event: ChildStarted) -> Iterable[Shown]:
        """The child begins to work; its ``state`` is running already."""

    def said(self, child: Child, event: OwnEvent, updates: list[SessionUpdate]) -> Iterable[Shown]:
        """The child told something; ``updates`` are what its own projector makes of it."""

    def messaged(self, child: Child, event: ChildMessaged) -> Iterable[Shown]:
        """The child was told something in the middle of its work."""

    def progressed(self, child: Child) -> Iterable[Shown]:
        """The child, which works, has another ``standing``."""

    def finished(self, child: Child, event: ChildFinished) -> Iterable[Shown]:
        """The child settled; its ``state`` is idle already."""

    def waits(self, child: Child, *, for_user: bool) -> Iterable[Shown]:
        """The child begins to wait for the user's answer, or goes on."""

    def again(self, child: Child) -> Iterable[Shown]:
        """Say anew, after a load or resume, that the child is there and works."""

    def asked(self, child: Child, call: ShownCall) -> Asked | None:
        """Where the child's question is asked; None: the client does not have its call."""

    def closed(self, child: Child) -> Iterable[Shown]:
        """What a replay ends with for one child."""

    def unfinished(self, child: Child) -> Iterable[Shown]:
        """What a replay cannot know of a child that works."""
