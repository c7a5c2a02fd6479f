"""What the harness gets from a tool."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import attrs

from acp_bridge.ports.client import CommandRunner, Question, QuestionAnswer
from acp_bridge.vocabulary import CallId, FileDiff, ForeignTool, JsonObject, JsonValue, SessionId


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


AskUser: TypeAlias = Callable[[Sequence[Question]], Awaitable[Sequence[QuestionAnswer] | None]]
"""Puts questions to the user: an answer for each; None: declined. Never raises."""


@attrs.frozen(slots=True)
class ToolContext:
    """The world of one call: working folder, files, live output, where big output is kept.

    ``flow`` waits while whoever watches reads slower than ``emit`` tells. ``runner`` is who runs
    commands instead of this process; None: they run here. ``in_terminal`` is told the id of the
    client's terminal that a command runs in. ``ask`` puts questions to the user; None: nobody
    answers. ``session_id`` and ``call_id`` say whose call it is;
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
    ask: AskUser | None = None
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
