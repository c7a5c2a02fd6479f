"""Children at work: each from its admission until its parent was told that it settled.

The table changes between awaits only, so what is found in it holds until the next await.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import anyio
import attrs

from acp_bridge.errors import BridgeError
from acp_bridge.harness.inbox import Target
from acp_bridge.harness.session import HarnessSession
from acp_bridge.ports import Consumer
from acp_bridge.sessions import Header
from acp_bridge.sessions.surface import text_of
from acp_bridge.sessions.validation.blocks import message_of
from acp_bridge.subagents.messages import notice_message
from acp_bridge.vocabulary import (
    Abort,
    CallId,
    ChildFinished,
    ChildSaid,
    ChildStarted,
    Draft,
    Event,
    JsonObject,
    Mode,
    OwnEvent,
    RuntimeEvent,
    SessionId,
    TurnEnd,
)

if TYPE_CHECKING:
    from acp_bridge.subagents.elsewhere import RemoteSession

logger = logging.getLogger(__name__)

ChildMode: TypeAlias = Literal["continuable", "one-shot"]


class Work(Protocol):
    """What a child was set to do."""

    async def ended(self) -> TurnEnd:
        """Wait for its end."""


class ChildSession(Protocol):
    """A child's session: one of this process (`HarnessSession`), or one that works elsewhere."""

    @property
    def session_id(self) -> SessionId:
        """Its id."""

    @property
    def header(self) -> Header:
        """Its header."""

    @property
    def cwd(self) -> Path:
        """Its working folder."""

    @property
    def events(self) -> Sequence[Event]:
        """Its log as consumers were told it."""

    def attach(self, consumer: Consumer) -> None:
        """Tell ``consumer`` everything from now on."""

    def awake(self, title: str = "") -> Work:
        """Run what its inbox holds, until nothing is owed any more."""

    def cancel(self, why: Abort = "user") -> None:
        """End it and what works below it."""

    def interrupt(self, why: Abort) -> bool:
        """End its turn alone; False: none runs."""

    async def receive(
        self, rows: Sequence[Draft], message: JsonObject | None, target: Target
    ) -> None:
        """Append rows and put a message, if there is one, into its inbox, in one batch."""

    async def steer(self, message: JsonObject) -> bool:
        """Put a message before its next step; False: nothing runs, or it ends."""

    async def take_mode(self, given: Callable[[], Mode]) -> None:
        """Go on in the mode that its parent has now."""

    async def close(self) -> None:
        """Release its log. Idempotent."""


@attrs.define(eq=False)
class Activation:
    """What is known of a working child.

    ``parent`` is its direct parent, ``root`` the session whose consumers are told of it, and
    ``call_id`` the tool call that set it to work. ``session`` is None until its log holds what it
    is to do; ``first_seq`` is where the log goes on then. ``abort`` says who ended it, and
    ``is_quiet`` that it was ended from above, so that its end starts no turn.

    ``begun`` is set when ``session`` is there, or never will be; ``closed`` when its log is
    released; ``gone`` when its parent was told, and ``end`` and ``answer`` are final.

    ``elsewhere`` is its session, before that begins, if another process executes it.
    ``notice_id`` names the message that tells of its end, None: by chance; ``is_told`` says that
    nothing of the end is owed to the parent any more. ``calls`` are the calls that sent it
    messages, by the messages' ids.
    """

    child_id: SessionId
    parent: HarnessSession
    root: HarnessSession
    label: str
    mode: ChildMode
    call_id: CallId
    session: ChildSession | None = None
    elsewhere: "RemoteSession | None" = None
    first_seq: int = 0
    abort: Abort | None = None
    is_quiet: bool = False
    begun: anyio.Event = attrs.field(factory=anyio.Event)
    closed: anyio.Event = attrs.field(factory=anyio.Event)
    gone: anyio.Event = attrs.field(factory=anyio.Event)
    end: TurnEnd = attrs.field(factory=lambda: TurnEnd("aborted"))
    answer: str | None = None
    notice_id: str | None = None
    calls: dict[str, CallId] = attrs.field(factory=dict)
    is_told: bool = False

    def parents_mode(self) -> Mode:
        """The mode that its parent has now."""
        return self.parent.choices.mode

    def stop(self, why: Abort, *, is_quiet: bool) -> None:
        """End it and what works below it; one that has not begun ends as soon as it has."""
        self.abort = self.abort or why
        self.is_quiet = self.is_quiet or is_quiet
        if self.session is not None:
            self.session.cancel(why)

    def begin(self, session: ChildSession, *, task: str) -> Work:
        """Tell of the child and let it work: no await, so nothing comes between."""
        tell, child_id = self.root.tell, self.child_id
        self.session = session
        tell(
            ChildStarted(
                parent_id=self.parent.session_id,
                child_id=child_id,
                label=self.label,
                task=task,
                call_id=self.call_id,
                cwd=session.cwd,
            )
        )
        for event in session.events[self.first_seq :]:
            tell(ChildSaid(child_id, event))

        def said(event: RuntimeEvent) -> None:
            if isinstance(event, OwnEvent):
                tell(ChildSaid(child_id, event))

        session.attach(said)
        work = session.awake(title=self.label)
        if self.abort is not None:
            session.cancel(self.abort)
        return work

    def last_words(self) -> str | None:
        """The text of its last message since it began to work, if there is any."""
        return None if self.session is None else last_words(self.session.events[self.first_seq :])


