"""What the home keeps of one run, in memory and in the ledger: one change at a time."""

import anyio
import attrs

from acp_bridge.subagents.elsewhere import PendingRun
from acp_bridge.subagents.ledger import Ledger


class KeptRun:
    """A run as it is kept; ``now`` is what holds."""

    def __init__(self, ledger: Ledger, run: PendingRun) -> None:
        self.now = run
        self._ledger = ledger
        self._saving = anyio.Lock()

    def change(self, **changes: object) -> None:
        """Let it hold here; the next `keep` makes it durable."""
        self.now = attrs.evolve(self.now, **changes)  # type: ignore[arg-type]

    async def keep(self, **changes: object) -> None:
        """Keep what changed over restarts; durable on return.

        Raises:
            StoreFailedError: the disk refused; it holds here all the same.
        """
        async with self._saving:
            self.change(**changes)
            await self._ledger.put(self.now)
