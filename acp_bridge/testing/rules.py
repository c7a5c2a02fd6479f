"""What is safe for every client, checked over a transcript: order, closure, shapes, promises.

A rule is a function of the whole transcript that yields sentences; `broken_rules` runs them all.
They are what the schema cannot say: that calls are announced before they are updated and closed
before the prompt is answered, that nothing is sent for a session the client does not have, that
lists are never null, that the client is asked only for what it offers.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath

from acp_bridge.testing.transcript import Entry, Line, arr, at, obj, read, text_or_none
from acp_bridge.vocabulary import JsonObject, JsonValue

TITLE_CHARS_MAX = 60
"""Longest title of a call; several clients cut there. A command is shown whole to be approved."""

LINE_BYTES_MAX = 1024 * 1024
"""Longest line to a client; one known client stops reading at ten times this."""

NULL_HAS_MEANING = {"oldText", "title", "updatedAt", "exitCode", "exit_code", "signal"}
"""Members that say something by being null; a null anywhere else can fail a strict reader."""

FOREIGN_JSON = {"rawInput", "rawOutput", "_meta", "data"}
"""Members whose inside is not ACP's."""

CHUNKS = {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"}
TURN_UPDATES = CHUNKS | {"tool_call", "tool_call_update", "plan", "plan_update", "plan_removed"}
"""Updates that only a turn or a replay may send."""

SUBAGENT_KINDS = {"subagent_update", "session_message", "session_message_chunk"}
"""Updates that only a client which negotiated ``subagents`` can read."""

ASKING = {"session/request_permission", "elicitation/create"}
"""Requests that wait for the user."""

CLOSED = {"completed", "failed"}

_OPENERS = {"session/new", "session/load", "session/resume"}

NEEDS = {
    "fs/read_text_file": "fs.readTextFile",
    "fs/write_text_file": "fs.writeTextFile",
    "terminal/create": "terminal",
    "terminal/output": "terminal",
    "terminal/wait_for_exit": "terminal",
    "terminal/kill": "terminal",
    "terminal/release": "terminal",
    "elicitation/create": "elicitation.form",
    **dict.fromkeys(SUBAGENT_KINDS, "subagents"),
    "plan_update": "plan",
    "plan_removed": "plan",
    "notice": "session.notices",
}
"""The capability that a client method or an update needs; permission needs none."""

REQUEST_CANCELLED = -32800
INTERNAL_ERROR = -32603

Rule = Callable[[list[Line]], Iterator[str]]


def broken_rules(
    entries: Iterable[Entry], *, killed_runs: Iterable[int] = (), detaches: bool = False
) -> list[str]:
    """Every breach, as a sentence; [] for a good transcript.

    ``killed_runs`` are runs whose agent was killed: it may owe answers. ``detaches``: its prompts
    wait for no subagent (``--background detach``), so what those report starts turns by itself.
    """
    killed = set(killed_runs)
    lines = read(entries)
    found = [f"{rule.__name__}: {breach}" for rule in RULES for breach in rule(lines)]
    found += [
        f"{rule.__name__}: {breach}"
        for rule in TURN_RULES
        for breach in rule(lines, detaches=detaches)
    ]
    living = [line for line in lines if line.entry.run not in killed]
    found += [f"every_request_gets_one_answer: {breach}" for breach in _unanswered(living)]
    found += [f"terminals_are_released_once: {breach}" for breach in _unreleased(living)]
    return found


def every_answer_has_its_request(lines: list[Line]) -> Iterator[str]:
    """No second answer, no answer to nothing."""
    for line in lines:
        if line.kind == "response" and line.request is None and line.entry.to == "client":
            yield f"a second answer, or one to nothing: {_shown(line)}"


def results_are_objects(lines: list[Line]) -> Iterator[str]:
    """A result is an object, `{}` if it says nothing."""
    for line in _to_client(lines, "response"):
        if "result" in line.message and not isinstance(line.message["result"], dict):
            yield f"the result of {line.method} is no object: {_shown(line)}"


def errors_are_sentences(lines: list[Line]) -> Iterator[str]:
    """An error's message is one line for people; its details say the same."""
    for line in _to_client(lines, "response"):
        error = obj(line.message.get("error"))
        message = text_or_none(error.get("message"))
        if not error:
            continue
        if not message or "\n" in message or "Traceback" in message:
            yield f"an error's message is no sentence: {_shown(line)}"
        details = obj(error.get("data")).get("details", message)
        if details != message:
            yield f"an error's details differ from its message: {_shown(line)}"
        if error.get("code") == INTERNAL_ERROR and set(obj(error.get("data"))) != {"details"}:
            yield f"an internal error's data is not exactly details: {_shown(line)}"


def nothing_is_null(lines: list[Line]) -> Iterator[str]:
    """Optional members are left out, never null."""
    for line in lines:
        if line.entry.to == "client":
            body = {key: line.message.get(key, {}) for key in ("params", "result", "error")}
            for path in _nulls(body, ""):
                yield f"{path} is null: {_shown(line)}"


def lines_are_short(lines: list[Line]) -> Iterator[str]:
    """Long texts are split before a client's reader gives up."""
    for line in lines:
        if line.entry.to == "client" and len(json.dumps(line.message)) > LINE_BYTES_MAX:
            yield f"a line above {LINE_BYTES_MAX} bytes: {_shown(line)}"


def only_known_sessions(lines: list[Line]) -> Iterator[str]:
    """Nothing is said about a session before the client has it."""
    for _, run in _runs(lines):
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
                yield f"{line.session} is not known to the client: {_shown(line)}"


def turn_updates_only_in_turns(lines: list[Line], *, detaches: bool) -> Iterator[str]:
    """Chunks, calls and plans come between a prompt (or load) and its answer, never after.

    But for subagents, which may work on when their parent has answered, and, where it detaches
    them, for the turns of a session that has any.
    """
    children = _children(lines)
    for session, run in _by_session(lines):
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
            may_report = may_report or (detaches and _tells_of_a_subagent(line))
            is_outside = open_requests == 0 and not may_report
            if kind in TURN_UPDATES and is_outside and not child_of(line.update):
                yield f"{kind} outside a turn: {_shown(line)}"


def chunks_have_message_ids(lines: list[Line]) -> Iterator[str]:
    """Each chunk names its message; a message is of one kind and is not taken up again."""
    for _, run in _by_session(lines):
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
                yield f"a chunk without messageId: {_shown(line)}"
                continue
            if kinds.setdefault(message_id, kind) != kind:
                yield f"message {message_id} changes its kind: {_shown(line)}"
            elif message_id in seen and latest.get(kind) != message_id:
                yield f"message {message_id} is taken up again: {_shown(line)}"
            seen.add(message_id)
            latest[kind] = message_id


def calls_are_announced_and_closed(lines: list[Line]) -> Iterator[str]:
    """A call is announced once, updated with a status, and closed before the turn's answer.

    A subagent's work may outlive its parent's turn. A prompt that never ran has no calls, and a
    load need not wait for those of one that runs.
    """
    for _, run in _by_session(lines):
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


def titles_are_one_short_line(lines: list[Line]) -> Iterator[str]:
    """Titles are one line and short; those of commands may be longer."""
    kinds: dict[JsonValue, JsonValue] = {}
    for line in lines:
        for call in _calls(line):
            kind = kinds.setdefault(call.get("toolCallId"), call.get("kind"))
            title = text_or_none(call.get("title"))
            if title is None:
                continue
            too_long = len(title) > TITLE_CHARS_MAX and kind != "execute"
            if not title.strip() or "\n" in title or too_long:
                yield f"a title of {len(title)} characters or of several lines: {_shown(line)}"


def raw_values_are_objects(lines: list[Line]) -> Iterator[str]:
    """`rawInput` and `rawOutput` are objects."""
    for line in lines:
        for call in _calls(line):
            for key in ("rawInput", "rawOutput"):
                if key in call and not isinstance(call[key], dict):
                    yield f"{key} is no object: {_shown(line)}"


def places_are_absolute(lines: list[Line]) -> Iterator[str]:
    """Locations and diffs name absolute paths, lines count from 1, diffs come first."""
    for line in lines:
        for call in _calls(line):
            locations = [obj(item) for item in arr(call.get("locations"))]
            content = [obj(item) for item in arr(call.get("content"))]
            diffs = [item for item in content if item.get("type") == "diff"]
            for item in [*locations, *diffs]:
                if not PurePath(str(item.get("path"))).is_absolute():
                    yield f"a path is not absolute: {_shown(line)}"
                if item.get("line", 1) == 0:
                    yield f"a line is 0: {_shown(line)}"
            if content[: len(diffs)] != diffs:
                yield f"a diff is not first in its content: {_shown(line)}"
            if any("oldText" not in diff for diff in diffs):
                yield f"a diff without oldText: {_shown(line)}"


def permission_is_asked_properly(lines: list[Line], *, detaches: bool) -> Iterator[str]:
    """A question comes in a turn, carries the whole call, and can be answered by kind or id."""
    children = _children(lines)
    for session, run in _by_session(lines):
        announced: dict[JsonValue, JsonObject] = {}
        prompts = 0
        may_report = False
        for line in run:
            if line.method == "session/prompt":
                prompts += 1 if line.kind == "request" else -1
            may_report = may_report or (detaches and _tells_of_a_subagent(line))
            if line.update.get("sessionUpdate") == "tool_call":
                announced[line.update.get("toolCallId")] = line.update
            if line.method == "session/request_permission" and line.kind == "request":
                if prompts == 0 and session not in children and not may_report:
                    yield f"permission is asked outside a prompt: {_shown(line)}"
                yield from _permission_breaches(line, announced)


def only_what_the_client_offers(lines: list[Line]) -> Iterator[str]:
    """Client methods are called, and updates sent, by capability only; the plan in one form."""
    for _, run in _runs(lines):
        offered: JsonObject = {}
        for line in run:
            if line.method == "initialize" and line.kind == "request":
                offered = obj(line.params.get("clientCapabilities"))
            if line.entry.to != "client":
                continue
            kind = str(line.update.get("sessionUpdate"))
            asks = line.method if line.kind == "request" else kind
            if asks in NEEDS and not _has(offered, NEEDS[asks]):
                yield f"{asks} without the capability {NEEDS[asks]}: {_shown(line)}"
            if kind == "plan" and _has(offered, "plan"):
                yield f"a plan without an id to a client that takes one: {_shown(line)}"


def terminals_are_released_once(lines: list[Line]) -> Iterator[str]:
    """A terminal of the client is named, and shown, from its making to its one release."""
    for _, run in _by_session(lines):
        alive: dict[JsonValue, Line] = {}
        made: set[JsonValue] = set()
        for line in run:
            _take_terminal(line, alive, made)
            named = line.params.get("terminalId") if line.kind == "request" else None
            if line.method == "terminal/release" and named in alive:
                del alive[named]
            elif named is not None and named not in alive:
                yield f"a terminal is named that is not there: {_shown(line)}"
            shown = [obj(item).get("terminalId") for item in arr(line.update.get("content"))]
            if any(terminal in made and terminal not in alive for terminal in shown):
                yield f"a terminal is shown after its release: {_shown(line)}"


def a_cancelled_prompt_is_no_error(lines: list[Line]) -> Iterator[str]:
    """A prompt that the client cancelled gets a result."""
    for _, run in _by_session(lines):
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
                    yield f"a cancelled prompt gets an error: {_shown(line)}"


def only_withdrawn_requests_are_cancelled(lines: list[Line]) -> Iterator[str]:
    """The code -32800 answers a `$/cancel_request`, nothing else."""
    for _, run in _runs(lines):
        withdrawn: set[str] = set()
        for line in run:
            if line.method == "$/cancel_request" and line.entry.to == "agent":
                withdrawn.add(repr(line.params.get("requestId")))
            code = obj(line.message.get("error")).get("code")
            unasked = repr(line.message.get("id")) not in withdrawn
            if line.entry.to == "client" and code == REQUEST_CANCELLED and unasked:
                yield f"-32800 for a request that nobody withdrew: {_shown(line)}"


def compactions_are_negotiated_and_end(lines: list[Line]) -> Iterator[str]:
    """Compactions are told where the client takes them, begin once, and end before the answer."""
    for _, run in _runs(lines):
        takes = False
        for line in run:
            if line.method == "initialize" and line.kind == "request":
                takes = _has(obj(line.params.get("clientCapabilities")), "session.compaction")
            if str(line.update.get("sessionUpdate")).startswith("compaction") and not takes:
                yield f"a compaction is told without the capability: {_shown(line)}"
    for _, run in _by_session(lines):
        status: dict[str, JsonValue] = {}
        for line in run:
            yield from _compaction_breaches(line, status)


def modes_change_only_where_offered(lines: list[Line]) -> Iterator[str]:
    """No mode or option update without the member in the session's answer; no empty options."""
    members = {"current_mode_update": "modes", "config_option_update": "configOptions"}
    for _, run in _by_session(lines):
        offered: JsonObject = {}
        for line in run:
            result = obj(line.message.get("result"))
            if line.method in _OPENERS and line.kind == "response" and "result" in line.message:
                offered = result
                if result.get("configOptions") == []:
                    yield f"configOptions are offered empty: {_shown(line)}"
            kind = str(line.update.get("sessionUpdate"))
            if kind in members and members[kind] not in offered:
                yield f"{kind} without {members[kind]} in the session's answer: {_shown(line)}"


def subagents_are_told_in_order(lines: list[Line]) -> Iterator[str]:
    """Each has one parent, one that asks requires action, and one that is idle has no open call."""
    for _, run in _runs(lines):
        parents: dict[str, str | None] = {}
        states: dict[str, JsonValue] = {}
        open_calls: dict[str, set[JsonValue]] = {}
        for line in run:
            if line.entry.to != "client" or line.session is None:
                continue
            if line.update.get("sessionUpdate") == "subagent_update":
                child = str(line.update.get("sessionId"))
                if parents.setdefault(child, line.session) != line.session:
                    yield f"{child} gets a second parent: {_shown(line)}"
                states[child] = obj(line.update.get("state")).get("state", states.get(child))
                if states[child] == "idle" and open_calls.get(child):
                    yield f"{child} is idle with open calls: {_shown(line)}"
            if line.session not in parents:
                continue
            if line.update.get("toolCallId") is not None:
                calls = open_calls.setdefault(line.session, set())
                is_open = line.update.get("status") not in CLOSED
                (calls.add if is_open else calls.discard)(line.update["toolCallId"])
            asks = line.method in ASKING and line.kind == "request"
            if asks and states[line.session] != "requires_action":
                yield f"a subagent asks that does not require action: {_shown(line)}"


RULES: tuple[Rule, ...] = (
    subagents_are_told_in_order,
    every_answer_has_its_request,
    results_are_objects,
    errors_are_sentences,
    nothing_is_null,
    lines_are_short,
    only_known_sessions,
    chunks_have_message_ids,
    calls_are_announced_and_closed,
    titles_are_one_short_line,
    raw_values_are_objects,
    places_are_absolute,
    only_what_the_client_offers,
    terminals_are_released_once,
    a_cancelled_prompt_is_no_error,
    only_withdrawn_requests_are_cancelled,
    modes_change_only_where_offered,
    compactions_are_negotiated_and_end,
)
"""Every rule but those that need to know which runs were killed, or what is detached."""

TURN_RULES = (turn_updates_only_in_turns, permission_is_asked_properly)
"""Rules that need to know whether subagents are detached."""


def _unanswered(lines: list[Line]) -> Iterator[str]:
    asked = {
        (line.entry.run, repr(line.message.get("id"))): line
        for line in lines
        if line.kind == "request" and line.entry.to == "agent"
    }
    for line in lines:
        if line.kind == "response" and line.entry.to == "client":
            asked.pop((line.entry.run, repr(line.message.get("id"))), None)
    for line in asked.values():
        yield f"no answer to {_shown(line)}"


def _unreleased(lines: list[Line]) -> Iterator[str]:
    for _, run in _by_session(lines):
        alive: dict[JsonValue, Line] = {}
        for line in run:
            _take_terminal(line, alive, set())
            if line.method == "terminal/release":
                alive.pop(line.params.get("terminalId"), None)
        for line in alive.values():
            yield f"a terminal is not released: {_shown(line)}"


def _take_terminal(line: Line, alive: dict[JsonValue, Line], made: set[JsonValue]) -> None:
    """Note a terminal that the client made."""
    terminal = obj(line.message.get("result")).get("terminalId")
    if line.method == "terminal/create" and line.kind == "response" and terminal is not None:
        alive[terminal] = line
        made.add(terminal)


def _call_breaches(line: Line, status: dict[str, JsonValue], children: set[str]) -> Iterator[str]:
    if child_of(line.update):
        children.add(str(line.update.get("toolCallId")))
    if line.method == "session/load" and line.kind == "request":
        # A client that loads draws the session anew.
        status.clear()
    if line.method in {"session/prompt", "session/load"} and line.kind == "response":
        left = {name for name, value in status.items() if value not in CLOSED}
        for call_id in sorted(left - children):
            yield f"call {call_id} is open when {line.method} is answered: {_shown(line)}"
    call_id = str(line.update.get("toolCallId"))
    kind = line.update.get("sessionUpdate")
    if kind == "tool_call":
        if call_id in status:
            yield f"call {call_id} is announced twice: {_shown(line)}"
        if "status" not in line.update or "kind" not in line.update:
            yield f"call {call_id} is announced without status or kind: {_shown(line)}"
        status[call_id] = line.update.get("status", "pending")
    elif kind == "tool_call_update":
        if call_id not in status:
            yield f"call {call_id} is updated before it is announced: {_shown(line)}"
        elif status[call_id] in CLOSED:
            yield f"call {call_id} is updated after it was closed: {_shown(line)}"
        if "status" not in line.update:
            yield f"an update of call {call_id} without status: {_shown(line)}"
        elif status.get(call_id) == "in_progress" and line.update["status"] == "pending":
            yield f"call {call_id} goes back to pending: {_shown(line)}"
        status[call_id] = line.update.get("status", status.get(call_id))


def _compaction_breaches(line: Line, status: dict[str, JsonValue]) -> Iterator[str]:
    if line.method == "session/load" and line.kind == "request":
        status.clear()
    if line.method == "session/prompt" and line.kind == "response":
        for name in [name for name, value in status.items() if value == "in_progress"]:
            yield f"compaction {name} runs when session/prompt is answered: {_shown(line)}"
    if line.update.get("sessionUpdate") == "compaction_update":
        name, value = str(line.update.get("compactionId")), line.update.get("status")
        if (value == "in_progress") == (name in status):
            yield f"compaction {name} begins twice, or ends before it began: {_shown(line)}"
        elif status.get(name, "in_progress") != "in_progress":
            yield f"compaction {name} ends twice: {_shown(line)}"
        status[name] = value


def _permission_breaches(line: Line, announced: dict[JsonValue, JsonObject]) -> Iterator[str]:
    call = obj(line.params.get("toolCall"))
    known = announced.get(call.get("toolCallId"))
    if known is None:
        yield f"permission is asked for a call that is not announced: {_shown(line)}"
    elif call.get("kind") != known.get("kind"):
        yield f"a permission's kind differs from the call's: {_shown(line)}"
    for key in ("title", "kind", "rawInput", "status"):
        if key not in call:
            yield f"a permission without the call's {key}: {_shown(line)}"
    options = [obj(option) for option in arr(line.params.get("options"))]
    kinds = [str(option.get("kind")) for option in options]
    ids = [str(option.get("optionId")) for option in options]
    if len(set(kinds)) != len(kinds) or len(set(ids)) != len(ids):
        yield f"two options of one kind or id: {_shown(line)}"
    if not {"allow_once", "reject_once"} <= set(kinds):
        yield f"options without allow_once or reject_once: {_shown(line)}"


def child_of(update: JsonObject) -> str | None:
    """The subagent whose work an update on the root's session shows."""
    return text_or_none(obj(obj(update.get("_meta")).get("acp-bridge")).get("childSessionId"))


def _tells_of_a_subagent(line: Line) -> bool:
    """Whether it shows that the session has one, in either form."""
    return line.update.get("sessionUpdate") == "subagent_update" or bool(child_of(line.update))


def _children(lines: list[Line]) -> dict[str, str]:
    """The sessions that were announced as subagents, each with its root."""
    roots: dict[str, str] = {}
    for line in lines:
        if line.update.get("sessionUpdate") == "subagent_update" and line.session is not None:
            child = str(line.update.get("sessionId"))
            roots.setdefault(child, roots.get(line.session, line.session))
    return roots


def _to_client(lines: list[Line], kind: str) -> Iterator[Line]:
    return (line for line in lines if line.entry.to == "client" and line.kind == kind)


def _calls(line: Line) -> list[JsonObject]:
    """The tool calls that a message to the client describes."""
    if line.entry.to != "client":
        return []
    if line.update.get("sessionUpdate") in {"tool_call", "tool_call_update"}:
        return [line.update]
    if line.method == "session/request_permission" and line.kind == "request":
        return [obj(line.params.get("toolCall"))]
    return []


def _runs(lines: list[Line]) -> Iterator[tuple[int, list[Line]]]:
    for run in sorted({line.entry.run for line in lines}):
        yield run, [line for line in lines if line.entry.run == run]


def _by_session(lines: list[Line]) -> Iterator[tuple[str, list[Line]]]:
    """Each session's messages, one list for each run of the agent.

    A subagent's have the load of its root among them: a client draws both anew then.
    """
    children = _children(lines)
    for _, run in _runs(lines):
        loads = [n for n in run if n.method == "session/load" and n.kind == "request"]
        for session in dict.fromkeys(line.session for line in run if line.session is not None):
            root = children.get(session)
            anew = {id(line) for line in loads if line.session == root}
            yield session, [line for line in run if line.session == session or id(line) in anew]


def _nulls(value: JsonValue, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if item is None and key not in NULL_HAS_MEANING:
                yield f"{path}.{key}".lstrip(".")
            elif key not in FOREIGN_JSON:
                yield from _nulls(item, f"{path}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _nulls(item, f"{path}[{number}]")


def _has(offered: JsonObject, need: str) -> bool:
    try:
        value = at(offered, need)
    except KeyError:
        return False
    return value is not None and value is not False


def _shown(line: Line) -> str:
    return json.dumps(line.message, ensure_ascii=False)[:400]
