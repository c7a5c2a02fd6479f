"""`acp-bridge record`: sessions of our scenarios and of the real runtime, lived through again."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from acp_bridge.errors import BridgeError
from acp_bridge.sessions import SessionStore
from acp_bridge.testing.check import played
from acp_bridge.testing.difference import differences
from acp_bridge.testing.normal import Shared, expected_files
from acp_bridge.testing.recording.record import Report, record_session, record_trace
from acp_bridge.testing.scenario import load

REPO = Path(__file__).parents[2]
SNAPSHOTS = REPO / "snapshots"
HOMES = (
    Path(os.environ.get("ACP_BRIDGE_SHARED", REPO.parent / "shared"))
    / "data" / "dsh-0.2.1rc2" / "homes"
)  # fmt: skip


def recorded(scenario: Path, folder: Path) -> Report:
    """What comes of recording the session that a scenario makes."""
    place = folder / "place"
    place.mkdir(parents=True)
    home = anyio.run(played, scenario, place).place.home
    store = SessionStore(home / "sessions", clock=lambda: 0)
    ids = [one.session_id for one in store.list().sessions]
    (root,) = [one for one in ids if store.read_header(one).origin is None]
    return record_session(store, home, root, folder / "recorded")


def files_of(folder: Path) -> str:
    """All that a scenario's files say."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return "\n".join(path.read_text("utf-8") for path in paths)


@pytest.mark.parametrize(
    "name",
    [
        "text-turn",
        "reasoning",
        "edit-allowed",
        "write-rejected",
        "multi-turn",
        "steering",
        "prompt-image",
        "model-failure",
        "model-retries",
        "max-tokens",
        "refusal",
        "cancel-before-first-word",
        "cancel-while-streaming",
        "edit-cancelled",
        "ask-user",
        "ask-user-declined",
        "ask-user-cancelled",
        "compact-by-hand",
        "subagent-spawn",
        "subagent-wait",
        "subagent-permission-depth-two",
    ],
)
def test_a_load_of_the_scenario_shows_what_one_of_the_session_does(
    name: str, tmp_path: Path
) -> None:
    report = recorded(SNAPSHOTS / name, tmp_path)
    assert (report.notes, report.unlike, report.unsteady) == ([], [], [])


@pytest.mark.process
@pytest.mark.parametrize("name", ["cancel-while-a-tool-runs", "allow-always-bash", "process-turn"])
def test_commands_are_answered_and_never_run(name: str, tmp_path: Path) -> None:
    report = recorded(SNAPSHOTS / name, tmp_path)
    assert (report.unlike, report.unsteady) == ([], [])
    assert ["commands do not run" in note for note in report.notes] == [True]
    scenario = load(report.folder)
    assert scenario.flags == ("--execution", "client")


