"""The end of the process, whatever it is in the middle of: EOF, signals, a dead parent (R025-R029).

At the end of its input and at a signal everything running is cancelled, the log is closed, all
that was started is gone, and a later load shows the whole.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from pace import patient
from process_rig import (
    EXIT_S,
    KILL_EXIT_S,
    WAIT_S,
    Bridge,
    Place,
    bash_call,
    eventually,
    prompt_params,
)

pytestmark = pytest.mark.process

# A grandchild in a session of its own that ignores SIGTERM, and one that only sleeps.
STUBBORN = (
    "setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' & "
    "sleep 300 & echo started; cat; sleep 300"
)

Setting = tuple[Bridge, str]


def idle(bridge: Bridge, place: Place) -> str:
    bridge.hello()
    return bridge.new(place.work)


def streaming(bridge: Bridge, place: Place) -> str:
    place.script([{"text": "Half a sentence"}, {"wait": "never"}])
    session = idle(bridge, place)
    bridge.prompt(session)
    bridge.update("agent_message_chunk")
    return session


def in_a_tool(bridge: Bridge, place: Place) -> str:
    place.script([{"text": "I run it."}, bash_call(STUBBORN)])
    session = idle(bridge, place)
    bridge.prompt(session)
    bridge.allow(bridge.asked())
    until_stubborn(place)
    return session


def until_stubborn(place: Place) -> None:
    """Wait until all of `STUBBORN` runs: its signals are ignored, and its ``cat`` has ended."""

    def runs() -> bool:
        names = list(place.processes().values())
        return "sleep 1" in names and names.count("sleep 300") == 2

    eventually(runs)


def asking(bridge: Bridge, place: Place) -> str:
    place.script([bash_call("touch ran")])
    session = idle(bridge, place)
    bridge.prompt(session)
    bridge.asked()
    return session


def retrying(bridge: Bridge, place: Place) -> str:
    place.script([{"error": {"status": 429, "message": "slow down", "retry_after_s": 60}}])
    session = idle(bridge, place)
    bridge.prompt(session)
    bridge.update("session_info_update")
    return session


def queued(bridge: Bridge, place: Place) -> str:
    session = streaming(bridge, place)
    bridge.prompt(session, "and this")
    bridge.prompt(session, "and that")
    return session


PHASES = [idle, streaming, in_a_tool, asking, retrying, queued]


def loads_closed(place: Place, session: str) -> None:
    """A new process shows the session: no call is open, and the next prompt runs."""
    place.script([{"text": "Again."}], [{"text": "Again."}])
    with place.bridge() as bridge:
        bridge.hello()
        bridge.result("session/load", sessionId=session, cwd=str(place.work), mcpServers=[])
        statuses: dict[str, str] = {}
        for update in bridge.updates(session):
            if "toolCallId" in update:
                statuses[update["toolCallId"]] = update["status"]
        assert set(statuses.values()) <= {"completed", "failed"}
        assert bridge.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"


@pytest.mark.parametrize("phase", PHASES)
def test_the_end_of_input_ends_it_in_every_phase_as_r025_needs(
    place: Place, phase: Callable[[Bridge, Place], str]
) -> None:
    with place.bridge() as bridge:
        session = phase(bridge, place)
        bridge.close_stdin()
        assert bridge.wait_exit(KILL_EXIT_S if phase is in_a_tool else EXIT_S) == 0
        assert place.processes() == {}
        for message_id in bridge.sent("session/prompt"):
            assert bridge.answer_to(message_id)["result"]["stopReason"] == "cancelled"
    assert not (place.work / "ran").exists()
    if phase is not idle:
        loads_closed(place, session)


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        *((phase, signal.SIGTERM) for phase in PHASES),
        (in_a_tool, signal.SIGHUP),
        (in_a_tool, signal.SIGINT),
    ],
)
def test_a_signal_ends_it_in_every_phase_as_r027_needs(
    place: Place, phase: Callable[[Bridge, Place], str], number: signal.Signals
) -> None:
    with place.bridge() as bridge:
        session = phase(bridge, place)
        bridge.process.send_signal(number)
        within_s = KILL_EXIT_S if phase is in_a_tool else EXIT_S
        assert bridge.wait_exit(within_s) == 128 + number
        assert place.processes() == {}
    if phase is not idle and number is signal.SIGTERM:
        loads_closed(place, session)


def test_a_second_signal_leaves_no_child_either_as_r027_needs(place: Place) -> None:
    with place.bridge(checked=False) as bridge:
        session = in_a_tool(bridge, place)
        bridge.process.send_signal(signal.SIGTERM)
        bridge.process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        bridge.process.send_signal(signal.SIGINT)
        assert bridge.wait_exit(KILL_EXIT_S) in {128 + signal.SIGTERM, 128 + signal.SIGINT}
        assert place.processes() == {}
    loads_closed(place, session)


def test_the_input_may_end_before_anything_was_said(place: Place) -> None:
    with place.bridge() as bridge:
        bridge.close_stdin()
        assert bridge.wait_exit(EXIT_S) == 0
    with place.bridge(checked=False) as bridge:
        bridge.raw(b'{"jsonrpc":"2.0","id":1,"meth')
        bridge.close_stdin()
        assert bridge.wait_exit(EXIT_S) == 0
        assert bridge.answer_to(None)["error"]["code"] == -32700


def test_the_input_may_end_right_behind_a_request(place: Place) -> None:
    place.script([{"text": "Said."}])
    with place.bridge() as bridge:
        session = idle(bridge, place)
        message_id = bridge.prompt(session)
        bridge.close_stdin()
        assert bridge.wait_exit(EXIT_S) == 0
        assert bridge.answer_to(message_id)["result"]["stopReason"] in {"cancelled", "end_turn"}


def test_the_input_may_end_during_a_load(place: Place) -> None:
    place.script([{"text": "x" * 1000, "repeat": 50}] * 1, *[[{"text": "y"}]] * 30)
    with place.bridge() as bridge:
        session = idle(bridge, place)
        for _ in range(31):
            bridge.result("session/prompt", **prompt_params(session))
    with place.bridge(checked=False) as bridge:  # the answer may be -32800 though none withdrew it
        bridge.hello()
        bridge.stop_reading()
        load = bridge.ask("session/load", sessionId=session, cwd=str(place.work), mcpServers=[])
        bridge.close_stdin()
        bridge.read_on()
        assert bridge.wait_exit(EXIT_S) == 0
        answer = bridge.answer_to(load)
        assert "result" in answer or answer["error"]["code"] == -32800
    loads_closed(place, session)


def test_a_client_that_stops_reading_does_not_keep_it_alive(place: Place) -> None:
    place.script([{"text": "x" * 1000, "repeat": 20_000}])
    with place.bridge(checked=False) as bridge:
        session = idle(bridge, place)
        bridge.stop_reading()
        bridge.prompt(session)
        time.sleep(1)
        bridge.close_stdin()
        assert bridge.wait_exit(KILL_EXIT_S) == 0
        bridge.fault = None  # the last line may be cut: nobody read it in time
        bridge.read_on()
        bridge.join()
        bridge.fault = None


def test_a_client_that_closes_only_its_reading_end_ends_it_as_r011_needs(place: Place) -> None:
    reader = ["bash", "-c", 'set -o pipefail; "$@" | cat', "bash"]
    command = [*reader, *place.command()]
    # Bash says on stderr that cat was killed.
    with place.bridge(command=command, checked=False, stderr_empty=False) as bridge:
        in_a_tool(bridge, place)
        (cat,) = [pid for pid, name in place.processes().items() if name == "cat"]
        os.kill(cat, signal.SIGKILL)
        assert bridge.wait_exit(KILL_EXIT_S) == 128 + signal.SIGKILL  # that of cat
        bridge.fault = None  # whatever it said last went nowhere
        assert place.processes() == {}


def test_the_death_of_the_parent_ends_it_with_all_its_children_as_r028_needs(place: Place) -> None:
    # A helper starts the bridge and dies; the test holds the pipes, so no end of input tells.
    place.script([{"text": "I run it."}, bash_call(STUBBORN)])
    helper = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
    with place.bridge(command=[sys.executable, "-c", helper, *place.command()]) as bridge:
        session = idle(bridge, place)
        bridge.prompt(session)
        bridge.allow(bridge.asked())
        until_stubborn(place)
        bridge.process.kill()
        bridge.process.wait(WAIT_S)
        eventually(lambda: place.processes() == {}, wait_s=patient(2 + KILL_EXIT_S))
    loads_closed(place, session)


def test_a_command_sees_the_end_of_its_input_and_the_bridge_the_next_message_as_r029_needs(
    place: Place,
) -> None:
    place.script([bash_call("cat; python3 -c 'input()'; echo; sleep 100")], [{"text": "Fine."}])
    with place.bridge() as bridge:
        session = idle(bridge, place)
        first = bridge.prompt(session)
        bridge.allow(bridge.asked())
        eventually(lambda: "sleep 100" in place.processes().values())
        bridge.cancel(session)
        assert bridge.answer_to(first)["result"]["stopReason"] == "cancelled"
        assert bridge.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_while_it_starts_ends_it_without_noise(
    place: Place, number: signal.Signals
) -> None:
    for delay_ms in range(0, 240, 30):
        with place.bridge(checked=False) as bridge:
            bridge.hello()
            time.sleep(delay_ms / 1000)
            bridge.process.send_signal(number)
            assert bridge.wait_exit(EXIT_S) in {-number, 128 + number}


def test_an_interrupt_while_it_ends_makes_no_noise(place: Place) -> None:
    for delay_ms in range(0, 60, 10):
        with place.bridge() as bridge:
            idle(bridge, place)
            bridge.close_stdin()
            time.sleep(delay_ms / 1000)
            bridge.process.send_signal(signal.SIGINT)
            assert bridge.wait_exit(EXIT_S) in {0, -signal.SIGINT, 128 + signal.SIGINT}


def test_a_bridge_under_a_shell_that_exits_is_no_orphan(place: Place) -> None:
    with subprocess.Popen(
        ["sh", "-c", '"$@" & wait', "sh", *place.command()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=place.env,
    ) as shell:
        out, err = shell.communicate(timeout=WAIT_S)
    assert (out, err) == (b"", b"")
    assert place.processes() == {}
