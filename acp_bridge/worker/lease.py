"""The lease: renewed while an execution works, and lost by the service's word or by our own clock.

The service fences whoever lost a run, but it cannot stop them: a worker that is cut off from it
would go on to change files beside the worker that got the run next. So the lease also ends here,
when it has not been renewed for as long as it holds, counted from before the last request.
"""

import logging
from collections.abc import Callable
from typing import Final

import anyio

from acp_bridge.errors import EventServiceError
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.model import RunId
from acp_bridge.runevents.runs import LEASE_MS
from acp_bridge.worker.line import says_gone

logger = logging.getLogger(__name__)

LEASE_S: Final = LEASE_MS / 1000

RENEW_S: Final = 5.0
"""How often it is renewed: two renewals may fail."""

TRY_S: Final = 4.0
"""How long a renewal may take, so that there is time for another."""

RETRY_S: Final = 0.5
"""After a failed renewal."""


class Lease:
    """The lease of one execution. ``claimed_s`` is `anyio.current_time` before its claim."""

    def __init__(
        self, client: EventClient, run_id: RunId, execution_id: str, *, claimed_s: float
    ) -> None:
        self._client = client
        self._run_id = run_id
        self._execution_id = execution_id
        self._until_s = claimed_s + LEASE_S

    async def keep(self, lost: Callable[[str], None]) -> None:
        """Renew it until it is lost; then say why, once."""
        wait_s = RENEW_S
        while True:
            with anyio.CancelScope(deadline=self._until_s) as bound:
                await anyio.sleep(wait_s)
                try:
                    wait_s = RENEW_S if await self._renew() else RETRY_S
                except EventServiceError as error:
                    lost(error.details)
                    return
            if bound.cancelled_caught:
                lost(f"Its lease could not be renewed for {LEASE_S:g} s.")
                return

    async def _renew(self) -> bool:
        """Renew it once; False: not this time.

        Raises:
            EventServiceError: it is gone.
        """
        before_s = anyio.current_time()
        try:
            with anyio.fail_after(TRY_S):
                await self._client.lease(self._run_id, execution_id=self._execution_id)
        except TimeoutError:
            logger.warning("run %s: no answer to a renewal of the lease", self._run_id)
            return False
        except EventServiceError as error:
            if says_gone(error):
                raise
            logger.warning("run %s: the lease was not renewed: %s", self._run_id, error.details)
            return False
        self._until_s = before_s + LEASE_S
        return True
