"""The finer rules: blocks, tools of code mode and of the registry, images, commands, titles."""

import attrs
import pytest
from session_rows import (
    answer,
    call,
    folded,
    opening,
    request_header,
    result,
    spliced,
    system_row,
    text_turn,
    user,
)

from acp_bridge.errors import SessionCorruptError
from acp_bridge.vocabulary import Draft, JsonObject, JsonValue

TURN = text_turn(1)
CALLED = [*opening(1), answer(1, "c", "d"), call(1, "c"), result(1, "c", 8)]
TOOL: JsonObject = {"name": "t", "description": "d", "parameters": {}}
CONFIG: JsonObject = {"provider": "p", "model": "m"}
IMAGE: JsonObject = {"type": "image", "attachment": {}}
SHOWN = [Draft("user/message", {**user("u"), "content": [IMAGE, IMAGE]}, "append")]


def titled(seqs: JsonValue, source: JsonValue) -> Draft:
    return Draft("session/title", {"title": "t", "messageSeqs": seqs, "source": source})


def asked(seqs: list[JsonValue], *messages: JsonValue) -> Draft:
    return Draft("session/title-llm-request", {"messageSeqs": seqs, "messages": list(messages)})


TITLE_MESSAGE: JsonObject = {
    "role": "user",
    "source": {"kind": "dsh-session-title-llm"},
    "content": [{"type": "text", "text": "name it"}],
}


def headed(header: JsonValue, reason: str = "change") -> Draft:
    return Draft("request/header", {"header": header, "reason": reason})


def offload(*targets: JsonValue) -> Draft:
    return Draft("image/offload", {"targets": list(targets)})


def target(seq: int, *indexes: JsonValue) -> JsonObject:
    return {"seq": seq, "imageIndexes": list(indexes)}


def tool_change(
    change: str, name: str, header_seq: int | None = None, *, source: str = "tool-registry"
) -> Draft:
    data: JsonObject = {
        "turn": 1,
        "step": 1,
        "message": {
            "role": "developer",
            "id": "d",
            "source": {"kind": source},
            "content": [{"type": change, "toolName": name}],
        },
    }
    if header_seq is not None:
        data["headerSeq"] = header_seq
    return Draft("developer/message", data, "append")


def system_of(*blocks: JsonValue, source: str = "system-prompt") -> Draft:
    message: JsonObject = {
        "role": "system",
        "id": "s",
        "content": list(blocks),
        "source": {"kind": source},
    }
    return Draft("system/message", {"turn": 1, "step": 1, "message": message}, "append")


def streamed(record: JsonValue) -> Draft:
    draft = answer(1)
    assert isinstance(draft.data, dict)
    return attrs.evolve(draft, data={**draft.data, "stream": [record]})


def shadow(kind: str, start: int, end: int, *seqs: int, **more: JsonValue) -> Draft:
    return Draft(
        kind,
        {"shadowedRange": {"start": start, "end": end}, "shadowedSeqs": list(seqs), **more},
    )


def command(done: bool = False, **data: JsonValue) -> Draft:
    return Draft("command/done" if done else "command/run", {"commandId": "k", **data})


