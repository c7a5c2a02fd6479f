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
    update("plan", entries=["a"]),
    update("plan", entries=[]),
]
REPLAY: list[JsonObject] = [
    update("user_message_chunk", messageId="u", content={"type": "text", "text": "hi"}),
    text("m1", "Hello"),
    update("tool_call", toolCallId="c", title="Write", kind="edit", status="pending"),
    update("tool_call_update", toolCallId="c", status="failed", content=["no"]),
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
    ],
    ids=["text", "id", "missing", "status", "plan"],
)
def test_a_difference_is_told(at: int, replacement: list[JsonObject], word: str) -> None:
    replay = copy.deepcopy(REPLAY)
    replay[at : at + 1] = replacement
    assert any(word in difference for difference in replay_differences(transcript(replay)))


def of(session: str, message: JsonObject) -> JsonObject:
    params = message["params"]
    assert isinstance(params, dict)
    return {**message, "params": {**params, "sessionId": session}}


def kid(state: str, **members: JsonValue) -> JsonObject:
    return update("subagent_update", sessionId="k", state={"state": state}, **members)


LIVE_KID: list[JsonObject] = [
    kid("running", title="reviewer"),
    of("k", text("k1", "Fou")),
    text("m2", "meanwhile"),
    of("k", text("k1", "nd")),
    kid("idle"),
]
REPLAYED_KID: list[JsonObject] = [
    kid("running", title="reviewer"),
    of("k", text("k1", "Found")),
    kid("idle"),
    text("m2", "meanwhile"),
]


@pytest.mark.parametrize(
    ("at", "replacement", "word"),
    [
        (0, None, None),
        (1, of("k", text("k1", "Lost")), "text was"),
        (2, kid("idle", title="other"), "title was"),
        (2, kid("running"), "state was"),
        (1, kid("running"), "live had"),
    ],
    ids=["faithful", "text", "title", "state", "nothing of it"],
)
def test_a_subagent_is_compared_whatever_it_worked_beside(
    at: int, replacement: JsonObject | None, word: str | None
) -> None:
    again = copy.deepcopy(REPLAYED_KID)
    if replacement is not None:
        again[at] = replacement
    entries = transcript([*REPLAY, *again])
    entries[len(LIVE) : len(LIVE)] = [Entry(1, "client", message) for message in LIVE_KID]
    found = replay_differences(entries)
    assert (word is None and found == []) or any(str(word) in difference for difference in found)


def test_what_a_kill_took_is_no_difference() -> None:
    assert replay_differences(transcript(REPLAY[:2]), killed_runs=[1]) == []
