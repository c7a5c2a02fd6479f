"""Settings come from flag, variable, file or default, in this order, and are checked."""

from pathlib import Path

import pytest

from acp_bridge.config import resolve
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
