"""What a list of children looks at and opens: the family, and nothing that grows with the rest."""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from index_world import MODE, FakeLive, World, descriptor, exact_times
from session_rows import folder_of, header, placed, put, text_turn

from acp_bridge.errors import SessionQueryError
from acp_bridge.sessions import Header, SessionQuery
from acp_bridge.sessions.index import Index
from acp_bridge.subagents.catalog import Child, Diagnostic, list_children
from acp_bridge.vocabulary import Draft

__all__ = ["exact_times"]

pytestmark = pytest.mark.usefixtures("exact_times")

LOG = "session.v4.jsonl.zstd"


@attrs.define
class Costs:
    """What the system was asked for, by the names of folders and logs."""

    stats: Counter[str] = attrs.field(factory=Counter)
    opens: Counter[str] = attrs.field(factory=Counter)
    read_bytes: int = 0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], Costs]:
    def measured(work: Callable[[], object]) -> Costs:
        made = Costs()
        stat, pread, path_open = os.stat, os.pread, Path.open

        def noted(path: Any, **more: Any) -> os.stat_result:
            parts = Path(path).parts
            made.stats["/".join(parts[-2:]) if parts[-1] == LOG else parts[-1]] += 1
            return stat(path, **more)

        def opened(path: Path, *rest: Any, **more: Any) -> Any:
            made.opens[path.parent.name] += 1
            return path_open(path, *rest, **more)

        def read(*where: int) -> bytes:
            data = pread(*where)
            made.read_bytes += len(data)
            return data

        def refuse(*_: object) -> None:
            raise AssertionError("what grows with a log was read")

        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", noted)
            patch.setattr(os, "pread", read)
            patch.setattr(Path, "open", opened)
            patch.setattr(Index, "details", refuse)
            work()
        return made

    return measured


Measure = Callable[[Callable[[], object]], Costs]


def kid(session_id: str, parent: str = "p") -> Header:
    made = header(session_id, origin="subagent", parent_session=parent)
    return attrs.evolve(made, delegation_depth=1)


def family(world: World, turns: int = 1) -> None:
    """A root, its child ``p``, two children of that, and thirty others with children as well."""
    told = [text_turn(turn) for turn in range(1, turns + 1)]
    world.add("root", *told)
    world.add("p", *told, head=kid("p", "root"))
    for session_id in ("a", "b"):
        world.add(session_id, [descriptor(session_id)], *told, head=kid(session_id))
    for number in range(15):
        world.add(f"other{number}", *told)
        world.add(f"kid{number}", [descriptor("x")], *told, head=kid(f"kid{number}", "other0"))
    world.tick()
    world.store().list()


@pytest.mark.parametrize("is_new", [False, True])
def test_only_the_family_is_looked_at_and_only_children_are_opened(
    world: World, costs: Measure, *, is_new: bool
) -> None:
    family(world)
    one = world.store()
    if not is_new:
        one.list()
    spent = costs(lambda: list_children(SessionQuery(one), "p"))
    names = ["root", "p", "a", "b"]
    wanted = Counter(["--home-dev-ws--", *names, *(f"{name}/{LOG}" for name in names)])
    # Where the descriptor is, is believed of a log that is still as it was.
    wanted += Counter([f"a/{LOG}", f"b/{LOG}"])
    assert spent.stats == wanted
    assert spent.opens == {"a": 1, "b": 1}


def test_logs_of_many_turns_cost_what_short_ones_do(tmp_path: Path, costs: Measure) -> None:
    spent = []
    for turns in (1, 10):
        (tmp_path / str(turns)).mkdir()
        world = World(tmp_path / str(turns))
        family(world, turns)
        one = world.store()
        one.list()
        spent.append(costs(lambda: list_children(SessionQuery(one), "p")))  # noqa: B023
    assert spent[0].read_bytes > 0
    assert spent[0] == spent[1]


def test_of_live_sessions_nothing_but_their_header_is_read(world: World, costs: Measure) -> None:
    family(world)
    one = world.store()
    one.list()
    events = placed([descriptor("a"), *text_turn(1)])
    live = [FakeLive(kid("p", "root")), FakeLive(kid("a"), events), FakeLive(header("other3"))]
    query = SessionQuery(one, lambda: live)
    found: list[Child | Diagnostic] = []
    spent = costs(lambda: found.extend(list_children(query, "p")))
    assert [each.status for each in found if isinstance(each, Child)] == ["running", "complete"]
    looks = Counter(name.partition("/")[0] for name in spent.stats.elements())
    # The live child's log must still be there: once for its descriptor's place, once for the row.
    assert looks == {"--home-dev-ws--": 1, "root": 2, "a": 2, "b": 3}
    assert spent.opens == {"a": 2, "b": 1}


