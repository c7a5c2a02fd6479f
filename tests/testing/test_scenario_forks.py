"""Forks that a scenario finds in its store: ordinary ones, and ones that name their source."""

from pathlib import Path

import pytest

from acp_bridge.sessions import Header, SessionStore
from acp_bridge.testing.client import ScenarioError
from acp_bridge.testing.forks import make_fork
from acp_bridge.vocabulary import Draft, JsonObject


def stored(home: Path, *, turns: int) -> SessionStore:
    store = SessionStore(home / "sessions", clock=lambda: 1)
    writer = store.create(Header("source", 1, "/work"))
    writer.append([Draft("permission/preset", {"preset": "read-only"})])
    for turn in range(1, turns + 1):
        end: JsonObject = {"turn": turn, "reason": {"kind": "completed"}}
        writer.append([Draft("turn/start", {"turn": turn}), Draft("turn/end", end)])
    writer.close()
    return store


@pytest.mark.parametrize("historical", [False, True])
def test_a_fork_is_sound_and_no_subagent(historical: bool, tmp_path: Path) -> None:
    store = stored(tmp_path, turns=1)
    make_fork(tmp_path, "source", "fork", historical=historical)
    header = store.read("fork").header
    assert header.parent_session == ("source" if historical else None)
    assert (header.origin, header.is_seeded) == (None, True)
    store.open("fork").close()


def test_a_source_without_a_turn_is_a_mistake_in_the_scenario(tmp_path: Path) -> None:
    stored(tmp_path, turns=0)
    with pytest.raises(ScenarioError, match="no completed turn"):
        make_fork(tmp_path, "source", "fork", historical=False)
