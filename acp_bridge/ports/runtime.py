"""What a face gets from a runtime: sessions, their turns and their options."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

import attrs

from acp_bridge.ports.client import Client
from acp_bridge.ports.model import ModelInfo
from acp_bridge.vocabulary import (
    Abort,
    BadSession,
    Command,
    CommandInfo,
    Descendant,
    Event,
    McpServer,
    Mode,
    Prompt,
    RuntimeEvent,
    SessionId,
    SessionSummary,
    TurnEnd,
)

Consumer: TypeAlias = Callable[[RuntimeEvent], None]
"""Whoever wants a session's events. Called synchronously, in order; must not block or raise."""


DEFAULT_EFFORT: Final = "default"
"""The choice that stands for "as the provider likes": a select needs a current value."""

OptionName: TypeAlias = Literal["mode", "model", "effort"]


@attrs.frozen(slots=True)
class SessionOptions:
    """What a user may choose in a session, and what is chosen.

    ``model_id`` as in `ModelInfo`; ``effort`` None: as the provider likes. ``models`` holds what
    can be chosen now, the current model included.
    """

    mode: Mode
    model_id: str
    effort: str | None
    models: Sequence[ModelInfo]

    @property
    def efforts(self) -> Sequence[str]:
        """The levels of reasoning that the current model takes."""
        return next((info.efforts for info in self.models if info.model_id == self.model_id), ())


class PendingTurn(Protocol):
    """An admitted prompt: its place in the inbox and, later, its end."""

    async def ended(self) -> TurnEnd:
        """Wait for the end of this prompt's turn. Cancelling the wait does not stop the turn."""

    @property
    def runs(self) -> bool:
        """Whether its turn has begun and is not over: then its end is near once withdrawn."""

    def withdraw(self) -> None:
        """End this prompt's turn, or never start it; the others stay. Over already: no-op."""


class LiveSession(Protocol):
    """An open session. Independent of every other one."""

    @property
    def session_id(self) -> SessionId:
        """The id that the client knows."""

    @property
    def cwd(self) -> Path:
        """The working folder, absolute."""

    @property
    def folders(self) -> Sequence[Path]:
        """More roots of the workspace, absolute, as the client gave them at the last opening."""

    @property
    def events(self) -> Sequence[Event]:
        """The log so far."""

    @property
    def busy(self) -> bool:
        """Whether a turn runs or a prompt waits."""

    def attach(self, consumer: Consumer) -> None:
        """Tell ``consumer`` everything from now on."""

    def admit(self, prompt: Prompt | Command) -> PendingTurn:
        """Take a prompt or a command, synchronously, first in first out."""

    async def interject(self, prompt: Prompt) -> bool:
        """Put what the user says before the next step of what runs.

        False: nothing runs, or it ends just now, and the prompt was not taken.

        Raises:
            StoreFailedError: the disk refused; the prompt was not taken.
        """

    @property
    def commands(self) -> Sequence[CommandInfo]:
        """The slash commands that `admit` takes."""

    def options(self) -> SessionOptions:
        """What can be chosen, and what is chosen; keys are looked up anew."""

    async def choose(self, option: OptionName, value: str) -> None:
        """Choose a value. Holds from the next request on, and after a restart.

        Raises:
            InvalidParamsError: the value cannot be chosen; nothing changed.
            StoreFailedError: the disk refused; nothing changed.
        """

    async def attachment(self, attachment_id: str) -> bytes | None:
        """The bytes of an image that the log names (``sha256:<hex>``), or None if lost."""

    async def descendants(self) -> Sequence[Descendant]:
        """Its subagents at any depth, each after its parent, siblings oldest first.

        One whose log cannot be read is left out.
        """

    def cancel(self) -> None:
        """End the running turn and the waiting prompts as cancelled; nothing running: no-op."""

    def cancel_child(self, child_id: SessionId) -> None:
        """End a running subagent's turn, and those of its own; one that does not run: no-op."""

    async def close(self) -> None:
        """Cancel, wait until quiet, release the log. Idempotent."""


