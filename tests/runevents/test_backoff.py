"""When a stream that failed is opened again: the table, its jitter, its end."""

import pytest

from acp_bridge.runevents.backoff import Backoff


def middle() -> Backoff:
    return Backoff(lambda: 0.5)


def test_13_waits_follow_the_table_and_its_last_one_repeats() -> None:
    backoff = middle()
    assert [backoff.failed() for _ in range(6)] == [1, 2, 5, 10, 10, 10]


@pytest.mark.parametrize(("chance", "wait_s"), [(0.0, 0.8), (0.75, 1.1), (1.0, 1.2)])
def test_13_each_wait_is_jittered_by_a_fifth(chance: float, wait_s: float) -> None:
    assert Backoff(lambda: chance).failed() == pytest.approx(wait_s)


def test_15_failures_count_until_the_stream_lived() -> None:
    backoff = middle()
    backoff.failed()
    backoff.failed()
    backoff.lived()
    assert backoff.failed() == 1


@pytest.mark.parametrize(
    ("status", "wait_s"),
    [(400, 30), (404, 30), (413, 30), (408, 1), (429, 1), (500, 1), (503, 1), (None, 1)],
)
def test_17_a_refusal_that_stays_waits_longer(status: int | None, wait_s: float) -> None:
    assert middle().failed(status) == wait_s


@pytest.mark.parametrize("status", [401, 403])
def test_17_three_refusals_of_the_token_in_a_row_end_it(status: int) -> None:
    backoff = middle()
    assert [backoff.failed(status), backoff.failed(status)] == [30, 30]
    assert backoff.failed(status) is None


def test_17_another_failure_between_them_starts_the_count_anew() -> None:
    backoff = middle()
    backoff.failed(401)
    backoff.failed(401)
    backoff.failed(503)
    assert backoff.failed(401) is not None
