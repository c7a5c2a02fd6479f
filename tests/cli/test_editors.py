"""The set-ups in editors/: each is read as its editor reads it, and what it names is started."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from editor_readers import READERS, command_in

from acp_bridge.cli.editor_setups import SetUp, filled_in, set_ups

EDITORS = Path(__file__).resolve().parents[2] / "editors"

SET_UPS = {one.name: one for one in set_ups()}

LSP = {"eglot", "helix", "kate", "neovim-lsp"}

POINTS = ["Where", "Start", "DeepSeek Harness", "Expect", "Run for real"]


def start(command: list[str], given: str, folder: Path) -> str:
    """What a command says to its end, with our script on its PATH as an editor has it."""
    done = subprocess.run(
        command,
        input=given,
        env={
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "ACP_BRIDGE_HOME": str(folder / "home"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def started_over_acp(command: list[str], folder: Path) -> list[dict[str, Any]]:
    """The answers to ``initialize`` and ``session/new``."""
    lines = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"id": 2, "method": "session/new", "params": {"cwd": str(folder), "mcpServers": []}},
    ]
    given = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
    messages = [json.loads(line) for line in start(command, given, folder).splitlines()]
    return [message for message in messages if "id" in message]


def started_over_lsp(command: list[str], folder: Path) -> dict[str, Any]:
    """The answer to ``initialize``."""
    params: dict[str, Any] = {"processId": None, "rootUri": folder.as_uri(), "capabilities": {}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    said = start(command, f"Content-Length: {len(body)}\r\n\r\n{body}", folder)
    answer: dict[str, Any] = json.loads(said.partition("\n\n")[2])
    return answer


@pytest.mark.process
@pytest.mark.parametrize("name", SET_UPS)
def test_what_an_editor_reads_starts_the_agent(name: str, tmp_path: Path) -> None:
    command = command_in(SET_UPS[name], tmp_path)
    if name in LSP:
        assert command == ["acp-bridge", "--model", "demo", "lsp"]
        capabilities = started_over_lsp(command, tmp_path)["result"]["capabilities"]
        assert "agent.prompt" in capabilities["executeCommandProvider"]["commands"]
    else:
        assert command == ["acp-bridge", "--model", "demo"]
        hello, new = started_over_acp(command, tmp_path)
        assert hello["result"]["agentInfo"]["name"] == "acp-bridge"
        assert new["result"]["sessionId"]


HARD = '/opt/a b/\N{LATIN SMALL LETTER E WITH ACUTE}\'s \\ "x" $HOME %s/acp-bridge'


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ([HARD], ["--home", HARD, "--log-stderr"]),
        (["/usr/bin/python3", "-m", "acp_bridge"], []),
        (["/opt/acp-bridge"], []),
    ],
    ids=["hard", "interpreter", "plain"],
)
@pytest.mark.parametrize("name", SET_UPS)
def test_a_filled_in_set_up_names_exactly_that_command(
    name: str, program: list[str], flags: list[str], tmp_path: Path
) -> None:
    text, command = filled_in(SET_UPS[name], program, flags)
    assert command == [*program, *flags, *(["lsp"] if name in LSP else [])]
    assert command_in(SET_UPS[name]._replace(text=text), tmp_path) == command


def test_there_is_a_reader_for_each_set_up() -> None:
    assert SET_UPS.keys() == READERS.keys()


@pytest.mark.parametrize("set_up", SET_UPS.values(), ids=SET_UPS)
def test_a_guide_has_its_five_points(set_up: SetUp) -> None:
    assert list(set_up.points) == POINTS
    assert set_up.points["Run for real"].partition(": ")[0] in {"in tests", "by hand", "no"}
    assert f"acp-bridge editor {set_up.name} --runtime dsh" in set_up.points["DeepSeek Harness"]
    assert ("(LSP)" in set_up.title) is (set_up.name in LSP)
    guide = (EDITORS / set_up.name / "README.md").read_text("utf-8")
    assert len(guide.splitlines()) == 2 + len(POINTS)


def test_what_is_installed_is_what_stands_in_the_repository() -> None:
    folders = {folder.name: folder for folder in EDITORS.iterdir()}
    assert folders.keys() == SET_UPS.keys()
    for name, folder in folders.items():
        assert {path.name for path in folder.iterdir()} == {"README.md", SET_UPS[name].file}
        assert (folder / SET_UPS[name].file).read_text("utf-8") == SET_UPS[name].text


def test_readme_lists_each_with_what_its_guide_says() -> None:
    readme = (EDITORS.parent / "README.md").read_text("utf-8")
    row = re.compile(r"^\| \[`([\w-]+)`\]\(editors/\1/\) \| .+ \| (.+) \| (.+) \|$", re.MULTILINE)
    assert {found[1]: found.group(2, 3) for found in row.finditer(readme)} == {
        name: ("LSP" if name in LSP else "ACP", one.points["Run for real"].partition(":")[0])
        for name, one in SET_UPS.items()
    }
