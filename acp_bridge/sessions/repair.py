"""Closing rows for a log whose last turn was cut off, as the runtime writes them on resume.

Order matters and so does the batch: the end-seed must follow in the same durable batch, because
it turns a compaction that was killed in the turn into an orphan, and only then may the ``turn/end``
stand (``dsh-events`` section 2, "Compaction with crash").
"""

from typing import Final

from acp_bridge.sessions.validation import LogState, PendingCall
from acp_bridge.sessions.validation.messages import NOT_STARTED_ERROR, NOT_STARTED_TEXT
from acp_bridge.vocabulary import Draft, JsonObject

_UNKNOWN_ERROR: Final[JsonObject] = {
    "name": "ToolOutcomeUnknownError",
    "code": "TOOL_OUTCOME_UNKNOWN",
}
_UNKNOWN_TEXT: Final = (
    "The tool call was interrupted while it ran, so its outcome is unknown. "
    "Check what it did before calling it again."
)


def closers(state: LogState) -> list[Draft]:
    """The rows that balance an open turn: tool results, ``step/end``, ``turn/end``; [] without one.

    They copy the time of the last row.
    """
    if state.turn is None:
        return []
    drafts: list[Draft] = []
    if state.step is not None:
        for call in state.pending.values():
            drafts.append(_result(state, call, state.next_seq + len(drafts)))
        drafts.append(Draft("step/end", {"turn": state.turn, "step": state.step}))
    drafts.append(Draft("turn/end", {"turn": state.turn, "reason": {"kind": "interrupted"}}))
    return drafts


def boundary(state: LogState) -> list[Draft]:
    """The row that marks a new opening: an end-seed, unless the last row already is one."""
    is_marked = state.last is not None and state.last.type == "session/end-seed"
    if is_marked and state.turn is None:
        return []
    return [Draft("session/end-seed", {})]


def _result(state: LogState, call: PendingCall, seq: int) -> Draft:
    started = call.started_seq is not None
    data: JsonObject = {
        "turn": state.turn,
        "step": state.step,
        "message": {
            "id": f"interrupted-tool-result-{call.call_id}-{seq}",
            "role": "tool",
            "toolCallId": call.call_id,
            "isError": True,
            "source": {"kind": "tool", "callId": call.call_id},
            "content": [{"type": "text", "text": _UNKNOWN_TEXT if started else NOT_STARTED_TEXT}],
        },
        "error": dict(_UNKNOWN_ERROR if started else NOT_STARTED_ERROR),
    }
    sources = None if call.started_seq is None else (call.started_seq,)
    return Draft("tool/result", data, "append", sources)
