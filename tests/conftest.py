"""What every test shares: the anyio backend, how properties are tried, logs of the real runtime."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from acp_bridge.sessions import SessionStore
from acp_bridge.vocabulary import Event

REPO = Path(__file__).parents[1]

# Under nohup, or in a shell's background, signals are ignored by all that tests start as well. One
# that is handled is not inherited: they hear it, and we still do not.
for number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

# How long an example takes is the machine's affair, on a busy one above all.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def real_log() -> Callable[[str, str], list[Event]]:
    """The rows of a session that DeepSeek Harness wrote, by store and id."""
    shared = Path(os.environ.get("ACP_BRIDGE_SHARED", REPO.parent / "shared"))
    homes = shared / "data" / "dsh-0.2.1rc2" / "homes"
    assert homes.is_dir(), f"{homes} is missing: set ACP_BRIDGE_SHARED to the shared folder"

    def read(case: str, session_id: str) -> list[Event]:
        store = SessionStore(homes / case / "sessions", clock=lambda: 0)
        return list(store.read(session_id).events)

    return read
