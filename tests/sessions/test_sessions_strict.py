"""The writer's own strictness: payloads that the format's reader would take and we do not write."""

import attrs
import pytest
from session_rows import answer, call, opening, result, text_turn, user

from acp_bridge.errors import LocalProtocolError
from acp_bridge.sessions.validation.strict import check_draft
from acp_bridge.vocabulary import Draft, JsonValue

FAILURE: JsonValue = {"message": "m", "code": "C"}
USAGE: JsonValue = {"inputTokens": 1, "outputTokens": 2}


def with_data(draft: Draft, **change: JsonValue) -> Draft:
    assert isinstance(draft.data, dict)
    return attrs.evolve(draft, data={**draft.data, **change})


def stream(*records: JsonValue) -> Draft:
    return with_data(answer(1), stream=list(records))


RUN: dict[str, JsonValue] = {"type": "text-chunks", "time0": 1, "index": 0}

SUMMARY = Draft(
    "compaction/summary",
    {
        "compactionId": "k",
        "summary": [{"type": "text", "text": "t"}],
        "llmStreamCall": True,
        "shadowedRange": {"start": 3, "end": 5},
        "shadowedSeqs": [3, 4, 5],
        "shadowedTokenCount": 7,
        "provider": "p",
        "model": "m",
        "usage": USAGE,
    },
)
CHECKPOINT = Draft(
    "user/message",
    {
        "role": "user",
        "id": "u",
        "content": [{"type": "text", "text": "t"}],
        "source": {"kind": "compact-checkpoint", "compactionId": "k"},
    },
    (3, 5),
    (2, 6, 3, 4, 5),
)

