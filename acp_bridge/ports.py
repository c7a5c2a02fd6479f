"""What inner rooms need from outer ones, as Protocols: runtime, session, model, tool, client.

Outer rooms implement these and `cli` hands them in. Nothing here has behaviour.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

import attrs

from acp_bridge.vocabulary import (
    Abort,
    Answer,
    BadSession,
    CallId,
    Command,
    CommandInfo,
    Descendant,
    Event,
    FileDiff,
    ForeignTool,
    JsonObject,
    JsonValue,
    McpServer,
    Mode,
    Prompt,
    RuntimeEvent,
    SessionId,
    SessionSummary,
    TurnEnd,
)

# --- what a face gets from a runtime -----------------------------------------------------------

Consumer: TypeAlias = Callable[[RuntimeEvent], None]
"""Whoever wants a session's events. Called synchronously, in order; must not block or raise."""


class CommandRunner(Protocol):
    """Who runs commands instead of this process."""

    @property
    def runs_commands(self) -> bool:
        """Whether `run_command` may be called."""

    async def run_command(self, command: "ClientCommand") -> "CommandEnd":
        """Run a command in a terminal of the client, which has got it back afterwards.

        Bounded by the command's time and some seconds; cancelled, by about half a second.

        Raises:
            OSError: the client could not start it.
        """


class Client(CommandRunner, Protocol):
    """The asking side of whoever drives a session: permission, files, and what it can show."""

    @property
    def reads_text(self) -> bool:
        """Whether `read_text` may be called."""

    @property
    def writes_text(self) -> bool:
        """Whether `write_text` may be called."""

    async def ask_permission(self, ask: "PermissionAsk") -> Answer:
        """The user's answer; never raises but on cancellation."""

    async def read_text(self, path: Path) -> str:
        """The whole text as the editor has it, unsaved changes included.

        Raises:
            FileNotFoundError: the editor says there is no such file.
            OSError: the editor could not read it.
        """

    async def write_text(self, path: Path, text: str) -> None:
        """Write through the editor.

        Raises:
            OSError: the editor could not write it.
        """

    async def flow(self) -> None:
        """Wait while the client reads slower than we write (back-pressure), else return."""


@attrs.frozen(slots=True)
class ClientCommand:
    """A command line for a terminal of the client: ``shell -c line`` in ``cwd``.

    ``shell`` is a program's name, to be found by the client. ``output_bytes_max`` is how much of
    the output the client should keep. ``started`` is told the terminal's id as soon as it is
    there; ``said`` gets the output so far if the command is cancelled.
    """

    shell: str
    line: str
    cwd: Path
    timeout_s: float
    output_bytes_max: int
    started: Callable[[str], None]
    said: Callable[[str], None]


@attrs.frozen(slots=True)
class CommandEnd:
    """How a command in a terminal of the client ended.

    ``is_cut``: the client kept only a part of the output. ``exit_code`` and ``signal`` (a name)
    are both None where the client does not say. ``fault`` is what the client failed to do after
    the start, as a part of a sentence; what is known all the same is there.
    """

    output: str = ""
    is_cut: bool = False
    exit_code: int | None = None
    signal: str | None = None
    timed_out: bool = False
    fault: str | None = None


@attrs.frozen(slots=True)
class PermissionAsk:
    """One question: may this call run? The call itself is in the log (``approval/asked``).

    ``always_label`` says what "always" would cover; None: "always" is not offered. ``child_id`` is
    the subagent that asks, at any depth; None: the session itself.
    """

    call_id: CallId
    tool_name: str
    reason: str
    always_label: str | None
    child_id: SessionId | None = None


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
    models: Sequence["ModelInfo"]

    @property
    def efforts(self) -> Sequence[str]:
        """The levels of reasoning that the current model takes."""
        return next((info.efforts for info in self.models if info.model_id == self.model_id), ())


