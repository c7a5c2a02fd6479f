"""The order of what a session tells: announced, then updated, closed before the answer."""

from collections.abc import Iterator

from acp_bridge.testing.rules.views import (
    CLOSED,
    by_session,
    runs,
    shown,
    subagents_of,
    tells_of_a_subagent,
)
from acp_bridge.testing.transcript import Line, arr, child_of, obj, text_or_none
from acp_bridge.vocabulary import JsonObject, JsonValue

CHUNKS = {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"}
TURN_UPDATES = CHUNKS | {"tool_call", "tool_call_update", "plan", "plan_update", "plan_removed"}
"""Updates that only a turn or a replay may send."""

ASKING = {"session/request_permission", "elicitation/create"}
"""Requests that wait for the user."""

REQUEST_CANCELLED = -32800


def only_known_sessions(lines: list[Line]) -> Iterator[str]:
    """Nothing is said about a session before the client has it."""
    for _, run in runs(lines):
        known: set[str] = set()
        for line in run:
            if line.session is None:
                continue
            if line.update.get("sessionUpdate") == "subagent_update" and line.session in known:
                known.add(str(line.update.get("sessionId")))
            if line.entry.to == "agent" and line.method in {"session/load", "session/resume"}:
                known.add(line.session)
            if line.kind == "response" and line.entry.to == "client":
                known.add(line.session)
            elif line.entry.to == "client" and line.session not in known:
                yield f"{line.session} is not known to the client: {shown(line)}"


def turn_updates_only_in_turns(lines: list[Line], *, detaches: bool) -> Iterator[str]:
    """Chunks, calls and plans come between a prompt (or load) and its answer, never after.

    But for subagents, which may work on when their parent has answered, and, where it detaches
    them, for the turns of a session that has any.
    """
    children = subagents_of(lines)
    for session, run in by_session(lines):
        if session in children:
            continue
        open_requests = 0
        may_report = False
        for line in run:
            if line.method in {"session/prompt", "session/load"}:
                open_requests += 1 if line.kind == "request" else -1
            if obj(line.message.get("result")).get("outcome") == "startedNewTurn":
                open_requests += 1  # by `_session/steering`; no answer tells its end
            kind = line.update.get("sessionUpdate")
            may_report = may_report or (detaches and tells_of_a_subagent(line))
            is_outside = open_requests == 0 and not may_report
            if kind in TURN_UPDATES and is_outside and not child_of(line.update):
                yield f"{kind} outside a turn: {shown(line)}"


def chunks_have_message_ids(lines: list[Line]) -> Iterator[str]:
    """Each chunk names its message; a message is of one kind and is not taken up again."""
    for _, run in by_session(lines):
        kinds: dict[str, JsonValue] = {}
        latest: dict[JsonValue, str] = {}
        seen: set[str] = set()
        for line in run:
            if line.method == "session/load" and line.kind == "request":
                kinds.clear()
                latest.clear()
                seen.clear()
            kind = line.update.get("sessionUpdate")
            if kind not in CHUNKS:
                continue
            message_id = text_or_none(line.update.get("messageId"))
            if not message_id:
                yield f"a chunk without messageId: {shown(line)}"
                continue
            if kinds.setdefault(message_id, kind) != kind:
                yield f"message {message_id} changes its kind: {shown(line)}"
            elif message_id in seen and latest.get(kind) != message_id:
                yield f"message {message_id} is taken up again: {shown(line)}"
            seen.add(message_id)
            latest[kind] = message_id


def calls_are_announced_and_closed(lines: list[Line]) -> Iterator[str]:
    """A call is announced once, updated with a status, and closed before the turn's answer.

    A subagent's work may outlive its parent's turn. A prompt that never ran has no calls, and a
    load need not wait for those of one that runs.
    """
    for _, run in by_session(lines):
        status: dict[str, JsonValue] = {}
        children: set[str] = set()
        prompts: list[JsonValue] = []
        for line in run:
            prompt_id = line.message.get("id") if line.method == "session/prompt" else None
            if prompt_id is not None and line.kind == "request":
                prompts.append(prompt_id)
            waits = prompt_id in prompts[1:]
            if prompt_id in prompts and line.kind == "response":
                prompts.remove(prompt_id)
            busy = bool(prompts) and line.method == "session/load" and line.kind == "response"
            if not waits and not busy:
                yield from _call_breaches(line, status, children)


def _call_breaches(line: Line, status: dict[str, JsonValue], children: set[str]) -> Iterator[str]:
    if child_of(line.update):
        children.add(str(line.update.get("toolCallId")))
    if line.method == "session/load" and line.kind == "request":
        # A client that loads draws the session anew.
        status.clear()
    if line.method in {"session/prompt", "session/load"} and line.kind == "response":
        left = {name for name, value in status.items() if value not in CLOSED}
        for call_id in sorted(left - children):
            yield f"call {call_id} is open when {line.method} is answered: {shown(line)}"
    call_id = str(line.update.get("toolCallId"))
    kind = line.update.get("sessionUpdate")
    if kind == "tool_call":
        if call_id in status:
            yield f"call {call_id} is announced twice: {shown(line)}"
        if "status" not in line.update or "kind" not in line.update:
            yield f"call {call_id} is announced without status or kind: {shown(line)}"
        status[call_id] = line.update.get("status", "pending")
    elif kind == "tool_call_update":
        if call_id not in status:
            yield f"call {call_id} is updated before it is announced: {shown(line)}"
        elif status[call_id] in CLOSED:
            yield f"call {call_id} is updated after it was closed: {shown(line)}"
        if "status" not in line.update:
            yield f"an update of call {call_id} without status: {shown(line)}"
        elif status.get(call_id) == "in_progress" and line.update["status"] == "pending":
            yield f"call {call_id} goes back to pending: {shown(line)}"
        status[call_id] = line.update.get("status", status.get(call_id))


def permission_is_asked_properly(lines: list[Line], *, detaches: bool) -> Iterator[str]:
    """A question comes in a turn, carries the whole call, and can be answered by kind or id."""
    children = subagents_of(lines)
    for session, run in by_session(lines):
        announced: dict[JsonValue, JsonObject] = {}
        prompts = 0
        may_report = False
        for line in run:
            if line.method == "session/prompt":
                prompts += 1 if line.kind == "request" else -1
            may_report = may_report or (detaches and tells_of_a_subagent(line))
            if line.update.get("sessionUpdate") == "tool_call":
                announced[line.update.get("toolCallId")] = line.update
            if line.method == "session/request_permission" and line.kind == "request":
                if prompts == 0 and session not in children and not may_report:
                    yield f"permission is asked outside a prompt: {shown(line)}"
                yield from _permission_breaches(line, announced)


def _permission_breaches(line: Line, announced: dict[JsonValue, JsonObject]) -> Iterator[str]:
    call = obj(line.params.get("toolCall"))
    known = announced.get(call.get("toolCallId"))
    if known is None:
        yield f"permission is asked for a call that is not announced: {shown(line)}"
    elif call.get("kind") != known.get("kind"):
        yield f"a permission's kind differs from the call's: {shown(line)}"
    for key in ("title", "kind", "rawInput", "status"):
        if key not in call:
            yield f"a permission without the call's {key}: {shown(line)}"
    options = [obj(option) for option in arr(line.params.get("options"))]
    kinds = [str(option.get("kind")) for option in options]
    ids = [str(option.get("optionId")) for option in options]
    if len(set(kinds)) != len(kinds) or len(set(ids)) != len(ids):
        yield f"two options of one kind or id: {shown(line)}"
    if not {"allow_once", "reject_once"} <= set(kinds):
        yield f"options without allow_once or reject_once: {shown(line)}"


def a_cancelled_prompt_is_no_error(lines: list[Line]) -> Iterator[str]:
    """A prompt that the client cancelled gets a result."""
    for _, run in by_session(lines):
        cancelled: set[str] = set()
        open_prompts: set[str] = set()
        for line in run:
            key = repr(line.message.get("id"))
            if line.method == "session/cancel":
                cancelled |= open_prompts
            elif line.method == "session/prompt" and line.kind == "request":
                open_prompts.add(key)
            elif line.method == "session/prompt":
                open_prompts.discard(key)
                if key in cancelled and "error" in line.message:
                    yield f"a cancelled prompt gets an error: {shown(line)}"


def only_withdrawn_requests_are_cancelled(lines: list[Line]) -> Iterator[str]:
    """The code -32800 answers a `$/cancel_request`, nothing else."""
    for _, run in runs(lines):
        withdrawn: set[str] = set()
        for line in run:
            if line.method == "$/cancel_request" and line.entry.to == "agent":
                withdrawn.add(repr(line.params.get("requestId")))
            code = obj(line.message.get("error")).get("code")
            unasked = repr(line.message.get("id")) not in withdrawn
            if line.entry.to == "client" and code == REQUEST_CANCELLED and unasked:
                yield f"-32800 for a request that nobody withdrew: {shown(line)}"


def subagents_are_told_in_order(lines: list[Line]) -> Iterator[str]:
    """Each has one parent, one that asks requires action, and one that is idle has no open call."""
    for _, run in runs(lines):
        parents: dict[str, str | None] = {}
        states: dict[str, JsonValue] = {}
        open_calls: dict[str, set[JsonValue]] = {}
        for line in run:
            if line.entry.to != "client" or line.session is None:
                continue
            if line.update.get("sessionUpdate") == "subagent_update":
                child = str(line.update.get("sessionId"))
                if parents.setdefault(child, line.session) != line.session:
                    yield f"{child} gets a second parent: {shown(line)}"
                states[child] = obj(line.update.get("state")).get("state", states.get(child))
                if states[child] == "idle" and open_calls.get(child):
                    yield f"{child} is idle with open calls: {shown(line)}"
            if line.session not in parents:
                continue
            if line.update.get("toolCallId") is not None:
                calls = open_calls.setdefault(line.session, set())
                is_open = line.update.get("status") not in CLOSED
                (calls.add if is_open else calls.discard)(line.update["toolCallId"])
            asks = line.method in ASKING and line.kind == "request"
            if asks and states[line.session] != "requires_action":
                yield f"a subagent asks that does not require action: {shown(line)}"
