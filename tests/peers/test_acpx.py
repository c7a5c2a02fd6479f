"""acpx, a client from npm, works with the `acp-bridge` process from its own command line.

``npm i --prefix FOLDER node@22 acpx@0.19`` installs it; FOLDER is the checkout or what
``ACP_BRIDGE_NPM`` names. Without it these tests are skipped, on CI they fail.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.peer, pytest.mark.process]

NPM = Path(os.environ.get("ACP_BRIDGE_NPM", Path(__file__).resolve().parents[2])) / "node_modules"
INSTALL = f"acpx is missing: npm i --prefix {NPM.parent} node@22 acpx@0.19"
WAIT_S = 60


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
        self._bridge = [sys.executable, "-m", "acp_bridge", "--home", str(folder / "home")]
        self._sessions = False

    def answers(self, *lines: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps({"stream": line}) + "\n" for line in lines)
        self.script.write_text(text)

    def run(self, *words: str, flags: tuple[str, ...] = ()) -> str:
        """Run acpx to its end; stdout, or a failure with both outputs."""
        agent = shlex.join([*self._bridge, "--model", f"scripted:{self.script}"])
        argv = ["acpx", *flags, "--ttl", "2", "--agent", agent, "--cwd", str(self.cwd), *words]
        done = subprocess.run(
            argv,
            env=self._env,
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, (
            f"{words} left with {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        self._sessions |= words[:2] == ("sessions", "new")
        return done.stdout

    def close(self) -> None:
        """End the process that acpx keeps for a session."""
        if self._sessions:
            self.run("sessions", "close")


def call(call_id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_call": {"id": call_id, "name": tool, "arguments": arguments}}


def messages(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_exec_prints_the_answer(acpx: Acpx) -> None:
    acpx.answers([{"text": "Hello "}, {"text": "from the script."}])
    assert "Hello from the script." in acpx.run("exec", "Say hello.")


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


def test_deny_all_keeps_a_write_from_running(acpx: Acpx) -> None:
    path = acpx.cwd / "made.txt"
    acpx.answers([call("c1", "write", file_path=str(path), content="x")], [{"text": "Not made."}])
    output = acpx.run("exec", "Make it.", flags=("--deny-all",))
    assert not path.exists()
    assert "Not made." in output


def test_its_own_files_and_terminals_are_used_only_as_offered(acpx: Acpx) -> None:
    # acpx offers fs and terminal by default: a write goes through it and reaches the disk.
    path = acpx.cwd / "made.txt"
    acpx.answers([call("c1", "write", file_path=str(path), content="made\n")], [{"text": "Made."}])
    output = acpx.run("exec", "Make it.", flags=("--approve-all", "--format", "json"))
    assert path.read_text() == "made\n"
    called = {message.get("method") for message in messages(output) if "id" in message}
    assert "fs/write_text_file" in called
    assert not any(str(method).startswith("terminal/") for method in called)


def test_a_session_is_made_listed_prompted_and_closed(acpx: Acpx) -> None:
    acpx.answers([{"text": "First answer."}], [{"text": "Second answer."}])
    acpx.run("sessions", "new")
    assert "First answer." in acpx.run("prompt", "One.")
    assert "Second answer." in acpx.run("prompt", "Two.")
    assert "One." in acpx.run("sessions", "list")
    assert "clos" in acpx.run("sessions", "close").lower()
