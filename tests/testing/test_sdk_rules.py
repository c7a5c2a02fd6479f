"""The rules for the SDK's wire, each broken once."""

import pytest

from acp_bridge.testing.sdk_rules import broken_sdk_rules
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import JsonObject, JsonValue


def asked(message_id: str = "p", **params: JsonValue) -> Entry:
    whole: JsonObject = {"sessionId": "s", **params}
    return Entry(1, "agent", {"id": message_id, "method": "session/prompt", "params": whole})


def told(method: str, **params: JsonValue) -> Entry:
    return Entry(1, "client", {"method": method, "params": params})


def row(seq: int, kind: str = "step/start", session: str = "s") -> Entry:
    return told("session.event", sessionId=session, event={"seq": seq, "type": kind})


def status(word: str, session: str = "s") -> Entry:
    return told("session.status", sessionId=session, status=word)


def answer(**members: JsonValue) -> Entry:
    return Entry(1, "client", {"id": "p", **members})


STARTED = told("subagent.started", parentSessionId="s", childSessionId="c")
FINISHED = told("subagent.finished", parentSessionId="s", childSessionId="c")

GOOD = [
    asked(),
    row(4),
    status("running"),
    row(5, "turn/start"),
    STARTED,
    row(3, session="c"),
    status("running", "c"),
    row(4, "turn/start", "c"),
    answer(result={"messageId": "m"}),
    row(5, "turn/end", "c"),
    status("idle", "c"),
    FINISHED,
    row(6, "turn/end"),
    status("idle"),
]


def test_a_good_transcript_breaks_nothing() -> None:
    assert broken_sdk_rules(GOOD) == []


@pytest.mark.parametrize(
    ("rule", "entries"),
    [
        ("rows_rise_by_one", [asked(), row(1), row(3)]),
        ("rows_rise_by_one", [asked(), row(1), row(1)]),
        ("running_and_idle_alternate", [asked(), status("running"), status("running")]),
        ("running_and_idle_alternate", [asked(), status("idle")]),
        ("a_turn_is_between_running_and_idle", [asked(), row(0, "turn/start")]),
        ("a_turn_is_between_running_and_idle", [asked(), row(0, "turn/end")]),
        ("nothing_is_told_of_a_session", [row(0)]),
        ("nothing_is_told_of_a_session", [asked(), row(0, session="c")]),
        ("nothing_is_told_of_a_session", [STARTED]),
        ("nothing_is_told_of_a_session", [FINISHED]),
        ("the_wire_has_four_notifications", [asked(), told("session.other", sessionId="s")]),
        ("a_response_answers_a_request", [answer(result={})]),
        ("an_error_is_a_code", [asked(), answer(error={"code": -32602, "message": "no"})]),
        ("an_error_is_a_code", [asked(), answer(error={"code": -32603, "message": "", "data": 1})]),
    ],
)
def test_each_rule_can_be_broken(rule: str, entries: list[Entry]) -> None:
    (found,) = broken_sdk_rules(entries)
    assert found.startswith(rule)


def test_a_run_of_its_own_begins_anew() -> None:
    again = [Entry(2, entry.to, entry.message) for entry in GOOD]
    assert broken_sdk_rules([*GOOD, *again]) == []
