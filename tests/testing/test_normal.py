"""Normalising: the same outcome gives the same files, and nothing that matters is hidden."""

import json
from pathlib import Path

import pytest
import zstandard

from acp_bridge.testing.launch import Place
from acp_bridge.testing.normal import Files, Normaliser, Shared, expected_files, stored_logs
from acp_bridge.testing.runner import Outcome
from acp_bridge.testing.scenario import Scenario
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import JsonObject, JsonValue

ONE = "0199aaaa-0000-4000-8000-00000000000a"
TWO = "0199aaaa-0000-4000-8000-00000000000b"
CHILD = "0199aaaa-0000-4000-8000-00000000000c"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for name in ("workspace", "home"):
        (tmp_path / name).mkdir()
    return Place(
        cwd=tmp_path / "workspace",
        home=tmp_path / "home",
        model=tmp_path / "model.jsonl",
        model_requests=tmp_path / "requests.jsonl",
        stderr=tmp_path / "stderr.txt",
    )


def outcome(place: Place, *messages: JsonObject) -> Outcome:
    made = Scenario(place.home / "none", "d", {}, process=False, flags=(), steps=())
    entries = [
        Entry(1, "agent" if "to_agent" in message else "client", {"jsonrpc": "2.0", **message})
        for message in messages
    ]
    return Outcome(made, place, entries)


def new(request_id: str, session: str) -> list[JsonObject]:
    return [
        {"to_agent": True, "id": request_id, "method": "session/new", "params": {}},
        {"id": request_id, "result": {"sessionId": session}},
    ]


def update(session: str, **members: JsonValue) -> JsonObject:
    return {"method": "session/update", "params": {"sessionId": session, "update": members}}


def lines(files: Files, folder: str, name: str) -> list[JsonObject]:
    inside = files[folder]
    assert isinstance(inside, dict)
    return [json.loads(line) for line in str(inside[name]).splitlines()]


def store(place: Place, session: str, *rows: JsonObject, **header: JsonValue) -> None:
    folder = place.home / "sessions" / "project" / session
    folder.mkdir(parents=True)
    whole: list[JsonObject] = [{"type": "session", "id": session, "createdAt": 5, **header}, *rows]
    pack = zstandard.ZstdCompressor().compress
    frames = [pack(json.dumps(row).encode() + b"\n") for row in whole]
    (folder / "session.v4.jsonl.zstd").write_bytes(b"".join(frames))


def test_sessions_have_a_file_each_and_are_numbered_as_they_were_made(place: Place) -> None:
    made = outcome(
        place,
        *new("a", ONE),
        *new("b", TWO),
        update(TWO, sessionUpdate="plan", path=str(place.cwd / "x")),
        update(ONE, sessionUpdate="plan", note=f"see {TWO} and {place.home}/y"),
    )
    files = expected_files(made, Shared({}))
    assert lines(files, "wire", "2.jsonl")[-1]["params"] == {
        "sessionId": "session-2",
        "update": {"sessionUpdate": "plan", "path": "{{cwd}}/x"},
    }
    params = lines(files, "wire", "1.jsonl")[-1]["params"]
    assert isinstance(params, dict)
    assert params["update"] == {"sessionUpdate": "plan", "note": "see session-2 and {{home}}/y"}


def test_logs_are_read_over_all_frames_and_children_named_by_lineage(place: Place) -> None:
    store(place, ONE, {"type": "turn/start", "seq": 0, "time": 77, "data": {"id": CHILD}})
    store(place, CHILD, origin="subagent", parentSession=ONE, delegationDepth=1)
    files = expected_files(outcome(place, *new("a", ONE)), Shared({}))
    assert lines(files, "sessions", "1.jsonl") == [
        {"type": "session", "id": "session-1", "createdAt": 0},
        {"type": "turn/start", "seq": 0, "time": 0, "data": {"id": "session-1/1"}},
    ]
    assert lines(files, "sessions", "1-1.jsonl")[0]["parentSession"] == "session-1"


def test_a_subagents_work_stands_in_its_own_file_whatever_session_tells_of_it(
    place: Place,
) -> None:
    store(place, ONE)
    store(place, CHILD, origin="subagent", parentSession=ONE, delegationDepth=1)
    lineage: JsonObject = {"acp-bridge": {"childSessionId": CHILD}}
    asked: JsonObject = {"sessionId": ONE, "_meta": lineage}
    told: JsonObject = {"senderSessionId": ONE, "recipientSessionId": CHILD}
    answered: JsonObject = {"senderSessionId": CHILD, "recipientSessionId": ONE}
    made = outcome(
        place,
        *new("a", ONE),
        update(ONE, sessionUpdate="subagent_update", sessionId=CHILD),
        update(CHILD, sessionUpdate="session_message", **told),
        update(ONE, sessionUpdate="session_message", **answered),
        update(ONE, sessionUpdate="tool_call", toolCallId=f"{CHILD}.1", _meta=lineage),
        {"id": 7, "method": "session/request_permission", "params": asked},
        {"method": "$/cancel_request", "params": {"requestId": 7}},
        update(ONE, sessionUpdate="plan"),
    )
    files = expected_files(made, Shared({}))
    child = lines(files, "wire", "1-1.jsonl")
    assert [m["method"] for m in child] == ["session/update"] * 4 + [
        "session/request_permission",
        "$/cancel_request",
    ]
    assert child[-1]["params"] == {"requestId": "ask-1"}
    assert len(lines(files, "wire", "1.jsonl")) == 2  # its making, and what is its own


