"""What the real runtime once told on its wire shows a client what a load of its stored log shows.

The plain one's log was not kept: `test_dsh_capture_here` plays it again.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from capture_rig import capture_differences

from acp_bridge.sessions import SessionStore

pytestmark = pytest.mark.anyio

REPO = Path(__file__).parents[2]
SHARED = Path(os.environ.get("ACP_BRIDGE_SHARED", REPO.parent / "shared"))
DATA = SHARED / "data" / "dsh-0.2.1rc2"

HOMES = {
    "01_plain": None,
    "02_tools_subagents": "tools-subagents",
    "03_forks": "forks",
    "04_cancel_kill": "cancel",
    "04_cancel_kill_resume": "cancel",
    "04_cancel_shutdown": "cancel",
    "approval": "approval",
    "compact_auto": "compact_auto",
    "jobs": "jobs",
    "plan": "plan",
    "retry": "retry",
    "tools": "tools",
}
"""The store of each capture."""

CASES = [
    (capture, home, native)
    for capture, home in HOMES.items()
    if home is not None
    for native in (True, False)
]


def told(capture: str) -> list[dict[str, Any]]:
    """The notifications of a capture, in wire order."""
    lines = (DATA / "wire" / f"{capture}.jsonl").read_text("utf-8").splitlines()
    messages = [json.loads(line) for line in lines]
    return [one["msg"] for one in messages if one["dir"] == "out" and "method" in one["msg"]]


def test_every_capture_is_among_the_cases() -> None:
    assert {path.stem for path in (DATA / "wire").glob("*.jsonl")} == set(HOMES)


@pytest.mark.parametrize(("capture", "home", "native"), CASES)
async def test_a_capture_shows_what_its_stored_log_shows(
    capture: str, home: str, native: bool
) -> None:
    store = SessionStore(DATA / "homes" / home / "sessions", clock=lambda: 0)
    assert await capture_differences(told(capture), store, native=native) == []
