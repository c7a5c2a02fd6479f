"""Pytest plugin: snapshot scenarios for bridges and their editors.

``check_scenario`` plays a folder, checks every message against the official schema and the rules
for all clients, and compares with `expected/`; ``--snapshot-update`` writes that instead. To try
another ACP agent: ``await check_scenario(folder, launcher=command(["my-agent"]))``.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from acp_bridge.testing.launch import Launcher
    from acp_bridge.testing.normal import Files
    from acp_bridge.testing.runner import Outcome

# Nothing of the package is imported at the top: every pytest run beside the bridge loads this.


class CheckScenario(Protocol):
    """What the fixture gives: play, check, compare; the outcome for further asserts."""

    def __call__(self, folder: Path, *, launcher: "Launcher | None" = None) -> "Awaitable[Outcome]":
        """Await it."""


class Snapshot(Protocol):
    """What we use of pytest-snapshot."""

    snapshot_dir: Path

    def assert_match(self, value: str, snapshot_name: str) -> None:
        """Compare one file."""

    def assert_match_dir(self, dir_dict: "Files", snapshot_dir_name: str) -> None:
        """Compare a folder and the set of its files."""


@pytest.fixture
def acp_snapshot(request: pytest.FixtureRequest) -> Snapshot:
    """pytest-snapshot's fixture, or a skip-free failure that says what to install."""
    try:
        found: Snapshot = request.getfixturevalue("snapshot")
    except pytest.FixtureLookupError:
        pytest.fail(
            "Scenarios need pytest-snapshot: pip install 'harness-acp-bridge[dev]'", pytrace=False
        )
    return found


@pytest.fixture
def check_scenario(acp_snapshot: Snapshot, tmp_path: Path) -> CheckScenario:
    """Play a scenario folder and hold it against its expectations."""

    async def check(folder: Path, *, launcher: "Launcher | None" = None) -> "Outcome":
        from acp_bridge.testing import check as checks
        from acp_bridge.testing.normal import Shared, expected_files

        outcome = await checks.played(folder, tmp_path, launcher)
        shared = Shared.read(folder.parent / "_shared")
        acp_snapshot.snapshot_dir = folder
        acp_snapshot.assert_match_dir(expected_files(outcome, shared), "expected")
        return outcome

    return check
