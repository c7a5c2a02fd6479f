"""The pure streamer, by the numbers of ``orchestration.md``, "What tests must hold"."""

import pytest
from streamer_world import run_event

from acp_bridge.runevents.model import RunId
from acp_bridge.runevents.streamer import (
    TOMBSTONES_MAX,
    Close,
    ConsumerId,
    Effect,
    Handling,
    Open,
    Streamer,
    Undriven,
)
from acp_bridge.vocabulary import SessionId

P, C, D = SessionId("parent"), SessionId("child"), SessionId("other-child")
RP, RC, RD = RunId("run-p"), RunId("run-c"), RunId("run-d")
EDITOR, DRIVER = ConsumerId("editor"), ConsumerId("driver")


def watched(core: Streamer, session_id: SessionId) -> dict[RunId, int] | None:
    """The open connection's runs and cursors; None without a connection."""
    generation = generation_of(core, session_id)
    return None if generation is None else dict(core.cursors(session_id, generation) or {})


def generation_of(core: Streamer, session_id: SessionId) -> int | None:
    for entry in core.snapshot().entries:
        if entry.session_id == session_id:
            return entry.generation
    return None


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def parent_with_child() -> Streamer:
    core = Streamer()
    core.run_assigned(P, RP)
    core.register_child(P, RC)
    core.register_consumer(P, EDITOR)
    return core


def take(core: Streamer, session_id: SessionId, run_id: str, sequence: int, kind: str) -> Handling:
    """Let the session's stream bring an event, and handle it."""
    event = run_event(run_id, sequence, kind)
    generation = generation_of(core, session_id)
    assert generation is not None
    handling = core.received(session_id, generation, event)
    if handling not in {Handling.STALE, Handling.SKIP}:
        core.handled(session_id, event)
    return handling


def test_01_a_solo_session_never_connects_and_its_own_run_is_not_watched() -> None:
    core = Streamer()
    effects = core.register_consumer(P, EDITOR)
    effects += core.run_assigned(P, RP)
    effects += core.register_consumer(P, DRIVER)
    effects += core.unregister_consumer(P, EDITOR)
    effects += core.register_child(P, RP)  # its own id makes nobody a parent
    assert effects == []
    assert core.watched_by(P) == {}


@pytest.mark.parametrize("driver_first", [True, False])
def test_02_a_hosted_child_connects_once_it_has_run_and_driver(*, driver_first: bool) -> None:
    core = Streamer()
    core.placed_under_parent(C)
    if driver_first:
        assert core.register_consumer(C, DRIVER) == []
        effects = core.run_assigned(C, RC, hosted_by=DRIVER)
    else:
        core.run_assigned(C, RC)
        effects = core.register_consumer(C, DRIVER)
    assert kinds(effects) == [Open]
    assert watched(core, C) == {RC: 0}


def test_04_a_parent_with_a_consumer_connects_with_its_first_child() -> None:
    core = Streamer()
    core.register_consumer(P, EDITOR)
    core.run_assigned(P, RP)
    assert kinds(core.register_child(P, RC)) == [Open]
    assert watched(core, P) == {RP: 0, RC: 0}


def test_05_children_first_and_it_stays_closed_until_a_consumer_comes() -> None:
    core = Streamer()
    assert core.run_assigned(P, RP) + core.register_child(P, RC) + core.register_child(P, RD) == []
    assert kinds(core.register_consumer(P, EDITOR)) == [Open]
    assert watched(core, P) == {RP: 0, RC: 0, RD: 0}


def test_06_the_last_consumer_leaves_and_the_stream_drains_with_its_cursors_kept() -> None:
    core = parent_with_child()
    take(core, P, RC, 7, "run_succeeded")
    generation = generation_of(core, P)
    assert generation is not None
    assert core.unregister_consumer(P, EDITOR) == [Close(P, generation, drain=True)]
    late = run_event(RC, 9, "run_failed")
    assert core.received(P, generation, late) is Handling.DELIVER  # what was in the buffer
    core.handled(P, late)
    core.drained(P, generation)
    assert core.received(P, generation, run_event(RC, 10)) is Handling.STALE
    assert core.watched_by(P) == {RP: 0, RC: 9}


def test_07_parent_and_child_in_one_close_and_return_together() -> None:
    core = Streamer()
    core.run_assigned(C, RC, parent_run=RP)
    core.register_child(C, RD)
    assert watched(core, C) is None
    core.register_consumer(C, DRIVER)
    assert watched(core, C) == {RC: 0, RD: 0}
    core.unregister_consumer(C, DRIVER)
    assert watched(core, C) is None
    core.register_consumer(C, EDITOR)
    assert watched(core, C) == {RC: 0, RD: 0}


