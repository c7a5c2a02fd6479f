"""Random schedules of every operation, lost connections and restarts against an oracle (28)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamer_world import World

SCHEDULES = 10_000
STEPS = 30
GROUPS = 10


@pytest.mark.parametrize("group", range(GROUPS))
def test_28_and_23_any_schedule_keeps_the_predicate_and_delivers_once_in_order(group: int) -> None:
    for number in range(SCHEDULES // GROUPS):
        seed = group * SCHEDULES + number
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step()
            world.come_to_rest()
        except AssertionError as fault:
            raise AssertionError(f"schedule {seed}: {fault}") from fault


@settings(max_examples=50)
@given(seed=st.integers(min_value=1 << 32), steps=st.integers(100, 400))
def test_28_long_schedules_as_well(seed: int, steps: int) -> None:
    world = World(seed)
    for _ in range(steps):
        world.step()
    world.come_to_rest()
