"""A process that owns its stdio: pipes, sockets, files, a terminal; and how it ends."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest
from pace import patient

pytestmark = pytest.mark.process

AGENT = [sys.executable, str(Path(__file__).with_name("wire_agent.py"))]
LIMIT_S = 60
"""More than any of these may take, on a machine that others use too."""


def line_of(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def read_message(stream: IO[bytes]) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(stream.readline())
    return message


def messages_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.split(b"\n") if line]


@contextmanager
def agent(
    stdin: Any = subprocess.PIPE,
    stdout: Any = subprocess.PIPE,
    stderr: Any = subprocess.PIPE,
    arguments: tuple[str, ...] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """A started agent that is surely gone afterwards."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [*AGENT, *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):  # bytes that the killed agent never read
                    stream.close()


def pipes_of(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdin, process.stdout, process.stderr


def test_pipes_serve_until_the_end_of_input_as_r025_needs() -> None:
    with agent() as process:
        out, err = process.communicate(
            line_of(id=1, method="echo", params={"a": 1})
            + b"not json\n"
            + line_of(id=2, method="wait"),
            timeout=LIMIT_S,
        )
        assert process.returncode == 0
    assert [(reply["id"], reply.get("error", {}).get("code")) for reply in messages_of(out)] == [
        (1, None),
        (None, -32700),
        (2, -32800),
    ]
    assert err.startswith(b"ended: The client closed its end")


def test_no_input_at_all_is_an_orderly_end_as_r025_needs() -> None:
    with agent(stdin=subprocess.DEVNULL) as process:
        out, _ = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, out) == (0, b"")


def test_files_and_the_null_device_serve_as_stdin_and_stdout(tmp_path: Path) -> None:
    script, log = tmp_path / "script", tmp_path / "log"
    script.write_bytes(b"".join(line_of(id=n, method="echo", params=[n]) for n in range(300)))
    with script.open("rb") as stdin, log.open("wb") as stdout, agent(stdin, stdout) as process:
        assert process.wait(LIMIT_S) == 0
    assert [reply["id"] for reply in messages_of(log.read_bytes())] == list(range(300))
    with script.open("rb") as stdin, agent(stdin, subprocess.DEVNULL) as process:
        assert process.wait(LIMIT_S) == 0


def test_a_log_that_is_appended_to_keeps_its_earlier_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"earlier\n")
    with log.open("ab") as stdout, agent(stdout=stdout) as process:
        process.communicate(line_of(id=1, method="echo"), timeout=LIMIT_S)
    assert log.read_bytes().startswith(b'earlier\n{"jsonrpc"')


@pytest.mark.parametrize("shared", [True, False], ids=["one socket", "a socket each"])
def test_sockets_serve_as_stdin_and_stdout(*, shared: bool) -> None:
    near_in, far_in = socket.socketpair()
    near_out, far_out = (near_in, far_in) if shared else socket.socketpair()
    for near in (near_in, near_out):
        near.settimeout(LIMIT_S)
    with agent(far_in, far_out) as process:
        far_in.close()
        far_out.close()
        near_in.sendall(line_of(id=1, method="echo", params=["x" * 1_000_000]))
        reader = near_out.makefile("rb")
        assert len(read_message(reader)["result"][0]) == 1_000_000
        near_in.shutdown(socket.SHUT_WR)
        assert reader.read() == b""
        assert process.wait(LIMIT_S) == 0
    for stream in (reader, near_in, near_out):
        stream.close()


def test_a_terminal_serves_and_stays_blocking_for_its_other_holders() -> None:
    master, terminal = pty.openpty()
    tty.setraw(terminal)
    with (
        agent(terminal, terminal, terminal) as process,
        os.fdopen(master, "r+b", buffering=0) as near,
    ):
        near.write(line_of(id=1, method="echo"))
        assert json.loads(near.readline())["id"] == 1
        assert os.get_blocking(terminal)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 128 + signal.SIGTERM
        assert os.get_blocking(terminal)
        os.close(terminal)


def test_a_pipe_that_is_stderr_too_stays_blocking() -> None:
    read_fd, write_fd = os.pipe()
    with agent(stdout=write_fd, stderr=write_fd) as process, os.fdopen(read_fd, "rb") as output:
        assert process.stdin is not None
        process.stdin.write(line_of(id=1, method="echo"))
        process.stdin.flush()
        assert read_message(output)["id"] == 1
        assert os.get_blocking(write_fd)
        os.close(write_fd)


