"""What a home has to say to the event service of one run: in order, and again until it is taken."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

import anyio

from acp_bridge.errors import EventServiceError
from acp_bridge.runevents.backoff import Backoff
from acp_bridge.vocabulary import SessionId

logger = logging.getLogger(__name__)

Post: TypeAlias = Callable[[], Awaitable[None]]
"""A call to the service. It may be made again: the ids in it stay the same."""

REFUSALS_MAX: Final = 3
"""A refusal that does not pass by itself is taken at its word after so many."""

_PASSING: Final = frozenset({408, 409, 425, 429})


class RefusedError(Exception):
    """The service does not take it, or was not reached; its text says why."""


class Outbox:
    """Calls that wait. ``session_id`` is for the log file."""

    def __init__(
        self,
        session_id: SessionId,
        backoff: Callable[[], Backoff],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._session_id = session_id
        self._backoff = backoff
        self._sleep = sleep
        self._waiting: deque[Post] = deque()
        self._news = anyio.Event()

    def put(self, post: Post) -> None:
        """Send it behind the others."""
        self._waiting.append(post)
        self._news.set()

    def put_first(self, posts: Iterable[Post]) -> None:
        """Send these before the others, in their order."""
        self._waiting.extendleft(reversed(list(posts)))
        self._news.set()

    async def send_all(self) -> None:
        """Send what waits and what comes, until cancelled. What is refused for good is dropped."""
        while True:
            while self._waiting:
                try:
                    await self.until_taken(self._waiting[0])
                except RefusedError as refused:
                    logger.warning("subagent %s: not sent: %s", self._session_id, refused)
                self._waiting.popleft()
            self._news = anyio.Event()
            await self._news.wait()

    async def until_taken(self, post: Post, *, tries_max: int | None = None) -> None:
        """Make the call until it is answered, as long as trying again may help.

        Raises:
            RefusedError: it is refused for good, or was not answered ``tries_max`` times.
        """
        backoff, tries, refusals = self._backoff(), 0, 0
        while True:
            try:
                await post()
            except EventServiceError as error:
                tries += 1
                refusals += _is_final(error.status)
                wait_s = backoff.failed(error.status)
                if wait_s is None or refusals >= REFUSALS_MAX or tries == tries_max:
                    raise RefusedError(error.details) from error
                logger.warning("subagent %s: %s", self._session_id, error.details)
                await self._sleep(wait_s)
            else:
                return


def _is_final(status: int | None) -> bool:
    return status is not None and 400 <= status < 500 and status not in _PASSING  # noqa: PLR2004
