"""Settings like every other: from a flag, a variable, the file, or the default, in this order."""

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


def test_nothing_else_is_a_place_to_run_commands(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be local or client"):
        resolve({"home": str(tmp_path)}, {"ACP_BRIDGE_EXECUTION": "nowhere"})
