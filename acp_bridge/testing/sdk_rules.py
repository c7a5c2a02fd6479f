"""What every client of the SDK's wire may rely on, held against a transcript.

Sentences name the rule first. Rows rise by one within a run, and turns lie between ``running`` and
``idle``; errors are a code and a text; a subagent is announced by a parent that was heard of.
"""

from collections.abc import Iterable

import attrs

from acp_bridge.testing.transcript import Entry, Line, obj, read
from acp_bridge.vocabulary import JsonObject

ERROR_CODE = -32603
"""The only one that the wire has for a refusal."""

NOTIFICATIONS = {"session.event", "session.status", "subagent.started", "subagent.finished"}


@attrs.define(slots=True)
class _Seen:
    """One session in one run."""

    seq: int | None = None
    is_running: bool = False


def broken_sdk_rules(entries: Iterable[Entry]) -> list[str]:
    """Each breach, as a sentence."""
    found: list[str] = []
    seen: dict[tuple[int, str], _Seen] = {}
    for line in read(entries):
        if line.entry.to != "client":
            if line.kind == "request" and line.session is not None:
                seen.setdefault((line.entry.run, line.session), _Seen())
        elif line.kind == "response":
            found += _response(line)
        elif line.method not in NOTIFICATIONS or line.kind == "request":
            found.append(f"the_wire_has_four_notifications: {line.message}")
        else:
            found += _notification(line, seen)
    return found


def _response(line: Line) -> list[str]:
    if line.request is None:
        return [f"a_response_answers_a_request: {line.message}"]
    error = line.message.get("error")
    if error is None:
        return []
    members = obj(error)
    good = set(members) == {"code", "message"} and members["code"] == ERROR_CODE
    return [] if good else [f"an_error_is_a_code_and_a_text: {error}"]


def _notification(line: Line, seen: dict[tuple[int, str], _Seen]) -> list[str]:
    params, run = line.params, line.entry.run
    session = seen.get((run, str(params.get("sessionId", params.get("parentSessionId")))))
    if session is None:
        return [f"nothing_is_told_of_a_session_that_nobody_heard_of: {line.message}"]
    match line.method:
        case "session.event":
            return _row(obj(params.get("event")), session)
        case "session.status":
            runs = params.get("status") == "running"
            if runs == session.is_running:
                return [f"running_and_idle_alternate: {line.message}"]
            session.is_running = runs
        case _:
            seen.setdefault((run, str(params.get("childSessionId"))), _Seen())
    return []


def _row(event: JsonObject, session: _Seen) -> list[str]:
    seq = event.get("seq")
    assert isinstance(seq, int)
    found = []
    if session.seq is not None and seq != session.seq + 1:
        found.append(f"rows_rise_by_one: {session.seq} is followed by {seq}")
    session.seq = seq
    if event.get("type") in {"turn/start", "turn/end"} and not session.is_running:
        found.append(f"a_turn_is_between_running_and_idle: seq {seq}")
    return found
