"""The set-ups in editors/ start the agent: what they name is run, as an editor would."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

EDITORS = Path(__file__).resolve().parents[2] / "editors"


def acp_setups() -> list[Path]:
    return sorted(set(EDITORS.glob("*/*.json")) - {EDITORS / "kate/lspclient.json"})


def lsp_commands() -> dict[str, list[str]]:
    """What editors that speak LSP alone start."""
    kate = json.loads((EDITORS / "kate/lspclient.json").read_text("utf-8"))
    helix = tomllib.loads((EDITORS / "helix/languages.toml").read_text("utf-8"))
    server = helix["language-server"]["acp-bridge"]
    return {
        "kate": kate["servers"]["python"]["command"],
        "helix": [server["command"], *server["args"]],
    }


@pytest.mark.parametrize("setup", acp_setups(), ids=lambda path: path.parent.name)
def test_a_set_up_starts_an_agent_that_opens_a_session(setup: Path, tmp_path: Path) -> None:
    [server] = json.loads(setup.read_text("utf-8"))["agent_servers"].values()
    home = tmp_path / "home"
    lines = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"id": 2, "method": "session/new", "params": {"cwd": str(tmp_path), "mcpServers": []}},
    ]
    # The command beside this interpreter: an editor finds it on its PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [server["command"], *server["args"]],
        input="".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines),
        env={**os.environ, **server["env"], "PATH": path, "ACP_BRIDGE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    answers = [message for message in messages if "id" in message]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"]["sessionId"]
    assert done.stderr == ""


@pytest.mark.parametrize("editor", ["helix", "kate"])
def test_a_language_server_set_up_starts_one_that_offers_the_agent(
    editor: str, tmp_path: Path
) -> None:
    root = tmp_path.as_uri()
    params: dict[str, object] = {"processId": None, "rootUri": root, "capabilities": {}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        lsp_commands()[editor],
        input=f"Content-Length: {len(body)}\r\n\r\n{body}",
        env={**os.environ, "PATH": path, "ACP_BRIDGE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    answer = json.loads(done.stdout.partition("\n\n")[2])
    assert "agent.prompt" in answer["result"]["capabilities"]["executeCommandProvider"]["commands"]
    assert done.stderr == ""


def test_every_folder_of_editors_holds_a_set_up_that_names_the_command() -> None:
    for folder in EDITORS.iterdir():
        texts = [file.read_text("utf-8") for file in folder.iterdir()]
        assert any("acp-bridge" in text for text in texts), folder.name