GOOD = [
    *text_turn(1),
    call(1, "c"),
    result(1, "c", 3),
    with_data(answer(1), usage=USAGE, interrupted=True),
    Draft("permission/preset", {"preset": "ask"}),
    Draft("sandbox/mode", {"mode": "read-only"}),
    Draft("approval/policy", {"policy": "ask"}),
    Draft("approval/asked", {"id": "a", "toolName": "bash", "callId": "c", "reason": "r"}),
    Draft("approval/decided", {"id": "a", "outcome": "allowed-once"}),
    Draft("assistant/attempt", {"turn": 1, "step": 1, "stream": []}),
    Draft("session/title", {"title": "t", "messageSeqs": [1], "source": {"kind": "fallback"}}),
    Draft("todo/write", {"todos": [{"content": "x", "status": "pending"}]}),
    Draft("compaction/start", {"compactionId": "k", "turn": None, "sourceCommandId": "c"}),
    Draft("compaction/start", {"compactionId": "k", "turn": 3}),
    SUMMARY,
    CHECKPOINT,
    Draft("compaction/end", {"compactionId": "k", "turn": 3}),
    Draft("compaction/end", {"compactionId": "k", "turn": None, "error": "no"}),
    Draft("session/end-seed", {}),
    Draft("plugin:acp-bridge/place", {"anything": [1.5]}, ignorable=True),
    Draft("turn/end", {"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "user"}}}),
    Draft(
        "turn/end", {"turn": 1, "reason": {"kind": "error", "error": {"message": "m", "code": "C"}}}
    ),
]

DESCRIPTOR: dict[str, JsonValue] = {
    "version": 3,
    "mode": "continuable",
    "provider": "spawn",
    "label": "l",
    "agentProvider": "p",
    "agentModel": "m",
}
LISTED: dict[str, JsonValue] = {
    "version": 0,
    "childId": "c",
    "childCreatedAt": 1,
    "mode": "one-shot",
    "label": "l",
}
NOTICE: dict[str, JsonValue] = {
    "kind": "subagent-settled",
    "form": "notice",
    "summary": "s",
    "senderSessionId": "c",
}


def sent(source: JsonValue) -> Draft:
    return Draft("user/message", {**user("m"), "source": source}, "append")


GOOD += [
    Draft("subagent/descriptor", DESCRIPTOR),
    Draft("subagent/descriptor", {**DESCRIPTOR, "agentReasoningEffort": "high"}),
    Draft("subagent/catalog", LISTED),
    sent(NOTICE),
    sent({"kind": "agent-message", "form": "relay", "senderSessionId": "p"}),
    sent({"kind": "of-tomorrow", "anything": 1}),
]

BAD = [
    (Draft("subagent/descriptor", {**DESCRIPTOR, "version": 2}), ".version is none of 3"),
    (Draft("subagent/descriptor", {**DESCRIPTOR, "mode": "one-shot"}), ".mode is none of"),
    (Draft("subagent/descriptor", {**DESCRIPTOR, "label": ""}), ".label is no text, or empty"),
    (Draft("subagent/descriptor", {**DESCRIPTOR, "agentReasoningEffort": None}), "ReasoningEffort"),
    (Draft("subagent/catalog", {**LISTED, "version": 1}), ".version is none of 0"),
    (Draft("subagent/catalog", {**LISTED, "mode": "external"}), ".mode is none of"),
    (Draft("subagent/catalog", {**LISTED, "childCreatedAt": -1}), "childCreatedAt is no count"),
    (sent({**NOTICE, "form": "relay"}), ".source.form is none of"),
    (sent({**NOTICE, "summary": ""}), ".source.summary is no text"),
    (sent({"kind": "agent-message", "form": "relay"}), "lacks 'senderSessionId'"),
    (sent({"kind": 1}), ".source.kind is no text"),
    (Draft("permission/preset", {}), "lacks 'preset'"),
    (Draft("sandbox/mode", {"mode": "open"}), ".mode is none of"),
    (Draft("approval/policy", {"policy": "ask", "why": 1}), "unknown member 'why'"),
    (Draft("approval/asked", {"id": "", "toolName": "bash"}), ".id is no text, or empty"),
    (Draft("approval/decided", {"id": "a", "outcome": "yes"}), ".outcome is none of"),
    (Draft("turn/start", {"turn": 0}), ".turn is no number from 1"),
    (Draft("turn/start", {"turn": True}), ".turn is no number from 1"),
    (Draft("turn/end", {"turn": 1, "reason": {"kind": "bored"}}), "unknown kind 'bored'"),
    (Draft("turn/end", {"turn": 1, "reason": {"kind": "error"}}), "lacks 'error'"),
    (Draft("todo/write", {"todos": [{"content": "x", "status": "done"}]}), r"\.todos\[0\]\.status"),
    (Draft("session/end-seed", {"inherited": False}), ".inherited is none of True"),
    (Draft("session/title", {"title": "", "messageSeqs": [], "source": {"kind": "user"}}), "title"),
    (with_data(answer(1), usage={"inputTokens": -1, "outputTokens": 0}), "inputTokens is no count"),
    (with_data(answer(1), interrupted=False), "interrupted is none of"),
    (stream({**RUN, "dt": [], "texts": ["a", "b"]}), "does not fit its pieces"),
    (stream({**RUN, "dt": [], "texts": []}), "does not fit its pieces"),
    (stream({**RUN, "dt": [1.5], "texts": ["a", "b"]}), "no array of integers"),
    (stream({**RUN, "dt": [], "texts": [None]}), "no array of texts"),
    (stream({"type": "delta"}), "unknown type 'delta'"),
    (with_data(result(1, "c", 3), meta=1, error={"name": "x"}), ".error lacks 'code'"),
    (attrs.evolve(call(1, "c"), ignorable=True), "must not be ignorable"),
    (attrs.evolve(answer(1), surface_op=None), "needs a surface op"),
    (Draft("plugin:acp-bridge/place", {}), "must be ignorable"),
    (Draft("plugin:Bad Name", {}, ignorable=True), "No shape"),
    (Draft("new/thing", {}, ignorable=True), "No shape"),
    (Draft("goal/change", {}), "No shape"),
    (Draft("plugin:a/b", {}, "append", ignorable=True), "off the surface"),
    (Draft("llm/retry", {"turn": 1}), "lacks"),
    (Draft("compaction/start", {"compactionId": "k"}), "lacks 'turn'"),
    (Draft("compaction/start", {"compactionId": "k", "turn": 0}), "no number from 1, and is none"),
    (Draft("compaction/end", {"compactionId": "k", "turn": 1, "error": ""}), ".error is no text"),
    (with_data(SUMMARY, summary=[]), "has an empty summary"),
    (with_data(SUMMARY, summary=[{"type": "text"}]), r"\.summary\[0\] lacks"),
    (with_data(SUMMARY, shadowedTokenCount=0.5), "shadowedTokenCount is no count"),
    (with_data(CHECKPOINT, source={"kind": "compact-checkpoint"}), "lacks 'compactionId'"),
    (with_data(CHECKPOINT, source={"kind": "compact-checkpoint", "x": 1}), ".source"),
]


@pytest.mark.parametrize("draft", GOOD, ids=lambda draft: draft.type)
def test_a_good_payload_is_taken(draft: Draft) -> None:
    check_draft(draft)


@pytest.mark.parametrize(("draft", "why"), BAD)
def test_a_bad_payload_is_our_own_bug(draft: Draft, why: str) -> None:
    with pytest.raises(LocalProtocolError, match=why):
        check_draft(draft)


def test_every_row_of_a_turn_has_a_shape() -> None:
    for draft in opening(1):
        check_draft(draft)
        with pytest.raises(LocalProtocolError):
            check_draft(attrs.evolve(draft, data=None))


def test_a_retry_has_a_limit_exactly_in_normal_mode() -> None:
    retry = Draft(
        "llm/retry",
        {
            "turn": 1,
            "step": 1,
            "retryId": "r",
            "provider": "p",
            "mode": "normal",
            "policyKey": "k",
            "retry": 1,
            "maxRetries": 5,
            "delayMs": 0.5,
            "failure": {"message": "m", "code": "SERVER", "status": 503},
        },
    )
    check_draft(retry)
    check_draft(Draft("llm/retry-started", {"turn": 1, "step": 1, "retryId": "r", "retry": 1}))
    with pytest.raises(LocalProtocolError, match="maxRetries"):
        check_draft(with_data(retry, mode="always"))
    with pytest.raises(LocalProtocolError, match="delayMs is no finite number"):
        check_draft(with_data(retry, delayMs=float("inf")))
