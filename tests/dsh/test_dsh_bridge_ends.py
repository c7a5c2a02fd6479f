"""How a bridge on the real runtime ends, and what becomes of a runtime that dies: nothing is left.

Every bridge is checked for processes that it left behind, commands of the model's among them.
"""

import os
import signal

import pytest
from bridge_rig import DshPlace, end_of
from dsh_rig import text, tool
from process_rig import KILL_EXIT_S, Bridge, eventually

pytestmark = [pytest.mark.dsh, pytest.mark.process]


def running_command(place: DshPlace, bridge: Bridge) -> tuple[str, int]:
    """A session whose turn runs a command that would run for long; session and prompt."""
    session = bridge.new(place.work)
    place.loopback.answer(session, tool("c1", "bash", command="sleep 600.25", description="Wait"))
    place.loopback.answer(session, text("Done waiting."))
    prompt = bridge.prompt(session)
    eventually(lambda: "sleep 600.25" in str(place.processes()), wait_s=60)
    return session, prompt


def test_a_runtime_that_is_killed_fails_its_turn_leaves_nothing_and_is_started_again(
    place: DshPlace,
) -> None:
    with place.editor("--mode", "full", checked=False) as bridge:
        session, prompt = running_command(place, bridge)
        os.killpg(place.dsh_of(), signal.SIGKILL)
        error = bridge.answer_to(prompt)["error"]
        assert error["code"] == -32603
        assert "was ended by signal 9" in error["data"]["details"]
        assert "The session goes on with the next prompt." in error["data"]["details"]
        eventually(lambda: "sleep 600.25" not in str(place.processes()))
        place.loopback.script[session].clear()
        assert end_of(bridge, session, "again") == "end_turn"


def test_the_end_of_the_input_in_a_turn_leaves_nothing(place: DshPlace) -> None:
    with place.editor("--mode", "full") as bridge:
        session, prompt = running_command(place, bridge)
        bridge.close_stdin()
        assert bridge.answer_to(prompt)["result"]["stopReason"] == "cancelled"
        assert bridge.wait_exit(2 * KILL_EXIT_S) == 0
    ends = [event.data for event in place.stored(session) if event.type == "turn/end"]
    assert len(ends) == 1


def test_a_signal_in_a_turn_leaves_nothing(place: DshPlace) -> None:
    with place.editor("--mode", "full", checked=False) as bridge:
        running_command(place, bridge)
        bridge.process.send_signal(signal.SIGTERM)
        assert bridge.wait_exit(2 * KILL_EXIT_S) == 128 + signal.SIGTERM


def test_a_second_signal_kills_at_once_and_leaves_nothing(place: DshPlace) -> None:
    with place.editor("--mode", "full", checked=False) as bridge:
        running_command(place, bridge)
        os.kill(place.dsh_of(), signal.SIGSTOP)  # it cannot leave by itself
        bridge.process.send_signal(signal.SIGTERM)
        bridge.process.send_signal(signal.SIGTERM)
        bridge.process.send_signal(signal.SIGINT)
        assert bridge.wait_exit(KILL_EXIT_S) in {128 + signal.SIGTERM, 128 + signal.SIGINT}


def test_a_wrong_key_asks_for_another_one(place: DshPlace) -> None:
    place.loopback.refuse_keys = True
    with place.editor() as bridge:
        session = bridge.new(place.work)
        error = end_of(bridge, session)
        assert error["code"] == -32000
        assert "refused the key" in error["data"]["details"]
    assert place.env["DEEPSEEK_API_KEY"] not in (place.home / "logs/acp-bridge.log").read_text()
