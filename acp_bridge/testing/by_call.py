"""What belongs to calls that ran beside each other, call by call instead of as it came. Pure.

Which of two calls of one answer speaks first is nobody's promise. Within a call everything has one
order; so where a scenario says ``"order": "by call"``, what stands between two words of the model
is pinned as all of the first call, all of the second. What names no call, such as a plan, comes
behind the calls that it came among.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, groupby
from typing import TypeVar

from acp_bridge.testing.transcript import Line, arr, obj, text_or_none
from acp_bridge.vocabulary import JsonObject, JsonValue

Item = TypeVar("Item")

_WORDS = {"agent_message_chunk", "agent_thought_chunk", "user_message_chunk", "usage_update"}
"""What comes of the model or the user, and so in one order with calls."""

_ENDS = {
    "agent/inbox/spliced",
    "assistant/attempt",
    "assistant/message",
    "step/end",
    "step/start",
    "turn/end",
    "turn/start",
    "user/message",
}
"""Rows that no call writes."""


def lines_by_call(lines: Iterable[Line], owners: "Owners") -> list[Line]:
    """Messages to the client, of one wire file."""

    def call(line: Line) -> str | None:
        if line.kind == "response" or line.update.get("sessionUpdate") in _WORDS:
            return ""
        return owners.call(line)

    runs = groupby(lines, key=lambda line: line.entry.run)
    return [line for _, one in runs for line in _sorted(one, call)]


def rows_by_call(rows: Sequence[JsonObject]) -> list[JsonObject]:
    """A log, its header first, numbered in the new order."""
    asked: dict[str, str] = {}

    def call(row: JsonObject) -> str | None:
        data = obj(row.get("data"))
        if row.get("type") in _ENDS:
            return ""
        if row.get("type") == "approval/asked":
            asked[str(data.get("id"))] = str(data.get("callId"))
        elif row.get("type") == "approval/decided":
            return asked.get(str(data.get("id")))
        told = data.get("callId", obj(data.get("message")).get("toolCallId"))
        return text_or_none(told)

    made = _sorted(rows, call)
    seqs = {
        str(row["seq"]): before["seq"]
        for row, before in zip(made, rows, strict=True)
        if "seq" in row and "seq" in before
    }
    return [_numbered(row, seqs) for row in made]


def messages_by_call(messages: Sequence[JsonValue]) -> list[JsonValue]:
    """What a model was sent: the results of an answer's calls in the order of the calls."""
    order: list[JsonValue] = []
    keyed: list[tuple[int, int, JsonValue]] = []
    group = 0
    for message in messages:
        members = obj(message)
        call_id = members.get("toolCallId")
        if call_id not in order:
            group += 1
        keyed.append((group, order.index(call_id) if call_id in order else -1, message))
        if members.get("role") == "assistant":
            blocks = map(obj, arr(members.get("content")))
            order = [block.get("id") for block in blocks if block.get("type") == "tool-call"]
            group += 1
    return [message for *_, message in sorted(keyed, key=lambda one: one[:2])]


class Owners:
    """Which call a message to the client belongs to; ``lines`` are a whole transcript.

    A command is known by its line, which the client was shown before, and then by its terminal.
    """

    def __init__(self, lines: Iterable[Line]) -> None:
        self._of_create: dict[tuple[int, str], str] = {}
        self._of_terminal: dict[tuple[int, JsonValue], str] = {}
        waiting: dict[str, JsonValue] = {}  # the lines of calls that have no terminal yet
        for line in lines:
            if line.method == "terminal/create" and line.kind == "request":
                words = [line.params.get("command"), *arr(line.params.get("args"))]
                owner = next((one for one in waiting if waiting[one] == words[-1]), None)
                if owner is not None:
                    del waiting[owner]
                    self._of_create[_create(line, line.message)] = owner
            elif line.method == "terminal/create":
                owner = self._of_create.get(_create(line, obj(line.request)))
                if owner is not None:
                    terminal = obj(line.message.get("result")).get("terminalId")
                    self._of_terminal[line.entry.run, terminal] = owner
            elif (call := text_or_none(line.update.get("toolCallId"))) is not None:
                if line.update.get("status") in {"completed", "failed"}:
                    waiting.pop(call, None)
                elif "rawInput" in line.update:
                    waiting[call] = obj(line.update["rawInput"]).get("command")

    def call(self, line: Line) -> str | None:
        """The id of the call; None if the message names none."""
        if line.method == "terminal/create":
            return self._of_create.get(_create(line, line.message))
        params = obj(obj(line.withdrawn).get("params")) or line.params
        if "terminalId" in params:
            return self._of_terminal.get((line.entry.run, params["terminalId"]))
        told = (obj(params.get(name)).get("toolCallId") for name in ("update", "toolCall"))
        return next(filter(None, map(text_or_none, (*told, params.get("toolCallId")))), None)


def _create(line: Line, request: JsonObject) -> tuple[int, str]:
    return line.entry.run, repr(request.get("id"))


def _sorted(items: Iterable[Item], call_of: Callable[[Item], str | None]) -> list[Item]:
    """Each stretch between two "" by its calls as they appeared; what has none comes last."""
    made: list[Item] = []
    of_calls: dict[str, list[Item]] = {}
    of_none: list[Item] = []
    for item in items:
        call = call_of(item)
        if call == "":
            made += [*chain(*of_calls.values()), *of_none, item]
            of_calls.clear()
            of_none.clear()
        else:
            (of_none if call is None else of_calls.setdefault(call, [])).append(item)
    return [*made, *chain(*of_calls.values()), *of_none]


def _numbered(row: JsonObject, seqs: dict[str, JsonValue]) -> JsonObject:
    made = dict(row)
    if "seq" in made:
        made["seq"] = seqs[str(made["seq"])]
    if sources := arr(made.get("sourceEventSeqs")):
        made["sourceEventSeqs"] = [seqs.get(str(seq), seq) for seq in sources]
    return made
