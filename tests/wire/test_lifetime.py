"""The signs that a process must end, watched in this one."""

import os
import signal
from collections.abc import Iterator

import anyio
import pytest

from acp_bridge.wire.lifetime import Ending, end_of_life

pytestmark = pytest.mark.anyio

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.fixture
def default_signals() -> Iterator[None]:
    """What `cli.serve` begins with."""
    before = [signal.signal(number, signal.SIG_DFL) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("default_signals")
async def test_no_handler_that_raises_is_left_behind_as_r027_needs() -> None:
    endings: list[Ending] = []
    told = anyio.Event()

    def on_end(ending: Ending) -> None:
        endings.append(ending)
        told.set()

    async def watch() -> None:
        await end_of_life(on_end, parent_pid=os.getppid())

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            while signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
                await anyio.lowlevel.checkpoint()
            os.kill(os.getpid(), signal.SIGINT)
            await told.wait()
            tasks.cancel_scope.cancel()
    assert [ending.exit_code for ending in endings] == [128 + signal.SIGINT]
    assert [signal.getsignal(number) for number in SIGNALS] == [signal.SIG_DFL] * 3
