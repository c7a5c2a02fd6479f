"""Each rule for all clients: a good transcript passes, and one breach is found by one rule."""

import copy
import json
from collections.abc import Callable

import pytest

from acp_bridge.testing.rules import LIVING_RULES, RULES, TURN_RULES, broken_rules
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import JsonObject, JsonValue

CALL: JsonObject = {
    "toolCallId": "c1",
    "title": "Write `a.txt`",
    "kind": "edit",
    "status": "pending",
    "rawInput": {"file_path": "/w/a.txt", "limit": None},
    "locations": [{"path": "/w/a.txt", "line": 1}],
    "content": [{"type": "diff", "path": "/w/a.txt", "oldText": None, "newText": "x"}],
}
OPTIONS: list[JsonValue] = [
    {"optionId": "allow_once", "kind": "allow_once", "name": "Allow"},
    {"optionId": "reject_once", "kind": "reject_once", "name": "Reject"},
]


def to_agent(**message: JsonValue) -> Entry:
    return Entry(1, "agent", {"jsonrpc": "2.0", **message})


def to_client(**message: JsonValue) -> Entry:
    return Entry(1, "client", {"jsonrpc": "2.0", **message})


def update(kind: str, /, **members: JsonValue) -> Entry:
    return to_client(
        method="session/update",
        params={"sessionId": "s", "update": {"sessionUpdate": kind, **members}},
    )


def permission(**members: JsonValue) -> Entry:
    params: JsonObject = {"sessionId": "s", "toolCall": dict(CALL), "options": OPTIONS, **members}
    return to_client(id=0, method="session/request_permission", params=params)


def compaction(status: str) -> Entry:
    return update("compaction_update", compactionId="k", status=status)


def taking(entries: list[Entry], **capabilities: JsonValue) -> list[Entry]:
    offered: JsonObject = {"clientCapabilities": capabilities}
    entries[0] = to_agent(id=1, method="initialize", params=offered)
    return entries


def taking_compactions(entries: list[Entry]) -> list[Entry]:
    return taking(entries, session={"compaction": {}})


def good() -> list[Entry]:
    return copy.deepcopy(
        [
            to_agent(id=1, method="initialize", params={"clientCapabilities": {"fs": {}}}),
            to_client(id=1, result={"protocolVersion": 1}),
            to_agent(id=2, method="session/new", params={}),
            to_client(id=2, result={"sessionId": "s", "modes": {}}),
            update("current_mode_update", currentModeId="ask"),
            to_agent(id=3, method="session/prompt", params={"sessionId": "s"}),
            update("agent_message_chunk", messageId="m1", content={"type": "text", "text": "a"}),
            update("tool_call", **CALL),
            permission(),
            to_agent(id=0, result={"outcome": {"outcome": "cancelled"}}),
            update("tool_call_update", toolCallId="c1", status="in_progress"),
            update("tool_call_update", toolCallId="c1", status="completed", rawOutput={}),
            to_client(id=3, result={"stopReason": "end_turn"}),
            update("session_info_update", title="a"),
        ]
    )


def native() -> list[Entry]:
    """A subagent as a session, which works on behind its parent's answer."""
    ours: JsonObject = {"sessionId": "k"}
    entries = good()
    set_params(entries, 0, clientCapabilities={"subagents": {}})
    entries[ANSWERED:ANSWERED] = [
        told("running", title="reviewer"),
        update("session_message", messageId="t", content=[]),
    ]
    set_params(entries, ANSWERED + 1, **ours)
    after = [
        update("tool_call", **CALL | {"toolCallId": "k1"}),
        told("requires_action"),
        permission(toolCall={**CALL, "toolCallId": "k1"}),
        to_agent(id=0, result={"outcome": {"outcome": "cancelled"}}),
        told("running"),
        update("tool_call_update", toolCallId="k1", status="failed"),
        told("idle"),
    ]
    for at in (0, 2, 5):
        set_params(after, at, **ours)
    return [*entries, *after]


def told(state: str, **members: JsonValue) -> Entry:
    return update("subagent_update", sessionId="k", state={"state": state}, **members)


PROMPT, ANNOUNCED, ASKED, DONE, ANSWERED = 5, 7, 8, 11, 12


def test_a_good_transcript_breaks_no_rule() -> None:
    assert broken_rules(good()) == []


