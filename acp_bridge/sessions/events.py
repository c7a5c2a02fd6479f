"""Rows and events: the envelope of a log row, its key order, and the types that are known.

An unknown type's ``surfaceOp`` is opaque: it is kept as it stands, so that the row survives a
round trip, and means nothing.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, cast

from acp_bridge.errors import SessionCorruptError
from acp_bridge.sessions.header import COUNT_MAX, count
from acp_bridge.sessions.jsontext import dumps
from acp_bridge.vocabulary import Event, JsonObject, JsonValue, SurfaceOp

SURFACE_TYPES: Final = frozenset(
    {"system/message", "user/message", "developer/message", "assistant/message", "tool/result"}
)
"""The rows that the model sees; they and no others carry a surface op."""

KNOWN_TYPES: Final = SURFACE_TYPES | {
    "turn/start",
    "turn/end",
    "step/start",
    "step/end",
    "session/end-seed",
    "agent/inbox/spliced",
    "request/header",
    "request/context",
    "assistant/attempt",
    "llm/retry",
    "llm/retry-started",
    "tool/call",
    "tool/ptc-dispatch-start",
    "tool/ptc-dispatch",
    "model/selection",
    "image/offload",
    "web/deepseek-search-llm-request",
    "session/title-llm-request",
    "session/title",
    "compaction/start",
    "compaction/summary",
    "compaction/end",
    "compaction/prune",
    "command/run",
    "command/done",
    "permission/preset",
    "sandbox/mode",
    "approval/policy",
    "approval/asked",
    "approval/decided",
    "plan/mode",
    "working-directory/change",
    "agent-preset/selected",
    "todo/write",
    "goal/change",
    "job/registered",
    "job/settled",
    "subagent/catalog",
    "subagent/descriptor",
    "subagent/model-selection-policy",
    "tool-workflow/run-start",
    "tool-workflow/agent-start",
    "tool-workflow/agent-end",
    "tool-workflow/run-end",
    "team/member",
    "team/task",
    "team/message/queued",
    "team/message/delivered",
    "feedback/record",
    "feedback/message-put",
    "feedback/message-delete",
    "deliverables/presented",
    "workspace/changes",
    "session-log-deepseek/delivery-accepted",
    "schedule/change",
    "hook/invoked",
    "hook/result",
}
"""The 62 event types of format v4 (``dsh-events.md`` section 1)."""

RETIRED_TYPES: Final = frozenset({"tool/code-dispatch", "tool/code-dispatch-start"})
"""Types of older generations that need a migration we do not have."""

_RUN_MIN = 3
"""The runtime writes runs of three and more source seqs as pairs."""

_ENVELOPE_LENGTH = 4
_KEYS = frozenset({"type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs", "ignorable"})


def event_from_row(row: JsonValue, seq: int) -> Event:
    """The event of one decoded row that must have this ``seq``.

    Raises:
        SessionCorruptError: the envelope is not sound; the text names the seq.
    """
    if type(row) is not dict:
        raise SessionCorruptError(f"seq {seq}: the row is not an object")
    try:
        kind, own, time_ms, data = row["type"], row["seq"], row["time"], row["data"]
    except KeyError as missing:
        raise SessionCorruptError(f"seq {seq}: the row lacks {missing}") from None
    if type(kind) is not str:
        raise SessionCorruptError(f"seq {seq}: type is not a string")
    if own != seq or (type(own) is not int and type(own) is not float):
        raise SessionCorruptError(f"seq {seq}: the row found there has seq {own!r:.40}")
    if type(time_ms) is not int or not -COUNT_MAX <= time_ms <= COUNT_MAX:
        time_ms = _odd_time(time_ms, seq)
    if len(row) == _ENVELOPE_LENGTH:
        return Event(seq, time_ms, kind, data)
    return _event_with_extras(row, seq, time_ms, kind, data)


def _odd_time(value: JsonValue, seq: int) -> int:
    if type(value) is float and value.is_integer() and abs(value) <= COUNT_MAX:
        return int(value)
    raise SessionCorruptError(f"seq {seq}: time is not an integer")


def _event_with_extras(
    row: JsonObject, seq: int, time_ms: int, kind: str, data: JsonValue
) -> Event:
    if not row.keys() <= _KEYS:
        raise SessionCorruptError(f"seq {seq}: unknown key {min(row.keys() - _KEYS)!r:.60}")
    if "ignorable" in row and row["ignorable"] is not True:
        raise SessionCorruptError(f"seq {seq}: ignorable is not true")
    sources = None
    if "sourceEventSeqs" in row:
        sources = _sources_from_row(row["sourceEventSeqs"], seq)
    op: SurfaceOp | None = None
    if "surfaceOp" in row:
        raw = row["surfaceOp"]
        op = _surface_op_from_row(raw)
        if op is None:
            if kind in KNOWN_TYPES:
                raise SessionCorruptError(f"seq {seq}: surfaceOp is malformed")
            op = cast("SurfaceOp", raw)
    return Event(seq, time_ms, kind, data, op, sources, "ignorable" in row)


def _surface_op_from_row(raw: JsonValue) -> SurfaceOp | None:
    if raw == "append":
        return "append"
    if type(raw) is not dict or raw.keys() != {"op", "startSeq", "endSeq"}:
        return None
    start, end = count(raw["startSeq"]), count(raw["endSeq"])
    if raw["op"] != "replace" or start is None or end is None:
        return None
    return (start, end)


def _sources_from_row(raw: JsonValue, seq: int) -> tuple[int, ...]:
    """The expanded list; every member is an earlier seq and no member repeats."""
    if type(raw) is not list:
        raise SessionCorruptError(f"seq {seq}: sourceEventSeqs is not an array")
    seqs: list[int] = []
    has_pair = False
    for item in raw:
        if type(item) is list:
            has_pair = True
            bounds = [count(bound) for bound in item]
            match bounds:
                case [int() as first, int() as last] if first < last < seq:
                    seqs.extend(range(first, last + 1))
                case _:
                    raise SessionCorruptError(f"seq {seq}: a range in sourceEventSeqs is malformed")
        else:
            one = count(item)
            if one is None or one >= seq:
                raise SessionCorruptError(f"seq {seq}: sourceEventSeqs names no earlier seq")
            seqs.append(one)
        if len(seqs) > seq:
            raise SessionCorruptError(f"seq {seq}: sourceEventSeqs repeats a seq")
    if len(set(seqs)) != len(seqs):
        raise SessionCorruptError(f"seq {seq}: sourceEventSeqs repeats a seq")
    if has_pair and not _rises(seqs):
        raise SessionCorruptError(f"seq {seq}: sourceEventSeqs has ranges but does not rise")
    return tuple(seqs)


def _rises(seqs: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(seqs))


def row_from_event(event: Event) -> JsonObject:
    """The row as it is written, keys in the runtime's order."""
    row: JsonObject = {
        "type": event.type,
        "seq": event.seq,
        "time": event.time_ms,
        "data": event.data,
    }
    if event.source_event_seqs is not None:
        row["sourceEventSeqs"] = _packed(event.source_event_seqs)
    op = event.surface_op
    if op is not None:
        if isinstance(op, tuple):
            row["surfaceOp"] = {"op": "replace", "startSeq": op[0], "endSeq": op[1]}
        else:
            row["surfaceOp"] = cast("JsonValue", op)
    if event.ignorable:
        row["ignorable"] = True
    return row


def _packed(seqs: Sequence[int]) -> list[JsonValue]:
    """Runs of three and more as ``[first, last]``, but only where the whole list rises."""
    if len(seqs) < _RUN_MIN or not _rises(seqs):
        return list(seqs)
    packed: list[JsonValue] = []
    at = 0
    while at < len(seqs):
        end = at
        while end + 1 < len(seqs) and seqs[end + 1] == seqs[end] + 1:
            end += 1
        if end - at + 1 >= _RUN_MIN:
            packed.append([seqs[at], seqs[end]])
        else:
            packed.extend(seqs[at : end + 1])
        at = end + 1
    return packed


def dump_events(events: Iterable[Event]) -> bytes:
    """Whole lines, one event each.

    Raises:
        ValueError, TypeError: some ``data`` is no JSON.
    """
    lines = [dumps(row_from_event(event)) for event in events]
    lines.append(b"")
    return b"\n".join(lines)
