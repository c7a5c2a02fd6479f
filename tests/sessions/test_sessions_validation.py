"""The rules of the log: what a row may be where it stands."""

import attrs
import pytest
from session_rows import (
    answer,
    call,
    closing,
    folded,
    header,
    opening,
    placed,
    request_header,
    result,
    spliced,
    system_row,
    text_turn,
    user,
)

from acp_bridge.errors import SessionCorruptError, SessionUnsupportedError
from acp_bridge.sessions import LogState
from acp_bridge.sessions.validation.messages import NOT_STARTED_TEXT
from acp_bridge.vocabulary import Draft, Event, JsonObject, JsonValue

MARK = Draft("session/end-seed", {"inherited": True})
SEED = Draft("session/end-seed", {})
COMPACT: JsonObject = {"compactionId": "k"}


def delivery(session_id: str, through: int = 0) -> Draft:
    return Draft(
        "session-log-deepseek/delivery-accepted",
        {"sessionId": session_id, "sessionFormatVersion": 4, "throughSeq": through},
    )


def catalog(child: str, **more: JsonValue) -> Draft:
    data: JsonObject = {
        "version": 0,
        "childId": child,
        "childCreatedAt": 1,
        "mode": "continuable",
        "label": "x",
    }
    return Draft("subagent/catalog", {**data, **more})


def summary(*seqs: int) -> Draft:
    shadow: JsonObject = {
        "shadowedRange": {"start": seqs[0], "end": seqs[-1]},
        "shadowedSeqs": list(seqs),
    }
    return Draft("compaction/summary", {**COMPACT, "summary": [], **shadow})


def checkpoint(start: int, end: int, *sources: int) -> Draft:
    message: JsonObject = {
        **user("ck"),
        "source": {"kind": "compact-checkpoint", "compactionId": "k"},
    }
    return Draft("user/message", message, (start, end), sources)


def turn_end(turn: int, kind: str = "interrupted") -> Draft:
    return Draft("turn/end", {"turn": turn, "reason": {"kind": kind}})


def start(turn: JsonValue = 1) -> Draft:
    return Draft("turn/start", {"turn": turn})


def step(number: JsonValue = 1, turn: int = 1) -> Draft:
    return Draft("step/start", {"turn": turn, "step": number})


def sub_call(kind: str, parent: str, sub: str) -> Draft:
    return Draft(kind, {"rootCallId": "r", "parentCallId": parent, "subCallId": sub})


def manual(turn: int | None = None) -> Draft:
    return Draft("compaction/start", {**COMPACT, "turn": turn})


TURN = text_turn(1)  # 0 splice 1 turn 2 splice 3 step 4 system 5 user 6 header 7 answer 8 9 end
CALLED = [*opening(1), answer(1, "c", "d"), call(1, "c")]  # the call is seq 8
RETRY: JsonObject = {
    "retryId": "r",
    "turn": 1,
    "step": 1,
    "provider": "p",
    "policyKey": "k",
    "retry": 1,
}


def retry(**change: JsonValue) -> Draft:
    return Draft("llm/retry", {**RETRY, **change})


def started(number: int = 1) -> Draft:
    return Draft("llm/retry-started", {"retryId": "r", "retry": number, "turn": 1, "step": 1})


