"""Questions about many sessions: live before stored, headers that never change, typed errors."""

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import pytest
from index_world import TITLE_BY_USER, FakeLive, World, descriptor
from session_rows import folder_of, header, homes, placed, put, text_turn

from acp_bridge.errors import SessionQueryError
from acp_bridge.sessions import Header, RecordFilter, SessionQuery, SessionRecord
from acp_bridge.vocabulary import Draft

MARKER = Draft("session/end-seed", {"inherited": True})


def child(session_id: str, parent: str, created_at_ms: int, **more: object) -> Header:
    made = header(session_id, origin="subagent", parent_session=parent, **more)
    return attrs.evolve(made, created_at_ms=created_at_ms)


@pytest.fixture(params=[True, False], ids=["indexed", "bare"])
def ask(request: pytest.FixtureRequest, world: World) -> Callable[..., SessionQuery]:
    def made(*live: FakeLive) -> SessionQuery:
        world.tick()
        return SessionQuery(world.store(indexed=request.param), lambda: live)

    return made


def ids(records: Sequence[SessionRecord]) -> list[str]:
    return [record.header.session_id for record in records]


def refused(code: str, call: Callable[[], object]) -> SessionQueryError:
    with pytest.raises(SessionQueryError) as caught:
        call()
    error = caught.value
    assert error.query_code == f"SESSION_QUERY_{code}"
    assert error.data() == {"details": error.details, "queryCode": error.query_code}
    return error


Ask = Callable[..., SessionQuery]


def test_a_trace_has_ancestors_and_direct_children_by_creation_then_id(
    world: World, ask: Ask
) -> None:
    world.add("root", text_turn(1))
    world.add("b", head=child("b", "root", 20))
    world.add("a", head=child("a", "root", 20))
    world.add("z", head=child("z", "root", 10))
    world.add("grand", head=child("grand", "a", 5))
    world.add("great", head=child("great", "grand", 30))
    world.add("old-fork", head=header("old-fork", parent_session="root"))
    trace = ask().trace("root")
    assert trace.record.header == header("root")
    assert ids(trace.children) == ["z", "a", "b"]
    assert trace.ancestors == []
    assert ids(ask().trace("great").ancestors) == ["grand", "a", "root"]
    assert ids(ask().trace("grand").children) == ["great"]
    assert ask().trace("old-fork").ancestors == []


def test_a_chain_of_parents_ends_at_a_missing_one_and_at_a_circle(world: World, ask: Ask) -> None:
    world.add("a", head=child("a", "gone", 1))
    world.add("b", head=child("b", "c", 1))
    world.add("c", head=child("c", "b", 2))
    world.add("d", head=child("d", "d", 3))
    assert ask().trace("a").ancestors == []
    assert ids(ask().trace("b").ancestors) == ["c"]
    assert ask().trace("d").ancestors == []


def test_a_child_with_a_damaged_log_is_traced_by_its_header(world: World, ask: Ask) -> None:
    world.add("root", text_turn(1))
    path = world.add("kid", text_turn(1), head=child("kid", "root", 1))
    with path.open("ab") as file:
        file.write(b"garbage")
    trace = ask().trace("root")
    assert [(one.header, one.event_count) for one in trace.children] == [
        (child("kid", "root", 1), None)
    ]
    refused("PERSISTENCE_FAILED", lambda: ask().list_events("kid"))


def test_a_live_session_answers_before_its_stored_log(world: World, ask: Ask) -> None:
    world.add("s", text_turn(1))
    live = FakeLive(header("s"), placed([*text_turn(1), TITLE_BY_USER]))
    query = ask(live, FakeLive(header("unstored")))
    stored = ask()
    assert query.list_events("s") == live.events
    assert len(stored.list_events("s")) == len(live.events) - 1
    assert query.read_event("s", len(live.events) - 1) == (header("s"), live.events[-1])
    assert query.trace("s").record == SessionRecord(
        header=header("s"),
        is_live=True,
        title="Named",
        updated_at_ms=live.events[-1].time_ms,
        event_count=len(live.events),
    )
    assert query.trace("unstored").record.event_count == 0
    assert query.list_events("unstored") == []
    assert not stored.trace("s").record.is_live
    refused("SESSION_NOT_FOUND", lambda: stored.trace("unstored"))


def test_a_live_child_is_traced_before_it_is_stored(world: World, ask: Ask) -> None:
    world.add("root", text_turn(1))
    trace = ask(FakeLive(child("kid", "root", 1))).trace("root")
    assert [(one.header.session_id, one.is_live) for one in trace.children] == [("kid", True)]


def test_a_header_conflict_anywhere_in_what_was_looked_at_is_no_answer(
    world: World, ask: Ask
) -> None:
    world.add("root", text_turn(1))
    world.add("other", text_turn(1))
    query = ask(FakeLive(attrs.evolve(header("other"), created_at_ms=1)))
    for call in (
        lambda: query.trace("root"),
        query.records,
        lambda: query.list_events("other"),
        lambda: query.read_event("other", 0),
        lambda: query.descriptor_seqs("other"),
    ):
        assert "other" in refused("HEADER_CONFLICT", call).details
    assert query.list_events("root"), "only root was looked at"


