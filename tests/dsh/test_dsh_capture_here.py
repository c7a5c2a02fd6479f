"""A capture whose log was not kept, played again: the same wire, and it shows what its log does.

The capture is ``wire/01_plain.jsonl``: one prompt, an answer with a thought, and no plugin.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from bridge_rig import shared_homes
from capture_rig import capture_differences
from control_rig import dsh_rig
from dsh_rig import PATCH, text, thought

from acp_bridge.runtime.dsh.logs import until_stored
from acp_bridge.sessions import SessionStore

pytestmark = [pytest.mark.dsh, pytest.mark.process, pytest.mark.anyio]

CAPTURE = shared_homes().parent / "wire" / "01_plain.jsonl"


def kept() -> list[dict[str, Any]]:
    """Both directions of the capture, in order."""
    return [json.loads(line)["msg"] for line in CAPTURE.read_text("utf-8").splitlines()]


def shapes(messages: list[dict[str, Any]]) -> list[str]:
    """What was told, row for row; the size of the pieces of a stream is the network's."""
    told = []
    for message in messages:
        event = message["params"].get("event")
        shape = message["method"]
        if event is not None:
            shape += f" {event['seq']} {event['type']} {sorted(event)} {sorted(event['data'])}"
        told.append(shape)
    return told


async def test_the_plain_capture_shows_what_its_log_shows(tmp_path: Path) -> None:
    patch = tmp_path / "patch.yml"
    patch.write_text(PATCH)
    asked = {one["method"]: one["params"] for one in kept() if "params" in one and "id" in one}
    prompt, hello = asked["session/prompt"], asked["initialize"]
    session = prompt["sessionId"]
    async with dsh_rig(tmp_path, patch=patch) as rig:
        rig.model.answer(session, thought("think a bit"), text("Hello there"))
        await rig.wire.request("initialize", {**hello, "cwd": str(rig.cwd)})
        await rig.wire.request("session/prompt", prompt)
        await rig.wait(session)
        told = rig.wire.heard
        store = SessionStore(rig.home / "sessions", clock=lambda: 0)
        await until_stored(store, session, rig.wire.rows(session)[-1]["seq"])
    before = [one for one in kept() if "method" in one and "id" not in one]
    assert shapes(told) == shapes(before)
    for native in (True, False):
        assert await capture_differences(told, store, native=native) == []