def test_a_new_session_costs_a_look_at_the_folders_beside_it(world: World, costs: Measure) -> None:
    family(world)
    add_far(world, header("far"))
    world.tick()
    one = world.store()
    one.list()
    add_far(world, kid("farther"))
    world.tick()
    query = SessionQuery(one)
    found: list[Child | Diagnostic] = []
    spent = costs(lambda: found.extend(list_children(query, "p")))
    assert [each.session_id for each in found] == ["a", "b", "farther"]
    assert spent.stats["far"] == 1
    assert spent.stats[f"far/{LOG}"] == 0
    assert not [name for name in spent.stats if name.startswith("other")]
    again = costs(lambda: list_children(query, "p"))
    assert again.stats["far"] == 0
    assert again.stats["farther"] == 1


def add_far(world: World, head: Header) -> None:
    """A session of another project."""
    (world.home / "aside").mkdir(exist_ok=True)
    made = attrs.evolve(head, cwd="/home/dev/far")
    path = World(world.home / "aside").add(made.session_id, [descriptor("far")], head=made)
    shutil.copytree(path.parent, world.root / "--home-dev-far--" / made.session_id)


def same(world: World, query: SessionQuery, parent: str = "p") -> list[str]:
    """The children, which are also those that a store without an index finds."""
    bare = SessionQuery(world.store(indexed=False), query._live)
    assert repr(query.trace(parent)) == repr(bare.trace(parent))
    found = list_children(query, parent)
    assert found == list_children(bare, parent)
    return [each.session_id for each in found]


def test_a_folder_without_a_header_is_looked_at_until_it_has_one(world: World) -> None:
    family(world)
    one = SessionQuery(world.store())
    put(world.root, "c", b"garbage")
    folder_of(world.root, "d").mkdir()
    (folder_of(world.root, "e")).mkdir()
    (folder_of(world.root, "e") / "session.v3.jsonl").write_bytes(b"x")
    world.tick()
    assert same(world, one) == ["a", "b"]
    world.tick()
    assert same(world, one) == ["a", "b"], "now their project is settled"
    for session_id in ("c", "d", "e"):
        world.add(session_id, [descriptor("late")], head=kid(session_id))
        world.tick()
    assert same(world, one) == ["a", "b", "c", "d", "e"]


def test_a_child_that_lost_its_header_is_looked_at_until_it_has_one_again(world: World) -> None:
    family(world)
    one = SessionQuery(world.store())
    path = folder_of(world.root, "a") / LOG
    data = path.read_bytes()
    assert same(world, one) == ["a", "b"]
    path.write_bytes(b"garbage")
    world.tick()
    assert same(world, one) == ["b"]
    path.write_bytes(data)
    world.tick()
    assert same(world, one) == ["a", "b"]


def test_a_folder_made_anew_under_a_known_name_is_another_session(world: World) -> None:
    family(world)
    one = SessionQuery(world.store())
    assert same(world, one) == ["a", "b"]
    shutil.rmtree(folder_of(world.root, "other7"))
    world.add("other7", [descriptor("adopted")], head=kid("other7"))
    world.tick()
    assert same(world, one) == ["a", "b", "other7"]


def test_a_child_that_lies_in_two_folders_cannot_be_told(world: World) -> None:
    family(world)
    one = SessionQuery(world.store())
    shutil.copytree(folder_of(world.root, "a"), world.root / "--copy--" / "a")
    world.tick()
    same(world, one)
    assert [getattr(each, "reason", None) for each in list_children(one, "p")] == [
        "unavailable",
        None,
    ]


def test_what_a_look_finds_out_brings_others_to_hand(world: World) -> None:
    family(world)
    one = SessionQuery(world.store())
    assert same(world, one) == ["a", "b"]
    world.add("p", text_turn(1), head=kid("p", "other3"))
    world.extend(folder_of(world.root, "other3") / LOG, [MODE])
    world.tick()
    same(world, one)
    assert [each.event_count for each in one.trace("p").ancestors] == [len(text_turn(1)) + 1]


def test_a_conflict_that_is_gone_from_the_disk_is_none(world: World) -> None:
    family(world)
    live = FakeLive(attrs.evolve(header("other3"), created_at_ms=7))
    one = SessionQuery(world.store(), lambda: [live])
    with pytest.raises(SessionQueryError, match="another header"):
        list_children(one, "p")
    (folder_of(world.root, "other3") / LOG).unlink()
    world.tick()
    assert same(world, one) == ["a", "b"]


@pytest.mark.parametrize("rows", [[], [descriptor("x"), descriptor("y")]])
def test_a_log_that_changed_after_the_trace_is_read_anew(world: World, rows: list[Draft]) -> None:
    family(world)
    one = world.store()
    traced = SessionQuery(one).trace("p").children[0]
    world.add("a", [*rows, *text_turn(1)], head=kid("a"))
    seqs = SessionQuery(one).descriptor_seqs("a", at=traced.path)
    assert seqs == [*range(len(rows))]