def not_started(message_id: str, call_id: str = "d", text: str | None = None) -> Draft:
    message: JsonObject = {
        "id": message_id,
        "role": "tool",
        "toolCallId": call_id,
        "isError": True,
        "source": {"kind": "tool", "callId": call_id},
        "content": [{"type": "text", "text": NOT_STARTED_TEXT if text is None else text}],
    }
    error: JsonObject = {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    return Draft(
        "tool/result", {"turn": 1, "step": 1, "message": message, "error": error}, "append"
    )


def edited(draft: Draft, surface: tuple[int, int] | None = None, **data: JsonValue) -> Draft:
    assert isinstance(draft.data, dict)
    op = draft.surface_op if surface is None else surface
    return attrs.evolve(draft, data={**draft.data, **data}, surface_op=op)


SOUND: dict[str, list[Draft]] = {
    "two turns": [*TURN, *text_turn(2)],
    "a blocked turn without a step": [start(), turn_end(1, "blocked")],
    "a tool step": [
        *CALLED,
        call(1, "d"),
        result(1, "c", 8),
        result(1, "d", 9),
        *closing(1),
    ],
    "an interrupted call that never started": [
        *CALLED,
        result(1, "c", 8),
        not_started("interrupted-tool-result-d-7"),
        *closing(1),
    ],
    "a forked call that never started, in any words": [
        *CALLED,
        result(1, "c", 8),
        not_started("forked-tool-result-d-10", text="forked"),
        *closing(1),
    ],
    "a pruned result inside the turn": [
        *CALLED,
        result(1, "c", 8),
        attrs.evolve(result(1, "c", 8, text="cut"), surface_op=(9, 9), source_event_seqs=(9,)),
    ],
    "a new system prompt in the place of the old": [
        *opening(1),
        attrs.evolve(system_row(1, 1, "new", "s2"), surface_op=(4, 4), source_event_seqs=(4,)),
    ],
    "a second system row behind the head": [*opening(1), system_row(1, 1, "more", "s2")],
    "a compaction between turns": [
        *TURN,
        manual(),
        summary(5, 7),
        checkpoint(5, 7, 10, 11, 5, 7),
        Draft("compaction/end", {**COMPACT, "turn": None}),
    ],
    "a failed compaction": [
        manual(),
        Draft("compaction/end", {**COMPACT, "turn": None, "error": "too long"}),
    ],
    "an orphaned compaction that turns cross": [
        start(),
        manual(1),
        turn_end(1),
        start(2),
        turn_end(2),
        SEED,
    ],
    "retries that count": [*opening(1), retry(), started(), retry(retry=2), started(2)],
    "a retry after the step": [*TURN[:8], Draft("step/end", {"turn": 1, "step": 1}), retry()],
    "an unknown row that may be skipped": [Draft("new/thing", None, ignorable=True)],
    "a delivery of this session": [start(), delivery("s")],
    "a delivery of an older generation": [
        Draft("session-log-deepseek/delivery-accepted", {"sessionId": "q", "throughSeq": 99})
    ],
    "a delivery of another format": [
        Draft(
            "session-log-deepseek/delivery-accepted",
            {"sessionId": "q", "sessionFormatVersion": 3, "throughSeq": 99},
        )
    ],
    "an inbox splice that removes null": [
        Draft(
            "agent/inbox/spliced",
            {"target": "next-turn", "start": 0, "removedCount": None, "inserted": []},
        )
    ],
    "a title by the user": [
        Draft("session/title", {"title": "t", "messageSeqs": [], "source": {"kind": "user"}})
    ],
    "a title from a prompt": [
        *opening(1),
        Draft("session/title", {"title": "t", "messageSeqs": [5], "source": {"kind": "fallback"}}),
    ],
    "a command and its end": [
        Draft("command/run", {"commandId": "c", "name": "x"}),
        Draft("todo/write", {"todos": []}),
        Draft("command/done", {"commandId": "c", "kind": "success", "sourceEventSeq": 1}),
    ],
    "free-form rows": [Draft("feedback/record", None), Draft("hook/result", 5)],
    "sub calls of code mode": [
        start(),
        Draft(
            "tool/ptc-dispatch-start", {"rootCallId": "r", "parentCallId": "r", "subCallId": "a"}
        ),
        Draft(
            "tool/ptc-dispatch-start", {"rootCallId": "r", "parentCallId": "a", "subCallId": "b"}
        ),
        Draft("tool/ptc-dispatch", {"rootCallId": "r", "parentCallId": "a", "subCallId": "b"}),
    ],
}

CORRUPT: dict[str, tuple[list[Draft], str]] = {
    "a turn in a turn": ([start(), start(2)], "seq 1: turn/start while turn 1"),
    "a turn that skips": ([start(2)], "count on to turn 1"),
    "a turn that is true": ([start(True)], "count on to turn 1"),
    "the end of another turn": ([start(), turn_end(2)], "does not end the open turn"),
    "an end without a turn": ([turn_end(1)], "does not end the open turn"),
    "a turn end in a step": ([start(), step(), turn_end(1)], "while step 1/1 is open"),
    "a step outside a turn": ([step()], "step/start outside a turn"),
    "a step that skips": ([start(), step(2)], "count on to step 1"),
    "a step end with an open call": ([*CALLED, *closing(1)], "tool call 'c' is unanswered"),
    "a lifecycle row that is no object": ([Draft("turn/start", 1)], "not an object"),
    "a marker in an unseeded log": ([MARK], "was not seeded"),
    "a policy without data": ([Draft("sandbox/mode", None)], "without data"),
    "a surface op off the surface": ([Draft("todo/write", {}, "append")], "with a surfaceOp"),
    "a splice beyond the inbox": ([spliced(start=1)], "beyond the inbox"),
    "a removal beyond the inbox": ([spliced(removed=1)], "beyond the inbox"),
    "a message queued twice": ([spliced(inserted=[user("u"), user("u")])], "queued twice"),
    "an inbox message without source": ([spliced(inserted=[{"id": "u"}])], "without a source"),
    "a message without surface op": (
        [*opening(1), attrs.evolve(answer(1), surface_op=None)],
        "without a surfaceOp",
    ),
    "a user message without id": ([Draft("user/message", user(""), "append")], "message id"),
    "a retired source": ([Draft("user/message", user("u", kind="plugin"), "append")], "source"),
    "a text block without text": (
        [Draft("user/message", {**user("u"), "content": [{"type": "text"}]}, "append")],
        "without text",
    ),
    "a null block": (
        [Draft("user/message", {**user("u"), "content": [None]}, "append")],
        "not an object",
    ),
    "a retired wrapper": (
        [Draft("user/message", {**user("u"), "content": [{"type": "tool-result"}]}, "append")],
        "retired",
    ),
    "a tool change elsewhere": (
        [Draft("user/message", {**user("u"), "content": [{"type": "tool-removal"}]}, "append")],
        "outside a developer",
    ),
    "an answer outside a step": ([start(), answer(1)], "outside a step"),
    "an answer of another step": ([*opening(1), answer(1, step=2)], "another step"),
    "an answer without a stream": ([*opening(1), edited(answer(1), stream=None)], "a stream"),
    "an answer with null usage": ([*opening(1), edited(answer(1), usage=None)], "usage is null"),
    "an answer that cites": (
        [*opening(1), attrs.evolve(answer(1), source_event_seqs=(1,))],
        "with sourceEventSeqs",
    ),
    "two calls of one id": ([*opening(1), answer(1, "c", "c")], "id of its own"),
    "a call nobody made": ([*opening(1), answer(1), call(1, "c")], "does not wait"),
    "a call started twice": ([*CALLED, call(1, "c")], "does not wait"),
    "a call with other arguments": (
        [*CALLED, edited(call(1, "d"), arguments="{ }")],
        "differs from its message",
    ),
    "a result of a call that never started": ([*CALLED, result(1, "d", 8)], "never started"),
    "a second result": ([*CALLED, result(1, "c", 8), result(1, "c", 8)], "does not wait"),
    "a repair in other words": (
        [*CALLED, not_started("interrupted-tool-result-d-7", text="x")],
        "never started",
    ),
    "a forked repair with another seq": (
        [*CALLED, not_started("forked-tool-result-d-8")],
        "never started",
    ),
    "an error that is none": (
        [*CALLED, edited(result(1, "c", 8), error={"name": "x"})],
        "an error that is none",
    ),
    "a pruned result outside the turn": (
        [
            *CALLED[:-1],
            call(1, "c"),
            result(1, "c", 8),
            not_started("interrupted-tool-result-d-1"),
            *closing(1),
            attrs.evolve(result(1, "c", 8), surface_op=(9, 9), source_event_seqs=(9,)),
        ],
        "outside a turn",
    ),
    "a pruned result that changes more": (
        [*CALLED, result(1, "c", 8), edited(result(1, "c", 9), surface=(9, 9), meta={})],
        "more than the content",
    ),
    "a replacement of no row": (
        [*TURN, Draft("user/message", user("x"), (3, 5), (3, 4, 5))],
        "no part of what the model sees",
    ),
    "a replacement backwards": (
        [*TURN, Draft("user/message", user("x"), (7, 5), (5, 7))],
        "comes after",
    ),
    "a replacement that hides its sources": (
        [*TURN, Draft("user/message", user("x"), (5, 7), (5,))],
        "every row that is replaced",
    ),
    "a replacement of the head": (
        [*TURN, Draft("user/message", user("x"), (4, 5), (4, 5))],
        "head may only be replaced",
    ),
    "empty sources": (
        [Draft("user/message", user("x"), "append", ())],
        "sourceEventSeqs is empty",
    ),
    "a system row without a head": (
        [start(), step(), Draft("user/message", user("x"), "append"), system_row(1, 1, "s", "i")],
        "the first message is none",
    ),
    "a compaction in a compaction": ([manual(), manual()], "another one is open"),
    "a compaction without its turn": ([start(), manual()], "another turn"),
    "a compaction without the key": ([Draft("compaction/start", COMPACT)], "another turn"),
    "a turn across a compaction": ([manual(), start()], "seq 1: a turn boundary"),
    "a turn across a compaction that ends": (
        [manual(), start(), turn_end(1), Draft("compaction/end", {**COMPACT, "turn": None})],
        "seq 1: a turn boundary",
    ),
    "an end without summary": (
        [manual(), Draft("compaction/end", {**COMPACT, "turn": None})],
        "without a summary",
    ),
    "a summary of the head": ([*TURN, manual(), summary(4, 5)], "head cannot be shadowed"),
    "a summary of other rows": ([*TURN, manual(), summary(5, 6, 7)], "not what the model sees"),
    "a summary after the orphaning": ([*TURN, manual(), SEED, summary(5, 7)], "no open compact"),
    "a checkpoint of no compaction": ([*TURN, checkpoint(5, 7, 5, 7)], "no open compaction"),
    "a header outside a turn": ([request_header()], "outside a turn"),
    "a header without model": (
        [start(), Draft("request/header", {"header": {"config": {}}, "reason": "initial"})],
        "provider and model",
    ),
    "a header with no tools": (
        [
            start(),
            Draft(
                "request/header",
                {
                    "header": {"config": {"provider": "p", "model": "m"}, "tools": []},
                    "reason": "initial",
                },
            ),
        ],
        "empty tool list",
    ),
    "a header for an unknown reason": ([start(), request_header("why")], "unknown reason"),
    "an attempt with a null chunk": (
        [start(), step(), Draft("assistant/attempt", {"turn": 1, "step": 1, "stream": [None]})],
        "sound stream",
    ),
    "a retry of another provider": ([*opening(1), retry(provider="q")], "another provider"),
    "a retry that skips": ([*opening(1), retry(retry=2)], "count on to 1"),
    "a retry under a new id": ([*opening(1), retry(), retry(retry=2, retryId="x")], "two chains"),
    "a retry started twice": ([*opening(1), retry(), started(), started()], "no retry that waits"),
    "a title from nothing": (
        [Draft("session/title", {"title": "t", "messageSeqs": [], "source": {"kind": "fallback"}})],
        "exactly if",
    ),
    "a title from an answer": (
        [
            *TURN,
            Draft(
                "session/title", {"title": "t", "messageSeqs": [7], "source": {"kind": "fallback"}}
            ),
        ],
        "messages of the user",
    ),
    "a delivery beyond itself": ([delivery("s", 0)], "beyond itself"),
    "a delivery of no object": (
        [Draft("session-log-deepseek/delivery-accepted", True)],
        "data is not an object",
    ),
    "a delivery of an odd format": (
        [
            Draft(
                "session-log-deepseek/delivery-accepted",
                {"sessionId": "s", "sessionFormatVersion": True, "throughSeq": 0},
            )
        ],
        "format version is no count",
    ),
    "a delivery of another session": ([start(), delivery("q")], "names session 'q'"),
    "a child named twice": ([catalog("c"), catalog("c")], "names child 'c' twice"),
    "a child without a label": ([catalog("c", label=None)], "lacks a label"),
    "a command that never ran": ([Draft("command/done", {"commandId": "c"})], "never ran"),
    "an offloaded image that is not there": (
        [*TURN, Draft("image/offload", {"targets": [{"seq": 5, "imageIndexes": [0]}]})],
        "an image that is not there",
    ),
    "a policy that allows nothing": (
        [Draft("subagent/model-selection-policy", {"allowedModels": []})],
        "allows nothing",
    ),
    "a sub call without its parent": (
        [
            start(),
            sub_call("tool/ptc-dispatch-start", "z", "a"),
        ],
        "parent is unknown",
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_log_is_sound_with(name: str) -> None:
    folded(SOUND[name])


@pytest.mark.parametrize("name", CORRUPT)
def test_a_log_is_corrupt_with(name: str) -> None:
    drafts, why = CORRUPT[name]
    with pytest.raises(SessionCorruptError, match=why):
        folded(drafts)


SEEDED = header(is_seeded=True)


def test_a_seeded_log_needs_its_marker() -> None:
    with pytest.raises(SessionCorruptError, match="without an inherited end-seed"):
        folded(TURN, SEEDED)
    assert folded([*TURN, MARK], SEEDED).inherited_count == len(TURN)


def test_another_sessions_name_is_legal_in_the_inherited_range_without_a_parent() -> None:
    folded([start(), delivery("source"), turn_end(1), MARK, delivery("s")], SEEDED)


def test_another_sessions_name_is_corrupt_in_the_own_range_even_with_a_parent() -> None:
    child = header(is_seeded=True, parent_session="source")
    with pytest.raises(SessionCorruptError, match="seq 2: the delivery row names"):
        folded([start(), MARK, delivery("source")], child)


def test_the_last_marker_ends_the_inherited_range() -> None:
    rows = [start(), delivery("one"), MARK, delivery("two"), MARK]
    assert folded(rows, SEEDED).inherited_count == 4
    with pytest.raises(SessionCorruptError, match="seq 5"):
        folded([*rows, delivery("two")], SEEDED)


def test_children_are_counted_from_the_marker_on() -> None:
    folded([catalog("c"), MARK, catalog("c")], SEEDED)
    with pytest.raises(SessionCorruptError, match="twice"):
        folded([catalog("c"), MARK, catalog("d"), catalog("d")], SEEDED)


def test_a_subagents_turn_needs_a_reason_to_end() -> None:
    rows = [start(), Draft("turn/end", {"turn": 1})]
    folded(rows)
    with pytest.raises(SessionCorruptError, match="without a reason"):
        folded(rows, header(origin="subagent"))


@pytest.mark.parametrize(
    "rows",
    [
        [Draft("new/thing", {})],
        [Draft("tool/code-dispatch", {})],
        [start(), request_header("fallback")],
    ],
)
def test_a_row_of_another_generation_is_unsupported(rows: list[Draft]) -> None:
    with pytest.raises(SessionUnsupportedError, match=f"seq {len(rows) - 1}|unknown type"):
        folded(rows)


def test_damage_after_an_unknown_row_is_still_damage() -> None:
    with pytest.raises(SessionCorruptError):
        folded([Draft("new/thing", {}), start(7)])


def test_the_state_tells_what_the_harness_needs() -> None:
    state = folded([*CALLED, spliced(inserted=[user("waiting")])])
    assert (state.turn, state.last_turn, state.step, state.last_step) == (1, 1, 1, 1)
    assert list(state.pending) == ["c", "d"]
    assert state.pending["c"].started_seq == 8
    assert state.pending["d"].started_seq is None
    assert state.surface == [4, 5, 7]
    assert state.has_system_head
    assert [message["id"] for message in state.inbox["next-turn"]] == ["waiting"]
    assert state.last_seqs["request/header"] == 6
    assert state.next_seq == 10
    assert state.last is not None
    assert state.last.type == "agent/inbox/spliced"
    compacting = folded([*TURN, manual()]).compaction
    assert compacting is not None
    assert (compacting.compaction_id, compacting.turn, compacting.seq) == ("k", None, 10)


def test_a_rebuilt_state_is_the_same_object_with_the_same_memory() -> None:
    events = placed(SOUND["a compaction between turns"])
    state, other = LogState(header()), folded(SOUND["a compaction between turns"])
    state.rebuild(events)
    assert vars(state) == vars(other)
    with pytest.raises(SessionCorruptError):
        state.apply(Event(len(events), 1, "turn/end", {"turn": 9}))
    state.rebuild(events)
    assert vars(state) == vars(other)