def forked(seq: int, surface: tuple[int, int] | None = None, *sources: int) -> Draft:
    """A forked result for the call that never started; with a surface, its later rewriting."""
    message: JsonObject = {
        "id": f"forked-tool-result-d-{seq}",
        "role": "tool",
        "toolCallId": "d",
        "isError": True,
        "source": {"kind": "tool", "callId": "d"},
        "content": [{"type": "text", "text": "forked" if surface is None else "cut"}],
    }
    error: JsonObject = {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    data: JsonObject = {"turn": 1, "step": 1, "message": message, "error": error}
    return Draft("tool/result", data, surface or "append", sources or None)


BASE = opening(1)[:4]  # a step is open, no message yet
START = Draft("turn/start", {"turn": 1})
RETRY: JsonObject = {"retryId": "r", "turn": 1, "step": 1, "provider": "p", "retry": 1}
MANUAL = Draft("compaction/start", {"compactionId": "k", "turn": None})
SUMMARY = shadow("compaction/summary", 5, 7, 5, 7, compactionId="k", summary=[])

SOUND: dict[str, list[Draft]] = {
    "a tool that the header defines": [
        *opening(1),
        headed({"config": CONFIG, "tools": [TOOL]}),
        tool_change("tool-addition", "t", 7),
        tool_change("tool-removal", "t"),
    ],
    "defaults that the config holds": [
        START,
        headed({"config": {**CONFIG, "maxTokens": 5}, "adapterDefaults": {"maxTokens": True}}),
    ],
    "a title that a model is asked for": [*TURN, asked([5], TITLE_MESSAGE)],
    "images offloaded one after the other": [*SHOWN, offload(target(0, 1)), offload(target(0, 0))],
    "a system prompt of other blocks": [
        *BASE,
        system_of({"type": "reasoning", "text": "x"}, IMAGE, {"type": "new"}),
    ],
    "a forked result that is rewritten": [*CALLED, forked(10), forked(10, (10, 10), 10)],
    "a stream that nobody checks": [*opening(1), streamed(5)],
    "a pruned stretch": [*TURN, shadow("compaction/prune", 7, 7, 7)],
    "children of every kind": [
        Draft(
            "subagent/catalog",
            {"version": version, "childId": mode, "childCreatedAt": 1, "mode": mode, "label": "l"},
        )
        for mode, version in [("one-shot", 0), ("continuable", 1), ("external", 2), ("unknown", 1)]
    ],
    "models that a policy allows": [
        Draft("subagent/model-selection-policy", {"allowedModels": [{**CONFIG}]})
    ],
    "a message to a team": [Draft("team/message/queued", {"message": {"content": [{}]}})],
}

CORRUPT: dict[str, tuple[list[Draft], str]] = {
    "a step in a step": ([*BASE, Draft("step/start", {"turn": 1, "step": 2})], "step 1/1 is open"),
    "a step of another turn": (
        [START, Draft("step/start", {"turn": 2, "step": 1})],
        "another turn",
    ),
    "a queued developer message": (
        [spliced(inserted=[{**user("u"), "role": "developer"}])],
        "cannot be queued",
    ),
    "a queued wrapper": (
        [spliced(inserted=[{**user("u"), "content": [{"type": "tool-result"}]}])],
        "retired",
    ),
    "an inbox of another name": (
        [Draft("agent/inbox/spliced", {"target": "later", "start": 0, "inserted": []})],
        "malformed",
    ),
    "a header with a system prompt": ([START, headed({"config": CONFIG, "system": "x"})], "sound"),
    "an empty effort": ([START, headed({"config": {**CONFIG, "reasoningEffort": ""}})], "effort"),
    "empty defaults": ([START, headed({"config": CONFIG, "adapterDefaults": {}})], "empty adapter"),
    "a default that the config lacks": (
        [START, headed({"config": CONFIG, "adapterDefaults": {"maxTokens": True}})],
        "malformed adapterDefaults",
    ),
    "a tool that is deferred to false": (
        [START, headed({"config": CONFIG, "tools": [{**TOOL, "deferLoading": False}]})],
        "malformed tool",
    ),
    "a retry elsewhere": ([*opening(1), Draft("llm/retry", {**RETRY, "step": 2})], "another step"),
    "a retry without a policy": ([*opening(1), Draft("llm/retry", RETRY)], "without its ids"),
    "a system prompt from elsewhere": ([*BASE, system_of(source="user")], "not the system prompt"),
    "a system image without bytes": ([*BASE, system_of({"type": "image"})], "attachment"),
    "a system tool call in parts": ([*BASE, system_of({"type": "tool-call"})], "without id"),
    "a tool change from elsewhere": (
        [*opening(1), tool_change("tool-removal", "t", source="other")],
        "not the tool registry",
    ),
    "a developer message with text": ([*opening(1), tool_change("other", "t")], "malformed tool"),
    "an addition without its header": (
        [*opening(1), tool_change("tool-addition", "t")],
        "do not go together",
    ),
    "a removal with a header": (
        [*opening(1), tool_change("tool-removal", "t", 6)],
        "do not go together",
    ),
    "an addition that the header lacks": (
        [*opening(1), tool_change("tool-addition", "t", 6)],
        "not defined by the named",
    ),
    "an addition from no header": (
        [*opening(1), tool_change("tool-addition", "t", 5)],
        "not defined by the named",
    ),
    "a message that is none": (
        [*opening(1), Draft("assistant/message", {"turn": 1, "step": 1, "stream": []}, "append")],
        "without a message",
    ),
    "a message of another role": (
        [Draft("user/message", {**user("u"), "role": "system"}, "append")],
        "role is not user",
    ),
    "a message without content": (
        [Draft("user/message", {**user("u"), "content": "hello"}, "append")],
        "without content",
    ),
    "a wrapper begun in a stream": (
        [*opening(1), streamed({"chunk": {"type": "block-start", "blockType": "tool-result"}})],
        "in a stream",
    ),
    "a wrapper ended in a stream": (
        [*opening(1), streamed({"chunk": {"block": {"type": "tool-result"}}})],
        "in a stream",
    ),
    "a result off the surface": (
        [*CALLED, attrs.evolve(result(1, "c", 8), surface_op=None)],
        "without a surfaceOp",
    ),
    "a result in a message's place": (
        [*CALLED, attrs.evolve(result(1, "c", 8), surface_op=(7, 7), source_event_seqs=(7,))],
        "other than one result",
    ),
    "a forked result with another seq": (
        [*CALLED, call(1, "d"), forked(7)],
        "does not name its seq",
    ),
    "a rewritten forked result that hides its first row": (
        [*CALLED, forked(10), forked(10, (10, 10), 9, 10)],
        "does not cite its first row",
    ),
    "a repair row that cites": ([*CALLED, forked(10, None, 8)], "never started"),
    "a repair row with an image": (
        [
            *CALLED,
            Draft(
                "tool/result",
                {
                    "turn": 1,
                    "step": 1,
                    "message": {
                        "id": "forked-tool-result-d-10",
                        "role": "tool",
                        "toolCallId": "d",
                        "isError": True,
                        "source": {"kind": "tool", "callId": "d"},
                        "content": [IMAGE],
                    },
                    "error": {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"},
                },
                "append",
            ),
        ],
        "never started",
    ),
    "a sub call without ids": ([START, Draft("tool/ptc-dispatch-start", {})], "ids of its own"),
    "the end of no sub call": ([START, Draft("tool/ptc-dispatch", {})], "does not run"),
    "a second summary": ([*TURN, MANUAL, SUMMARY, SUMMARY], "second summary"),
    "a summary without a range": (
        [MANUAL, Draft("compaction/summary", {"compactionId": "k"})],
        "without its range",
    ),
    "a compaction that ends elsewhere": (
        [MANUAL, Draft("compaction/end", {"compactionId": "k", "turn": 1, "error": "x"})],
        "another turn than its start",
    ),
    "a compaction whose error is none": (
        [MANUAL, Draft("compaction/end", {"compactionId": "k", "turn": None, "error": None})],
        "error is no text",
    ),
    "a compaction without an id": (
        [Draft("compaction/start", {"turn": None})],
        "without an id",
    ),
    "a pruned head": ([*TURN, shadow("compaction/prune", 4, 4, 4)], "head cannot be shadowed"),
    "a command run twice": ([command(), command()], "id of its own"),
    "a plan without words": ([command(name="plan", args=5)], "no text"),
    "a command that rests on itself": (
        [command(), command(done=True, kind="success", sourceEventSeq=0)],
        "rests on no earlier row",
    ),
    "a failed command that rests on a row": (
        [*TURN, command(), command(done=True, kind="error", sourceEventSeq=5)],
        "although it failed",
    ),
    "a title without a source": ([titled([], None)], "without a source"),
    "a title from one message twice": ([*TURN, titled([5, 5], {"kind": "x"})], "messages of the"),
    "a title that is asked from nothing": ([asked([], TITLE_MESSAGE)], "rests on no message"),
    "a title asked twice at once": (
        [*TURN, asked([5], TITLE_MESSAGE, TITLE_MESSAGE)],
        "is malformed",
    ),
    "no image offloaded": ([*SHOWN, offload()], "is malformed"),
    "an image offloaded with words": ([*SHOWN, offload({**target(0, 0), "why": 1})], "malformed t"),
    "a row offloaded twice at once": ([*SHOWN, offload(target(0, 0), target(0, 1))], "row twice"),
    "a row offloaded off the surface": ([*SHOWN, offload(target(5, 0))], "shows no image"),
    "an image offloaded twice": (
        [*SHOWN, offload(target(0, 0)), offload(target(0, 0))],
        "not there",
    ),
    "images offloaded backwards": ([*SHOWN, offload(target(0, 1, 0))], "not there"),
    "images offloaded by name": ([*SHOWN, offload(target(0, "a"))], "not there"),
    "a child of a new version": (
        [Draft("subagent/catalog", {"version": 3, "childId": "c", "childCreatedAt": 1})],
        "unknown version",
    ),
    "a child of a new mode": (
        [
            Draft(
                "subagent/catalog",
                {"version": 0, "childId": "c", "childCreatedAt": 1, "mode": "external"},
            )
        ],
        "unknown mode",
    ),
    "a child without a name": ([Draft("subagent/catalog", {})], "names no child"),
    "a policy without models": (
        [Draft("subagent/model-selection-policy", {"allowedModels": [{}]})],
        "names no model",
    ),
    "a wrapper for a team": (
        [Draft("team/message/queued", {"message": {"content": [{"type": "tool-result"}]}})],
        "retired",
    ),
    "a system row in another's place": (
        [
            *BASE,
            Draft("user/message", user("a"), "append"),
            Draft("user/message", user("b"), "append"),
            attrs.evolve(system_row(1, 1, "s", "s"), surface_op=(5, 5), source_event_seqs=(5,)),
        ],
        "first message is none",
    ),
    "a header of the wrong kind": ([START, request_header("")], "unknown reason"),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_log_may_hold(name: str) -> None:
    folded(SOUND[name])


@pytest.mark.parametrize("name", CORRUPT)
def test_a_log_may_not_hold(name: str) -> None:
    drafts, why = CORRUPT[name]
    with pytest.raises(SessionCorruptError, match=why):
        folded(drafts)