def test_random_ids_are_numbered_in_each_file_and_times_lose_their_value_not_their_form(
    place: Place,
) -> None:
    made = outcome(place)
    normaliser = Normaliser(made, stored_logs(place.home), Shared({}))
    rows: list[JsonValue] = [
        {"id": TWO, "updatedAt": "2026-11-30T18:00:00Z", "dt": [3, 4]},
        {"id": ONE, "updatedAt": "yesterday", "dt": []},
        {"id": f"call-{TWO}"},
    ]
    assert [json.loads(line) for line in normaliser.file(rows).splitlines()] == [
        {"id": "{{id 1}}", "updatedAt": "{{time}}", "dt": [0, 0]},
        {"id": "{{id 2}}", "updatedAt": "yesterday", "dt": []},
        {"id": "call-{{id 1}}"},
    ]


def test_equal_lines_in_a_row_are_counted(place: Place) -> None:
    normaliser = Normaliser(outcome(place), [], Shared({}))
    assert normaliser.file([{"a": 1}, {"a": 1}, {"a": 2}]) == (
        '{"$line": {"a": 1}, "$times": 2}\n{"a": 2}\n'
    )


def test_a_shared_value_is_named_wherever_it_stands(place: Place) -> None:
    normaliser = Normaliser(outcome(place), [], Shared({"tools": [{"name": "read"}]}))
    assert normaliser.value({"header": {"tools": [{"name": "read"}]}, "tools": []}) == {
        "header": {"tools": {"$shared": "tools"}},
        "tools": [],
    }


def test_messages_that_the_model_has_seen_are_counted(place: Place) -> None:
    first: JsonObject = {"agent": "1", "messages": ["a"]}
    second: JsonObject = {"agent": "1", "messages": ["a", "b", "c"]}
    other: JsonObject = {"agent": "2", "messages": ["a"]}
    text = "".join(json.dumps(request) + "\n" for request in (first, other, second))
    place.model_requests.write_text(text)
    files = expected_files(outcome(place), Shared({}))
    assert [json.loads(line) for line in str(files["model_requests.jsonl"]).splitlines()] == [
        first,
        {"agent": "1", "messages": [{"$same": 1}, "b", "c"]},
        other,
    ]


def test_live_output_is_joined_however_the_pipe_cut_it(place: Place) -> None:
    def output(data: str, terminal: str = "t") -> JsonObject:
        meta: JsonObject = {"terminal_output": {"terminal_id": terminal, "data": data}}
        return update(ONE, sessionUpdate="tool_call_update", toolCallId="c", _meta=meta)

    made = outcome(place, *new("a", ONE), output("a"), output("b"), output("c", "u"))
    wire = lines(expected_files(made, Shared({})), "wire", "1.jsonl")
    assert "ab" in json.dumps(wire[1])
    assert len(wire) == 3


def test_changed_files_of_the_workspace_are_pinned(place: Place) -> None:
    (place.cwd / "new.txt").write_bytes(b"a\r\n")
    files = expected_files(outcome(place), Shared({}))
    assert json.loads(str(files["workspace.jsonl"])) == {"path": "new.txt", "text": "a\r\n"}


def test_a_long_text_shows_its_ends_length_and_hash(place: Place) -> None:
    normaliser = Normaliser(outcome(place), [], Shared({}))
    one, other = (normaliser.file([{"text": f"a{letter * 5000}z"}]) for letter in "bc")
    assert len(one) < 800
    assert "5002 characters" in one
    assert one.startswith('{"text": "ab')
    assert one.split("sha256")[1] != other.split("sha256")[1]


def test_a_session_that_was_stored_before_keeps_its_id(place: Place) -> None:
    store(place, "older", {"type": "turn/start", "seq": 0, "time": 5, "data": {}})
    files = expected_files(outcome(place, update("older", sessionUpdate="x")), Shared({}))
    assert lines(files, "sessions", "older.jsonl")[0]["id"] == "older"
    assert lines(files, "wire", "older.jsonl")[0]["params"] == {
        "sessionId": "older",
        "update": {"sessionUpdate": "x"},
    }
