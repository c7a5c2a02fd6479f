"""How the log of a child ends whose worker did not end it. Pure.

A load shows what the log says. So an end that was told by somebody else than the child, such as a
lapsed lease, becomes the reason of its last turn, or of a turn with nothing in it.
"""

from collections.abc import Sequence

from acp_bridge.sessions import LogState
from acp_bridge.sessions.repair import closers
from acp_bridge.vocabulary import Draft, Event, JsonObject, TurnEnd


def ending_rows(state: LogState, rows: Sequence[Event], end: TurnEnd) -> list[Draft]:
    """The rows that say it; [] where the log does. ``rows`` are those since the child was woken."""
    if end.kind not in {"error", "aborted"}:
        return []
    if state.turn is not None:
        return [*closers(state)[:-1], _turn_end(state.turn, end)]
    last = next((row.data for row in reversed(rows) if row.type == "turn/end"), None)
    if last is not None and (end.kind == "aborted" or _is_error(last)):
        return []
    turn = state.last_turn + 1
    return [Draft("turn/start", {"turn": turn}), _turn_end(turn, end)]


def _turn_end(turn: int, end: TurnEnd) -> Draft:
    reason: JsonObject = {"kind": "aborted", "reason": {"kind": "parent"}}
    if end.kind == "error":
        message = end.details or "no reason is known"
        reason = {"kind": "error", "error": {"message": message, "code": end.code or "UNKNOWN"}}
    return Draft("turn/end", {"turn": turn, "reason": reason})


def _is_error(data: object) -> bool:
    reason = data.get("reason") if isinstance(data, dict) else None
    return isinstance(reason, dict) and reason.get("kind") == "error"
