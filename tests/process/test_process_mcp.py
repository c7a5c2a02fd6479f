"""MCP servers under a real bridge: none outlives it, and nothing of them is said where it must not.

R025 (e), R027 and R091: end of input, signals, a server that ignores both, one that only starts.
"""

import signal
import time

import pytest
from mcp_rig import SECRET, tiny
from process_rig import KILL_EXIT_S, Bridge, Message, Place, eventually, prompt_params

pytestmark = pytest.mark.process

TRIES = 60


def acp_server(name: str, how: str = "") -> Message:
    server = tiny(how, name=name)
    env = [{"name": "TINY_SECRET", "value": SECRET}]
    return {"name": name, "command": server.command, "args": list(server.args), "env": env}


def opened(bridge: Bridge, place: Place, *servers: Message) -> str:
    bridge.hello()
    made = bridge.result("session/new", cwd=str(place.work), mcpServers=list(servers))
    return str(made["sessionId"])


def with_servers(bridge: Bridge, place: Place) -> None:
    """A session with a good server that started a stray, and one that will not end."""
    call = {"id": "a", "name": "mcp__good__stray", "arguments": {}}
    place.script(*([{"tool_call": call}], [{"text": "Done."}]) * TRIES)
    session = opened(bridge, place, acp_server("good"), acp_server("bad", "stubborn"))
    bridge.result("session/set_mode", sessionId=session, modeId="full")
    for _ in range(TRIES):  # a busy machine needs more than the wait of the first prompt
        bridge.result("session/prompt", **prompt_params(session))
        if "sleep 600" in place.processes().values():
            break
        time.sleep(1)
    eventually(lambda: len(place.processes()) == 4)


@pytest.mark.parametrize("signals", [0, 1, 2])
def test_servers_and_all_they_started_end_with_the_bridge(place: Place, signals: int) -> None:
    with place.bridge(checked=signals < 2) as bridge:
        with_servers(bridge, place)
        if signals == 0:
            bridge.close_stdin()
        for _ in range(signals):
            bridge.process.send_signal(signal.SIGTERM)
        assert bridge.wait_exit(KILL_EXIT_S) == (128 + signal.SIGTERM if signals else 0)
        assert place.processes() == {}


def test_a_bridge_that_ends_while_servers_start_waits_for_none_of_them(place: Place) -> None:
    with place.bridge() as bridge:
        opened(bridge, place, acp_server("good"), acp_server("slow", "hangs"))
        bridge.close_stdin()
        # The library is being imported, which cannot be left half-way: a second of work.
        assert bridge.wait_exit(KILL_EXIT_S) == 0
        assert place.processes() == {}


def test_neither_files_nor_wire_hold_a_servers_secrets(place: Place) -> None:
    place.script([{"text": "Fine."}])
    site = {
        "type": "http",
        "name": "site",
        "url": f"http://127.0.0.1:9/{SECRET}",
        "headers": [{"name": "Authorization", "value": f"Bearer {SECRET}"}],
    }
    with place.bridge() as bridge:
        session = opened(bridge, place, acp_server("bad", "fails"), site)
        bridge.result("session/prompt", **prompt_params(session))
        assert SECRET not in str(bridge.heard)
    for file in place.home.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()
