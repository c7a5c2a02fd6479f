"""What a client negotiated is what it gets: its methods, its updates, its modes, its terminals."""

from collections.abc import Iterator

from acp_bridge.testing.rules.views import by_session, runs, shown, takes
from acp_bridge.testing.transcript import Line, arr, obj
from acp_bridge.vocabulary import JsonObject, JsonValue

SUBAGENT_KINDS = {"subagent_update", "session_message", "session_message_chunk"}
"""Updates that only a client which negotiated ``subagents`` can read."""

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

_OPENERS = {"session/new", "session/load", "session/resume"}


def only_what_the_client_offers(lines: list[Line]) -> Iterator[str]:
    """Client methods are called, and updates sent, by capability only; the plan in one form."""
    for _, run in runs(lines):
        offered: JsonObject = {}
        for line in run:
            if line.method == "initialize" and line.kind == "request":
                offered = obj(line.params.get("clientCapabilities"))
            if line.entry.to != "client":
                continue
            kind = str(line.update.get("sessionUpdate"))
            asks = line.method if line.kind == "request" else kind
            if asks in NEEDS and not takes(offered, NEEDS[asks]):
                yield f"{asks} without the capability {NEEDS[asks]}: {shown(line)}"
            if kind == "plan" and takes(offered, "plan"):
                yield f"a plan without an id to a client that takes one: {shown(line)}"


def modes_change_only_where_offered(lines: list[Line]) -> Iterator[str]:
    """No mode or option update without the member in the session's answer; no empty options."""
    members = {"current_mode_update": "modes", "config_option_update": "configOptions"}
    for _, run in by_session(lines):
        offered: JsonObject = {}
        for line in run:
            result = obj(line.message.get("result"))
            if line.method in _OPENERS and line.kind == "response" and "result" in line.message:
                offered = result
                if result.get("configOptions") == []:
                    yield f"configOptions are offered empty: {shown(line)}"
            kind = str(line.update.get("sessionUpdate"))
            if kind in members and members[kind] not in offered:
                yield f"{kind} without {members[kind]} in the session's answer: {shown(line)}"


def compactions_are_negotiated_and_end(lines: list[Line]) -> Iterator[str]:
    """Compactions are told where the client takes them, begin once, and end before the answer."""
    for _, run in runs(lines):
        is_taken = False
        for line in run:
            if line.method == "initialize" and line.kind == "request":
                is_taken = takes(obj(line.params.get("clientCapabilities")), "session.compaction")
            if str(line.update.get("sessionUpdate")).startswith("compaction") and not is_taken:
                yield f"a compaction is told without the capability: {shown(line)}"
    for _, run in by_session(lines):
        status: dict[str, JsonValue] = {}
        for line in run:
            yield from _compaction_breaches(line, status)


def _compaction_breaches(line: Line, status: dict[str, JsonValue]) -> Iterator[str]:
    if line.method == "session/load" and line.kind == "request":
        status.clear()
    if line.method == "session/prompt" and line.kind == "response":
        for name in [name for name, value in status.items() if value == "in_progress"]:
            yield f"compaction {name} runs when session/prompt is answered: {shown(line)}"
    if line.update.get("sessionUpdate") == "compaction_update":
        name, value = str(line.update.get("compactionId")), line.update.get("status")
        if (value == "in_progress") == (name in status):
            yield f"compaction {name} begins twice, or ends before it began: {shown(line)}"
        elif status.get(name, "in_progress") != "in_progress":
            yield f"compaction {name} ends twice: {shown(line)}"
        status[name] = value


def terminals_are_released_once(lines: list[Line]) -> Iterator[str]:
    """A terminal of the client is named, and shown, from its making to its one release."""
    for _, run in by_session(lines):
        alive: dict[JsonValue, Line] = {}
        made: set[JsonValue] = set()
        for line in run:
            _take_terminal(line, alive, made)
            named = line.params.get("terminalId") if line.kind == "request" else None
            if line.method == "terminal/release" and named in alive:
                del alive[named]
            elif named is not None and named not in alive:
                yield f"a terminal is named that is not there: {shown(line)}"
            drawn = [obj(item).get("terminalId") for item in arr(line.update.get("content"))]
            if any(terminal in made and terminal not in alive for terminal in drawn):
                yield f"a terminal is shown after its release: {shown(line)}"


def every_terminal_is_released(lines: list[Line]) -> Iterator[str]:
    """A terminal that the client made is released before the connection ends."""
    for _, run in by_session(lines):
        alive: dict[JsonValue, Line] = {}
        for line in run:
            _take_terminal(line, alive, set())
            if line.method == "terminal/release":
                alive.pop(line.params.get("terminalId"), None)
        for line in alive.values():
            yield f"a terminal is not released: {shown(line)}"


def _take_terminal(line: Line, alive: dict[JsonValue, Line], made: set[JsonValue]) -> None:
    """Note a terminal that the client made."""
    terminal = obj(line.message.get("result")).get("terminalId")
    if line.method == "terminal/create" and line.kind == "response" and terminal is not None:
        alive[terminal] = line
        made.add(terminal)
