"""Sessions that the real runtime compacted go on here from its summaries."""

import json
import os
import shutil
from pathlib import Path

import harness_rig
import pytest
from fake_models import FakeCatalog, FakeModel
from harness_rig import rig

from acp_bridge.vocabulary import Command, SessionId, TurnEnd

pytestmark = pytest.mark.anyio

REPO = Path(__file__).parents[2]
OPENING = "This is an automatically generated checkpoint"


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, name: str) -> Path:
    """A copy of a captured store, whose session the rig opens."""
    shared = Path(os.environ.get("ACP_BRIDGE_SHARED", REPO.parent / "shared"))
    homes = shared / "data" / "dsh-0.2.1rc2" / "homes"
    assert homes.is_dir(), f"{homes} is missing: set ACP_BRIDGE_SHARED to the shared folder"
    shutil.copytree(homes / case / "sessions", tmp_path / "sessions")
    monkeypatch.setattr(harness_rig, "SESSION", SessionId(name))
    return tmp_path


def wide() -> FakeModel:
    model = FakeModel("plain")
    model.context_window = 1_000_000
    return model


@pytest.mark.parametrize(
    ("case", "name", "first", "lacks"),
    [
        ("compact_manual", "cm", "answer 2 lorem", "q0 lorem"),
        ("compact_auto", "ca", "no script; ok", "script exhausted"),
    ],
)
async def test_a_compacted_session_goes_on_from_its_summary(
    opened: Path, first: str, lacks: str
) -> None:
    model = wide()
    async with rig(opened, FakeCatalog(model)) as r:
        assert await r.prompt("and now here") == TurnEnd("completed")
        header = r.data("request/header")[-1]
        assert header["reason"] == "resume"
    [request] = model.asked
    text = json.dumps(request.messages)
    assert OPENING in str(request.messages[0])
    assert first in str(request.messages[0])
    assert lacks not in text
    assert "and now here" in str(request.messages[-1])


@pytest.mark.parametrize(("case", "name"), [("orphan_killed", "or")])
async def test_a_compaction_that_the_runtime_was_killed_in_counts_for_nothing(opened: Path) -> None:
    model = wide()
    async with rig(opened, FakeCatalog(model)) as r:
        assert [event.type for event in r.session.events[-2:]] == [
            "compaction/start",
            "session/end-seed",
        ]
        assert await r.prompt("and now here") == TurnEnd("completed")
    text = json.dumps(model.asked[0].messages)
    assert OPENING not in text
    for said in ("q0 lorem", "q1 lorem", "q2 lorem", "and now here"):
        assert said in text


@pytest.mark.parametrize(("case", "name"), [("compact_manual", "cm")])
async def test_a_summary_of_the_runtime_is_part_of_the_next_one(opened: Path) -> None:
    model = wide()
    async with rig(opened, FakeCatalog(model)) as r:
        assert await r.ended(r.session.admit(Command("compact", ""))) == TurnEnd("completed")
        [*_, done] = r.data("command/done")
        assert done["kind"] == "success", done
        await r.prompt("and now here")
    summing, request = model.asked
    assert OPENING in str(summing.messages)
    assert OPENING not in str(request.messages)
