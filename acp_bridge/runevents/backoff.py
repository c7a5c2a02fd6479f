"""When a stream is opened again after it failed, and when no more. Pure."""

from collections.abc import Callable
from typing import Final

import attrs

DELAYS_S: Final = (1.0, 2.0, 5.0, 10.0)
"""The waits after a first failure, a second, and so on; the last one repeats."""

REFUSED_DELAY_S: Final = 30.0
"""The wait after a refusal that does not pass by itself: most likely somebody must act."""

JITTER: Final = 0.2
"""Each wait is longer or shorter by up to this share, so that a thousand streams do not return as
one."""

AUTH_FAILURES_MAX: Final = 3
"""So many refusals of our token in a row end the stream: it will not become right by waiting."""

LIFE_S: Final = 10.0
"""A stream that has lived so long was a good one, also if it brought nothing."""

_AUTH: Final = frozenset({401, 403})
_PASSING: Final = frozenset({408, 409, 425, 429})


@attrs.define
class Backoff:
    """The failures of one stream. ``chance`` gives numbers from 0 up to 1."""

    chance: Callable[[], float]
    failures: int = 0
    auth_failures: int = 0

    def lived(self) -> None:
        """It brought an event, or has lived `LIFE_S`: earlier failures do not count any more."""
        self.failures = self.auth_failures = 0

    def failed(self, status: int | None = None) -> float | None:
        """Seconds to wait before the next try; None: give up.

        ``status`` is the HTTP status of a refusal; None for a connection that failed or ended.
        """
        self.auth_failures = self.auth_failures + 1 if status in _AUTH else 0
        if self.auth_failures >= AUTH_FAILURES_MAX:
            return None
        self.failures += 1
        wait_s = DELAYS_S[min(self.failures, len(DELAYS_S)) - 1]
        if status is not None and 400 <= status < 500 and status not in _PASSING:  # noqa: PLR2004
            wait_s = REFUSED_DELAY_S
        return wait_s * (1 + JITTER * (2 * self.chance() - 1))
