"""``acp-bridge editor``: which there are, what it prints, and whose command stands in it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from acp_bridge.cli.editor import flag_words, program
from acp_bridge.cli.editor_setups import filled_in, set_ups
from acp_bridge.cli.main import main
from acp_bridge.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACP_BRIDGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_alone_it_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["editor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = {line.split()[0] for line in lines[: lines.index("")]}
    assert listed == {one.name for one in set_ups()}


def test_the_set_up_alone_goes_to_stdout_and_the_guide_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["editor", "zed", "--model", "demo"]) == 0
    captured = capsys.readouterr()
    [server] = json.loads(captured.out)["agent_servers"].values()
    assert server["args"] == ["--model", "demo"]
    assert "\nWhere: " in captured.err
    assert "\nRun for real: " in captured.err


def test_it_says_what_is_still_to_be_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DEEPSEEK_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ACP_BRIDGE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    assert main(["editor", "zed"]) == 0
    assert "acp-bridge setup" in capsys.readouterr().err.splitlines()[-1]
    assert main(["editor", "zed", "--runtime", "dsh"]) == 0
    assert "acp-bridge doctor --runtime dsh" in capsys.readouterr().err.splitlines()[-1]
    assert main(["editor", "zed", "--model", "demo"]) == 0
    assert "Run for real" in capsys.readouterr().err.splitlines()[-1]


def test_an_installation_without_set_ups_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("acp_bridge.cli.editor_setups._root", lambda: Path("/nowhere/editors"))
    assert main(["editor"]) == 2
    assert "install acp-bridge anew" in capsys.readouterr().err


@pytest.mark.process
def test_what_it_prints_is_a_command_that_is_there(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "acp_bridge", "editor", "kate", "--runtime", "dsh"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    script, *rest = json.loads(done.stdout)["servers"]["python"]["command"]
    assert rest == ["--runtime", "dsh", "lsp"]
    assert Path(script).is_absolute()
    told = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.startswith("acp-bridge ")


def test_for_machines_it_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["editor", "helix", "--json", "--mode", "plan"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert (told["name"], told["file"], captured.err) == ("helix", "languages.toml", "")
    assert told["command"][-3:] == ["--mode", "plan", "lsp"]
    assert f'command = "{told["command"][0]}"' in told["text"]
    assert "languages.toml" in told["guide"]["where"]


def test_the_list_for_machines_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["editor", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["name"] for line in lines] == [one.name for one in set_ups()]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("emacs", "'emacs', but agent-shell and eglot."),
        ("PyCharm", "'PyCharm', but jetbrains."),
        ("sublime", "There are acpx, agent-shell, "),
        ("", "`acp-bridge lsp` if it speaks LSP."),
    ],
)
def test_an_unknown_name_is_answered_with_those_that_there_are(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["editor", name]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err


def test_names_are_taken_in_any_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["editor", "Zed"]) == 0
    assert "agent_servers" in capsys.readouterr().out


def test_a_setting_that_cannot_be_used_does_not_get_into_a_set_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["editor", "zed", "--subagent-depth", "many"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "subagent_depth" in captured.err


def test_paths_in_flags_are_right_in_any_folder() -> None:
    flags: dict[str, str | None] = {
        "home": "../h",
        "model": "scripted:answers.jsonl",
        "mode": "plan",
        "dsh": "bin/dsh",
        "trace": "~/wire.jsonl",
        "log_stderr": "true",
        "effort": None,
    }
    words = flag_words(flags, Path("/work/project"))
    paths = ["--dsh", "/work/project/bin/dsh", "--trace", f"{Path.home()}/wire.jsonl"]
    assert words == [
        *("--home", "/work/h", "--model", "scripted:/work/project/answers.jsonl"),
        *("--mode", "plan", *paths, "--log-stderr"),
    ]


@pytest.mark.parametrize(
    ("name", "value"), [("dsh", "dsh"), ("model", "deepseek:deepseek-flash"), ("model", "demo")]
)
def test_what_is_no_path_stays_as_it_is(name: str, value: str) -> None:
    assert flag_words({name: value}, Path("/x")) == [f"--{name}", value]


def test_the_script_that_was_started_is_named_links_and_all(tmp_path: Path) -> None:
    script = tmp_path / "real" / "acp-bridge"
    script.parent.mkdir()
    script.write_text("")
    script.chmod(0o755)
    link = tmp_path / "acp-bridge"
    link.symlink_to(script)
    assert program(str(link), [], "/py") == [str(link)]
    assert program("/gone/acp-bridge", [tmp_path / "none", script.parent], "/py") == [str(script)]


def test_without_a_script_the_interpreter_is_named(tmp_path: Path) -> None:
    (tmp_path / "acp-bridge").write_text("nobody can run this")
    started = str(tmp_path / "__main__.py")
    assert program(started, [tmp_path], "/py") == ["/py", "-m", "acp_bridge"]


@pytest.mark.parametrize("word", ["a\nb", "a\x7fb", os.fsdecode(b"a\xff")])
def test_a_word_that_no_settings_file_can_hold_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="another path or value"):
        filled_in(set_ups()[0], ["acp-bridge"], ["--home", word])
