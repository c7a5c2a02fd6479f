"""With an index, without one, and with a broken one: the same answers, whatever others do."""

import random
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_world import World, change, damage, exact_times

from acp_bridge.errors import BridgeError
from acp_bridge.sessions import SessionQuery, SessionStore

__all__ = ["exact_times"]


def answers(store: SessionStore, ids: list[str]) -> dict[str, object]:
    """Everything that an index might change."""
    told: dict[str, object] = {"pages": pages(store)}  # first: a new store may only glance
    listing = store.list()
    told |= {
        "sessions": sorted(map(repr, listing.sessions)),
        "bad": sorted(map(repr, listing.bad)),
        "records": list(map(repr, SessionQuery(store).records())),
    }
    for session_id in ids:
        told[session_id] = [*map(repr, asked(store, session_id))]
    return told


def pages(store: SessionStore) -> list[str]:
    told: list[str] = []
    after = None
    while True:
        page = store.summaries(after=after, limit=2)
        told += map(repr, page.sessions)
        after = page.after
        if after is None:
            return told


def asked(store: SessionStore, session_id: str) -> list[object]:
    query = SessionQuery(store)
    told: list[object] = []
    for ask, argument in (
        (query.descriptor_seqs, ()),
        (query.read_event, (0,)),
        (query.read_event, (12,)),
        (query.trace, ()),
        (partial(forked, store), ()),
    ):
        try:
            told.append(ask(session_id, *argument))
        except BridgeError as error:
            told.append((type(error), error.details))
    return told


def forked(store: SessionStore, session_id: str) -> object:
    """A fork and its bytes; it is removed again, so that each way starts from the same store."""
    fork = store.fork(session_id, new_id="forked", created_at_ms=9)
    if not fork.is_stored:
        return fork
    (path,) = store._root.glob("*/forked/session.v4*")
    data = path.read_bytes()
    for one in path.parent.iterdir():
        one.unlink()
    path.parent.rmdir()
    return fork, data


@pytest.mark.usefixtures("exact_times")
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 12))
def test_results_with_without_and_with_a_broken_index_are_equal(seed: int, steps: int) -> None:
    chance = random.Random(seed)
    with TemporaryDirectory() as folder:
        world = World(Path(folder))
        kept = world.store()
        bare = world.store(indexed=False)
        done: list[str] = []
        for _ in range(steps):
            done += [change(world, chance) for _ in range(chance.randrange(1, 4))]
            if chance.randrange(3) == 0:
                done.append(damage(world, chance))
            world.tick()
            ids = sorted({path.parent.name for path in world.logs()})[:3]
            want = answers(bare, ids)
            new = world.store()  # first: it finds the index as the last step left it
            assert answers(new, ids) == want, done
            assert answers(kept, ids) == want, done