class PendingTurn(Protocol):
    """An admitted prompt: its place in the inbox and, later, its end."""

    async def ended(self) -> TurnEnd:
        """Wait for the end of this prompt's turn. Cancelling the wait does not stop the turn."""

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
    def events(self) -> Sequence[Event]:
        """The log so far."""

    @property
    def busy(self) -> bool:
        """Whether a turn runs or a prompt waits."""

    def attach(self, consumer: Consumer) -> None:
        """Tell ``consumer`` everything from now on."""

    def admit(self, prompt: Prompt | Command) -> PendingTurn:
        """Take a prompt or a command, synchronously, first in first out."""

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
        self, cwd: Path, client: Client, *, servers: Sequence[McpServer] = ()
    ) -> LiveSession:
        """A session with an empty log; nothing is stored before its first prompt.

        ``servers`` are its MCP servers, beside those of the settings; they end with it.

        Raises:
            AuthRequiredError: there is no model to talk to.
        """

    async def open_session(
        self,
        session_id: SessionId,
        cwd: Path,
        client: Client,
        *,
        servers: Sequence[McpServer] = (),
    ) -> LiveSession:
        """A stored session, opened for writing: a cut-off turn is closed, the lock taken.

        One that is open keeps its ``servers``.

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
        servers: Sequence[McpServer] = (),
    ) -> LiveSession:
        """A new session that begins with the completed turns of another, which stays as it is.

        A busy source gives its last completed turn. ``cwd`` and ``servers`` may be others.

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


# --- what the harness gets from a model --------------------------------------------------------


@attrs.define(slots=True)  # as `StreamDelta`: one a token, made frozen it takes twice as long
class TextChunk:
    """Answer text. ``block`` numbers the blocks of one answer from 0."""

    block: int
    text: str


@attrs.define(slots=True)  # as `TextChunk`
class ReasoningChunk:
    """Reasoning text."""

    block: int
    text: str


@attrs.frozen(slots=True)
class ToolCallChunk:
    """A piece of a tool call: ``name`` on its first piece only; arguments are raw JSON text."""

    block: int
    call_id: str
    name: str | None
    arguments_delta: str


@attrs.frozen(slots=True)
class UsageChunk:
    """Token counts of this call, each token in one of them: their sum is what the context holds.

    ``input_tokens`` are those beside the cache; an adapter takes the cached ones out where its
    provider counts them in.
    """

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@attrs.frozen(slots=True)
class StopChunk:
    """The model ended its answer; always the last chunk of a good stream."""

    reason: Literal["end_turn", "tool_calls", "max_tokens", "refusal"]
    replay_state: JsonObject | None = None
    """What the provider wants back with this answer (signatures of its reasoning); it goes into
    the message's ``source.replayState`` and means nothing to anybody else."""


@attrs.frozen(slots=True)
class FailureChunk:
    """The call failed; always the last chunk.

    ``code`` as in the log: RATE_LIMIT, SERVER, TRANSPORT and so on. ``retryable`` says whether
    the same call may work later; ``retry_after_s`` is the provider's own wish.
    """

    message: str
    code: str
    status: int | None = None
    retryable: bool = False
    retry_after_s: float | None = None


Chunk: TypeAlias = (
    TextChunk | ReasoningChunk | ToolCallChunk | UsageChunk | StopChunk | FailureChunk
)


@attrs.frozen(slots=True)
class ModelRequest:
    """One model call.

    ``messages`` are log messages (role, content blocks) in surface order without the system one;
    ``tools`` are ``{name, description, parameters}``. ``agent`` is the asker's place ("1", "1/1")
    and ``position`` how many answers of this purpose it has had under this provider: only scripted
    models use them.
    """

    system: str
    messages: Sequence[JsonObject]
    tools: Sequence[JsonObject]
    purpose: Literal["turn", "compact"]
    agent: str
    position: int
    effort: str | None = None
    """How hard to think: one of the model's `ModelInfo.efforts`; None: as the provider likes."""
    find_image: Callable[[str], Awaitable[bytes | None]] | None = None
    """The bytes of an ``image`` block by its ``attachmentId`` (``sha256:<hex>``)."""


@attrs.frozen(slots=True)
class ModelInfo:
    """A model that can be chosen.

    ``model_id`` is ``provider:name``; ``efforts`` the levels of reasoning it takes, lightest
    first, empty if it has none; sizes in tokens.
    """

    model_id: str
    title: str
    context_window: int
    output_tokens_max: int | None = None
    efforts: tuple[str, ...] = ()
    takes_images: bool = False