def last_words(events: Sequence[Event]) -> str | None:
    """The text of the last message in some rows, if there is any."""
    for event in reversed(events):
        if event.type == "assistant/message":
            text = text_of(message_of(event)).strip()
            if text:
                return text
    return None


class Activations:
    """Every child at work in this process. ``new_id`` names the messages that tell of an end."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._live: dict[SessionId, Activation] = {}
        self._owed: list[Activation] = []
        """Those whose parent was not told of the end yet, in the order of their beginning."""

    def get(self, child_id: SessionId | None) -> Activation | None:
        """The child's activation, if it has one."""
        return None if child_id is None else self._live.get(child_id)

    def live(self) -> list[Activation]:
        """Those whose logs are not released."""
        return list(self._live.values())

    def owed(self, parent_id: SessionId) -> list[Activation]:
        """Those of a session's children whose end it was not told yet."""
        return [one for one in self._owed if one.parent.session_id == parent_id]

    def root_of(self, session: HarnessSession) -> HarnessSession:
        """The session at the top of the tree that this one is in."""
        above = self._live.get(session.session_id)
        return session if above is None else above.root

    def is_above(self, caller: HarnessSession, one: Activation) -> bool:
        """Whether the caller is its direct parent or an ancestor."""
        above: Activation | None = one
        while above is not None:
            if above.parent is caller:
                return True
            above = self._live.get(above.parent.session_id)
        return False

    @contextmanager
    def admitted(self, activation: Activation) -> Iterator[None]:
        """Its only activation, on the table from here on; a failure inside takes it off again."""
        assert activation.child_id not in self._live
        self._live[activation.child_id] = activation
        self._owed.append(activation)
        try:
            yield
        except BaseException:
            self._release(activation)
            self._forget(activation)
            raise
        finally:
            activation.begun.set()

    async def see_to_end(
        self,
        activation: Activation,
        work: Work,
        after: Callable[[Activation], Awaitable[None]],
    ) -> None:
        """Wait until the child has settled, release its log, and tell of it.

        ``after`` may set it to work again, before its parent could think that nothing is owed.
        """
        session = activation.session
        assert session is not None
        try:
            activation.end = await work.ended()
        finally:
            with anyio.CancelScope(shield=True):
                await session.close()
                activation.answer = activation.last_words()
                self._release(activation)
                activation.root.tell(
                    ChildFinished(
                        activation.parent.session_id,
                        activation.child_id,
                        activation.end,
                        activation.answer,
                    )
                )
                activation.is_told = await self._tell_parent(activation)
                await after(activation)
                self._forget(activation)

    def _release(self, activation: Activation) -> None:
        del self._live[activation.child_id]
        activation.closed.set()

    def _forget(self, activation: Activation) -> None:
        self._owed.remove(activation)
        activation.gone.set()
        activation.parent.stir()

    async def _tell_parent(self, activation: Activation) -> bool:
        """The notice of a settlement; a one-shot child's caller has waited for it instead.

        False: the parent has yet to be told.
        """
        parent, notice_id = activation.parent, activation.notice_id
        if activation.mode == "one-shot" or activation.abort == "disposed":
            return activation.abort != "disposed"
        if notice_id is not None and parent.has_message(notice_id):
            return True  # told before a restart
        message = notice_message(
            activation.child_id,
            activation.label,
            activation.end,
            activation.answer,
            message_id=notice_id or self._new_id(),
        )
        try:
            return await parent.notify(message, wakes=not activation.is_quiet)
        except BridgeError as failure:
            logger.warning(
                "session %s: the end of subagent %s could not be told: %s",
                activation.parent.session_id,
                activation.child_id,
                failure.details,
            )
            return False
