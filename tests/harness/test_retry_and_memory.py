"""When a failed call is tried again, and what a session remembers of its log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.harness.memory import GRANT_ROW, PLACE_ROW, SessionMemory
from acp_bridge.harness.retry import (
    DELAY_S_MAX,
    FIRST_DELAY_S,
    JITTER,
    RETRIES_MAX,
    RETRY_AFTER_S_MAX,
    next_retry,
)
from acp_bridge.ports import FailureChunk
from acp_bridge.vocabulary import Event, JsonValue


def failure(*, retryable: bool = True, after: float | None = None) -> FailureChunk:
    return FailureChunk("no", "SERVER", 500, retryable, after)


def test_what_cannot_be_mended_is_not_tried_again() -> None:
    assert next_retry(failure(retryable=False, after=1), retries_done=0, chance=0.5) is None


def test_delays_double_up_to_a_bound_and_retries_end() -> None:
    delays = []
    for done in range(RETRIES_MAX):
        retry = next_retry(failure(), retries_done=done, chance=0.5)
        assert retry is not None
        assert retry.number == done + 1
        delays.append(retry.delay_s)
    assert delays == [0.5, 1, 2, 4, 8]
    assert next_retry(failure(), retries_done=RETRIES_MAX, chance=0.5) is None


@given(st.integers(0, RETRIES_MAX - 1), st.floats(0, 1, exclude_max=True))
def test_jitter_stays_within_a_tenth(done: int, chance: float) -> None:
    retry = next_retry(failure(), retries_done=done, chance=chance)
    assert retry is not None
    middle = min(DELAY_S_MAX, FIRST_DELAY_S * 2**done)
    assert middle * (1 - JITTER) <= retry.delay_s <= middle * (1 + JITTER)


@pytest.mark.parametrize(
    ("after", "delay"),
    [(0, 0), (3.5, 3.5), (-1, 0), (RETRY_AFTER_S_MAX, RETRY_AFTER_S_MAX), (121, None)],
)
def test_a_providers_wish_wins_up_to_a_bound(after: float, delay: float | None) -> None:
    retry = next_retry(failure(after=after), retries_done=0, chance=0)
    assert (None if retry is None else retry.delay_s) == delay


def folded(*rows: tuple[str, JsonValue]) -> SessionMemory:
    return SessionMemory(Event(n, 0, kind, data) for n, (kind, data) in enumerate(rows))


HEADER: tuple[str, JsonValue] = (
    "request/header",
    {"header": {"config": {"provider": "scripted", "model": "m"}}},
)
OTHER: tuple[str, JsonValue] = (
    "request/header",
    {"header": {"config": {"provider": "x", "model": "m"}}},
)


@pytest.mark.parametrize(
    ("defaults", "effort"),
    [(None, "high"), ({"maxTokens": True}, "high"), ({"reasoningEffort": True}, None)],
)
def test_an_effort_that_the_runtime_filled_in_is_no_choice(
    defaults: JsonValue, effort: str | None
) -> None:
    config: JsonValue = {"provider": "x", "model": "m", "reasoningEffort": "high"}
    memory = folded(("request/header", {"header": {"config": config, "adapterDefaults": defaults}}))
    assert memory.selection is not None
    assert memory.selection.get("reasoningEffort") == effort
    assert memory.selection["model"] == "m"


def test_answers_and_failed_attempts_under_a_scripted_header_are_counted() -> None:
    memory = folded(
        ("assistant/message", {}),
        HEADER,
        ("assistant/message", {}),
        ("assistant/attempt", {}),
        OTHER,
        ("assistant/message", {}),
        HEADER,
        ("assistant/message", {}),
    )
    assert memory.position == 3


def test_place_grants_and_position_count_from_the_inherited_cut() -> None:
    rows: tuple[tuple[str, JsonValue], ...] = (
        HEADER,
        (PLACE_ROW, {"place": "2"}),
        (GRANT_ROW, {"grant": "edits"}),
        ("assistant/message", {}),
        ("session/title", {"title": "T"}),
    )
    plain = folded(*rows, ("session/end-seed", {}))
    assert (plain.place, plain.position, plain.grants) == ("2", 1, {"edits"})
    fork = folded(*rows, ("session/end-seed", {"inherited": True}))
    assert (fork.place, fork.position, fork.grants) == (None, 0, set())
    assert fork.title == "T"
    assert fork.request_header is not None


@pytest.mark.parametrize("place", ["", "0", "x", "1/", "1//2", "-1", "1" * 50, None, 3, "\uff11"])
def test_a_place_that_is_none_is_ignored(place: JsonValue) -> None:
    assert folded((PLACE_ROW, {"place": place})).place is None
    assert folded((PLACE_ROW, {"place": "2/13"})).place == "2/13"


def test_rows_of_foreign_shapes_change_nothing() -> None:
    memory = folded(
        ("request/header", {"header": 3}),
        ("request/header", None),
        (GRANT_ROW, {"grant": 1}),
        ("session/title", {}),
        ("turn/start", {"turn": 1}),
    )
    assert memory.request_header is None
    assert memory.grants == set()
    assert memory.title is None
    assert not memory.sets_up
    assert folded(("permission/preset", {"preset": "ask"})).sets_up