def set_params(entries: list[Entry], at: int, **members: JsonValue) -> None:
    params = entries[at].message["params"]
    assert isinstance(params, dict)
    params.update(members)


def set_update(entries: list[Entry], at: int, **members: JsonValue) -> None:
    params = entries[at].message["params"]
    assert isinstance(params, dict)
    assert isinstance(params["update"], dict)
    params["update"].update(members)


def drop(entries: list[Entry], at: int, name: str) -> None:
    params = entries[at].message["params"]
    assert isinstance(params, dict)
    holder = params.get("update", params.get("toolCall"))
    assert isinstance(holder, dict)
    del holder[name]


def test_a_subagent_may_work_on_when_its_parent_has_answered() -> None:
    assert broken_rules(native()) == []


def without(entries: list[Entry], wanted: str) -> list[Entry]:
    """Without the update of this state, or without this status."""
    return [entry for entry in entries if f'"{wanted}"' not in json.dumps(entry.message)]


@pytest.mark.parametrize(
    ("entries", "rule"),
    [
        (without(native(), "failed"), "subagents_are_told_in_order"),
        (without(native(), "requires_action"), "subagents_are_told_in_order"),
        (without(native(), "running"), "only_known_sessions"),
        ([*native()[1:]], "only_what_the_client_offers"),
        (
            [
                *native(),
                Entry(
                    1,
                    "client",
                    json.loads(json.dumps(told("idle").message).replace('"s"', '"k"')),
                ),
            ],
            "subagents_are_told_in_order",
        ),
    ],
    ids=["open call", "no state", "not announced", "not offered", "second parent"],
)
def test_a_breach_in_what_is_told_of_a_subagent_is_found(entries: list[Entry], rule: str) -> None:
    assert rule in {sentence.split(": ")[0] for sentence in broken_rules(entries)}


def test_detached_a_session_with_subagents_may_have_turns_of_its_own() -> None:
    late = update("agent_message_chunk", messageId="9.1.1.0", content={"type": "text", "text": "x"})
    assert broken_rules([*native(), late], detaches=True) == []
    assert broken_rules([*native(), late])
    assert broken_rules([*good(), late], detaches=True)


def test_a_call_that_shows_a_subagent_may_outlive_the_turn() -> None:
    lineage: JsonObject = {"acp-bridge": {"childSessionId": "k"}}
    entries = good()
    run: JsonObject = {**CALL, "toolCallId": "k.1", "_meta": lineage}
    entries.insert(ANSWERED, update("tool_call", **run))
    late = update("tool_call_update", toolCallId="k.1", status="completed", _meta=lineage)
    assert broken_rules([*entries, late]) == []
    drop(entries, ANSWERED, "_meta")
    assert broken_rules(entries)


Breach = Callable[[list[Entry]], object]


def in_terminal(*then: Entry) -> list[Entry]:
    """A terminal is made while the call runs, then what is given."""
    made = [
        to_client(id=20, method="terminal/create", params={"sessionId": "s", "command": "a"}),
        to_agent(id=20, result={"terminalId": "t"}),
    ]
    return [*made, *then]


def of_terminal(verb: str) -> Entry:
    return to_client(id=21, method=f"terminal/{verb}", params={"sessionId": "s", "terminalId": "t"})


SHOWN_TERMINAL = update(
    "tool_call_update",
    toolCallId="c1",
    status="in_progress",
    content=[{"type": "terminal", "terminalId": "t"}],
)


def insert(entries: list[Entry], at: int, new: list[Entry]) -> None:
    entries[at:at] = copy.deepcopy(new)


