"""What a log's rows amount to so far: the memory of the fold, and small helpers of its rules."""

from typing import NoReturn, TypeGuard

import attrs

from acp_bridge.errors import SessionCorruptError
from acp_bridge.sessions.header import Header
from acp_bridge.vocabulary import Event, JsonObject, JsonValue


@attrs.define(slots=True)
class PendingCall:
    """A tool call of an assistant message that has no result yet.

    ``started_seq`` is the seq of its ``tool/call`` row, None before that.
    """

    call_id: str
    name: JsonValue
    arguments: JsonValue
    started_seq: int | None = None


@attrs.define(slots=True)
class OpenCompaction:
    """A compaction that was started and not ended.

    ``turn`` is None for a manual one. ``crossed_seq`` is the first turn row written while it was
    open: legal only if an ``end-seed`` follows, which makes the compaction an orphan.
    """

    compaction_id: JsonValue
    command_id: JsonValue
    turn: int | None
    seq: int
    summary_seq: int | None = None
    crossed_seq: int | None = None


class State:
    """The fold's memory. Everything here may be read by the harness; only the rules write it.

    ``next_seq`` is also the number of rows. ``turn`` and ``step`` are the open ones, else None;
    ``last_turn`` and ``last_step`` the highest numbers so far (``last_step`` within its turn).
    ``pending`` holds unanswered tool calls by id, in message order. ``surface`` lists the seqs that
    the model sees, in order, and ``surface_rows`` their events. ``inbox`` holds the queued messages
    per target. ``inherited_count`` is the number of rows before the inherited end-seed.
    ``last_seqs`` is the newest seq of each type, ``last`` the newest row.
    """

    def __init__(self, header: Header) -> None:
        self.header = header
        self.next_seq = 0
        self.last_seqs: dict[str, int] = {}
        self.last: Event | None = None
        self.turn: int | None = None
        self.last_turn = 0
        self.step: int | None = None
        self.last_step = 0
        self.pending: dict[str, PendingCall] = {}
        self.surface: list[int] = []
        self.surface_rows: dict[int, Event] = {}
        self.offloaded: dict[int, set[int]] = {}
        self.inbox: dict[str, list[JsonObject]] = {"next-turn": [], "next-step": []}
        self.inbox_ids: set[str] = set()
        self.compaction: OpenCompaction | None = None
        self.inherited_count = 0
        self.has_marker = False
        # Rules that hold in the own range only. Where that begins is known at the end of a seeded
        # log, so until `settled` a fault is kept here, and the next inherited marker forgives it.
        self.settled = False
        self.own_fault: str | None = None
        self.child_ids: set[str] = set()
        self.unsupported: str | None = None
        self.human_seqs: set[int] = set()
        self.headers: dict[int, JsonObject] = {}
        self.provider: JsonValue = None
        self.retry_chains: dict[tuple[JsonValue, ...], tuple[str, int]] = {}
        self.retry_ids: set[str] = set()
        self.retries: dict[tuple[JsonValue, ...], bool] = {}
        self.command_ids: set[str] = set()
        self.command_seqs: set[int] = set()
        self.dispatches: dict[str, tuple[JsonObject, bool]] = {}

    @property
    def has_system_head(self) -> bool:
        """Whether the first row that the model sees is the system message."""
        return bool(self.surface) and (self.surface_rows[self.surface[0]].type == "system/message")


def refuse(seq: int, why: str) -> NoReturn:
    """The row of this seq makes the log corrupt."""
    raise SessionCorruptError(f"seq {seq}: {why}")


def own_range_fault(state: State, seq: int, why: str) -> None:
    """Refuse the row unless it turns out to lie in the inherited range."""
    if state.settled or not state.header.is_seeded:
        refuse(seq, why)
    if state.own_fault is None:
        state.own_fault = f"seq {seq}: {why}"


def is_number(value: JsonValue, number: int | None) -> bool:
    """Whether the value is this number; ``true`` is none, ``1.0`` is 1, and None is no number."""
    return value == number and number is not None and type(value) is not bool


def nonempty(value: JsonValue) -> TypeGuard[str]:
    """Whether the value is a string with at least one character."""
    return type(value) is str and value != ""


def need_step(state: State, event: Event, data: JsonObject) -> None:
    """The row belongs to the open step."""
    if state.step is None:
        refuse(event.seq, f"{event.type} outside a step")
    if not (is_number(data.get("turn"), state.turn) and is_number(data.get("step"), state.step)):
        refuse(event.seq, f"{event.type} names another step than {state.turn}/{state.step}")


def need_turn(state: State, event: Event) -> None:
    """The row lies in some turn."""
    if state.turn is None:
        refuse(event.seq, f"{event.type} outside a turn")
