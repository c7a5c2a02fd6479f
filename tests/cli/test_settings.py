"""Where commands run is a setting like every other: flag, variable, file, default."""

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


def test_how_subagents_are_shown_is_a_setting_too(tmp_path: Path) -> None:
    home = {"home": str(tmp_path)}
    assert resolve(home, {})[0].subagents == "auto"
    assert resolve(home, {"ACP_BRIDGE_SUBAGENTS": "native"})[0].subagents == "native"
    with pytest.raises(ConfigError, match="must be auto or native or fallback"):
        resolve({**home, "subagents": "yes"}, {})


def test_nothing_else_is_a_place_to_run_commands(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be local or client"):
        resolve({"home": str(tmp_path)}, {"ACP_BRIDGE_EXECUTION": "nowhere"})