def test_08_a_return_has_a_new_generation_and_the_latest_cursors() -> None:
    core = parent_with_child()
    first = generation_of(core, P)
    take(core, P, RC, 7, "run_succeeded")
    core.unregister_consumer(P, EDITOR)
    core.register_consumer(P, EDITOR)
    assert first is not None
    assert (generation_of(core, P) or 0) > first
    assert watched(core, P) == {RP: 0, RC: 7}


def test_09_a_removed_child_is_pruned_everywhere_and_its_late_events_are_dropped() -> None:
    core = parent_with_child()
    core.run_assigned(C, RC)
    core.register_child(P, RD)
    core.register_child(D, RC)
    old = generation_of(core, P)
    assert old is not None
    assert kinds(core.removed(C)) == [Close, Open]
    assert watched(core, P) == {RP: 0, RD: 0}
    assert core.watched_by(D) == {}
    assert core.received(P, old, run_event(RC, 5)) is Handling.SKIP  # by the one that drains
    assert core.register_child(P, RC) == []  # a late event of its start does not bring it back
    assert RC not in core.watched_by(P)


def test_10_the_last_child_of_a_session_that_is_none_closes_it_despite_a_consumer() -> None:
    core = parent_with_child()
    core.run_assigned(C, RC)
    assert kinds(core.removed(C)) == [Close]
    assert watched(core, P) is None


def test_11_of_two_consumers_the_first_to_leave_keeps_the_stream() -> None:
    core = parent_with_child()
    core.register_consumer(P, DRIVER)
    assert core.unregister_consumer(P, EDITOR) == []
    assert kinds(core.unregister_consumer(P, DRIVER)) == [Close]


def test_12_a_parent_with_only_its_driver_gets_all_childrens_events() -> None:
    core = Streamer()
    core.register_consumer(P, DRIVER)
    core.run_assigned(P, RP, hosted_by=DRIVER)
    for sequence, child in enumerate((RC, RD), start=1):
        core.register_child(P, child)
        assert take(core, P, child, sequence, "run_succeeded") is Handling.DELIVER


def test_14_duplicates_are_skipped() -> None:
    core = parent_with_child()
    assert take(core, P, RC, 7, "run_succeeded") is Handling.DELIVER
    assert take(core, P, RC, 7, "run_succeeded") is Handling.SKIP
    assert take(core, P, RC, 6, "run_failed") is Handling.SKIP
    assert take(core, P, RP, 6, "new_message") is Handling.DELIVER  # another run's cursor


def test_18_an_unchanged_set_keeps_the_generation() -> None:
    core = parent_with_child()
    first = generation_of(core, P)
    assert first is not None
    effects = core.register_child(P, RC)
    effects += core.register_consumer(P, DRIVER)
    effects += core.run_assigned(P, RP)
    effects += core.restored(P, cursors={RC: 3}, children=[RC])
    effects += core.reopen(P, first)
    assert effects == []
    assert generation_of(core, P) == first


def test_19_events_of_a_killed_run_are_dropped_with_their_cursor_moved() -> None:
    core = parent_with_child()
    core.run_assigned(C, RC)
    core.killed(C)
    assert take(core, P, RC, 7, "run_succeeded") is Handling.SKIP
    assert core.watched_by(P)[RC] == 7


def test_19_tombstones_are_bounded() -> None:
    core = Streamer()
    for number in range(TOMBSTONES_MAX + 10):
        core.run_assigned(C, RunId(f"run-{number}"))
        core.killed(C)
    assert core.snapshot().tombstones == TOMBSTONES_MAX


def test_20_a_restore_takes_the_highest_of_all() -> None:
    core = parent_with_child()
    take(core, P, RC, 7, "run_succeeded")
    core.restored(P, cursors={RC: 3, RP: 9}, run_id=RP)
    assert watched(core, P) == {RP: 9, RC: 7}


def test_20_a_child_found_late_widens_an_open_stream() -> None:
    core = parent_with_child()
    assert kinds(core.restored(P, cursors={}, children=[RD])) == [Close, Open]
    assert watched(core, P) == {RP: 0, RC: 0, RD: 0}


def test_20_nothing_is_restored_of_what_was_removed_meanwhile() -> None:
    core = parent_with_child()
    core.run_assigned(C, RC)
    core.restoring(D)
    core.removed(C)
    core.removed(D)
    assert core.restored(D, cursors={RD: 1}, run_id=RD, children=[RP]) == []
    assert not core.knows(D)
    core.restored(P, cursors={RC: 4}, children=[RC])
    assert RC not in core.watched_by(P)


def test_20_cursors_of_an_earlier_own_run_make_nobody_a_parent() -> None:
    core = Streamer()
    core.run_assigned(P, RunId("run-p2"))
    core.register_consumer(P, EDITOR)
    assert core.restored(P, cursors={RP: 4}, run_id=RP) == []
    assert core.watched_by(P) == {}


