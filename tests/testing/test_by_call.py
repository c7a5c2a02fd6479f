"""What calls of one answer did, pinned call by call."""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest

from acp_bridge.testing.by_call import Owners, lines_by_call, messages_by_call, rows_by_call
from acp_bridge.testing.scenario import load
from acp_bridge.testing.transcript import Entry, Line, read
from acp_bridge.vocabulary import JsonObject, JsonValue


def update(**members: JsonValue) -> JsonObject:
    return {"method": "session/update", "params": {"sessionId": "s", "update": members}}


def call(call_id: str, **members: JsonValue) -> JsonObject:
    return update(sessionUpdate="tool_call", toolCallId=call_id, **members)


def done(call_id: str) -> JsonObject:
    return update(sessionUpdate="tool_call_update", toolCallId=call_id, status="completed")


def to_client(messages: Sequence[JsonObject]) -> list[Line]:
    return list(read([Entry(1, "client", one) for one in messages]))


CREATE: JsonObject = {
    "id": 1,
    "method": "terminal/create",
    "params": {"sessionId": "s", "command": "bash", "args": ["-c", "make"]},
}
CREATED: JsonObject = {"id": 1, "result": {"terminalId": "t"}}
WAIT: JsonObject = {
    "id": 2,
    "method": "terminal/wait_for_exit",
    "params": {"sessionId": "s", "terminalId": "t"},
}
ASK: JsonObject = {
    "id": 3,
    "method": "session/request_permission",
    "params": {"sessionId": "s", "toolCall": {"toolCallId": "c2"}},
}
WORD = update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "Done."})


def interleaved(
    first: Sequence[JsonObject], second: Sequence[JsonObject]
) -> list[list[JsonObject]]:
    """Every order that two calls beside each other can come in."""
    places = set(permutations([0] * len(first) + [1] * len(second)))
    made = []
    for order in sorted(places):
        left = [list(first), list(second)]
        made.append([left[one].pop(0) for one in order])
    return made


def test_messages_of_calls_beside_each_other_are_pinned_in_one_order() -> None:
    start = [call("c1", rawInput={"command": "make"}), call("c2", rawInput={"path": "a"})]
    found = set()
    for middle in interleaved([CREATE, WAIT, done("c1")], [ASK, done("c2")]):
        entries = [Entry(1, "client", one) for one in [*start, *middle, WORD]]
        entries.insert(entries.index(Entry(1, "client", WAIT)), Entry(1, "agent", CREATED))
        lines = read(entries)
        shown = lines_by_call([one for one in lines if one.entry.to == "client"], Owners(lines))
        found.add(str([one.message for one in shown]))
    wanted = [start[0], CREATE, WAIT, done("c1"), start[1], ASK, done("c2"), WORD]
    assert found == {str(wanted)}


def test_a_plan_stands_behind_the_calls_that_it_came_among() -> None:
    plan = update(sessionUpdate="plan", entries=[])
    calls = [call("c1"), done("c1"), call("c2"), done("c2")]
    for place in range(len(calls) + 1):
        lines = to_client([WORD, *calls[:place], plan, *calls[place:], WORD])
        shown = [one.message for one in lines_by_call(lines, Owners(lines))]
        assert shown == [WORD, *calls, plan, WORD]


def test_what_the_model_says_between_calls_keeps_its_place() -> None:
    end: JsonObject = {"id": "p", "result": {}}
    messages = [call("c2"), done("c2"), WORD, call("c1"), done("c1"), end]
    lines = to_client(messages)
    assert lines_by_call(lines, Owners(lines)) == lines


def row(seq: int, kind: str, **data: JsonValue) -> JsonObject:
    return {"seq": seq, "type": kind, "data": data}


def test_rows_are_numbered_in_the_order_of_the_calls() -> None:
    header: JsonObject = {"type": "session", "id": "s"}
    result: JsonObject = {**row(5, "tool/result", message={"toolCallId": "c1"})}
    rows: list[JsonObject] = [
        header,
        row(0, "assistant/message"),
        row(1, "tool/call", callId="c1"),
        row(2, "approval/asked", callId="c2", id="a"),
        row(3, "approval/decided", id="a"),
        row(4, "plugin:acp-bridge/grant"),
        {**result, "sourceEventSeqs": [1]},
        row(6, "step/end"),
    ]
    shown = rows_by_call(rows)
    assert [one.get("seq") for one in shown] == [None, *range(7)]
    assert [one["type"] for one in shown[2:4]] == ["tool/call", "tool/result"]
    assert shown[3]["sourceEventSeqs"] == [1]
    assert [one["type"] for one in shown[5:7]] == ["approval/decided", "plugin:acp-bridge/grant"]
    assert rows_by_call(shown) == shown


def test_results_stand_in_the_order_of_the_calls_that_a_model_made() -> None:
    blocks: list[JsonObject] = [{"type": "tool-call", "id": "z"}, {"type": "tool-call", "id": "a"}]
    said: JsonObject = {"role": "assistant", "content": [*blocks]}
    results: list[JsonObject] = [{"role": "tool", "toolCallId": one} for one in ("a", "z")]
    user: JsonObject = {"role": "user"}
    assert messages_by_call([user, said, *results, user, said, *results]) == [
        *[user, said, results[1], results[0]],
        *[user, said, results[1], results[0]],
    ]


def test_an_order_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "input.json").write_text('{"description": "x", "steps": [], "order": "any"}')
    with pytest.raises(ValueError, match="unknown order: 'any'"):
        load(tmp_path)
