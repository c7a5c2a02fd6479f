"""``acp-bridge worker`` as people start it: what it teaches, and what cannot work."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from process_rig import eventually
from serving_process import ServerProcess
from worker_rig import WAIT_S

from acp_bridge.cli.main import main

pytestmark = pytest.mark.process


def started(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ACP_BRIDGE_")}
    return subprocess.run(
        [sys.executable, "-m", "acp_bridge", "worker", "--home", str(home), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**clean, **env},
        timeout=WAIT_S,
    )


def test_help_teaches_what_it_does_and_what_it_risks(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["worker", "--help"])
    told = capsys.readouterr().out
    for word in ("--events", "--limit", "--model", "--name", "token can have commands run here"):
        assert word in told


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--events", "nowhere"], 2, "no address"),
        (["--name", "a b"], 2, "--name must be 1 to 128 letters"),
        (["--token", "ä"], 2, "must be plain characters"),
    ],
)
def test_what_cannot_work_is_one_sentence(
    arguments: list[str], code: int, sentence: str, tmp_path: Path
) -> None:
    ended = started(tmp_path / "home", *arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_home_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "home"
    file.mkdir()
    (file / "worker").write_text("")
    ended = started(file)
    assert ended.returncode == 2
    assert "worker cannot be used" in ended.stderr


def test_a_limit_is_a_number_that_makes_sense(capsys: pytest.CaptureFixture[str]) -> None:
    for limit in ("0", "-1", "1001", "many"):
        with pytest.raises(SystemExit):
            main(["worker", f"--limit={limit}"])
    assert "a number from 1 to 1000" in capsys.readouterr().err


def test_a_wrong_token_ends_it_with_a_sentence(tmp_path: Path) -> None:
    server = ServerProcess(f"sqlite:{tmp_path / 'events.sqlite'}", token="let-me-in")
    server.start()
    try:
        env = {"ACP_BRIDGE_EVENTS": server.url, "ACP_BRIDGE_EVENTS_TOKEN": "not-this-one"}
        ended = started(tmp_path / "home", **env)
    finally:
        server.stop()
    assert ended.returncode == 1
    assert ended.stderr.startswith("acp-bridge: The token is missing or wrong")
    log = (tmp_path / "home" / "logs" / "acp-bridge.log").read_text()
    assert "The token is missing or wrong" in log
    assert "not-this-one" not in log


def test_without_a_terminal_it_says_once_that_the_service_is_away_and_back(tmp_path: Path) -> None:
    server = ServerProcess(f"sqlite:{tmp_path / 'events.sqlite'}", token="let-me-in")
    server.start()
    env = {**os.environ, "ACP_BRIDGE_EVENTS_TOKEN": "let-me-in"}
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "acp_bridge", "worker", "--home", str(tmp_path / "home"),
             "--events", server.url, "--name", "w1"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        ) as worker:  # fmt: skip
            assert worker.stderr is not None
            log = tmp_path / "home" / "logs" / "acp-bridge.log"
            eventually(lambda: log.exists() and "worker w1 begins" in log.read_text())
            server.kill()
            away = worker.stderr.readline()
            # It has tried in vain once more by then, in silence.
            eventually(lambda: log.read_text().count("no runs are heard of") > 1)
            server.start()
            back = worker.stderr.readline()
            worker.terminate()
            assert worker.wait(WAIT_S) == 0
            assert worker.stderr.read() == ""
    finally:
        server.stop()
    assert f"at {server.url} is not reached" in away
    assert f"The event service at {server.url} is back." in back
    assert "let-me-in" not in away + back + log.read_text()


def test_on_a_terminal_it_says_what_happens(tmp_path: Path) -> None:
    near, far = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "acp_bridge", "worker", "--home", str(tmp_path / "home"),
         "--events", "http://127.0.0.1:1", "--name", "w1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=far,
    ) as worker:  # fmt: skip
        os.close(far)
        said = b""
        while b"Trying again" not in said:
            said += os.read(near, 4096)
        worker.terminate()
        assert worker.wait(WAIT_S) == 0
    os.close(near)
    assert b"w1 waits for runs at http://127.0.0.1:1, up to 4 at once" in said
