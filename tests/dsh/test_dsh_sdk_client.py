"""The published Python SDK drives `acp-bridge runtime`: prompts, resumes, folders, two at once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dsh_rig import dsh, dsh_command, loopback_model

from acp_bridge.sessions import SessionStore

pytestmark = [pytest.mark.dsh, pytest.mark.process]

DRIVER = Path(__file__).with_name("sdk_driver.py")
STORY_S = 100

TURN = ["agent/inbox/spliced", "running", "turn/start", "agent/inbox/spliced", "step/start"]


def answers() -> list[dict[str, Any]]:
    """The script: what each session's model says, by the order in which the sessions begin."""
    said: list[tuple[str, list[dict[str, Any]]]] = [
        ("1", [{"text": "First."}]),
        ("1", [{"text": "Second."}]),
        ("1", [{"tool_call": {"id": "c", "name": "read", "arguments": {"file_path": "in.txt"}}}]),
        ("1", [{"text": "Third."}]),
        ("1", [{"text": "Fourth."}]),
        ("2", [{"wait": "go"}, {"text": "Slow."}]),
        ("3", [{"text": "Quick."}]),
    ]
    return [{"agent": agent, "stream": stream} for agent, stream in said]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sdk").resolve()
    (root / "work" / "sub").mkdir(parents=True)
    (root / "work" / "sub" / "in.txt").write_text("inside")
    (root / "model.jsonl").write_text("\n".join(map(json.dumps, answers())))
    (root / "model.jsonl.releases").mkdir()
    started = root / "runtime"
    command = "from acp_bridge.cli.runtime import main; raise SystemExit(main())"
    started.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{command}' \"$@\"\n")
    started.chmod(0o755)
    return root


@pytest.fixture(scope="module")
def seen(place: Path) -> dict[str, Any]:
    """What the SDK's program saw."""
    python = Path(dsh_command()).with_name("python")
    unset = ("ACP_BRIDGE", "DSH_", "PYTHON", "DEEPSEEK")
    env = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    env["ACP_BRIDGE_MODEL"] = f"scripted:{place / 'model.jsonl'}"
    home, cwd, releases = place / "home", place / "work", place / "model.jsonl.releases"
    ran = subprocess.run(
        [python, DRIVER, place / "runtime", home, cwd, releases],
        env=env,
        cwd=place,
        capture_output=True,
        text=True,
        timeout=STORY_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    story: dict[str, Any] = json.loads(ran.stdout)
    return story


def test_a_prompt_runs_to_its_answer(seen: dict[str, Any]) -> None:
    assert (seen["first"]["said"], seen["first"]["end"]) == ("First.", "completed")
    told = [line.removeprefix("main ") for line in seen["first"]["told"]]
    assert told[:5] == TURN
    assert told[-3:] == ["step/end", "turn/end", "idle"]


def test_the_next_prompt_goes_on(seen: dict[str, Any]) -> None:
    assert (seen["second"]["said"], seen["second"]["end"]) == ("Second.", "completed")
    assert seen["second"]["told"].count("main running") == 1


def test_the_working_directory_is_where_tools_work(seen: dict[str, Any], place: Path) -> None:
    assert seen["folder"] == [str(place / "work"), str(place / "work" / "sub")]
    assert seen["moved"]["said"] == "Third."
    log = SessionStore(place / "home" / "sessions", clock=lambda: 0).read("main")
    assert "inside" in json.dumps([row.data for row in log.events if row.type == "tool/result"])


def test_refusals_are_a_code_and_a_sentence(seen: dict[str, Any]) -> None:
    refusals = seen["refusals"]
    assert {code for code, _, _ in refusals.values()} == {-32603}
    assert {data for _, _, data in refusals.values()} == {None}
    texts = {name: text for name, (_, text, _) in refusals.items()}
    assert "open already" in texts["open"]
    assert texts["missing"] == "Session not found: nobody"
    assert "'nowhere' is no folder" in texts["folder"]
    assert "resource_link" in texts["block"]
    assert "session/fork" in texts["method"]


def test_two_sessions_run_at_once(seen: dict[str, Any]) -> None:
    assert seen["slow was still running"] is True
    assert seen["quick"]["said"] == "Quick."
    assert seen["slow"]["said"] == "Slow."
    assert {line.partition(" ")[0] for line in seen["slow"]["told"]} == {"slow"}


def test_another_process_resumes_the_session_where_it_was(
    seen: dict[str, Any], place: Path
) -> None:
    (code, text, _) = seen["taken"]
    assert code == -32603
    assert text.startswith("Session main exists already: resume it")
    assert seen["folder again"] == str(place / "work" / "sub")
    assert seen["resumed"]["said"] == "Fourth."


def test_shutdown_leaves_no_error_and_sound_logs(seen: dict[str, Any], place: Path) -> None:
    assert seen["exit"] == 0
    found = SessionStore(place / "home" / "sessions", clock=lambda: 0).list()
    assert {one.session_id for one in found.sessions} == {"main", "slow", "quick"}
    assert found.bad == []


def test_the_real_runtime_goes_on_in_the_folder_that_was_set(
    seen: dict[str, Any], place: Path
) -> None:
    assert seen["exit"] == 0
    home, cwd = place / "home", place / "work"
    with loopback_model() as model, dsh(home, cwd, model) as runtime:
        runtime.resume("main")
        folder = runtime.call("session/working-directory/get", sessionId="main")
        assert folder == {"cwd": str(cwd / "sub")}
        assert runtime.prompt("main", "And you?") == "completed"
        assert "Fourth." in model.asked("main")
