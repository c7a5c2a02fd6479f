"""The guard: what a killed process leaves running is ended, and nothing else."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from process_rig import WAIT_S, Place, bash_call, eventually

from acp_bridge.harness.tools import guard

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="knows processes from /proc"),
]

SECONDS = 311
"""How long what must end would sleep; no other test sleeps so long."""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Commands of the test's own; whatever is left at its end is killed."""
    commands: list[subprocess.Popen[bytes]] = []
    yield commands
    for command in commands:
        command.kill()
        command.communicate()


@pytest.fixture
def watching() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__], stdin=subprocess.PIPE, bufsize=0
    ) as process:
        yield process
        process.kill()


def command(line: str, mark: str | None) -> subprocess.Popen[bytes]:
    env = {**os.environ, **({} if mark is None else {guard.MARKER: mark})}
    return subprocess.Popen(
        ["/bin/sh", "-c", line], stdin=subprocess.PIPE, env=env, start_new_session=True
    )


def is_alive(line: str) -> bool:
    return any(_line(pid) == line for pid in guard.process_table())


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def test_the_end_of_the_input_ends_what_was_named_and_not_taken_back(
    watching: subprocess.Popen[bytes], started: list[subprocess.Popen[bytes]]
) -> None:
    named, taken_back, foreign, unmarked = (
        command(f"exec sleep {SECONDS}", mark) for mark in ("a", "b", "c", None)
    )
    started += [named, taken_back, foreign, unmarked]
    assert watching.stdin is not None
    watching.stdin.write(b"+a\n+b\n-b\n")
    watching.stdin.close()
    assert named.wait(WAIT_S) < 0
    assert watching.wait(WAIT_S) == 0
    assert [one.poll() for one in (taken_back, foreign, unmarked)] == [None, None, None]


def test_who_ignores_signals_lost_the_mark_or_left_the_session_ends_too(
    watching: subprocess.Popen[bytes], started: list[subprocess.Popen[bytes]]
) -> None:
    lines = [f"sleep {SECONDS}.{number}" for number in (1, 2, 3)]
    deaf = "trap '' TERM HUP INT; "
    started.append(
        command(f"{deaf}env -i {lines[0]} & setsid {lines[1]} & {lines[2]}; {lines[2]}", "a")
    )
    eventually(lambda: all(map(is_alive, lines)))
    assert watching.stdin is not None
    watching.stdin.write(b"+a\n")
    watching.stdin.close()
    assert watching.wait(WAIT_S) == 0
    assert [line for line in lines if is_alive(line)] == []


def test_one_that_ends_by_itself_has_its_time(
    watching: subprocess.Popen[bytes], started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    written = tmp_path / "written"
    program = command(f"trap 'exit 1' TERM; cat; sleep 1; echo all > {written}", "a")
    started.append(program)
    assert watching.stdin is not None
    assert program.stdin is not None
    watching.stdin.write(b"~a\n")
    watching.stdin.close()
    program.stdin.close()
    assert watching.wait(WAIT_S) == 0
    assert written.read_text() == "all\n"


def test_what_one_that_ended_by_itself_left_behind_ends_too(
    watching: subprocess.Popen[bytes], started: list[subprocess.Popen[bytes]]
) -> None:
    line = f"sleep {SECONDS}.7"
    # Once the program is gone, neither mark nor parent nor session tell whose the other is.
    program = command(f"setsid env -i {line} & cat; sleep 1", "a")
    started.append(program)
    eventually(lambda: is_alive(line))
    assert watching.stdin is not None
    assert program.stdin is not None
    watching.stdin.write(b"~a\n")
    watching.stdin.close()
    program.stdin.close()
    assert watching.wait(WAIT_S) == 0
    assert program.wait(WAIT_S) == 0
    assert not is_alive(line)


def test_a_killed_bridge_leaves_nothing_of_a_command(place: Place) -> None:
    lines = [f"sleep {SECONDS}.{number}" for number in (4, 5)]
    place.script([bash_call(f"trap '' TERM; setsid env -i {lines[0]} & {lines[1]}")])
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        bridge.prompt(session)
        bridge.allow(bridge.asked())
        eventually(lambda: all(map(is_alive, lines)))
        bridge.process.kill()
        bridge.process.wait(WAIT_S)
        eventually(lambda: not any(map(is_alive, lines)))


def test_a_guard_that_died_is_started_again_with_the_next_command(place: Place) -> None:
    line = f"sleep {SECONDS}.6"
    place.script([bash_call("true")], [{"wait": "go"}, bash_call(line)])
    with place.bridge("--mode", "full") as bridge:
        bridge.hello()
        bridge.prompt(bridge.new(place.work))
        (first,) = eventually(lambda: guards_of(bridge.process.pid))
        os.kill(first, signal.SIGKILL)
        place.release("go")
        eventually(lambda: is_alive(line))
        bridge.process.kill()
        bridge.process.wait(WAIT_S)
        eventually(lambda: not is_alive(line))


def guards_of(pid: int) -> list[int]:
    return [
        seen.pid
        for seen in guard.process_table().values()
        if seen.parent == pid and guard.__file__ in _line(seen.pid)
    ]
