"""Every scenario of `snapshots/`, played against the assembled bridge and held to its expectations.

``poe snapshots`` writes the expectations anew; that run fails by design, the next one is green.
"""

import json
import re
from pathlib import Path

import pytest

from acp_bridge.testing.check import played
from acp_bridge.testing.normal import Normaliser, Shared, model_requests, stored_logs
from acp_bridge.testing.plugin import CheckScenario, Snapshot
from acp_bridge.testing.scenario import folders, load, orphans
from acp_bridge.testing.transcript import obj

SNAPSHOTS = Path(__file__).resolve().parent.parent / "snapshots"
SHARED = SNAPSHOTS / "_shared"

SCENARIOS = [
    pytest.param(
        folder, id=folder.name, marks=[pytest.mark.process] if load(folder).process else []
    )
    for folder in folders(SNAPSHOTS)
]


@pytest.mark.anyio
async def test_what_scenarios_share_is_pinned_once(acp_snapshot: Snapshot, tmp_path: Path) -> None:
    # First in this file: an update run must write these before the scenarios refer to them.
    outcome = await played(SNAPSHOTS / "text-turn", tmp_path)
    request = model_requests(outcome)[0]
    hello = next(line for line in outcome.lines if line.method == "initialize" and not line.params)
    made = next(line for line in outcome.lines if line.method == "session/new" and not line.params)
    told = next(line.update for line in outcome.lines if "availableCommands" in line.update)
    (tmp_path / "delegated").mkdir()
    delegated = await played(SNAPSHOTS / "subagent-spawn", tmp_path / "delegated")
    child = next(one for one in model_requests(delegated) if one["agent"] == "1/1")
    system = str(child["system"]).replace(str(delegated.place.cwd), str(outcome.place.cwd))
    (tmp_path / "asking").mkdir()
    asking = await played(SNAPSHOTS / "ask-user", tmp_path / "asking")
    shared = {
        "system": request["system"],
        "system-subagent": system,
        "tools": request["tools"],
        "tools-asking": model_requests(asking)[0]["tools"],
        "initialize": hello.message["result"],
        "modes": obj(made.message["result"])["modes"],
        "options": obj(made.message["result"])["configOptions"],
        "commands": told["availableCommands"],
    }
    normaliser = Normaliser(outcome, stored_logs(outcome.place.home), Shared({}))
    acp_snapshot.snapshot_dir = SNAPSHOTS
    acp_snapshot.assert_match_dir(
        {
            f"{name}.json": json.dumps(normaliser.value(value), indent=2, sort_keys=True) + "\n"
            for name, value in shared.items()
        },
        "_shared",
    )


@pytest.mark.anyio
@pytest.mark.parametrize("folder", SCENARIOS)
async def test_scenario(folder: Path, check_scenario: CheckScenario) -> None:
    await check_scenario(folder)


def test_no_file_below_snapshots_is_an_orphan() -> None:
    assert orphans(SNAPSHOTS) == []


def test_every_shared_value_is_used_by_several_scenarios() -> None:
    used: dict[str, set[str]] = {path.stem: set() for path in SHARED.iterdir()}
    for folder in folders(SNAPSHOTS):
        for path in (folder / "expected").rglob("*.jsonl"):
            for name in re.findall(r'"\$shared": "([\w-]+)"', path.read_text("utf-8")):
                used[name].add(folder.name)
    assert [name for name, scenarios in used.items() if len(scenarios) < 2] == []


def test_at_least_two_scenarios_run_as_a_process() -> None:
    assert sum(load(folder).process for folder in folders(SNAPSHOTS)) >= 2
