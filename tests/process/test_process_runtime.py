"""`acp-bridge runtime` as a process: how it starts, what it writes where, and how it ends."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from process_rig import BRIDGE, KILL_EXIT_S, Bridge, Place, bash_call

from acp_bridge.sessions import SessionStore
from acp_bridge.testing.sdk_rules import broken_sdk_rules
from acp_bridge.vocabulary import Event

pytestmark = pytest.mark.process


@contextmanager
def runtime(place: Place, *flags: str, **env: str) -> Iterator[Bridge]:
    """Started as the SDK starts it; what it said must be good for every client of the wire."""
    named = {"ACP_BRIDGE_MODEL": f"scripted:{place.model}", "DSH_HOME": str(place.home)}
    command = [*BRIDGE, "runtime", "--profile", "sdk", *flags]
    with place.bridge(command=command, env={**place.env, **named, **env}, checked=False) as bridge:
        yield bridge
    assert broken_sdk_rules(bridge.entries) == []


def hello(bridge: Bridge, place: Place) -> None:
    name = {"provider": "deepseek-official", "model": "deepseek-v4-flash"}
    bridge.result("initialize", cwd=str(place.work), **name)


def prompt(bridge: Bridge, session_id: str = "s") -> None:
    blocks = [{"type": "text", "text": "go"}]
    bridge.result("session/prompt", sessionId=session_id, contentBlocks=blocks)


def row(bridge: Bridge, kind: str) -> dict[str, Any]:
    def is_wanted(message: dict[str, Any]) -> bool:
        return bool(message.get("params", {}).get("event", {}).get("type") == kind)

    return bridge.wait_for(is_wanted)


def log(place: Place, session_id: str = "s") -> list[Event]:
    return list(SessionStore(place.home / "sessions", clock=lambda: 0).read(session_id).events)


def in_a_command(bridge: Bridge, place: Place) -> None:
    """A session in the middle of a command, with another prompt behind it."""
    place.script([bash_call("echo here; sleep 300")])
    hello(bridge, place)
    prompt(bridge)
    row(bridge, "tool/call")
    prompt(bridge)


def test_it_is_started_as_the_sdk_does_and_keeps_sessions_where_the_sdk_says(place: Place) -> None:
    place.script([{"text": "Hello."}])
    with runtime(place, "--patch", "/nowhere/a.yml", "--patch", "b.yml") as bridge:
        hello(bridge, place)
        prompt(bridge)
        assert bridge.result("session/wait", sessionId="s") == {}
        assert bridge.result("shutdown") == {}
        assert bridge.wait_exit(KILL_EXIT_S) == 0
    assert log(place)[-1].type == "turn/end"
    noted = (place.home / "logs" / "acp-bridge.log").read_text()
    assert "/nowhere/a.yml is not read" in noted


def test_our_own_names_of_the_home_win(place: Place) -> None:
    place.script([{"text": "Hello."}])
    other = place.root / "other"
    with runtime(place, DSH_HOME=str(other), ACP_BRIDGE_HOME=str(place.home)) as bridge:
        hello(bridge, place)
        prompt(bridge)
        bridge.result("session/wait", sessionId="s")
    assert not other.exists()
    assert log(place)


def test_commands_run_where_the_mode_lets_them_and_their_output_is_no_frame(place: Place) -> None:
    place.script([bash_call("echo to stdout; echo to stderr >&2")], [{"text": "Done."}])
    with runtime(place, "--mode", "full") as bridge:
        hello(bridge, place)
        prompt(bridge)
        bridge.result("session/wait", sessionId="s")
    (result,) = [event for event in log(place) if event.type == "tool/result"]
    assert "to stdout" in json.dumps(result.data)


def test_shutdown_in_a_turn_kills_its_command_and_closes_the_log(place: Place) -> None:
    with runtime(place, "--mode", "full") as bridge:
        in_a_command(bridge, place)
        waiting = bridge.ask("session/wait", sessionId="s")
        assert bridge.result("shutdown") == {}
        assert bridge.answer_to(waiting)["result"] == {}
        assert bridge.wait_exit(KILL_EXIT_S) == 0
        told = [
            message["params"]["event"]
            for message in bridge.heard
            if "method" in message and "event" in message["params"]
        ]
    rows = log(place)
    assert rows[-1].data == {
        "turn": 1,
        "reason": {"kind": "aborted", "reason": {"kind": "disposed"}},
    }
    assert told[-1]["seq"] < rows[-1].seq


@pytest.mark.parametrize("end", ["eof", "term"])
def test_the_end_of_its_client_leaves_a_sound_log_and_nothing_running(
    end: str, place: Place
) -> None:
    with runtime(place, "--mode", "full") as bridge:
        in_a_command(bridge, place)
        if end == "eof":
            bridge.close_stdin()
            assert bridge.wait_exit(KILL_EXIT_S) == 0
        else:
            bridge.process.send_signal(signal.SIGTERM)
            assert bridge.wait_exit(KILL_EXIT_S) == 128 + signal.SIGTERM
    ending = log(place)[-1]
    assert ending.type == "turn/end"


def test_a_killed_runtime_is_resumed_by_the_next(place: Place) -> None:
    place.script([{"text": "Half a sentence"}, {"wait": "go"}])
    with runtime(place) as bridge:
        hello(bridge, place)
        prompt(bridge)
        bridge.process.kill()
        bridge.process.wait()
    place.release("go")  # the first answer is asked for again, since no row holds it
    with runtime(place) as bridge:
        hello(bridge, place)
        bridge.result("session/resume", sessionId="s")
        prompt(bridge)
        bridge.result("session/wait", sessionId="s")
    kinds = [event.type for event in log(place)]
    assert kinds.count("turn/start") == kinds.count("turn/end") == 2


def test_a_line_that_is_no_message_loses_nothing(place: Place) -> None:
    with runtime(place) as bridge:
        bridge.raw(b"not json\n[]\n\n")
        hello(bridge, place)
        refused = [message for message in bridge.heard if "error" in message]
        assert [message["id"] for message in refused] == [None, None]
        bridge.entries[:] = [entry for entry in bridge.entries if entry.message not in refused]


def test_a_model_that_cannot_be_used_is_said_at_initialize(place: Place) -> None:
    with runtime(place, ACP_BRIDGE_MODEL="") as bridge:
        answer = bridge.call(
            "initialize", cwd=str(place.work), provider="deepseek-official", model="deepseek-chat"
        )
        assert answer["error"]["code"] == -32603
        assert "DeepSeek needs a key" in answer["error"]["message"]


def test_a_setting_that_cannot_be_used_is_a_sentence_on_stderr() -> None:
    command = [*BRIDGE, "runtime", "--home", "/proc/none"]
    ran = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("acp-bridge: The folder /proc/none cannot be used")


def test_help_says_what_profile_and_patch_mean() -> None:
    command = [sys.executable, "-m", "acp_bridge", "runtime", "--help"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    text = " ".join(ran.stdout.split())
    assert "there are no profiles" in text
    assert "not read: use the settings of acp-bridge" in text
    assert "DSH_HOME" in text
    assert "--runtime {" not in text