def test_an_input_that_the_parent_made_non_blocking_is_served() -> None:
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    for arguments in ((), ("early",)):
        with agent(stdin=read_fd, arguments=arguments) as process:
            assert process.stdout is not None
            os.write(write_fd, line_of(id=1, method="echo"))
            assert read_message(process.stdout)["id"] == 1
    os.close(read_fd)
    os.close(write_fd)


def test_the_first_answer_needs_no_event_loop() -> None:
    with agent(arguments=("early",)) as process:
        out, _ = process.communicate(
            b"\xef\xbb\xbf" + line_of(id=0, method="initialize") + line_of(id=1, method="echo"),
            timeout=LIMIT_S,
        )
        assert process.returncode == 0
    first, second = messages_of(out)
    assert first == {"jsonrpc": "2.0", "id": 0, "result": {"loaded": []}}
    assert second["id"] == 1


@pytest.mark.parametrize("module", ["framing", "codec", "messages", "stdio"])
def test_the_modules_of_the_first_answer_load_nothing_heavy(module: str) -> None:
    heavy = ["asyncio", "anyio", "attr", "attrs", "cattrs", "logging", "orjson", "subprocess"]
    code = f"import sys, acp_bridge.wire.{module}; print([n for n in {heavy} if n in sys.modules])"
    # -S: development installs load modules of their own at start.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-S", "-c", code]
    environment = {**os.environ, "PYTHONPATH": path}
    loaded = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert loaded.stdout == b"[]\n"


def test_stray_prints_go_to_stderr_at_once_as_r001_needs() -> None:
    with agent() as process:
        stdin, stdout, stderr = pipes_of(process)
        stdin.write(line_of(id=1, method="print"))
        stdin.flush()
        assert read_message(stdout) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert select.select([stderr], [], [], LIMIT_S)[0]
        assert stderr.readline() == b"a stray print\n"
        stdin.close()
        assert stdout.read() == b""
        assert b"another one\n" in stderr.read()