def test_21_a_passive_session_never_connects() -> None:
    core = Streamer()
    core.set_passive(C)
    core.placed_under_parent(C)
    effects = core.register_consumer(C, EDITOR)
    effects += core.run_assigned(C, RC)
    effects += core.register_child(C, RD)
    assert effects == []
    core = parent_with_child()
    assert kinds(core.set_passive(P)) == [Close]


def test_24_a_child_registered_late_starts_at_its_first_event() -> None:
    core = parent_with_child()
    take(core, P, RC, 50, "run_succeeded")
    core.register_child(P, RD)
    assert watched(core, P) == {RP: 0, RC: 50, RD: 0}
    assert take(core, P, RD, 3, "run_succeeded") is Handling.DELIVER


def test_27_after_a_reset_every_stream_starts_anew() -> None:
    core = parent_with_child()
    take(core, P, RC, 50, "run_succeeded")
    old = generation_of(core, P)
    assert old is not None
    assert core.log_was_reset() == [Close(P, old, drain=False), Open(P, old + 1)]
    assert watched(core, P) == {RP: 0, RC: 0}
    assert core.received(P, old, run_event(RC, 60)) is Handling.STALE


def test_29_parent_and_child_in_one_process_close_only_their_own_stream() -> None:
    core = parent_with_child()
    core.register_consumer(C, DRIVER)
    core.run_assigned(C, RC, parent_run=RP, hosted_by=DRIVER)
    parent, child = generation_of(core, P), generation_of(core, C)
    assert parent is not None
    assert child is not None
    assert core.unregister_consumer(C, DRIVER) == [Close(C, child, drain=True)]
    assert watched(core, P) == {RP: 0, RC: 0}
    core.register_consumer(C, DRIVER)
    assert core.unregister_consumer(P, EDITOR) == [Close(P, parent, drain=True)]
    assert watched(core, C) == {RC: 0}


def test_30_a_hosted_run_whose_driver_is_no_consumer_is_an_error() -> None:
    core = Streamer()
    core.register_consumer(C, EDITOR)
    assert core.run_assigned(C, RC, hosted_by=DRIVER) == [Undriven(C, RC)]
    core.register_consumer(D, DRIVER)
    assert core.run_assigned(D, RD, hosted_by=DRIVER) == []


@pytest.mark.parametrize(
    ("run_id", "kind", "handling"),
    [
        (RP, "new_message", Handling.DELIVER),
        (RP, "cancel", Handling.DELIVER),
        (RP, "run_succeeded", Handling.SKIP),
        (RP, "run_in_progress", Handling.SKIP),
        (RC, "run_in_progress", Handling.SHOW),
        (RC, "run_blocked", Handling.SHOW),
        (RC, "run_succeeded", Handling.DELIVER),
        (RC, "run_failed", Handling.DELIVER),
        (RC, "run_errored", Handling.DELIVER),
        (RC, "run_cancelled", Handling.DELIVER),
        (RC, "rows", Handling.DELIVER),
        (RC, "ask", Handling.DELIVER),
        (RC, "new_message", Handling.DELIVER),
        (RC, "cancel", Handling.SKIP),
        (RC, "child_agent_started", Handling.SKIP),
        (RC, "of_the_future", Handling.SKIP),
    ],
)
def test_what_an_event_means_depends_on_whose_run_it_is(
    run_id: RunId, kind: str, handling: Handling
) -> None:
    core = parent_with_child()
    assert take(core, P, run_id, 4, kind) is handling
    assert core.watched_by(P)[run_id] == 4  # whatever it means, its cursor has moved


def test_a_child_that_the_stream_tells_of_is_watched() -> None:
    core = parent_with_child()
    generation = generation_of(core, P)
    assert generation is not None
    event = run_event(RP, 3, "child_agent_started", ref_id=RD)
    assert core.received(P, generation, event) is Handling.CHILD


def test_the_snapshot_counts_what_is_connected_and_why() -> None:
    core = parent_with_child()
    core.run_assigned(C, RC, parent_run=RP)
    snapshot = core.snapshot()
    assert (snapshot.open_connections, snapshot.watching_entries, snapshot.watched_ids) == (1, 2, 2)
    assert [(one.session_id, one.role, one.consumers) for one in snapshot.entries] == [
        (P, "parent", 1),
        (C, "child", 0),
    ]


def test_23_an_event_that_is_handled_late_does_not_lower_a_cursor() -> None:
    core = parent_with_child()
    generation = generation_of(core, P)
    assert generation is not None
    event = run_event(RC, 4)
    assert core.received(P, generation, event) is Handling.DELIVER
    core.restored(P, cursors={RC: 9}, run_id=RP)
    core.handled(P, event)
    assert core.watched_by(P)[RC] == 9
