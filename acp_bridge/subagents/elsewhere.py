"""Children that work in another process: what the service needs of whoever sees to them.

Only Protocols and values, so that nothing of `runevents` is imported unless there is an events
home. `remote_home` and `remote_child` fill them.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from acp_bridge.errors import BridgeError
from acp_bridge.harness.session import HarnessSession
from acp_bridge.sessions import LogWriter
from acp_bridge.sessions.query import LiveLog
from acp_bridge.subagents.activation import Activation, ChildMode, ChildSession
from acp_bridge.vocabulary import Abort, CallId, JsonObject, SessionId


@attrs.frozen(slots=True)
class LateMessage:
    """A message to a child: what its log is to hold, the text, and the call that sent it."""

    message: JsonObject
    text: str
    call_id: CallId


@attrs.frozen(slots=True, kw_only=True)
class PendingRun:
    """A child that is executed elsewhere, as its home keeps it over restarts.

    ``label``, ``mode``, ``call_id`` and ``first_seq`` are as in `activation.Activation`, ``task``
    is what it was told to do. ``task_id`` names the task that ``is_registered``, or is to be.
    ``messages`` were sent, and no row of its log says that they came in; ``asks`` are questions
    without an answer, by their event id; ``below`` are its own subagents at work, each as a
    ``child_started`` item. ``cancel_id`` is set once it was told to end. ``items_until`` is the
    sequence up to which subagents of its own were told of. ``ended_by`` is the event that told its
    end, once its log holds all of it; ``settled_by`` the same, once its parent was told as well;
    ``before`` that of the execution before this one.
    """

    child_id: SessionId
    parent_id: SessionId
    label: str
    mode: ChildMode
    call_id: CallId
    task: str
    place: str
    model_id: str
    effort: str | None
    task_id: str = ""
    first_seq: int = 0
    is_registered: bool = False
    cancel_id: str | None = None
    messages: tuple[LateMessage, ...] = ()
    asks: Mapping[str, JsonObject] = attrs.field(factory=dict)
    below: Mapping[str, JsonObject] = attrs.field(factory=dict)
    items_until: int = 0
    ended_by: str | None = None
    settled_by: str | None = None
    before: str | None = None


class RemoteSession(ChildSession, Protocol):
    """A child that works elsewhere, and what its home has of it."""

    def below(self) -> Sequence[LiveLog]:
        """The logs of its own subagents that work."""

    def cancel_below(self, session_id: SessionId, why: Abort) -> bool:
        """End one of them; False: it is none of them."""

    async def relay(self, message: JsonObject) -> bool:
        """Let a message of another agent come into its inbox, once; False: it has ended.

        Raises:
            StoreFailedError: the disk refused.
        """

    @property
    def late(self) -> Sequence[LateMessage]:
        """After its end: messages that came too late for it, in its log's inbox by now."""


class Elsewhere(Protocol):
    """Who lets children work in other processes."""

    @property
    def delegates(self) -> bool:
        """Whether new children of roots begin there."""

    def check_parent(self, parent_id: SessionId) -> None:
        """Refuse a parent that cannot have children there.

        Raises:
            SubagentRefusedError: as said.
        """

    async def child(
        self, activation: Activation, writer: LogWriter, run: PendingRun
    ) -> RemoteSession:
        """A child whose log this is; it works from `ChildSession.awake` on.

        One that is pending goes on where it was.
        """

    async def pending(self, root: HarnessSession) -> Sequence[PendingRun]:
        """Those of a root's children whose end its log does not tell, oldest first.

        Raises:
            StoreFailedError: the disk refused.
        """

    def ready(self, root: HarnessSession) -> None:
        """What was pending of this root is at work again: events may come."""

    async def cannot_adopt(self, run: PendingRun, why: BridgeError) -> None:
        """A pending child cannot be taken up again, now or ever."""

    async def check_idle(self, child_id: SessionId) -> None:
        """Refuse a child that still is at work, though nobody here follows it.

        Raises:
            SubagentRefusedError: as said.
            StoreFailedError: the disk refused.
        """