def test_a_child_reads_the_end_of_file_and_not_our_next_request_as_r029_needs() -> None:
    with agent() as process:
        stdin, stdout, _ = pipes_of(process)
        # The input stays open, so a child that had it would wait for ever, or eat the second line.
        stdin.write(line_of(id=1, method="child"))
        stdin.flush()
        assert select.select([stdout], [], [], LIMIT_S)[0]
        assert read_message(stdout)["result"] == {"read": ""}
        stdin.write(line_of(id=2, method="echo"))
        stdin.flush()
        assert read_message(stdout)["id"] == 2


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-", ">&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_are_no_reason_to_fail(closed: str) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *AGENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(line_of(id=1, method="print"), timeout=LIMIT_S)
    assert process.returncode == 0
    assert [reply["id"] for reply in messages_of(out)] == ([1] if closed == "2>&-" else [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_answers_what_runs_and_ends_with_its_exit_code_as_r027_needs(
    number: signal.Signals,
) -> None:
    with agent() as process:
        stdin, stdout, stderr = pipes_of(process)
        stdin.write(line_of(id=1, method="wait") + line_of(id=2, method="echo"))
        stdin.flush()
        assert read_message(stdout)["id"] == 2
        started = time.monotonic()
        process.send_signal(number)
        assert read_message(stdout)["error"]["code"] == -32800
        assert process.wait(LIMIT_S) == 128 + number
        assert time.monotonic() - started < patient(2)
        assert stderr.read().startswith(f"ended: Stopped by {number.name}.".encode())


def test_a_second_signal_ends_a_process_that_hangs_at_once_as_r027_needs() -> None:
    with agent() as process:
        stdin, stdout, stderr = pipes_of(process)
        stdin.write(line_of(id=1, method="hold") + line_of(id=2, method="ask"))
        stdin.flush()
        assert read_message(stdout)["method"] == "ask"
        process.send_signal(signal.SIGTERM)
        assert read_message(stdout)["id"] == 2  # the first signal has arrived
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 128 + signal.SIGINT
        assert b"exiting at once" in stderr.read()


def test_a_signal_during_the_clean_up_after_the_end_of_input_does_not_kill() -> None:
    with agent() as process:
        stdin, stdout, _ = pipes_of(process)
        stdin.write(line_of(id=1, method="hold") + line_of(id=2, method="ask"))
        stdin.flush()
        assert read_message(stdout)["method"] == "ask"
        stdin.close()
        assert read_message(stdout)["id"] == 2  # the end of input has been seen
        process.send_signal(signal.SIGTERM)
        assert select.select([stdout], [], [], 0.3)[0] == []
        assert process.poll() is None


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_client_that_stops_reading_ends_the_process_as_r011_needs(kind: str) -> None:
    if kind == "pipe":
        near, far = os.pipe()
    else:
        near_socket, far_socket = socket.socketpair()
        near, far = near_socket.detach(), far_socket.detach()
    with agent(stdout=far) as process, os.fdopen(near, "rb", buffering=0) as output:
        os.close(far)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(line_of(id=1, method="ask"))
        process.stdin.flush()
        assert json.loads(output.readline())["method"] == "ask"
        output.close()
        assert process.wait(LIMIT_S) == 0
        assert b"BrokenPipeError" in process.stderr.read()


def test_a_client_that_stalls_can_still_cancel() -> None:
    with agent() as process:
        stdin, stdout, _ = pipes_of(process)
        stdin.write(line_of(id=1, method="flood"))
        stdin.flush()
        assert read_message(stdout)["method"] == "update"
        # Nothing is read from here on until the cancel is in.
        stdin.write(line_of(method="$/cancel_request", params={"requestId": 1}))
        stdin.write(line_of(id=2, method="ask"))
        stdin.flush()
        *updates, cancelled, _asked = _read_up_to(stdout, "ask")
    assert cancelled["error"]["code"] == -32800
    assert 0 < len(updates) < 10_000


def _read_up_to(stream: IO[bytes], method: str) -> list[dict[str, Any]]:
    messages = [read_message(stream)]
    while messages[-1].get("method") != method:
        messages.append(read_message(stream))
    return messages


def test_the_death_of_the_parent_is_noticed_and_costs_no_cpu_as_r028_needs() -> None:
    # The test holds the agent's stdin open, so that only the parent's death can tell.
    stdin_fd, keep_open = os.pipe()
    code = f"import subprocess, time; subprocess.Popen({AGENT!r}); time.sleep(60)"
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=stdin_fd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(stdin_fd)
    assert parent.stdout is not None
    assert parent.stderr is not None
    os.write(keep_open, line_of(id=1, method="wait") + line_of(id=2, method="echo"))
    assert read_message(parent.stdout)["id"] == 2
    parent.kill()
    parent.wait()
    killed = time.monotonic()
    assert select.select([parent.stderr], [], [], LIMIT_S)[0]
    last_words = parent.stderr.read().decode()
    assert time.monotonic() - killed < patient(3)
    for stream in (parent.stdout, parent.stderr):
        stream.close()
    os.close(keep_open)
    assert last_words.startswith("ended: The process that started this one is gone.")
    cpu = re.search(r"cpu_s=([0-9.]+)", last_words)
    assert cpu is not None
    assert float(cpu[1]) < 1.5


def test_the_death_of_the_parent_is_noticed_before_the_first_line_too() -> None:
    stdin_fd, keep_open = os.pipe()
    agent_command = [sys.executable, "-c", _FIRST_LINE]
    code = (
        "import subprocess, sys, time;"
        f"p = subprocess.Popen({agent_command!r}); print(p.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=stdin_fd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(stdin_fd)
    assert parent.stderr is not None
    assert parent.stdout is not None
    assert parent.stderr.readline() == b"waiting\n"
    parent.kill()
    parent.wait()
    assert select.select([parent.stderr], [], [], LIMIT_S)[0]
    assert parent.stderr.read() == b"got b''\n"
    parent.stdout.close()
    parent.stderr.close()
    os.close(keep_open)


_FIRST_LINE = """
import sys
from acp_bridge.wire.stdio import claim
stdio = claim()
print("waiting", flush=True)
print("got", stdio.read_first_line(), flush=True)
"""