BREACHES: dict[str, tuple[str, Breach]] = {
    "terminal kept": (
        "every_terminal_is_released",
        lambda e: insert(e, DONE, in_terminal(SHOWN_TERMINAL)),
    ),
    "terminal released twice": (
        "terminals_are_released_once",
        lambda e: insert(e, DONE, in_terminal(of_terminal("release"), of_terminal("release"))),
    ),
    "terminal read after its release": (
        "terminals_are_released_once",
        lambda e: insert(e, DONE, in_terminal(of_terminal("release"), of_terminal("output"))),
    ),
    "terminal shown after its release": (
        "terminals_are_released_once",
        lambda e: insert(e, DONE, in_terminal(of_terminal("release"), SHOWN_TERMINAL)),
    ),
    "second answer": (
        "every_answer_has_its_request",
        lambda e: e.append(to_client(id=3, result={"stopReason": "end_turn"})),
    ),
    "result null": (
        "results_are_objects",
        lambda e: e.__setitem__(ANSWERED, to_client(id=3, result=None)),
    ),
    "traceback": (
        "errors_are_sentences",
        lambda e: e.__setitem__(
            ANSWERED, to_client(id=3, error={"code": -32602, "message": "Traceback\n"})
        ),
    ),
    "details differ": (
        "errors_are_sentences",
        lambda e: e.__setitem__(
            ANSWERED,
            to_client(id=3, error={"code": -32603, "message": "a", "data": {"details": "b"}}),
        ),
    ),
    "null list": ("nothing_is_null", lambda e: set_update(e, DONE, content=None)),
    "long line": ("lines_are_short", lambda e: set_update(e, DONE, rawOutput={"a": "x" * 2**20})),
    "unknown session": ("only_known_sessions", lambda e: set_params(e, 13, sessionId="t")),
    "late chunk": (
        "turn_updates_only_in_turns",
        lambda e: e.append(update("agent_message_chunk", messageId="m1")),
    ),
    "no message id": ("chunks_have_message_ids", lambda e: drop(e, 6, "messageId")),
    "two kinds": (
        "chunks_have_message_ids",
        lambda e: e.insert(7, update("agent_thought_chunk", messageId="m1")),
    ),
    "message again": (
        "chunks_have_message_ids",
        lambda e: e.__setitem__(
            slice(7, 7),
            [update("agent_message_chunk", messageId=name) for name in ("m2", "m1")],
        ),
    ),
    "never closed": ("calls_are_announced_and_closed", lambda e: e.pop(DONE)),
    "never announced": ("calls_are_announced_and_closed", lambda e: e.pop(ANNOUNCED)),
    "announced twice": (
        "calls_are_announced_and_closed",
        lambda e: e.insert(8, update("tool_call", **CALL)),
    ),
    "no status": ("calls_are_announced_and_closed", lambda e: drop(e, 10, "status")),
    "back to pending": (
        "calls_are_announced_and_closed",
        lambda e: e.insert(DONE, update("tool_call_update", toolCallId="c1", status="pending")),
    ),
    "after closing": (
        "calls_are_announced_and_closed",
        lambda e: e.insert(
            ANSWERED, update("tool_call_update", toolCallId="c1", status="completed")
        ),
    ),
    "long title": (
        "titles_are_one_short_line",
        lambda e: set_update(e, ANNOUNCED, title="x" * 61),
    ),
    "two lines": (
        "titles_are_one_short_line",
        lambda e: set_update(e, ANNOUNCED, title="a\nb"),
    ),
    "raw text": ("raw_values_are_objects", lambda e: set_update(e, DONE, rawOutput="text")),
    "relative": (
        "places_are_absolute",
        lambda e: set_update(e, ANNOUNCED, locations=[{"path": "a.txt"}]),
    ),
    "no old text": (
        "places_are_absolute",
        lambda e: set_update(
            e, ANNOUNCED, content=[{"type": "diff", "path": "/a", "newText": "x"}]
        ),
    ),
    "asked too late": (
        "permission_is_asked_properly",
        lambda e: e.append(permission(toolCall={**CALL})),
    ),
    "other kind": (
        "permission_is_asked_properly",
        lambda e: set_params(e, ASKED, toolCall={**CALL, "kind": "read"}),
    ),
    "no reject": (
        "permission_is_asked_properly",
        lambda e: set_params(e, ASKED, options=OPTIONS[:1]),
    ),
    "same kind twice": (
        "permission_is_asked_properly",
        lambda e: set_params(e, ASKED, options=[*OPTIONS, OPTIONS[0]]),
    ),
    "not offered": (
        "only_what_the_client_offers",
        lambda e: e.insert(
            ANNOUNCED,
            to_client(id=9, method="fs/read_text_file", params={"sessionId": "s", "path": "/a"}),
        ),
    ),
    "cancel is error": (
        "a_cancelled_prompt_is_no_error",
        lambda e: e.__setitem__(
            slice(ANSWERED, ANSWERED + 1),
            [
                to_agent(method="session/cancel", params={"sessionId": "s"}),
                to_client(id=3, error={"code": -32800, "message": "Cancelled"}),
            ],
        ),
    ),
    "cancelled unasked": (
        "only_withdrawn_requests_are_cancelled",
        lambda e: e.__setitem__(
            ANSWERED, to_client(id=3, error={"code": -32800, "message": "Cancelled"})
        ),
    ),
    "mode not offered": (
        "modes_change_only_where_offered",
        lambda e: e.__setitem__(3, to_client(id=2, result={"sessionId": "s"})),
    ),
    "a compaction that nobody asked to be told of": (
        "compactions_are_negotiated_and_end",
        lambda e: e.insert(DONE, compaction("in_progress")),
    ),
    "a compaction that goes on behind the answer": (
        "compactions_are_negotiated_and_end",
        lambda e: taking_compactions(e).insert(DONE, compaction("in_progress")),
    ),
    "a compaction that ends before it began": (
        "compactions_are_negotiated_and_end",
        lambda e: taking_compactions(e).insert(DONE, compaction("completed")),
    ),
    "a compaction that ends twice": (
        "compactions_are_negotiated_and_end",
        lambda e: taking_compactions(e).__setitem__(
            slice(DONE, DONE),
            [compaction("in_progress"), compaction("failed"), compaction("completed")],
        ),
    ),
    "a notice that nobody asked for": (
        "only_what_the_client_offers",
        lambda e: e.insert(DONE, update("notice", severity="info", title="Hm.")),
    ),
    "a plan with an id that nobody asked for": (
        "only_what_the_client_offers",
        lambda e: e.insert(DONE, update("plan_removed", planId="p")),
    ),
    "a plan without an id where one was asked for": (
        "only_what_the_client_offers",
        lambda e: taking(e, plan={}).insert(DONE, update("plan", entries=[])),
    ),
    "a subagent that is idle with an open call": (
        "subagents_are_told_in_order",
        lambda e: e.__setitem__(slice(None), without(native(), "failed")),
    ),
    "subagents not negotiated": (
        "only_what_the_client_offers",
        lambda e: e.insert(ANSWERED, told("running")),
    ),
    "no answer": ("every_request_gets_one_answer", lambda e: e.pop(ANSWERED)),
}


