"""``acp-bridge doctor``: findings, what to do about them, and the exit code."""

import json
import sys
from pathlib import Path

import pytest

from acp_bridge.cli.main import main

FAKE = Path(__file__).resolve().parent.parent / "runtime" / "fake_dsh_program.py"


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Doctor":
    for name in ("DEEPSEEK_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ACP_BRIDGE_DSH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DSH_HOME", str(tmp_path / "dsh-home"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))  # whose editors' settings are looked at
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return Doctor(tmp_path, monkeypatch)


class Doctor:
    """A home of its own, and a program in the place of dsh."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = patch
        self.dsh = folder / "dsh"
        self.dsh.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
        self.dsh.chmod(0o755)

    def look(
        self, capsys: pytest.CaptureFixture[str], *flags: str
    ) -> tuple[int, dict[str, dict[str, str]]]:
        """Exit code and findings by name."""
        code = main(["doctor", "--home", str(self.folder / "home"), "--json", *flags])
        captured = capsys.readouterr()
        assert captured.err == ""
        found = [json.loads(line) for line in captured.out.splitlines()]
        assert all(finding["advice"] for finding in found if finding["state"] == "missing")
        return code, {finding["name"]: finding for finding in found}


def test_with_all_that_is_needed_the_exit_code_is_0(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = doctor.look(capsys, "--model", "demo")
    assert code == 0
    assert (found["runtime"]["found"], found["model"]["found"]) == ("embedded", "demo")


def test_a_missing_model_is_told_with_what_to_do(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = doctor.look(capsys)
    assert (code, found["model"]["state"]) == (1, "missing")
    assert "acp-bridge setup" in found["model"]["advice"]


def test_people_get_a_line_each_and_advice_beneath(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--home", str(doctor.folder / "home")]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("!!  model"))
    assert "acp-bridge setup" in lines[at + 1]


def test_a_home_that_cannot_be_used_is_told(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    (doctor.folder / "home").write_text("I am a file")
    code, found = doctor.look(capsys, "--model", "demo")
    assert (code, found["home"]["state"]) == (1, "missing")


def test_a_bad_setting_is_a_sentence_and_exit_code_2(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor.patch.setenv("ACP_BRIDGE_MODE", "yolo")
    assert main(["doctor", "--home", str(doctor.folder / "home")]) == 2
    assert "yolo" in capsys.readouterr().err


@pytest.mark.process
def test_of_dsh_it_tells_the_key_the_version_and_that_the_plugin_is_missing(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--runtime", "dsh", "--dsh", str(doctor.dsh))
    code, found = doctor.look(capsys, *flags)
    assert (code, found["key"]["state"]) == (1, "missing")
    assert found["dsh home"]["found"] == str(doctor.folder / "dsh-home")
    assert (found["dsh"]["found"], found["version"]["found"]) == (str(doctor.dsh), "0.2.1-rc.2")
    assert found["plugin"]["state"] == "missing"
    doctor.patch.setenv("DEEPSEEK_API_KEY", "key-of-the-test")
    assert doctor.look(capsys, *flags)[1]["key"]["state"] == "ok"


@pytest.mark.process
def test_a_dsh_that_does_not_start_or_is_not_there_is_told_with_its_cause(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor.patch.setenv("FAKE_DSH", "exits")
    code, found = doctor.look(capsys, "--runtime", "dsh", "--dsh", str(doctor.dsh))
    assert (code, found["start"]["state"]) == (1, "missing")
    assert "exit code 3" in found["start"]["advice"]
    doctor.patch.setenv("FAKE_DSH", "old")
    _, found = doctor.look(capsys, "--runtime", "dsh", "--dsh", str(doctor.dsh))
    assert "0.1.1-rc.2" in found["start"]["advice"]
    _, found = doctor.look(capsys, "--runtime", "dsh", "--dsh", "/no/such/dsh")
    assert found["dsh"]["state"] == "missing"


def test_a_server_of_the_settings_without_its_command_is_told(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    _, found = doctor.look(capsys, "--model", "demo")
    assert (found["mcp"]["state"], "mcp server" in found) == ("ok", False)
    (doctor.folder / "home").mkdir(exist_ok=True)
    (doctor.folder / "home" / "config.toml").write_text(
        f"[mcp_servers.here]\ncommand = {sys.executable!r}\n"
        "[mcp_servers.gone]\ncommand = 'no-such-program'\n"
    )
    code, found = doctor.look(capsys, "--model", "demo")
    assert (code, found["mcp server"]["found"]) == (1, "gone: no such command")


def test_without_the_library_servers_of_the_settings_are_a_fault(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor.patch.setattr("acp_bridge.cli.doctor.find_spec", lambda _name: None)
    code, found = doctor.look(capsys, "--model", "demo")
    assert (code, found["mcp"]["state"]) == (0, "note")
    (doctor.folder / "home").mkdir(exist_ok=True)
    (doctor.folder / "home" / "config.toml").write_text("[mcp_servers.a]\ncommand = 'x'\n")
    code, found = doctor.look(capsys, "--model", "demo")
    assert (code, found["mcp"]["state"]) == (1, "missing")
    assert "[mcp]" in found["mcp"]["advice"]


def test_what_a_session_here_would_be_given_is_told_with_what_cannot_be_used(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    work = doctor.folder / "work"
    (work / ".acp-bridge" / "commands").mkdir(parents=True)
    (work / "AGENTS.md").write_text("x" * 40_000)
    (work / ".acp-bridge" / "commands" / "review.md").write_text("Review it.")
    (work / ".acp-bridge" / "commands" / "help.md").write_text("Help me.")
    doctor.patch.chdir(work)
    code, found = doctor.look(capsys, "--model", "demo")
    assert code == 0
    assert found["AGENTS.md"]["found"] == f"{work / 'AGENTS.md'}, 40,000 bytes"
    assert "first 32,768" in found["AGENTS.md"]["advice"]
    assert found["slash"]["found"] == "/review"
    assert "help.md: /help is a command of acp-bridge" in found["not used"]["found"]
    _, found = doctor.look(capsys, "--model", "demo", "--instructions", "off")
    assert found["AGENTS.md"]["found"] == "not read: instructions is off"


def test_no_file_name_tells_the_terminal_what_to_do(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = doctor.folder / "work" / ".acp-bridge" / "commands"
    commands.mkdir(parents=True)
    (commands / "\x1b[31m\nok\udcff.md").write_text("x")
    doctor.patch.chdir(doctor.folder / "work")
    assert main(["doctor", "--home", str(doctor.folder / "home"), "--model", "demo"]) == 0
    assert "/␛[31m␊ok\ufffd.md: its name is no command's" in capsys.readouterr().out
