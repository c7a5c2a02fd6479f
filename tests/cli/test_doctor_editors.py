"""``acp-bridge doctor`` of editors: whose settings name us, and whether that command is there."""

import json
import os
from pathlib import Path

import pytest

from acp_bridge.cli.editor_settings import programs_in, settings_that_name_us
from acp_bridge.cli.editor_setups import filled_in, set_ups
from acp_bridge.cli.main import main

PLACES = {
    "acpx": ".acpx/config.json",
    "agent-shell": ".emacs.d/init.el",
    "avante": ".config/nvim/lua/plugins/ai.lua",
    "codecompanion": ".config/nvim/init.lua",
    "eglot": ".emacs",
    "helix": ".config/helix/languages.toml",
    "jetbrains": ".jetbrains/acp.json",
    "kate": ".config/kate/lspclient/settings.json",
    "neovim-lsp": ".config/nvim/init.lua",
    "vscode": ".config/Code/User/settings.json",
    "zed": ".config/zed/settings.json",
}


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of a user with nothing in it, no key, and a command on the PATH."""
    for name in ("XDG_CONFIG_HOME", "ACP_BRIDGE_MODEL", "ACP_BRIDGE_RUNTIME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ACP_BRIDGE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("sys.argv", [str(program(tmp_path / "bin"))])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def program(folder: Path) -> Path:
    folder.mkdir(parents=True)
    script = folder / "acp-bridge"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    return script


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def look(capsys: pytest.CaptureFixture[str], name: str) -> tuple[int, list[dict[str, str]]]:
    """Exit code, and the findings of a name."""
    code = main(["doctor", "--json", "--model", "demo"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, [finding for finding in found if finding["name"] == name]


@pytest.mark.parametrize("name", PLACES)
def test_settings_that_name_a_command_which_is_gone_are_told(
    name: str, user: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [set_up] = (one for one in set_ups() if one.name == name)
    put(user / PLACES[name], filled_in(set_up, ["/gone/a b/acp-bridge"], []).text)
    code, [finding] = look(capsys, "editor")
    assert (code, finding["state"]) == (1, "missing")
    assert "/gone/a b/acp-bridge" in finding["found"]
    assert str(user / PLACES[name]) in finding["found"]
    advised = finding["advice"].partition("`acp-bridge editor ")[2].partition("`")[0]
    main(["editor", advised, "--json"])  # prints it, or says which there are for that editor
    captured = capsys.readouterr()
    assert name in captured.out + captured.err


@pytest.mark.parametrize("name", PLACES)
def test_settings_with_a_command_that_is_there_are_good(
    name: str, user: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [set_up] = (one for one in set_ups() if one.name == name)
    put(user / PLACES[name], filled_in(set_up, [str(user / "bin" / "acp-bridge")], []).text)
    code, [finding] = look(capsys, "editor")
    assert (code, finding["state"], finding["advice"]) == (0, "ok", "")


def test_acpx_is_set_up_in_a_project_too(
    user: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = user / "work" / "shop"
    put(project / ".acpxrc.json", filled(user / "bin" / "acp-bridge"))
    put(user / "work" / ".acpxrc.json", filled(Path("/of/no/account/acp-bridge")))
    monkeypatch.chdir(project)
    code, [finding] = look(capsys, "editor")
    assert (code, finding["state"]) == (0, "ok")
    assert finding["found"] == f"acpx: {project}/.acpxrc.json starts {user}/bin/acp-bridge"
    put(project / ".acpxrc.json", filled(Path("/gone/acp-bridge")))
    code, [finding] = look(capsys, "editor")
    assert (code, finding["state"]) == (1, "missing")
    assert "`acp-bridge editor acpx`" in finding["advice"]


def filled(command: Path) -> str:
    [acpx] = (one for one in set_ups() if one.name == "acpx")
    return filled_in(acpx, [str(command)], ["--model", "demo"]).text


def test_every_editor_with_settings_is_looked_at() -> None:
    assert PLACES.keys() | {"toad"} == {one.name for one in set_ups()}


def test_without_any_it_says_how_to_begin(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(user / ".config/zed/settings.json", '{"agent_servers": {"Other": {"command": "other"}}}')
    code, [finding] = look(capsys, "editor")
    assert (code, finding["state"]) == (0, "note")
    assert "`acp-bridge editor`" in finding["advice"]


def test_the_folder_of_settings_can_be_another(
    user: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user / "xdg"))
    put(user / "xdg/zed/settings.json", '{"command": "/gone/acp-bridge"}')
    assert look(capsys, "editor")[1][0]["state"] == "missing"


def test_a_mac_keeps_some_elsewhere(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    file = user / "Library/Application Support/Code/User/settings.json"
    put(file, '{"command": "/x/acp-bridge"}')
    assert [naming.file for naming in settings_that_name_us(os.environ, user, user)] == [file]


def test_huge_and_broken_files_are_passed_over(user: Path) -> None:
    put(user / ".acpx/config.json", '{"argv": ["/gone/acp-bridge"]}' + " " * 1_000_001)
    (user / ".jetbrains/acp.json").mkdir(parents=True)
    (user / ".emacs").write_bytes(b'\xff ("acp-bridge")')
    namings = list(settings_that_name_us(os.environ, user, user))
    assert [(naming.editor, naming.programs) for naming in namings] == [("emacs", ["acp-bridge"])]


@pytest.mark.parametrize(
    ("text", "suffix", "found"),
    [
        (
            '// "command": "/old/acp-bridge"\n{"command": "/new/acp-bridge"}',
            ".json",
            ["/new/acp-bridge"],
        ),
        ('{"acp-bridge": {"command": "/x/acp-bridge --model demo"}}', ".json", ["/x/acp-bridge"]),
        ('{"acp-bridge": {"command": "/py", "args": ["-m", "acp_bridge"]}}', ".json", ["/py"]),
        ('{"acp-bridge": {"command": "acp-bridge"}}', ".json", ["acp-bridge"]),
        ("cmd = { '/x/acp-bridge', 'lsp' }", ".lua", ["/x/acp-bridge"]),
        ('(setq a \'("/x/acp-bridge") b \'("c"))', ".el", ["/x/acp-bridge"]),
        ('{"command": "acp-bridge-runtime", "note": "not acp-bridge\'s"}', ".json", []),
        ('{"-m": "acp_bridge"}', ".json", []),
        ("", ".json", []),
    ],
)
def test_programs_are_found_in_text(text: str, suffix: str, found: list[str]) -> None:
    assert programs_in(text, suffix) == found


def test_a_command_on_the_path_is_found(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [finding] = look(capsys, "command")[1]
    assert (finding["state"], finding["found"]) == ("ok", str(user / "bin" / "acp-bridge"))


def test_a_command_that_is_not_on_the_path_is_told(
    user: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(user))
    [finding] = look(capsys, "command")[1]
    assert finding["state"] == "note"
    assert str(user / "bin" / "acp-bridge") in finding["found"]
    assert "`acp-bridge editor`" in finding["advice"]


def test_another_command_on_the_path_is_told(
    user: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = program(user / "other")
    monkeypatch.setenv("PATH", str(other.parent))
    [finding] = look(capsys, "command")[1]
    assert (finding["state"], finding["found"]) == ("note", f"{other} on PATH")
    assert str(user / "bin" / "acp-bridge") in finding["advice"]
