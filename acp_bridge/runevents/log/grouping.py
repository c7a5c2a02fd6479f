"""Group commit: what several tasks want written goes into one commit; each gets its own answer."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

import anyio

from acp_bridge.errors import BridgeError, StoreFailedError

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

WINDOW_S: Final = 0.003
"""How long a first item waits for others: a commit with fsync takes about as long."""

GROUP_MAX: Final = 512
"""Items in one commit, so that none waits for very many."""

WAITING_MAX: Final = 4096
"""Items accepted and not yet committed; who brings more waits."""


class _Waiting(Generic[Item, Outcome]):
    def __init__(self, item: Item) -> None:
        self.item = item
        self.done = anyio.Event()
        self.outcome: Outcome | BaseException | None = None


Commit: TypeAlias = Callable[[Sequence[Item]], Awaitable[Sequence[Outcome | BridgeError]]]


class GroupWriter(Generic[Item, Outcome]):
    """One writer. ``commit`` answers each item of a group, or fails for all of them."""

    def __init__(self, commit: "Commit[Item, Outcome]", *, window_s: float = WINDOW_S) -> None:
        self._commit = commit
        self._window_s = window_s
        self._waiting: list[_Waiting[Item, Outcome]] = []
        self._places = anyio.Semaphore(WAITING_MAX)
        self._came = anyio.Event()
        self._is_closed = False

    async def submit(self, item: Item) -> Outcome:
        """Have an item written; its outcome. Cancelled, the item is written all the same.

        Raises:
            BridgeError: what the commit says of this item, or of all.
        """
        waiting: _Waiting[Item, Outcome] = _Waiting(item)
        async with self._places:
            if self._is_closed:
                raise StoreFailedError("The event log is closed: open it again.")
            self._waiting.append(waiting)
            self._came.set()
            await waiting.done.wait()
        if isinstance(waiting.outcome, BaseException):
            raise waiting.outcome
        return waiting.outcome  # type: ignore[return-value]  # set before `done`

    async def run(self) -> None:
        """Write groups until `close`, and then what was accepted before it. Not to be cancelled."""
        with anyio.CancelScope(shield=True):
            while not (self._is_closed and not self._waiting):
                await self._came.wait()
                if not self._is_closed and self._window_s > 0:
                    await anyio.sleep(self._window_s)
                group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
                if not (self._waiting or self._is_closed):
                    self._came = anyio.Event()
                if group:
                    await self._write(group)

    def close(self) -> None:
        """Accept no more; `run` ends when all is written."""
        self._is_closed = True
        self._came.set()

    async def _write(self, group: Sequence[_Waiting[Item, Outcome]]) -> None:
        try:
            outcomes: Sequence[Outcome | BaseException] = await self._commit(
                [one.item for one in group]
            )
        except BridgeError as error:
            outcomes = [error] * len(group)
        for one, outcome in zip(group, outcomes, strict=True):
            one.outcome = outcome
            one.done.set()
