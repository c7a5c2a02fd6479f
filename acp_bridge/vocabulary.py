"""Nouns that every room shares: JSON, ids, log events, live events, prompts, end reasons.

Values only: nothing here reads a file, a clock or the environment.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Literal, NewType, TypeAlias

import attrs

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""Anything JSON can hold, as the ``json`` module gives it."""

JsonObject: TypeAlias = dict[str, JsonValue]

SessionId = NewType("SessionId", str)
"""A session's name: opaque, never empty, at most 255 characters."""

CallId = NewType("CallId", str)
"""A tool call's id as the log holds it; unique within one assistant message."""

Mode: TypeAlias = Literal["ask", "accept-edits", "plan", "full"]
"""When a session asks for permission; see `harness.approvals`."""

SurfaceOp: TypeAlias = Literal["append"] | tuple[int, int]
"""What a row does to the model's view: append, or replace rows ``(start_seq, end_seq)``."""


@attrs.frozen(slots=True)
class Draft:
    """A log event before the log gave it a place: see `Event` for the fields."""

    type: str
    data: JsonValue
    surface_op: SurfaceOp | None = None
    source_event_seqs: tuple[int, ...] | None = None
    ignorable: bool = False


@attrs.frozen(slots=True)
class Event:
    """One immutable fact of a session's log (format v4).

    ``seq`` counts from 0 without gaps; ``time_ms`` is milliseconds since the epoch; ``type`` is
    ``noun/verb``; ``surface_op`` is set on the rows that the model sees, and only there;
    ``source_event_seqs`` are earlier seqs that this row rests on; ``ignorable`` marks a row that
    readers who do not know its type may skip.
    """

    seq: int
    time_ms: int
    type: str
    data: JsonValue
    surface_op: SurfaceOp | None = None
    source_event_seqs: tuple[int, ...] | None = None
    ignorable: bool = False


@attrs.define(slots=True)  # one a token: made frozen it takes twice as long. Never change one.
class StreamDelta:
    """A piece of a model's answer as it arrives; never in the log.

    ``turn``, ``step``, ``attempt`` (from 1) and ``block`` (from 0) name the message block that the
    text belongs to; the committed row of the same place holds the whole text.
    """

    turn: int
    step: int
    attempt: int
    block: int
    kind: Literal["text", "reasoning"]
    text: str


@attrs.frozen(slots=True)
class FileDiff:
    """A change to one file: absolute path and full texts; ``old_text`` None for a new file."""

    path: str
    old_text: str | None
    new_text: str


@attrs.frozen(slots=True)
class ForeignTool:
    """A tool of another program, whose calls may touch anything.

    ``identity`` is what a grant is kept by; ``what`` names it for people, on one line. With
    ``only_reads`` the program says that it changes nothing.
    """

    identity: str
    what: str
    only_reads: bool = False


@attrs.frozen(slots=True)
class ToolPreview:
    """What a tool call is going to change, told before the user is asked; never in the log."""

    call_id: CallId
    diffs: tuple[FileDiff, ...]


@attrs.frozen(slots=True)
class ToolOutput:
    """A piece of a running command's output (stdout and stderr mixed); never in the log."""

    call_id: CallId
    text: str


@attrs.frozen(slots=True)
class ToolTerminal:
    """A command runs in this terminal of the client, until its result; never in the log."""

    call_id: CallId
    terminal_id: str


@attrs.frozen(slots=True)
class OptionsChanged:
    """Mode, model or effort are others now; never in the log, which has rows of their own."""


@attrs.frozen(slots=True)
class CommandsChanged:
    """The slash commands are others now; never in the log."""


OwnEvent: TypeAlias = (
    Event | StreamDelta | ToolPreview | ToolOutput | ToolTerminal | OptionsChanged | CommandsChanged
)
"""What a session tells of itself, in order. Only `Event` is durable."""


@attrs.frozen(slots=True)
class ChildStarted:
    """A subagent began to work: newly delegated, or woken by a message; never in the log.

    ``parent_id`` is the direct parent, which is the root or a child told of before. ``call_id`` is
    the parent's tool call that set it to work. ``task`` is what it was told to do, ``label`` its
    durable name, ``cwd`` its working folder.
    """

    parent_id: SessionId
    child_id: SessionId
    label: str
    task: str
    call_id: CallId
    cwd: Path


@attrs.frozen(slots=True)
class ChildSaid:
    """A working subagent told something of itself; its own children come beside it, not inside."""

    child_id: SessionId
    event: OwnEvent


@attrs.frozen(slots=True)
class ChildMessaged:
    """A running subagent was steered: its parent's tool call put this message into its inbox."""

    parent_id: SessionId
    child_id: SessionId
    call_id: CallId
    text: str