def test_a_recorded_scenario_is_green_at_once(tmp_path: Path) -> None:
    report = recorded(SNAPSHOTS / "edit-allowed", tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    outcome = anyio.run(played, report.folder, again)
    files = expected_files(outcome, Shared({}))
    assert differences(report.folder / "expected", files) == []
    assert (report.folder / "workspace" / "a.txt").read_bytes() == (
        SNAPSHOTS / "edit-allowed" / "workspace" / "a.txt"
    ).read_bytes()


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A folder for a session of the test's own."""
    folder = tmp_path / "made" / "mine"
    (folder / "workspace").mkdir(parents=True)
    return folder


def write(folder: Path, steps: list[object], answers: Sequence[object]) -> None:
    whole = {"description": "made", "steps": steps}
    (folder / "input.json").write_text(json.dumps(whole))
    lines = [json.dumps({"stream": stream}) + "\n" for stream in answers]
    (folder / "model.jsonl").write_text("".join(lines))


SESSION = {"$ref": "new.result.sessionId"}
NEW = {
    "call": {
        "id": "new",
        "method": "session/new",
        "params": {"cwd": "{{cwd}}", "mcpServers": []},
    }
}


def prompt(number: int, text: str, word: str = "call") -> dict[str, object]:
    said = [{"type": "text", "text": text}]
    params = {"sessionId": SESSION, "prompt": said}
    return {word: {"id": f"p{number}", "method": "session/prompt", "params": params}}


def tool(call_id: str, name: str, **arguments: object) -> dict[str, object]:
    return {"tool_call": {"id": call_id, "name": name, "arguments": arguments}}


def test_what_somebody_else_changed_is_changed_again_in_time(
    scenario: Path, tmp_path: Path
) -> None:
    (scenario / "workspace" / "a.txt").write_text("one\ntwo\n")
    answers = [
        [tool("c1", "read", file_path="a.txt")],
        [{"text": "Read."}],
        [tool("c2", "read", file_path="a.txt")],
        [{"wait": "on"}, tool("c3", "read", file_path="a.txt")],
        [{"text": "Read again."}],
    ]
    steps = [
        NEW,
        prompt(1, "Read it."),
        {"write": {"path": "a.txt", "text": "one\n2\n"}},
        prompt(2, "Again.", "request"),
        {"await": {"update": {"toolCallId": "c2", "status": "completed"}}},
        {"write": {"path": "a.txt", "text": "one\n3\n"}},
        {"release": "on"},
        {"await": {"response": "p2"}},
    ]
    write(scenario, steps, answers)
    report = recorded(scenario, tmp_path)
    assert (report.notes, report.unlike, report.unsteady) == ([], [], [])
    writes = [
        step
        for step in json.loads((report.folder / "input.json").read_text())["steps"]
        if "write" in step
    ]
    assert [step["write"]["text"] for step in writes] == ["one\n2\n", "one\n3\n"]


def test_of_a_file_that_was_read_in_part_the_rest_is_empty_and_said(
    scenario: Path, tmp_path: Path
) -> None:
    (scenario / "workspace" / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    answers = [[tool("c1", "read", file_path="a.txt", offset=2, limit=2)], [{"text": "Read."}]]
    write(scenario, [NEW, prompt(1, "Read it.")], answers)
    report = recorded(scenario, tmp_path)
    assert report.notes == ["a.txt: only lines 2-3 of 4 are known; the others are empty"]
    assert (report.folder / "workspace" / "a.txt").read_text() == "\ntwo\nthree\n\n"
    assert (report.unlike, report.unsteady) == ([], [])


def test_nothing_outside_of_the_workspace_is_touched(scenario: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    answers = [
        [tool("c1", "write", file_path=str(outside), content="made\n")],
        [{"text": "Made."}],
    ]
    steps = [
        NEW,
        prompt(1, "Make it.", "request"),
        {"await": {"as": "ask", "request": {"method": "session/request_permission"}}},
        {"answer": {"to": "ask", "choose": "allow_once"}},
        {"await": {"response": "p1"}},
    ]
    write(scenario, steps, answers)
    place = tmp_path / "place"
    place.mkdir()
    home = anyio.run(played, scenario, place).place.home
    outside.unlink()
    store = SessionStore(home / "sessions", clock=lambda: 0)
    report = record_session(store, home, store.list().sessions[0].session_id, tmp_path / "recorded")
    assert not outside.exists()
    assert (report.unlike, report.unsteady) == ([], [])
    assert report.notes == [f"outside of the workspace, so below _outside/ in it: {outside}"]
    (changed,) = (report.folder / "expected" / "workspace.jsonl").read_text().splitlines()
    assert json.loads(changed) == {"path": f"_outside{outside}", "text": "made\n"}


def test_secrets_are_taken_out(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "value-of-the-token")
    key = "sk-" + "a1" * 12
    (scenario / "workspace" / "a.txt").write_text(f"key = {key}\n")
    answers = [[tool("c1", "read", file_path="a.txt")], [{"text": "It is value-of-the-token."}]]
    write(scenario, [NEW, prompt(1, f"Is it {key}?")], answers)
    report = recorded(scenario, tmp_path)
    said = files_of(report.folder)
    assert key not in said
    assert "value-of-the-token" not in said
    assert "[redacted]" in said
    assert any("looked like a secret" in note for note in report.notes)


@pytest.mark.parametrize(
    ("case", "session_id", "notes"),
    [
        ("retry", "rt", []),
        ("max_tokens_tools", "mtt", []),
        ("cancel", "c-int", ["turn 2 ended with its program; the scenario cancels it there"]),
    ],
)
def test_a_session_of_the_real_runtime_is_carried_over_whole(
    case: str, session_id: str, notes: list[str], tmp_path: Path
) -> None:
    store = SessionStore(HOMES / case / "sessions", clock=lambda: 0)
    report = record_session(store, HOMES / case, session_id, tmp_path / "recorded")
    assert (report.notes, report.unlike, report.unsteady) == (notes, [], [])


def test_tools_that_the_harness_has_not_are_told_at_once(tmp_path: Path) -> None:
    store = SessionStore(HOMES / "tools" / "sessions", clock=lambda: 0)
    report = record_session(store, HOMES / "tools", "tools", tmp_path / "recorded")
    assert report.unsteady == []
    (told,) = report.unlike
    assert told.startswith("the harness has no such tools, so their calls fail: create_goal, ")
    assert "todo" not in told


def test_what_a_search_found_is_there_to_be_found_again(scenario: Path, tmp_path: Path) -> None:
    (scenario / "workspace" / "a.txt").write_text("one\ntwo\n")
    (scenario / "workspace" / "b.txt").write_text("one\nthree\n")
    answers = [
        [tool("c1", "glob", pattern="*.txt")],
        [tool("c2", "grep", pattern="thr")],
        [{"text": "Found."}],
    ]
    write(scenario, [NEW, prompt(1, "Look.")], answers)
    report = recorded(scenario, tmp_path)
    assert report.notes == [
        "only a search found these, so no more than its lines are in them: a.txt, b.txt"
    ]
    assert (report.unlike, report.unsteady) == ([], [])
    assert (report.folder / "workspace" / "a.txt").read_text() == ""
    assert (report.folder / "workspace" / "b.txt").read_text() == "\nthree\n"


def test_a_session_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions", clock=lambda: 0)
    with pytest.raises(BridgeError):
        record_session(store, tmp_path, "nobody", tmp_path / "recorded")
    assert not (tmp_path / "recorded").exists()


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").touch()
    store = SessionStore(tmp_path / "sessions", clock=lambda: 0)
    with pytest.raises(BridgeError, match="not a new folder"):
        record_session(store, tmp_path, "nobody", tmp_path)


def test_a_trace_becomes_the_steps_of_what_the_client_did(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    outcome = anyio.run(played, SNAPSHOTS / "cancel-while-streaming", place)
    trace = tmp_path / "wire.jsonl"
    with trace.open("w") as file:
        for entry in outcome.entries:
            direction = "in" if entry.to == "agent" else "out"
            file.write(json.dumps({"time": 0, "dir": direction, "message": entry.message}) + "\n")
    report = record_trace(trace, tmp_path / "recorded")
    assert any("nothing of the model" in note for note in report.notes)
    script = SNAPSHOTS / "cancel-while-streaming" / "model.jsonl"
    (report.folder / "model.jsonl").write_text(script.read_text())
    again = tmp_path / "again"
    again.mkdir()
    files = expected_files(anyio.run(played, report.folder, again), Shared({}))
    first = expected_files(outcome, Shared({}))
    assert files["sessions"] == first["sessions"]


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no trace\n")
    with pytest.raises(BridgeError, match=r"a\.txt is no trace"):
        record_trace(tmp_path / "a.txt", tmp_path / "recorded")
    with pytest.raises(BridgeError, match="cannot be read"):
        record_trace(tmp_path / "b.txt", tmp_path / "recorded")
