"""Pytest plugin: snapshot scenarios for any ACP agent, for the bridge and for its editors.

A test that takes ``acp_scenario`` runs once for each folder of scenarios; ``acp_scenario()`` plays
it against the command of the ini option ``acp_agent`` (or of the mark of that name) and compares
with `expected/`; ``--snapshot-update`` writes that instead. ``check_scenario`` is the same for one
folder and a launcher of the test's own choice, as a coroutine, held to all that the bridge is.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from acp_bridge.testing.launch import Launcher
    from acp_bridge.testing.normal import Files
    from acp_bridge.testing.project import Project
    from acp_bridge.testing.runner import Outcome

# Nothing of the package is imported at the top: every pytest run beside the bridge loads this.

UPDATE = "--snapshot-update --allow-snapshot-deletion"


class CheckScenario(Protocol):
    """What the fixture gives: play, check, compare; the outcome for further asserts."""

    def __call__(self, folder: Path, *, launcher: "Launcher | None" = None) -> "Awaitable[Outcome]":
        """Await it."""


class AcpScenario(Protocol):
    """What the fixture gives: one scenario. Calling it plays, checks and compares."""

    folder: Path

    def __call__(self) -> "Outcome":
        """Fail the test if anything is not as it should be; what was seen, for further asserts."""


class Snapshot(Protocol):
    """What we use of pytest-snapshot."""

    snapshot_dir: Path

    def assert_match(self, value: str, snapshot_name: str) -> None:
        """Compare one file."""

    def assert_match_dir(self, dir_dict: "Files", snapshot_dir_name: str) -> None:
        """Compare a folder and the set of its files."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of a project that has an agent."""
    add = parser.addini
    add("acp_agent", "command line of the ACP agent that scenarios start", default="")
    add("acp_scenarios", "folder of the scenarios, seen from the ini file", default="snapshots")
    add("acp_checks", "what messages are held to: schema (default), all, none", default="schema")
    add("acp_wait_s", "bound of each wait, in seconds (default 30)", default="30")
    add("acp_ids", "regular expressions, one a line, of ids that differ each run", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers",
        "acp_agent(command, scenarios=..., checks=..., wait_s=..., ids=[...]): the ACP agent that "
        "this test's acp_scenario starts; what is left out is as the ini options say",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``acp_scenario`` once for each scenario."""
    if "acp_scenario" not in metafunc.fixturenames:
        return
    from acp_bridge.testing.project import Project

    project = Project.of(metafunc.definition)
    folders = project.folders()
    metafunc.parametrize(
        "acp_scenario", folders, indirect=True, ids=[folder.name for folder in folders]
    )


@pytest.fixture
def acp_snapshot(request: pytest.FixtureRequest) -> Snapshot:
    """pytest-snapshot's fixture, or a skip-free failure that says what to install."""
    try:
        found: Snapshot = request.getfixturevalue("snapshot")
    except pytest.FixtureLookupError:
        pytest.fail(
            "Scenarios need pytest-snapshot: pip install 'harness-acp-bridge[testing]'",
            pytrace=False,
        )
    return found


@pytest.fixture
def check_scenario(
    acp_snapshot: Snapshot, tmp_path: Path, request: pytest.FixtureRequest
) -> CheckScenario:
    """Play a scenario folder and hold it against its expectations."""

    async def check(folder: Path, *, launcher: "Launcher | None" = None) -> "Outcome":
        from acp_bridge.testing import check as checks

        outcome = await checks.played(folder, tmp_path, launcher)
        _compare(outcome, acp_snapshot, request.config)
        return outcome

    return check


@pytest.fixture
def acp_scenario(
    acp_snapshot: Snapshot, tmp_path: Path, request: pytest.FixtureRequest
) -> AcpScenario:
    """One scenario of the project, for its agent."""
    from acp_bridge.testing.project import Project

    return _Scenario(Project.of(request.node), request.param, tmp_path, acp_snapshot)


class _Scenario:
    def __init__(self, project: "Project", folder: Path, place: Path, snapshot: Snapshot) -> None:
        self.folder = folder
        self._project = project
        self._place = place
        self._snapshot = snapshot

    def __call__(self) -> "Outcome":
        from functools import partial

        import anyio

        from acp_bridge.testing.check import played
        from acp_bridge.testing.client import ScenarioError

        project = self._project
        play = partial(
            played,
            self.folder,
            self._place,
            project.launcher(),
            demands=project.demands,
            wait_s=project.wait_s,
        )
        wrong = None
        try:
            outcome = anyio.run(play)
        except (ScenarioError, ValueError) as error:
            wrong = str(error)
        if wrong is not None:  # here, so that nothing is told of another exception
            pytest.fail(wrong, pytrace=False)
        _compare(outcome, self._snapshot, project.config, project.ids)
        return outcome


def _compare(
    outcome: "Outcome", snapshot: Snapshot, config: pytest.Config, ids: tuple[str, ...] = ()
) -> None:
    from acp_bridge.testing.difference import differences
    from acp_bridge.testing.normal import Shared, expected_files

    folder = outcome.scenario.folder
    files = expected_files(outcome, Shared.read(folder.parent / "_shared"), ids)
    expected = folder / "expected"
    if not config.getoption("snapshot_update"):
        if not expected.is_dir():
            pytest.fail(f"{folder.name} has no expected/: run pytest {UPDATE}", pytrace=False)
        if found := differences(expected, files):
            told = "\n  ".join(found)
            pytest.fail(
                f"{folder.name} differs from its expected/ (- pinned, + now):\n  {told}\n"
                f"If this is what you meant: pytest {UPDATE}, then read the diff.",
                pytrace=False,
            )
    # The last word, and the one that writes, is that of pytest-snapshot.
    snapshot.snapshot_dir = folder
    snapshot.assert_match_dir(files, "expected")
