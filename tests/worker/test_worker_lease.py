"""The lease ends by the service's word, or by our own clock when the service is not heard."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from acp_bridge.errors import EventServiceError
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.model import RunId
from acp_bridge.runevents.runs import Run
from acp_bridge.worker import lease
from acp_bridge.worker.lease import LEASE_S, RENEW_S, Lease

pytestmark = pytest.mark.anyio

RUN = RunId("r")
Renew = Callable[[], Awaitable[None]]


class LeaseClient(EventClient):
    """A client whose renewals do what a test says."""

    def __init__(self, renew: Renew) -> None:
        super().__init__("http://127.0.0.1:1")
        self._renew = renew
        self.renewals = 0

    async def lease(self, run_id: RunId, *, execution_id: str) -> Run:
        self.renewals += 1
        await self._renew()
        return Run(run_id, execution_id=execution_id)


async def kept(client: LeaseClient, *, held_s: float) -> list[str]:
    """Keep a lease that was claimed so long ago until it is lost; what is said then."""
    said: list[str] = []
    with anyio.fail_after(60):
        claimed_s = anyio.current_time() - held_s
        await Lease(client, RUN, "x", claimed_s=claimed_s).keep(said.append)
    return said


async def refuse_later(client_status: int | None) -> None:
    raise EventServiceError("The execution x does not hold the run r.", status=client_status)


@pytest.mark.parametrize("status", [404, 409])
async def test_the_services_word_ends_it_at_once(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_S", 0.01)
    client = LeaseClient(lambda: refuse_later(status))
    assert await kept(client, held_s=0) == ["The execution x does not hold the run r."]
    assert client.renewals == 1


@pytest.mark.parametrize("status", [None, 401, 500, 503])
async def test_what_may_pass_is_tried_again_until_our_own_clock_ends_it(
    status: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_S", 0.01)
    monkeypatch.setattr(lease, "RETRY_S", 0.01)
    client = LeaseClient(lambda: refuse_later(status))
    assert await kept(client, held_s=LEASE_S - 0.6) == ["Its lease could not be renewed for 15 s."]
    assert client.renewals > 1


async def test_a_renewal_that_hangs_does_not_outlast_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease, "RENEW_S", 0.01)
    client = LeaseClient(anyio.sleep_forever)
    assert await kept(client, held_s=LEASE_S - 0.2) == ["Its lease could not be renewed for 15 s."]


async def test_it_counts_from_before_the_request_so_that_it_never_outlasts_the_services() -> None:
    assert 2 * RENEW_S + lease.TRY_S < LEASE_S, "two renewals may fail"
    client = LeaseClient(anyio.lowlevel.checkpoint)
    assert await kept(client, held_s=LEASE_S) != []
    assert client.renewals == 0
