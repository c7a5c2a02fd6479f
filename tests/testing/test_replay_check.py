"""The comparison of a replay with what was live: what it must see, and what it must not."""

import copy

import pytest

from acp_bridge.testing.replay import replay_differences
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import JsonObject, JsonValue


def update(kind: str, /, **members: JsonValue) -> JsonObject:
    params: JsonObject = {"sessionId": "s", "update": {"sessionUpdate": kind, **members}}
    return {"method": "session/update", "params": params}


def text(message_id: str, words: str) -> JsonObject:
    content: JsonObject = {"type": "text", "text": words}
    return update("agent_message_chunk", messageId=message_id, content=content)


LIVE: list[JsonObject] = [
    text("m1", "Hel"),
    text("m1", "lo"),
    update("tool_call", toolCallId="c", title="Write", kind="edit", status="pending"),
    update("tool_call_update", toolCallId="c", status="pending", content=["diff"]),
    update("tool_call_update", toolCallId="c", status="failed", content=["no"]),
    update("compaction_update", compactionId="k", status="in_progress"),
    update("compaction_update", compactionId="k", status="completed", summary=["so"]),
    update("plan", entries=["a"]),
    update("plan", entries=[]),
]
REPLAY: list[JsonObject] = [
    update("user_message_chunk", messageId="u", content={"type": "text", "text": "hi"}),
    text("m1", "Hello"),
    update("tool_call", toolCallId="c", title="Write", kind="edit", status="pending"),
    update("tool_call_update", toolCallId="c", status="failed", content=["no"]),
    update("compaction_update", compactionId="k", status="in_progress"),
    update("compaction_update", compactionId="k", status="completed", summary=["so"]),
]


def transcript(replay: list[JsonObject]) -> list[Entry]:
    load: JsonObject = {"id": 1, "method": "session/load", "params": {"sessionId": "s"}}
    return [
        *(Entry(1, "client", message) for message in LIVE),
        Entry(2, "agent", load),
        *(Entry(2, "client", message) for message in replay),
        Entry(2, "client", {"id": 1, "result": {}}),
    ]


def test_a_faithful_replay_has_no_differences() -> None:
    assert replay_differences(transcript(REPLAY)) == []


@pytest.mark.parametrize(
    ("at", "replacement", "word"),
    [
        (1, [text("m1", "Hell")], "text was"),
        (1, [text("m2", "Hello")], "live had"),
        (1, [], "live had"),
        (3, [update("tool_call_update", toolCallId="c", status="completed")], "status was"),
        (3, [update("plan", entries=["a"])], "the plan was"),
        (5, [update("compaction_update", compactionId="k", status="cancelled")], "status was"),
        (5, [update("compaction_update", compactionId="k", status="completed")], "summary was"),
    ],
    ids=["text", "id", "missing", "status", "plan", "compaction", "summary"],
)
def test_a_difference_is_told(at: int, replacement: list[JsonObject], word: str) -> None:
    replay = copy.deepcopy(REPLAY)
    replay[at : at + 1] = replacement
    assert any(word in difference for difference in replay_differences(transcript(replay)))


def test_what_a_kill_took_is_no_difference() -> None:
    assert replay_differences(transcript(REPLAY[:2]), killed_runs=[1]) == []
