"""What rules look at in a transcript: runs, sessions, calls, subagents, and what was offered."""

import json
from collections.abc import Iterator

from acp_bridge.testing.transcript import Line, at, child_of, obj
from acp_bridge.vocabulary import JsonObject

CLOSED = {"completed", "failed"}
"""The ends of a tool call."""


def runs(lines: list[Line]) -> Iterator[tuple[int, list[Line]]]:
    """The messages of each run of the agent, in order."""
    for run in sorted({line.entry.run for line in lines}):
        yield run, [line for line in lines if line.entry.run == run]


def by_session(lines: list[Line]) -> Iterator[tuple[str, list[Line]]]:
    """Each session's messages, one list for each run of the agent.

    A subagent's have the load of its root among them: a client draws both anew then.
    """
    children = subagents_of(lines)
    for _, run in runs(lines):
        loads = [n for n in run if n.method == "session/load" and n.kind == "request"]
        for session in dict.fromkeys(line.session for line in run if line.session is not None):
            root = children.get(session)
            anew = {id(line) for line in loads if line.session == root}
            yield session, [line for line in run if line.session == session or id(line) in anew]


def to_client(lines: list[Line], kind: str) -> Iterator[Line]:
    """What the client got of this kind: requests, notifications or responses."""
    return (line for line in lines if line.entry.to == "client" and line.kind == kind)


def calls_in(line: Line) -> list[JsonObject]:
    """The tool calls that a message to the client describes."""
    if line.entry.to != "client":
        return []
    if line.update.get("sessionUpdate") in {"tool_call", "tool_call_update"}:
        return [line.update]
    if line.method == "session/request_permission" and line.kind == "request":
        return [obj(line.params.get("toolCall"))]
    return []


def subagents_of(lines: list[Line]) -> dict[str, str]:
    """The sessions that were announced as subagents, each with its root."""
    roots: dict[str, str] = {}
    for line in lines:
        if line.update.get("sessionUpdate") == "subagent_update" and line.session is not None:
            child = str(line.update.get("sessionId"))
            roots.setdefault(child, roots.get(line.session, line.session))
    return roots


def tells_of_a_subagent(line: Line) -> bool:
    """Whether it shows that the session has one, in either form."""
    return line.update.get("sessionUpdate") == "subagent_update" or bool(child_of(line.update))


def takes(offered: JsonObject, need: str) -> bool:
    """Whether a client's capabilities have this one, a dotted path."""
    try:
        value = at(offered, need)
    except KeyError:
        return False
    return value is not None and value is not False


def shown(line: Line) -> str:
    """A message as a breach quotes it."""
    return json.dumps(line.message, ensure_ascii=False)[:400]