def test_what_is_not_there_is_told_apart(world: World, ask: Ask) -> None:
    world.add("s", text_turn(1))
    live = FakeLive(header("live"), placed(text_turn(1)))
    query = ask(live)
    for call in (
        lambda: query.trace("gone"),
        lambda: query.list_events("gone"),
        lambda: query.read_event("gone", 0),
        lambda: query.descriptor_seqs("gone"),
    ):
        refused("SESSION_NOT_FOUND", call)
    for session_id in ("s", "live"):
        for seq in (-1, len(text_turn(1)), 10**9):
            refused("EVENT_NOT_FOUND", lambda: query.read_event(session_id, seq))  # noqa: B023


def test_windows_that_cannot_hold_anything_are_refused(world: World, ask: Ask) -> None:
    world.add("s", text_turn(1))
    query = ask()
    for call in (
        lambda: query.list_events("s", from_seq=-1),
        lambda: query.list_events("s", limit=0),
        lambda: query.records(RecordFilter(created_from_ms=2, created_until_ms=1)),
    ):
        refused("INVALID_WINDOW", call)
    assert [event.seq for event in query.list_events("s", from_seq=2, limit=3)] == [2, 3, 4]
    assert query.list_events("s", from_seq=99) == []


def test_damage_and_disks_are_persistence_failures_with_their_cause(
    world: World, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world.root, "bad", b"garbage")
    query = ask()
    for call in (
        lambda: query.list_events("bad"),
        lambda: query.read_event("bad", 0),
        lambda: query.descriptor_seqs("bad"),
    ):
        assert "damaged" in refused("PERSISTENCE_FAILED", call).details
    live = ask(FakeLive(header("bad")))
    refused("PERSISTENCE_FAILED", lambda: live.list_events("bad"))
    refused("SESSION_NOT_FOUND", lambda: query.trace("bad"))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "")

    monkeypatch.setattr("os.scandir", refuse)
    refused("PERSISTENCE_FAILED", query.records)
    monkeypatch.undo()


def test_records_are_filtered(world: World, ask: Ask) -> None:
    for number, name in enumerate(("a", "b", "c")):
        world.add(name, head=attrs.evolve(header(name), created_at_ms=number))
    world.add("kid", head=child("kid", "a", 9))
    world.add("fork", head=attrs.evolve(header("fork", parent_session="a"), created_at_ms=8))
    query = ask(FakeLive(attrs.evolve(header("b"), created_at_ms=1)))

    def found(**wanted: object) -> list[str]:
        return ids(query.records(RecordFilter(**wanted)))  # type: ignore[arg-type]

    assert found() == ["a", "b", "c", "fork", "kid"]
    assert found(kind="ordinary") == ["a", "b", "c", "fork"]
    assert found(kind="subagent") == ["kid"]
    assert found(parent="a") == ["kid"]
    assert found(is_live=True) == ["b"]
    assert found(session_ids=frozenset({"c", "x"})) == ["c"]
    assert found(created_from_ms=1, created_until_ms=8) == ["b", "c", "fork"]
    assert found(cwd="/nowhere") == []


def test_descriptors_are_those_of_the_own_range(world: World, ask: Ask) -> None:
    rows = [descriptor("theirs"), *text_turn(1), MARKER, descriptor("own"), *text_turn(2)]
    world.add("kid", rows, head=child("kid", "p", 1, is_seeded=True))
    world.tick()
    world.store().list()
    live = FakeLive(child("kid", "p", 1, is_seeded=True), placed(rows))
    for query in (ask(), ask(live)):
        (seq,) = query.descriptor_seqs("kid")
        assert query.read_event("kid", seq)[1].data == descriptor("own").data


@pytest.mark.parametrize("case", ["forks", "deleg", "workflow", "plain-encoding"])
def test_every_row_of_a_real_log_is_found_where_the_index_says(case: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.root = homes() / case / "sessions"
    world.now_ns = 2**62
    kept = world.store()
    for summary in kept.list().sessions:
        whole = world.store(indexed=False).read(summary.session_id).events
        assert kept.details(summary.session_id) is not None
        for event in whole:
            assert kept.read_event(summary.session_id, event.seq)[1] == event
        assert kept.read_event(summary.session_id, len(whole))[1] is None


def test_a_row_is_read_without_the_rest_of_its_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.add("s", *(text_turn(turn) for turn in range(1, 9)))
    world.tick()
    world.now_ns += 10**9
    one = world.store()
    one.list()
    decoded: list[int] = []
    from acp_bridge.sessions import seeking
    from acp_bridge.sessions.codec import ends_of

    def counted(data: bytes, *rest: object) -> object:
        decoded.append(len(data))
        return ends_of(data, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(seeking, "ends_of", counted)
    assert one.read_event("s", 30)[1] is not None
    (size,) = decoded
    assert size < path.stat().st_size / 4
    assert folder_of(world.root, "s") == path.parent
