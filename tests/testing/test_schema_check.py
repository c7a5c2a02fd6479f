"""The check against the official schema: what passes, and that it is strict about the rest."""

import pytest

from acp_bridge.testing.check import official_schema
from acp_bridge.testing.schema import schema_problems
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import JsonObject, JsonValue


def problems(*messages: JsonObject) -> list[str]:
    entries = [
        Entry(1, "agent" if "ask" in message else "client", {"jsonrpc": "2.0", **message})
        for message in messages
    ]
    return schema_problems(entries, official_schema())


def update(**members: JsonValue) -> JsonObject:
    return {"method": "session/update", "params": {"sessionId": "s", "update": members}}


TEXT: JsonObject = {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    "message",
    [
        update(sessionUpdate="agent_message_chunk", content=TEXT, messageId="m"),
        update(sessionUpdate="tool_call", toolCallId="c", title="t", _meta={"any": [1, None]}),
        update(sessionUpdate="tool_call", toolCallId="c", title="t", rawInput={"any": {"a": 1}}),
        update(sessionUpdate="usage_update", used=1, size=2),
        update(sessionUpdate="session_info_update", title=None),
        {"method": "_mine/anything", "params": {"x": 1}},
        update(
            sessionUpdate="subagent_update",
            sessionId="k",
            capabilities={"cancel": {}},
            state={"state": "idle", "stopReason": "error", "error": {"code": 1, "message": "m"}},
        ),
        update(sessionUpdate="session_message", messageId="m", content=[TEXT]),
    ],
    ids=["chunk", "meta", "raw", "usage", "info", "extension", "subagent", "between"],
)
def test_good_messages_pass(message: JsonObject) -> None:
    assert problems(message) == []


@pytest.mark.parametrize(
    "message",
    [
        update(sessionUpdate="agent_message_chunk", content=TEXT, messageID="m"),
        update(sessionUpdate="agent_message_chunk", content={**TEXT, "more": 1}),
        update(sessionUpdate="tool_call", toolCallId="c", title="t", kind="edt"),
        update(sessionUpdate="tool_call", toolCallId="c"),
        update(sessionUpdate="subagent_spawned", name="x"),
        {"method": "session/updated", "params": {}},
        {"id": 1, "result": {}},
        {"id": 1, "method": "session/request_permission", "params": {"sessionId": "s"}},
    ],
    ids=["member", "inner", "kind", "required", "unknown", "method", "nothing", "permission"],
)
def test_bad_messages_are_found(message: JsonObject) -> None:
    assert problems(message) != []


def test_a_response_is_held_against_its_method() -> None:
    def entries(result: JsonObject) -> list[Entry]:
        return [
            Entry(1, "agent", {"jsonrpc": "2.0", "id": 1, "method": "session/prompt"}),
            Entry(1, "client", {"jsonrpc": "2.0", "id": 1, "result": result}),
        ]

    assert schema_problems(entries({"stopReason": "end_turn"}), official_schema()) == []
    assert schema_problems(entries({"stopReason": "done"}), official_schema()) != []
    assert schema_problems(entries({"stopReason": "end_turn", "x": 1}), official_schema()) != []