@pytest.mark.parametrize("name", BREACHES)
def test_a_breach_is_found_by_its_rule(name: str) -> None:
    rule, breach = BREACHES[name]
    entries = good()
    breach(entries)
    found = {sentence.split(": ")[0] for sentence in broken_rules(entries)}
    assert rule in found


def test_a_compaction_that_was_negotiated_and_ends_is_fine() -> None:
    entries = taking_compactions(good())
    entries[DONE:DONE] = [compaction("in_progress"), compaction("completed")]
    assert broken_rules(entries) == []


def test_every_rule_has_a_breach() -> None:
    named = {rule for rule, _ in BREACHES.values()}
    assert named == {rule.__name__ for rule in (*RULES, *TURN_RULES, *LIVING_RULES)}


def test_a_killed_run_may_owe_answers() -> None:
    entries = good()
    del entries[DONE:]
    assert broken_rules(entries, killed_runs=[1]) == []


def test_a_terminal_is_shown_while_it_is_there_and_a_killed_run_may_keep_it() -> None:
    offered: JsonObject = {"clientCapabilities": {"terminal": True}}
    whole, cut = good(), good()
    insert(whole, DONE, in_terminal(SHOWN_TERMINAL, of_terminal("output"), of_terminal("release")))
    set_params(whole, 0, **offered)
    assert broken_rules(whole) == []
    insert(cut, DONE, in_terminal(SHOWN_TERMINAL))
    del cut[DONE + 3 :]
    set_params(cut, 0, **offered)
    assert broken_rules(cut, killed_runs=[1]) == []


def test_a_load_announces_calls_anew() -> None:
    replay = [
        to_agent(id=4, method="session/load", params={"sessionId": "s"}),
        update("agent_message_chunk", messageId="m1"),
        update("tool_call", **CALL | {"status": "completed"}),
        to_client(id=4, result={"modes": {}}),
    ]
    assert broken_rules([*good(), *replay]) == []
