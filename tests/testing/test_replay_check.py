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


def test_what_was_stored_before_the_transcript_has_no_difference_at_its_first_load() -> None:
    loads = transcript(REPLAY)[len(LIVE) :]
    assert replay_differences(loads) == []
    again = [*loads, *transcript(REPLAY[:2])[len(LIVE) :]]
    assert any("live had" in difference for difference in replay_differences(again))


def forked_while(prompts: list[JsonObject]) -> list[Entry]:
    """A fork is made after LIVE and these; then its load shows LIVE as REPLAY has it."""
    fork: JsonObject = {"id": 8, "method": "session/fork", "params": {"sessionId": "s"}}
    load: JsonObject = {"id": 9, "method": "session/load", "params": {"sessionId": "f"}}
    shown = [{**one, "params": {**one["params"], "sessionId": "f"}} for one in REPLAY]  # type: ignore[dict-item]
    return [
        *(Entry(1, "client", message) for message in LIVE),
        *(Entry(1, "client" if "result" in one else "agent", one) for one in prompts),
        Entry(1, "agent", fork),
        Entry(1, "client", {"id": 8, "result": {"sessionId": "f"}}),
        Entry(1, "agent", load),
        *(Entry(1, "client", message) for message in shown),
        Entry(1, "client", {"id": 9, "result": {}}),
    ]


def prompt(request_id: int) -> JsonObject:
    return {"id": request_id, "method": "session/prompt", "params": {"sessionId": "s"}}


def test_a_fork_has_all_that_its_source_showed_but_a_running_turn() -> None:
    running = text("m2", "half")
    ended: JsonObject = {"id": 5, "result": {}}
    assert replay_differences(forked_while([])) == []
    assert replay_differences(forked_while([prompt(5), prompt(6)])) == []
    entries = forked_while([prompt(5)])
    entries.insert(len(LIVE) + 1, Entry(1, "client", running))
    assert replay_differences(entries) == []
    entries = forked_while([prompt(5), ended, prompt(6)])
    entries.insert(len(LIVE) + 1, Entry(1, "client", running))
    assert any("live had" in one for one in replay_differences(entries))


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


@pytest.mark.parametrize(
    ("words", "told"), [("tried again", None), ("lost", "text was"), (None, "only one of live")]
)
def test_what_is_said_of_a_subagent_on_its_root_has_no_place_among_the_rest(
    words: str | None, told: str | None
) -> None:
    def of_kid(text: str) -> JsonObject:
        meta: JsonObject = {"acp-bridge": {"childSessionId": "k"}}
        content: JsonObject = {"type": "text", "text": text}
        return update("agent_thought_chunk", messageId="k/1", content=content, _meta=meta)

    again = [*([] if words is None else [of_kid(words)]), text("m2", "meanwhile")]
    entries = transcript([*REPLAY, *again])
    live = [text("m2", "meanwhile"), of_kid("tried again")]
    entries[len(LIVE) : len(LIVE)] = [Entry(1, "client", message) for message in live]
    found = replay_differences(entries)
    assert (told is None and found == []) or any(str(told) in difference for difference in found)


def test_what_a_kill_took_is_no_difference() -> None:
    assert replay_differences(transcript(REPLAY[:2]), killed_runs=[1]) == []


@pytest.mark.parametrize("lost", [False, True])
def test_a_subagent_that_a_load_finds_in_the_middle_of_a_message_says_it_anew(lost: bool) -> None:
    def load(number: int, replay: list[JsonObject]) -> list[Entry]:
        asked: JsonObject = {"id": number, "method": "session/load", "params": {"sessionId": "s"}}
        told: list[JsonObject] = [*replay, {"id": number, "result": {}}]
        return [Entry(1, "agent", asked), *(Entry(1, "client", message) for message in told)]

    began = [kid("running"), of("k", text("k1", "Hel"))]
    anew = [of("k", text("k1", "lo" if lost else "Hello")), kid("idle")]
    entries = [
        *(Entry(1, "client", message) for message in began),
        *load(1, [kid("running")]),
        *(Entry(1, "client", message) for message in anew),
        *load(2, [kid("running"), of("k", text("k1", "Hello")), kid("idle")]),
    ]
    assert bool(replay_differences(entries)) is lost
