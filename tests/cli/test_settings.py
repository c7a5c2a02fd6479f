"""Settings come from flag, variable, file or default, in this order, and are checked."""

from pathlib import Path

import pytest

from acp_bridge.cli.main import main
from acp_bridge.config import McpSettings, resolve
from acp_bridge.errors import ConfigError


def test_where_commands_run_is_set_by_flag_variable_and_file_in_this_order(tmp_path: Path) -> None:
    home = {"home": str(tmp_path)}
    assert resolve(home, {})[0].execution == "local"
    (tmp_path / "config.toml").write_text('execution = "client"\n')
    assert resolve(home, {})[0].execution == "client"
    local = {"ACP_BRIDGE_EXECUTION": "local"}
    assert resolve(home, local)[0].execution == "local"
    settings, found = resolve({**home, "execution": "client"}, local)
    assert (settings.execution, found["execution"].source) == ("client", "--execution")


def test_compaction_is_left_to_its_command_by_flag_variable_or_file(tmp_path: Path) -> None:
    home = {"home": str(tmp_path)}
    assert resolve(home, {})[0].compact == "auto"
    (tmp_path / "config.toml").write_text('compact = "off"\n')
    assert resolve(home, {})[0].compact == "off"
    assert resolve(home, {"ACP_BRIDGE_COMPACT": "auto"})[0].compact == "auto"
    assert resolve({**home, "compact": "off"}, {"ACP_BRIDGE_COMPACT": "auto"})[0].compact == "off"
    with pytest.raises(ConfigError, match="must be auto or off"):
        resolve(home, {"ACP_BRIDGE_COMPACT": "sometimes"})


def test_how_subagents_are_shown_is_a_setting_too(tmp_path: Path) -> None:
    home = {"home": str(tmp_path)}
    assert resolve(home, {})[0].subagents == "auto"
    assert resolve(home, {"ACP_BRIDGE_SUBAGENTS": "native"})[0].subagents == "native"
    with pytest.raises(ConfigError, match="must be auto or native or fallback"):
        resolve({**home, "subagents": "yes"}, {})


def test_nothing_else_is_a_place_to_run_commands(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be local or client"):
        resolve({"home": str(tmp_path)}, {"ACP_BRIDGE_EXECUTION": "nowhere"})


def test_subagents_are_bounded_by_flag_variable_and_file(tmp_path: Path) -> None:
    home = {"home": str(tmp_path)}
    settings, _ = resolve(home, {})
    assert (settings.background, settings.subagent_depth, settings.subagent_limit) == (
        "hold",
        3,
        16,
    )
    (tmp_path / "config.toml").write_text('subagent_depth = 0\nbackground = "detach"\n')
    settings, found = resolve({**home, "subagent_limit": "4"}, {"ACP_BRIDGE_SUBAGENT_LIMIT": "5"})
    assert (settings.background, settings.subagent_depth, settings.subagent_limit) == (
        "detach",
        0,
        4,
    )
    assert found["subagent_limit"].source == "--subagent-limit"
    assert found["subagent_depth"].source == str(tmp_path / "config.toml")


@pytest.mark.parametrize("value", ["-1", "x", "", "10000", "1.5", "²"])
def test_a_limit_that_is_no_whole_number_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"subagent_limit .*--subagent-limit.* whole number"):
        resolve({"home": str(tmp_path), "subagent_limit": value}, {})


@pytest.mark.parametrize("value", ['"3"', "true", "1.5"])
def test_a_limit_in_the_file_is_a_number(tmp_path: Path, value: str) -> None:
    (tmp_path / "config.toml").write_text(f"subagent_depth = {value}\n")
    with pytest.raises(ConfigError, match="'subagent_depth' to a whole number"):
        resolve({"home": str(tmp_path)}, {})


def test_the_file_names_mcp_servers(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        """
        [mcp_servers.git]
        command = "git-mcp"
        args = ["--repo", ""]
        env = { TOKEN = "a=b", EMPTY = "" }
        timeout_s = 600

        [mcp_servers."far away"]
        url = "https://example.org/mcp"
        headers = { Authorization = "Bearer x" }
        type = "sse"

        [mcp_servers.theirs]
        timeout_s = 2.5
        """
    )
    settings, found = resolve({"home": str(tmp_path)}, {})
    assert settings.mcp_servers == {
        "git": McpSettings(
            command="git-mcp",
            args=("--repo", ""),
            env={"TOKEN": "a=b", "EMPTY": ""},
            timeout_s=600,
        ),
        "far away": McpSettings(
            url="https://example.org/mcp", headers={"Authorization": "Bearer x"}, type="sse"
        ),
        "theirs": McpSettings(timeout_s=2.5),
    }
    assert "Bearer" not in str(found)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("mcp_servers = 1", r"must set mcp_servers in tables: \[mcp_servers"),
        ("[mcp_servers]\na = 1", r'\[mcp_servers."a"\] must be a table'),
        (
            "[mcp_servers.a]\ncmd = 'x'",
            "sets 'cmd', which is no setting of an MCP server: use args",
        ),
        ("[mcp_servers.a]\ncommand = ''", "must set 'command' to a string"),
        ("[mcp_servers.a]\ncommand = 'x'\nargs = 'y'", "'args' to a list of strings"),
        ("[mcp_servers.a]\ncommand = 'x'\nenv = {A = 1}", "'env' to a table of strings"),
        ("[mcp_servers.a]\ncommand = 'x'\nurl = 'y'", "'command' or 'url', not both"),
        ("[mcp_servers.a]\nurl = 'x'\ntype = 'warp'", "'type' to http or sse"),
        ("[mcp_servers.a]\nurl = 'x'\nargs = ['y']", "sets 'args', which needs 'command'"),
        ("[mcp_servers.a]\nheaders = {}", "sets 'headers', which needs 'url'"),
        ("[mcp_servers.a]\ntimeout_s = 0", "'timeout_s' to a number of seconds above 0"),
        ("[mcp_servers.a]\ntimeout_s = true", "'timeout_s' to a number of seconds above 0"),
    ],
)
def test_a_server_in_the_file_that_cannot_be_used_is_named(
    tmp_path: Path, text: str, fault: str
) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=fault):
        resolve({"home": str(tmp_path)}, {})


def test_the_events_home_and_its_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token has no flag, which a process list would show, and is never printed."""
    (tmp_path / "config.toml").write_text(
        "delegation = 'remote'\nevents = 'https://there'\nevents_token = 's3cret'\n"
    )
    settings, _ = resolve({"home": str(tmp_path)}, {})
    assert (settings.delegation, settings.events, settings.events_token) == (
        "remote",
        "https://there",
        "s3cret",
    )
    flags = {"home": str(tmp_path), "events": "http://here", "events_token": "flag"}
    settings, _ = resolve(flags, {"ACP_BRIDGE_EVENTS_TOKEN": "other"})
    assert (settings.events, settings.events_token) == ("http://here", "other")
    with pytest.raises(ConfigError, match="delegation is 'far'"):
        resolve({"home": str(tmp_path), "delegation": "far"}, {})
    monkeypatch.delenv("ACP_BRIDGE_EVENTS_TOKEN", raising=False)
    assert main(["config", "--home", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "(set)" in shown
    assert "s3cret" not in shown
    with pytest.raises(SystemExit):
        main(["--events-token", "x", "config"])