class ChildRunner(Protocol):
    """Who runs a session's subagents. Each call names the session whose subagents are meant."""

    def owes(self, parent_id: SessionId) -> bool:
        """Whether a child of it works, or has ended and its parent was not told yet."""

    def cancel_below(self, parent_id: SessionId, why: Abort) -> None:
        """End what runs below it, deepest first; those ends start no turn of their parents."""

    async def settled(self, parent_id: SessionId) -> None:
        """Wait until it is owed nothing."""

    async def descendants(self, root_id: SessionId) -> Sequence[Descendant]:
        """As `LiveSession.descendants`."""

    def cancel_child(self, root_id: SessionId, child_id: SessionId) -> None:
        """As `LiveSession.cancel_child`."""

    async def give_mode(self, parent_id: SessionId) -> None:
        """Put its mode into force in all that works below it; what cannot take it is ended."""


@attrs.frozen(slots=True)
class Extras:
    """What a client gives a session besides its folder, at each opening; none of it is stored.

    ``servers`` are its MCP servers, beside those of the settings; they end with it. ``folders``
    are more roots of its workspace, absolute. ``system_prompt`` stands behind the runtime's own
    instructions; "" for none. What the model was sent is in the log all the same, and no opening
    takes it from there.
    """

    servers: Sequence[McpServer] = ()
    folders: Sequence[Path] = ()
    system_prompt: str = ""


NO_EXTRAS: Final = Extras()


@attrs.frozen(slots=True)
class SessionPage:
    """One page of a list: good sessions in order, bad ones, and the next page's token."""

    sessions: Sequence[SessionSummary]
    bad: Sequence[BadSession]
    next_token: str | None


class Runtime(Protocol):
    """What runs sessions: the embedded harness or a dsh process."""

    def check_model(self) -> None:
        """Look again whether there is a model to talk to.

        Raises:
            AuthRequiredError: there is none; says what to do.
            ConfigError: the one that is named cannot be used.
        """

    def forget_keys(self) -> None:
        """Sign out: forget every stored key.

        Raises:
            ConfigError: the file of keys cannot be changed.
        """

    async def new_session(
        self, cwd: Path, client: Client, *, extras: Extras = NO_EXTRAS
    ) -> LiveSession:
        """A session with an empty log; nothing is stored before its first prompt.

        Raises:
            AuthRequiredError: there is no model to talk to.
        """

    async def open_session(
        self,
        session_id: SessionId,
        cwd: Path,
        client: Client,
        *,
        extras: Extras = NO_EXTRAS,
    ) -> LiveSession:
        """A stored session, opened for writing: a cut-off turn is closed, the lock taken.

        One that is open keeps its servers, and takes the rest of ``extras``.

        Raises:
            SessionNotFoundError, SessionCorruptError, SessionUnsupportedError,
            SessionMisplacedError, SessionConflictError: as `sessions` decides.
            InvalidParamsError: ``cwd`` is not its own, or a server cannot be used.
        """

    async def fork_session(
        self,
        session_id: SessionId,
        cwd: Path,
        client: Client,
        *,
        extras: Extras = NO_EXTRAS,
    ) -> LiveSession:
        """A new session that begins with the completed turns of another, which stays as it is.

        A busy source gives its last completed turn. ``cwd`` and ``extras`` may be others.

        Raises:
            As `open_session`, but for ``cwd``.
        """

    async def delete_session(self, session_id: SessionId) -> None:
        """Close and remove a session and its subagents' sessions; an unknown id is fine.

        Raises:
            InvalidParamsError: it is a subagent's session.
            SessionConflictError: another program has it open.
            StoreFailedError: the disk refused.
        """

    async def list_sessions(self, cwd: Path | None, page_token: str | None) -> SessionPage:
        """Roots and forks, newest activity first, never a subagent's session."""

    async def close(self) -> None:
        """Close every session."""
