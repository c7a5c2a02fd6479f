"""The bridge and the real runtime take turns on the same sessions."""

from typing import Any

import anyio
import attrs
import pytest
from acp_rig import Bench
from dsh_rig import Round, dsh, dsh_command, have_a_turn, loopback_model, missing
from our_sessions import (
    CASES,
    REOPENED,
    Case,
    bench_in,
    continue_sessions,
    foreign_problems,
    write_sessions,
)

from acp_bridge.sessions import SessionStore
from acp_bridge.vocabulary import Event

pytestmark = [pytest.mark.dsh, pytest.mark.process]


@attrs.frozen
class Journey:
    """Sessions of ours that went to the runtime, back to us, and to the runtime again."""

    bench: Bench
    ids: dict[str, str]
    first: dict[str, Round]
    shown: dict[str, str]
    second: dict[str, Round]

    def events(self, name: str) -> list[Event]:
        store = SessionStore(self.bench.home / "sessions", clock=lambda: 0)
        return list(store.read(self.ids[name]).events)


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Journey:
    dsh_command()
    bench = bench_in(tmp_path_factory.mktemp("journey") / "bench")
    ids = anyio.run(write_sessions, bench)
    with loopback_model() as model:
        with dsh(bench.home, bench.cwd, model) as runtime:
            first = {n: have_a_turn(runtime, model, i, "and dsh") for n, i in ids.items()}
        bench.judge = foreign_problems
        shown = anyio.run(continue_sessions, bench, ids, "and us")
        with dsh(bench.home, bench.cwd, model) as runtime:
            second = {n: have_a_turn(runtime, model, i, "once more") for n, i in ids.items()}
    return Journey(bench, ids, first, shown, second)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_runtime_continues_a_session_of_ours_and_tells_its_model_all_of_it(
    journey: Journey, case: Case
) -> None:
    first = journey.first[case.name]
    assert first.outcome == "completed"
    ours = ("reopened", "Heard reopened.") if case.name in REOPENED else ()
    assert missing((*case.holds, *ours, "and dsh"), first.asked) == []
    assert [piece for piece in case.lacks if piece in first.asked] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_our_load_shows_the_turn_of_the_runtime_after_our_own(journey: Journey, case: Case) -> None:
    shown = journey.shown[case.name]
    assert missing(("and dsh", "Hi from the loopback."), shown) == []
    assert shown.count("Hi from the loopback.") == 1
    assert "runtime context" not in shown


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_and_after_our_next_turn_the_runtime_goes_on_again(journey: Journey, case: Case) -> None:
    second = journey.second[case.name]
    assert second.outcome == "completed"
    both = ("and dsh", "Hi from the loopback.", "and us", "Heard and us.", "once more")
    assert missing((*case.holds, *both), second.asked) == []
    assert [piece for piece in case.lacks if piece in second.asked] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_side_only_ever_appended(journey: Journey, case: Case) -> None:
    events = journey.events(case.name)
    assert [event.seq for event in events] == list(range(len(events)))
    ends: list[Any] = [event.data for event in events if event.type == "turn/end"]
    assert ends[-1]["reason"] == {"kind": "completed"}
