"""acpx, a client from npm, works with the `acp-bridge` process from its own command line.

It is told of it by its settings, as `acp-bridge editor acpx` prints them.

``npm i --prefix FOLDER node@22 acpx@0.19`` installs it; FOLDER is the checkout or what
``ACP_BRIDGE_NPM`` names. Without it these tests are skipped, on CI they fail.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.testing.check import problems
from acp_bridge.testing.transcript import entries_from_trace

pytestmark = [pytest.mark.peer, pytest.mark.process]

NPM = Path(os.environ.get("ACP_BRIDGE_NPM", Path(__file__).resolve().parents[2])) / "node_modules"
INSTALL = f"acpx is missing: npm i --prefix {NPM.parent} node@22 acpx@0.19"
WAIT_S = 120


@pytest.fixture
def acpx(tmp_path: Path) -> Iterator["Acpx"]:
    if not (NPM / ".bin" / "acpx").exists():
        if os.environ.get("CI") == "true":
            pytest.fail(INSTALL, pytrace=False)
        pytest.skip(INSTALL)
    desk = Acpx(tmp_path.resolve())
    yield desk
    desk.close()


class Acpx:
    """One desk: acpx with a home of its own, our bridge with another, a script for the model."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder / "workspace"
        self.cwd.mkdir()
        self.script = folder / "model.jsonl"
        self.trace = folder / "trace.jsonl"
        self._env = {
            "HOME": str(folder),
            "PATH": os.pathsep.join(
                [str(NPM / "node" / "bin"), str(NPM / ".bin"), os.environ["PATH"]]
            ),
        }
        self._flags = ["--home", str(folder / "home"), "--trace", str(self.trace)]
        self._settings = folder / ".acpx" / "config.json"
        self._settings.parent.mkdir()
        self._written: tuple[str, ...] | None = None
        self._open = False

    def answers(self, *lines: list[dict[str, Any]], agent: str = "1") -> None:
        with self.script.open("a") as file:
            for line in lines:
                file.write(json.dumps({"agent": agent, "stream": line}) + "\n")

    def run(
        self,
        *words: str,
        flags: tuple[str, ...] = (),
        bridge: tuple[str, ...] = (),
        codes: tuple[int, ...] = (0,),
    ) -> str:
        """Run acpx to its end; stdout, or a failure with both outputs."""
        if self._written != bridge:
            self._settings.write_text(self._set_up(*bridge))
            self._written = bridge
        argv = ["acpx", *flags, "--ttl", "60", "--cwd", str(self.cwd), "acp-bridge", *words]
        done = subprocess.run(
            argv,
            env=self._env,
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        said = f"{words} left with {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode in codes, said
        if words[0] == "sessions":
            self._open = {"new": True, "close": False}.get(words[1], self._open)
        return done.stdout

    def _set_up(self, *bridge: str) -> str:
        argv = [sys.executable, "-m", "acp_bridge", "editor", "acpx", *self._flags]
        argv += ["--model", f"scripted:{self.script}", *bridge]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    def problems(self) -> list[str]:
        """What schema and rules say about what went over the bridge's wire."""
        return problems(entries_from_trace(self.trace.read_text()))

    def close(self) -> None:
        """End the process that acpx keeps for a session, also after a failed test."""
        if self._open:
            self.run("sessions", "close", codes=(0, 1))


def call(call_id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_call": {"id": call_id, "name": tool, "arguments": arguments}}


def test_exec_prints_the_answer(acpx: Acpx) -> None:
    acpx.answers([{"text": "Hello "}, {"text": "from the script."}])
    assert "Hello from the script." in acpx.run("exec", "Say hello.")
    assert acpx.problems() == []


def test_approve_all_lets_a_write_and_a_command_run(acpx: Acpx) -> None:
    path = acpx.cwd / "made.txt"
    acpx.answers(
        [call("c1", "write", file_path=str(path), content="made\n")],
        [call("c2", "bash", command="cat made.txt", description="Show it")],
        [{"text": "Made."}],
    )
    output = acpx.run("exec", "Make it.", flags=("--approve-all", "--no-fs", "--no-terminal"))
    assert path.read_text() == "made\n"
    assert "Made." in output
    assert acpx.problems() == []


def test_deny_all_keeps_a_write_from_running(acpx: Acpx) -> None:
    path = acpx.cwd / "made.txt"
    acpx.answers([call("c1", "write", file_path=str(path), content="x")], [{"text": "Not made."}])
    # 5 is how acpx says that it denied something.
    output = acpx.run("exec", "Make it.", flags=("--deny-all",), codes=(5,))
    assert not path.exists()
    assert "Not made." in output
    assert acpx.problems() == []


def test_a_new_file_is_written_through_the_files_that_it_offers(acpx: Acpx) -> None:
    path = acpx.cwd / "made.txt"
    acpx.answers([call("c1", "write", file_path=str(path), content="made\n")], [{"text": "Made."}])
    acpx.run("exec", "Make it.", flags=("--approve-all",))
    assert path.read_text() == "made\n"
    assert '"fs/write_text_file"' in acpx.trace.read_text()
    assert acpx.problems() == []


def test_its_terminals_are_left_alone(acpx: Acpx) -> None:
    acpx.answers([call("c1", "bash", command="echo hi", description="Say hi")], [{"text": "Said."}])
    assert "hi" in acpx.run("exec", "Say it.", flags=("--approve-all",))
    assert '"terminal/' not in acpx.trace.read_text()
    assert acpx.problems() == []


def test_commands_run_in_its_terminals_when_ours_are_switched_off(acpx: Acpx) -> None:
    acpx.answers(
        [call("c1", "bash", command="echo a && echo 'b c' >&2; exit 3", description="Say it")],
        [{"text": "Said."}],
    )
    output = acpx.run("exec", "Say it.", flags=("--approve-all",), bridge=("--execution", "client"))
    assert "Said." in output
    trace = acpx.trace.read_text()
    assert trace.count('"terminal/release"') == 1
    assert "a\\nb c\\n[exit code: 3]" in trace
    assert acpx.problems() == []


def test_a_session_is_made_listed_prompted_and_closed(acpx: Acpx) -> None:
    acpx.answers([{"text": "First answer."}], [{"text": "Second answer."}])
    session = acpx.run("sessions", "new").strip()
    assert "First answer." in acpx.run("prompt", "One.")
    assert "Second answer." in acpx.run("prompt", "Two.")
    assert "One." in acpx.run("sessions", "list")
    assert session in acpx.run("sessions", "close")
    assert f"{session} [closed]" in acpx.run("sessions", "list", "--local")


def delegate(call_id: str, label: str, **more: Any) -> dict[str, Any]:
    return call(call_id, "subagent", description=label, prompt=f"{label}, do it.", **more)


def test_subagents_are_tool_calls_and_their_text_is_not_the_parents(acpx: Acpx) -> None:
    """R079: acpx prints whatever comes, under whichever session id."""
    acpx.answers([{"text": "P1 "}, delegate("c", "first")], [{"text": "P2 "}], [{"text": "P3"}])
    acpx.answers([delegate("c", "second", wait=True)], [{"text": "Child One."}], agent="1/1")
    acpx.answers(
        [call("c", "bash", command="echo made", description="Make")],
        [{"text": "Child Two."}],
        agent="1/1/1",
    )
    output = acpx.run(
        "exec", "Go.", flags=("--format", "json", "--approve-all", "--no-fs", "--no-terminal")
    )
    updates = [
        message["params"]["update"]
        for message in map(json.loads, output.splitlines())
        if message.get("method") == "session/update"
    ]
    said = [u["content"]["text"] for u in updates if u["sessionUpdate"] == "agent_message_chunk"]
    assert "".join(said).startswith("P1 P2 ")
    assert "Child" not in "".join(said)
    ended = {u["toolCallId"]: u for u in updates if u.get("status") == "completed"}
    assert ended["c"]["title"] == "Subagent first"
    assert ended["c"]["content"][0]["content"]["text"] == "Child One."
    assert sum("second" in str(u.get("title")) for u in ended.values()) == 1
    assert acpx.problems() == []


def test_a_denied_question_of_a_subagent_leaves_its_parent_at_work(acpx: Acpx) -> None:
    path = acpx.cwd / "made.txt"
    acpx.answers([delegate("c", "first", wait=True)], [{"text": "It was not allowed."}])
    acpx.answers(
        [call("c", "write", file_path=str(path), content="x")], [{"text": "No."}], agent="1/1"
    )
    output = acpx.run("exec", "Go.", flags=("--deny-all",), codes=(5,))
    assert not path.exists()
    assert "It was not allowed." in output
    assert acpx.problems() == []
