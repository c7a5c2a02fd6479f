"""What is told of a scenario that shows something else than its session."""

import pytest

from acp_bridge.testing.recording.likeness import unlike
from acp_bridge.vocabulary import JsonObject


def said(name: str, text: str, kind: str = "agent_message_chunk") -> JsonObject:
    return {"sessionUpdate": kind, "messageId": name, "content": {"type": "text", "text": text}}


def call(call_id: str, tool: str, status: str, text: str) -> JsonObject:
    output: JsonObject = {"text": text}
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": call_id,
        "name": tool,
        "status": status,
        "rawOutput": output,
    }


LONG = "x" * 500


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ([said("3.1.1.0", "a")], [said("2.1.1.0", "a")], []),
        (
            [said("1.1.1.0", "a"), said("2.1.1.0", "b")],
            [said("1.1.1.0", "b"), said("2.1.1.0", "a")],
            ["all is there, in another order"],
        ),
        (
            [said("compaction.a", "Cut off."), said("compaction.b", "Cut off.")],
            [],
            ['2 times: what is told of a summary is not there in the scenario: "Cut off."'],
        ),
        (
            [said("1.1.1.0", LONG + "old")],
            [said("1.1.1.0", LONG + "new")],
            [
                (
                    f'what the agent said in turn 1 was "…{"x" * 23}old", '
                    f'in the scenario "…{"x" * 23}new"'
                )
            ],
        ),
        (
            [said("u", "Hi", "user_message_chunk")],
            [],
            ['your prompt is not there in the scenario: "Hi"'],
        ),
        (
            [call("c1", "goal", "completed", "1"), call("c2", "goal", "completed", "2")],
            [call("c1", "goal", "failed", "no"), call("c2", "goal", "failed", "no")],
            [
                (
                    "goal completed in the session, failed in the scenario (c1, c2): "
                    'it was "1", in the scenario "no"'
                )
            ],
        ),
        (
            [call(f"c{number}", "read", "completed", "a") for number in range(5)],
            [call(f"c{number}", "read", "completed", "b") for number in range(5)],
            ['read has another result (c0, c1, c2 and 2 more): it was "a", in the scenario "b"'],
        ),
        ([call("c1", "read", "completed", "")], [], ["read is not there in the scenario (c1)"]),
    ],
    ids=["moved", "order", "twice", "text", "prompt", "status", "result", "gone"],
)
def test_differences_are_short_and_told_once(
    before: list[JsonObject], now: list[JsonObject], told: list[str]
) -> None:
    assert unlike(before, now) == told
