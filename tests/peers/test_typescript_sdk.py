"""The official TypeScript SDK's client drives the `acp-bridge` process: it judges every message.

``npm i --prefix FOLDER @agentclientprotocol/sdk@2.4.0`` installs it; FOLDER is the checkout or
what ``ACP_BRIDGE_NPM`` names. Without it these tests are skipped, on CI they fail. The client is
`ts_client.mjs`; a word on its stderr, where the SDK reports what it cannot read, fails a test.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.testing.check import problems
from acp_bridge.testing.transcript import entries_from_trace

pytestmark = [pytest.mark.peer, pytest.mark.process]

NPM = Path(os.environ.get("ACP_BRIDGE_NPM", Path(__file__).resolve().parents[2])) / "node_modules"
SDK = NPM / "@agentclientprotocol" / "sdk"
VERSION = "2.4.0"
INSTALL = f"the SDK is missing: npm i --prefix {NPM.parent} @agentclientprotocol/sdk@{VERSION}"
DRIVER = Path(__file__).with_name("ts_client.mjs")
WAIT_S = 120

EVERYTHING = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


class Desk:
    """Where a test's bridge runs, and the plan that the client follows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cwd = folder / "workspace"
        self.cwd.mkdir()
        self.trace = folder / "trace.jsonl"
        self.script = folder / "model.jsonl"
        self.bridge = [sys.executable, "-m", "acp_bridge", "--home", str(folder / "home")]
        self.bridge += ["--trace", str(self.trace), "--model", f"scripted:{self.script}"]

    def answers(self, *lines: list[dict[str, Any]], agent: str = "1") -> None:
        with self.script.open("a") as file:
            for line in lines:
                file.write(json.dumps({"agent": agent, "stream": line}) + "\n")

    def play(self, *runs: list[dict[str, Any]], flags: tuple[str, ...] = (), **plan: Any) -> "Seen":
        file = self.folder / "plan.json"
        whole = {"permission": "allow_once", **plan, "agent": [*self.bridge, *flags], "runs": runs}
        file.write_text(json.dumps(whole))
        node = NPM / "node" / "bin" / "node"
        argv = [str(node) if node.exists() else "node", str(DRIVER), str(SDK), str(file)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert problems(entries_from_trace(self.trace.read_text())) == []
        return Seen(json.loads(done.stdout))

    def new(self) -> dict[str, Any]:
        return {"call": "session/new", "params": self.place(), "as": "new"}

    def place(self, **more: Any) -> dict[str, Any]:
        return {"cwd": str(self.cwd), "mcpServers": [], **more}


class Seen:
    """What the client saw."""

    def __init__(self, seen: dict[str, Any]) -> None:
        self.answers: dict[str, Any] = seen["answers"]
        self.sent: list[dict[str, Any]] = seen["updates"]
        self.updates: list[dict[str, Any]] = [params["update"] for params in seen["updates"]]
        self.permissions: list[dict[str, Any]] = seen["permissions"]
        self.forms: list[dict[str, Any]] = seen["forms"]
        self.terminals: list[dict[str, Any]] = seen["terminals"]
        self.calls: list[str] = seen["calls"]
        self.written: dict[str, str] = seen["written"]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [update for update in self.updates if update["sessionUpdate"] == kind]

    def text(self) -> str:
        return "".join(update["content"]["text"] for update in self.of_kind("agent_message_chunk"))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    found = SDK.is_dir() and json.loads((SDK / "package.json").read_text())["version"] == VERSION
    if not found or not (shutil.which("node") or (NPM / "node" / "bin" / "node").exists()):
        if os.environ.get("CI") == "true":
            pytest.fail(INSTALL, pytrace=False)
        pytest.skip(INSTALL)
    return Desk(tmp_path.resolve())


def prompt(text: str = "Go.", *, do: str = "call", name: str = "prompt") -> dict[str, Any]:
    params = {"sessionId": "$new.sessionId", "prompt": [{"type": "text", "text": text}]}
    return {do: "session/prompt", "params": params, "as": name}


def of_session(do: str, method: str, **params: Any) -> dict[str, Any]:
    return {do: method, "params": {"sessionId": "$new.sessionId", **params}}


def call(call_id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_call": {"id": call_id, "name": tool, "arguments": arguments}}


def bash(call_id: str, command: str, **more: Any) -> dict[str, Any]:
    return call(call_id, "bash", command=command, description="test", **more)


def test_a_prompt_with_permission_and_files_of_the_client(desk: Desk) -> None:
    path = desk.cwd / "a.txt"
    path.write_text("saved\n")
    desk.answers(
        [{"reasoning": "Hm."}, call("c1", "read", file_path=str(path))],
        [call("c2", "edit", file_path=str(path), old_string="unsaved", new_string="changed")],
        [call("c3", "write", file_path=str(desk.cwd / "new.txt"), content="new\n")],
        [{"text": "Done."}, {"usage": {"input_tokens": 12, "output_tokens": 4}}],
    )
    unsaved = {str(path): "unsaved\n"}
    seen = desk.play([desk.new(), prompt()], capabilities=EVERYTHING, unsaved=unsaved)
    assert seen.answers["prompt"]["stopReason"] == "end_turn"
    assert seen.written == {str(path): "changed\n", str(desk.cwd / "new.txt"): "new\n"}
    assert [asked["toolCall"]["kind"] for asked in seen.permissions] == ["edit", "edit"]
    assert seen.text() == "Done."
    assert len(seen.of_kind("tool_call")) == 3
    assert len(seen.of_kind("agent_thought_chunk")) == 1
    assert not [method for method in seen.calls if method.startswith("terminal/")]


def test_a_rejected_call_does_not_run(desk: Desk) -> None:
    path = desk.cwd / "no.txt"
    desk.answers([call("c1", "write", file_path=str(path), content="x")], [{"text": "Left."}])
    seen = desk.play([desk.new(), prompt()], permission="reject_once")
    assert seen.answers["prompt"]["stopReason"] == "end_turn"
    assert not path.exists()
    assert seen.of_kind("tool_call_update")[-1]["status"] == "failed"


def test_commands_run_in_terminals_of_the_client_and_each_is_released(desk: Desk) -> None:
    """R103, R105."""
    desk.answers(
        [bash("c1", "echo a && echo 'b c'; exit 3"), bash("c2", "pwd", workdir="..")],
        [bash("c3", "head -c 3000000 /dev/zero | tr '\\0' x")],
        [bash("c4", "echo started; sleep 60", timeoutMs=2500)],
        [{"text": "Done."}],
    )
    seen = desk.play(
        [desk.new(), prompt()], flags=("--execution", "client"), capabilities=EVERYTHING
    )
    results = [u["rawOutput"] for u in seen.of_kind("tool_call_update") if "rawOutput" in u]
    texts = {result["text"][:40] for result in results}
    assert "a\nb c\n[exit code: 3]" in texts
    assert f"{desk.folder}\n[exit code: 0]"[:40] in texts
    assert "[… the client kept only a part of the ou" in texts
    assert results[-1]["text"].endswith("started\n")
    assert (results[-1]["signal"], results[-1]["timedOut"]) == ("SIGKILL", True)
    assert [t["released"] for t in seen.terminals] == [1, 1, 1, 1]
    assert [t["embedded"] for t in seen.terminals] == [1, 1, 1, 1]
    assert [t["killed"] for t in seen.terminals] == [0, 0, 0, 1]
    assert all(t["ended"] for t in seen.terminals)


def test_without_the_setting_commands_run_here(desk: Desk) -> None:
    desk.answers([bash("c1", "echo hi")], [{"text": "Said."}])
    seen = desk.play([desk.new(), prompt()], capabilities=EVERYTHING)
    assert seen.terminals == []
    assert seen.of_kind("tool_call_update")[-1]["rawOutput"]["text"] == "hi\n[exit code: 0]"


def test_without_terminals_the_setting_keeps_commands_from_running(desk: Desk) -> None:
    """R019."""
    desk.answers([bash("c1", "touch ran")], [{"text": "No."}])
    seen = desk.play([desk.new(), prompt()], flags=("--execution", "client"))
    assert "--execution local" in seen.of_kind("tool_call_update")[-1]["rawOutput"]["text"]
    assert not (desk.cwd / "ran").exists()
    assert seen.calls == ["session/request_permission"]


def test_a_cancel_ends_a_command_in_a_terminal(desk: Desk) -> None:
    desk.answers([bash("c1", "echo half; sleep 60")], [{"text": "Stopped."}])
    seen = desk.play(
        [
            desk.new(),
            prompt(do="start"),
            {"until": {"update": {"toolCallId": "c1", "content": {"0": {"type": "terminal"}}}}},
            of_session("notify", "session/cancel"),
            {"await": "prompt"},
            prompt("And now?", name="again"),
        ],
        flags=("--execution", "client"),
        capabilities=EVERYTHING,
    )
    assert seen.answers["prompt"]["stopReason"] == "cancelled"
    assert seen.answers["again"]["stopReason"] == "end_turn"
    (terminal,) = seen.terminals
    assert (terminal["killed"], terminal["released"], terminal["ended"]) == (1, 1, True)


def test_a_cancel_ends_a_stream(desk: Desk) -> None:
    desk.answers([{"text": "Half"}, {"wait": "never"}])
    wanted = {"update": {"sessionUpdate": "agent_message_chunk"}}
    seen = desk.play(
        [
            desk.new(),
            prompt(do="start"),
            {"until": wanted},
            of_session("notify", "session/cancel"),
            {"await": "prompt"},
        ]
    )
    assert seen.answers["prompt"]["stopReason"] == "cancelled"


def test_modes_and_options_are_set_and_told(desk: Desk) -> None:
    desk.answers([call("c1", "write", file_path=str(desk.cwd / "a.txt"), content="x")], [])
    seen = desk.play(
        [
            desk.new(),
            of_session("call", "session/set_mode", modeId="accept-edits"),
            of_session("call", "session/set_config_option", configId="mode", value="full"),
            of_session("call", "session/set_mode", modeId="nonsense") | {"as": "wrong"},
            prompt(),
        ]
    )
    assert seen.answers["new"]["modes"]["currentModeId"] == "ask"
    (mode,) = (
        option
        for option in seen.answers["session/set_config_option"]["configOptions"]
        if option["id"] == "mode"
    )
    assert mode["currentValue"] == "full"
    assert seen.answers["wrong"]["error"]["code"] == -32602
    assert [update["currentModeId"] for update in seen.of_kind("current_mode_update")] == ["full"]
    assert len(seen.of_kind("config_option_update")) == 1
    assert seen.permissions == []
    assert (desk.cwd / "a.txt").read_text() == "x"


def test_a_session_is_listed_loaded_resumed_closed_and_deleted(desk: Desk) -> None:
    path = desk.cwd / "a.txt"
    path.write_text("a\n")
    desk.answers(
        [{"text": "Reading."}, call("c1", "read", file_path=str(path))],
        [{"text": "Read."}],
        [{"text": "More."}],
    )
    old = desk.place(sessionId="$new.sessionId")
    seen = desk.play(
        [desk.new(), prompt()],
        [
            {"call": "session/list", "params": {"cwd": str(desk.cwd)}, "as": "listed"},
            {"call": "session/load", "params": old, "as": "loaded"},
            prompt("More.", name="more"),
            of_session("call", "session/close"),
        ],
        [
            {"call": "session/resume", "params": old, "as": "resumed"},
            of_session("call", "session/close"),
            of_session("call", "session/delete"),
            {"call": "session/list", "params": {}, "as": "after"},
            {"call": "session/load", "params": old, "as": "lost"},
        ],
    )
    (listed,) = seen.answers["listed"]["sessions"]
    assert listed["sessionId"] == seen.answers["new"]["sessionId"]
    assert seen.answers["loaded"]["modes"] == seen.answers["resumed"]["modes"]
    assert seen.text() == "Reading.Read." * 2 + "More."
    assert len(seen.of_kind("user_message_chunk")) == 1
    assert len(seen.of_kind("tool_call")) == 2
    assert seen.answers["after"]["sessions"] == []
    assert seen.answers["lost"]["error"]["code"] == -32002
