"""How often and how soon a failed model call is tried again. Pure: randomness comes in.

As the real runtime does it: five retries, half a second doubling to ten, give or take a tenth; a
provider's own wish (Retry-After) wins, up to a bound beyond which waiting helps nobody.
"""

import attrs

from acp_bridge.ports import FailureChunk

RETRIES_MAX = 5
FIRST_DELAY_S = 0.5
DELAY_S_MAX = 10.0
JITTER = 0.1
RETRY_AFTER_S_MAX = 120.0
"""A provider that asks for more is out of reach for this turn: the failure is final."""


@attrs.frozen(slots=True)
class Retry:
    """The next try: its number from 1 and the wait before it."""

    number: int
    delay_s: float


def next_retry(failure: FailureChunk, *, retries_done: int, chance: float) -> Retry | None:
    """The retry after ``failure``, or None when it is final. ``chance`` is in [0, 1)."""
    if not failure.retryable or retries_done >= RETRIES_MAX:
        return None
    number = retries_done + 1
    if failure.retry_after_s is not None:
        if failure.retry_after_s > RETRY_AFTER_S_MAX:
            return None
        return Retry(number, max(0.0, failure.retry_after_s))
    delay = min(DELAY_S_MAX, FIRST_DELAY_S * 2**retries_done)
    return Retry(number, delay * (1 + JITTER * (2 * chance - 1)))