@attrs.frozen(slots=True)
class ChildProgressed:
    """How a subagent that works elsewhere gets on, as "waits for a worker"; never in the log.

    ``words`` go behind its name, for people. They hold now and are stored nowhere, so that a replay
    of the past shows none.
    """

    child_id: SessionId
    words: str


@attrs.frozen(slots=True)
class ChildFinished:
    """A subagent settled: nothing of it runs or waits. ``answer`` is its last text, if it has one.

    Comes once for each `ChildStarted`, after its children's, when its log holds all of it.
    """

    parent_id: SessionId
    child_id: SessionId
    end: "TurnEnd"
    answer: str | None


RuntimeEvent: TypeAlias = (
    OwnEvent | ChildStarted | ChildSaid | ChildMessaged | ChildProgressed | ChildFinished
)
"""What a root session tells its consumers, in order: itself and its subagents at any depth."""


@attrs.frozen(slots=True)
class Prompt:
    """What the user said: log content blocks (``dsh-events`` section 4), never empty.

    ``text`` blocks carry what was typed. An attached resource has become a text block too, with
    its ACP form under ``_meta.acp`` so that a replay shows it as it was; no model sees ``_meta``.
    ``title`` is a short line that names the conversation when this is its first prompt.
    """

    content: Sequence[JsonObject]
    title: str = ""
    attachments: Mapping[str, bytes] = attrs.field(factory=dict)
    """Image bytes by ``sha256:<hex>``, for the ``image`` blocks of ``content``."""
    message_id: str | None = None
    """The id that the user's message gets in the log; None: the harness makes one."""
    command: "Command | None" = None
    """The command that ``content`` is if there is one of this name then: a text alone."""


@attrs.frozen(slots=True)
class Command:
    """A slash command that the user typed: its name without the slash, and the rest, stripped."""

    name: str
    argument: str


@attrs.frozen(slots=True)
class StdioServer:
    """An MCP server that is started as a process and talks on stdin and stdout.

    ``env`` is added to the environment of whoever starts it, but for the keys of models. It and
    the arguments may hold secrets: neither is ever shown.
    """

    name: str
    command: str
    args: tuple[str, ...] = attrs.field(default=(), repr=False)
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)


@attrs.frozen(slots=True)
class HttpServer:
    """An MCP server at an address: streamable HTTP, or with ``is_sse`` the older HTTP with SSE.

    Address and headers may hold secrets: neither is ever shown.
    """

    name: str
    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    is_sse: bool = False


McpServer: TypeAlias = StdioServer | HttpServer
"""A server of tools that a session connects to. Names are unique within a session."""


@attrs.frozen(slots=True)
class CommandInfo:
    """A slash command: its name without the slash, and what to type after it (None: nothing).

    ``is_prompt``: a person's or a project's own, which stands for a prompt: it is admitted as one.
    """

    name: str
    description: str
    hint: str | None = None
    is_prompt: bool = False


Abort: TypeAlias = Literal["user", "parent", "disposed"]
"""Who ended a turn: the user, the delegating session, or the end of the session itself."""


@attrs.frozen(slots=True)
class TurnEnd:
    """Why a turn ended.

    ``details`` is a sentence for people and ``code`` the failure's code as the log has it; both
    only for ``error`` and ``refusal``.
    """

    kind: Literal["completed", "max-tokens", "step-limit", "refusal", "aborted", "error"]
    details: str | None = None
    code: str | None = None


class Answer(Enum):
    """The user's answer to a permission request."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    REJECT = "reject"
    CANCELLED = "cancelled"
    """The client withdrew the turn while asking."""
    UNAVAILABLE = "unavailable"
    """Nobody could be asked: counts as a rejection."""


@attrs.frozen(slots=True)
class SessionSummary:
    """What a list shows of one stored session. Times in milliseconds since the epoch."""

    session_id: SessionId
    cwd: Path | None
    title: str | None
    created_at_ms: int
    updated_at_ms: int
    origin: Literal["subagent"] | None
    parent_session: str | None


@attrs.frozen(slots=True)
class Descendant:
    """A subagent's session as a replay needs it: who it is, and its log so far.

    ``parent_id`` is its direct parent, ``label`` its durable name, ``cwd`` its working folder.
    """

    session_id: SessionId
    parent_id: SessionId
    label: str
    cwd: Path
    is_running: bool
    events: Sequence[Event]


@attrs.frozen(slots=True)
class BadSession:
    """A stored log that a list cannot show: its path and a sentence that says why."""

    path: Path
    reason: str
