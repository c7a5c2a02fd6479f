"""Transcripts: which answer belongs to what, which session a message concerns, runs in a trace."""

import json

from acp_bridge.testing.transcript import Entry, entries_from_trace, read
from acp_bridge.vocabulary import JsonObject

ASK: JsonObject = {
    "id": 0,
    "method": "session/request_permission",
    "params": {"sessionId": "s"},
}


def test_the_same_id_in_both_directions_is_two_requests() -> None:
    prompt: JsonObject = {"id": 0, "method": "session/prompt", "params": {"sessionId": "s"}}
    lines = read(
        [
            Entry(1, "agent", prompt),
            Entry(1, "client", ASK),
            Entry(1, "agent", {"id": 0, "result": {}}),
            Entry(1, "client", {"id": 0, "result": {}}),
        ]
    )
    assert [line.method for line in lines[2:]] == ["session/request_permission", "session/prompt"]


def test_an_answer_of_an_earlier_run_belongs_to_nothing() -> None:
    new: JsonObject = {"id": 1, "method": "session/new", "params": {}}
    lines = read([Entry(1, "agent", new), Entry(2, "client", {"id": 1, "result": {}})])
    assert (lines[1].method, lines[1].request) == ("", None)


def test_a_withdrawal_concerns_the_session_of_its_request() -> None:
    withdrawal: JsonObject = {"method": "$/cancel_request", "params": {"requestId": 0}}
    lines = read([Entry(1, "client", ASK), Entry(1, "client", withdrawal)])
    assert lines[1].session == "s"


def test_a_trace_of_two_processes_has_two_runs() -> None:
    messages = [("in", "initialize"), ("out", "x"), ("in", "initialize"), ("in", "y")]
    text = "\n".join(
        json.dumps({"time": 1.5, "dir": way, "message": {"method": method}})
        for way, method in messages
    )
    assert [(entry.run, entry.to) for entry in entries_from_trace(text)] == [
        (1, "agent"),
        (1, "client"),
        (2, "agent"),
        (2, "agent"),
    ]
