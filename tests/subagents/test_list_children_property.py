"""Traces and children: the same with, without and with a broken index, whatever others do."""

import random
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_world import FakeLive, World, change, damage, descriptor, exact_times
from session_rows import folder_of, header, text_turn

from acp_bridge.errors import BridgeError
from acp_bridge.sessions import SessionQuery, SessionStore
from acp_bridge.sessions.finding import header_of
from acp_bridge.subagents.catalog import list_children
from acp_bridge.vocabulary import Draft

__all__ = ["exact_times"]

MARKER = Draft("session/end-seed", {"inherited": True})


def befall(world: World, chance: random.Random) -> str:
    doing = chance.choice([_child, _child, _child, _another, _log_gone, None, None])
    if doing is None:
        return change(world, chance)
    doing(world, chance)
    return doing.__name__


def _child(world: World, chance: random.Random) -> None:
    world.made += 1
    _write(world, chance, f"s{world.made}")


def _another(world: World, chance: random.Random) -> None:
    """A session is deleted and one of another parent made under its id, in a folder anew."""
    session_id = f"s{chance.randrange(1, world.made + 2)}"
    if folder_of(world.root, session_id).exists():
        shutil.rmtree(folder_of(world.root, session_id))
        _write(world, chance, session_id)


def _log_gone(world: World, chance: random.Random) -> None:
    logs = world.logs()
    if logs:
        chance.choice(logs).unlink()


def _write(world: World, chance: random.Random, session_id: str) -> None:
    parent = f"s{chance.randrange(1, world.made + 2)}"
    is_seeded = chance.randrange(4) == 0
    head = header(session_id, origin="subagent", parent_session=parent, is_seeded=is_seeded)
    head = attrs.evolve(head, created_at_ms=chance.randrange(5), delegation_depth=1)
    batches = [[descriptor("theirs"), *text_turn(1), MARKER]] if is_seeded else []
    batches += [[descriptor(f"d{n}")] for n in range(chance.choice([0, 1, 1, 1, 2]))]
    batches += [text_turn(2 if is_seeded else 1)] * chance.randrange(2)
    world.add(session_id, *batches, head=head)


def some_live(world: World, chance: random.Random) -> list[FakeLive]:
    """Stored sessions and one that is not, and now and then one that contradicts its log."""
    found = [FakeLive(header("new", origin="subagent", parent_session="s1"))]
    for path in chance.sample(world.logs(), min(len(world.logs()), chance.randrange(3))):
        try:
            log = world.store(indexed=False).read(header_of(path).session_id)
        except BridgeError:
            continue
        head = log.header
        if chance.randrange(6) == 0:
            head = attrs.evolve(head, created_at_ms=10**9)
        found.append(FakeLive(head, log.events))
    return found


def answers(
    store: SessionStore, live: list[FakeLive], order: list[str]
) -> dict[str, tuple[object, ...]]:
    query = SessionQuery(store, lambda: live)
    return {
        session_id: (traced(query, session_id), listed(query, session_id)) for session_id in order
    }


def traced(query: SessionQuery, session_id: str) -> object:
    try:
        return repr(query.trace(session_id))
    except BridgeError as error:
        return type(error), error.details


def listed(query: SessionQuery, session_id: str) -> object:
    try:
        return [*map(repr, list_children(query, session_id))]
    except BridgeError as error:
        return type(error), error.details


@pytest.mark.usefixtures("exact_times")
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 8))
def test_families_with_without_and_with_a_broken_index_are_equal(seed: int, steps: int) -> None:
    chance = random.Random(seed)
    with TemporaryDirectory() as folder:
        world = World(Path(folder))
        kept = world.store()
        bare = world.store(indexed=False)
        done: list[str] = []
        for _ in range(steps):
            done += [befall(world, chance) for _ in range(chance.randrange(1, 4))]
            if chance.randrange(4) == 0:
                done.append(damage(world, chance))
            world.tick()
            if chance.randrange(4) == 0:
                kept.summaries()  # which looks at other things
            live = some_live(world, chance)
            # Not of every one each time: what one look finds out must not be what the next needs.
            ids = [f"s{n}" for n in range(1, world.made + 2)]
            ids = chance.sample(ids, min(len(ids), 3))
            want = answers(bare, live, ids)
            new = world.store()
            assert answers(new, live, ids) == want, done
            assert answers(kept, live, ids) == want, done