class ModelCatalog(Protocol):
    """Which models there are to talk to. Keys are looked up anew at every call."""

    def available(self) -> Sequence[ModelInfo]:
        """Models whose provider has a key, the preferred one first; may be empty."""

    def forget(self) -> None:
        """Sign out: forget every stored key. Keys of the environment stay.

        Raises:
            ConfigError: the file of keys cannot be changed.
        """

    def open(self, model_id: str | None) -> "Model":
        """The model of this id, or without one the configured, else the preferred one.

        Raises:
            AuthRequiredError: there is none, or its provider has no key; says what to do.
            ConfigError: the id cannot be used.
        """


class Model(Protocol):
    """A model behind the port. An adapter never raises for a failed call: it yields a failure."""

    @property
    def provider(self) -> str:
        """Who serves it, as ``request/header`` rows name it."""

    @property
    def name(self) -> str:
        """The model's own name."""

    @property
    def context_window(self) -> int:
        """Its window in tokens."""

    @property
    def info(self) -> ModelInfo:
        """What can be chosen about it; its id opens it again."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The answer's chunks; ends with a `StopChunk` or a `FailureChunk`.

        A stream that ends without either was cut off and counts as a lost connection.
        """


# --- what the harness gets from a tool ---------------------------------------------------------


@attrs.frozen(slots=True)
class Access:
    """What a call would touch, for the decision whether to ask.

    ``reads`` and ``writes`` are absolute, resolved paths, and so are ``hands_over``: folders in
    which somebody else may then do what this session may do in its own. ``command`` is a shell
    command line.
    """

    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    hands_over: tuple[Path, ...] = ()
    command: str | None = None
    foreign: ForeignTool | None = None


@attrs.frozen(slots=True)
class ToolResult:
    """What a call gave: text for the model, and machine-readable ``meta`` for the log.

    ``error_code`` is set when ``is_error`` and the kind of failure has a name; ``rows`` are log
    rows that the call causes, written just before its result (``todo/write``).
    """

    text: str
    is_error: bool = False
    error_name: str | None = None
    error_code: str | None = None
    meta: JsonObject | None = None
    rows: tuple[tuple[str, JsonValue], ...] = ()


class ToolFiles(Protocol):
    """Text files as a tool sees them: through the editor where it offers that, else the disk."""

    async def read_bytes(self, path: Path) -> bytes:
        """The file's bytes. Raises OSError."""

    async def write_bytes(self, path: Path, data: bytes) -> None:
        """Replace the file, making missing folders. Raises OSError."""


@attrs.frozen(slots=True)
class ToolContext:
    """The world of one call: working folder, files, live output, where big output is kept.

    ``flow`` waits while whoever watches reads slower than ``emit`` tells. ``runner`` is who runs
    commands instead of this process; None: they run here. ``in_terminal`` is told the id of the
    client's terminal that a command runs in. ``session_id`` and ``call_id`` say whose call it is;
    None: no session's.
    """

    cwd: Path
    files: ToolFiles
    emit: Callable[[str], None]
    spill_dir: Path
    env: Mapping[str, str]
    flow: Callable[[], Awaitable[None]]
    runner: CommandRunner | None = None
    in_terminal: Callable[[str], None] = lambda _terminal_id: None
    session_id: SessionId | None = None
    call_id: CallId | None = None


class Tool(Protocol):
    """A tool that the model may call. ``parameters`` is a JSON schema object."""

    @property
    def name(self) -> str:
        """The name that the model calls it by."""

    @property
    def description(self) -> str:
        """What the model reads about it."""

    @property
    def parameters(self) -> JsonObject:
        """JSON schema of the arguments."""

    def access(self, arguments: JsonObject, cwd: Path) -> Access:
        """What the call would touch; pure but for resolving links."""

    async def preview(self, arguments: JsonObject, context: ToolContext) -> tuple[FileDiff, ...]:
        """The change the call would make, for the user to judge; () if none or unknown."""

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Do it. ``arguments`` fit ``parameters``; cancellation leaves nothing behind."""
