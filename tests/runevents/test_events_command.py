"""``acp-bridge events`` as people start it."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from pace import patient
from service_rig import client_of, draft
from serving_process import ServerProcess

from acp_bridge.cli.main import main
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.model import RunId
from acp_bridge.runevents.service.serving import STOP_S

pytestmark = pytest.mark.process

RUN = RunId("run-1")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    running = ServerProcess(f"sqlite:{tmp_path / 'events.sqlite'}", token="let-me-in")
    running.start()
    yield running
    running.stop()


async def publish_one(server: ServerProcess) -> None:
    async with client_of(server.url, "let-me-in") as client:
        await client.register(RUN)
        await client.publish(RUN, [draft(RUN, "e1")])


def test_status_says_what_is_open(
    server: ServerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACP_BRIDGE_EVENTS", server.url)
    monkeypatch.setenv("ACP_BRIDGE_EVENTS_TOKEN", "let-me-in")
    assert main(["events", "status"]) == 0
    assert "open_streams   0" in capsys.readouterr().out
    assert main(["events", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["last_sequence"] == 0


def test_status_finds_the_service_by_what_config_toml_says(
    server: ServerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ACP_BRIDGE_EVENTS", raising=False)
    monkeypatch.delenv("ACP_BRIDGE_EVENTS_TOKEN", raising=False)
    (tmp_path / "config.toml").write_text(
        f'events = "{server.url}"\nevents_token = "let-me-in"\n', "utf-8"
    )
    assert main(["events", "status", "--home", str(tmp_path)]) == 0
    assert "open_streams   0" in capsys.readouterr().out


def test_a_wrong_token_is_one_sentence_on_stderr(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["events", "status", "--events", server.url, "--token", "wrong"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("acp-bridge: The token is missing or wrong")
    assert main(["events", "tail", "run-1", "--events", server.url, "--token", "wrong"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["serve", "--host", "0.0.0.0"], 2, "needs a token"),
        (["serve", "--log", "postgres://x"], 2, "use sqlite:PATH or redis"),
        (["status", "--events", "nowhere"], 2, "no address"),
        (["status", "--events", "http://127.0.0.1:1"], 1, "does it run"),
    ],
)
def test_what_cannot_work_is_one_sentence(
    arguments: list[str],
    code: int,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ACP_BRIDGE_EVENTS_TOKEN", raising=False)
    assert main(["events", *arguments, *(["--port", "0"] if "serve" in arguments else [])]) == code
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1


def test_tail_prints_what_is_there_and_what_comes(server: ServerProcess) -> None:
    anyio.run(publish_one, server)
    with subprocess.Popen(
        [sys.executable, "-m", "acp_bridge", "events", "tail", RUN, "--json", "--events",
         server.url, "--token", "let-me-in"],
        stdout=subprocess.PIPE,
        text=True,
    ) as tail:  # fmt: skip
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["event_id"] == "e1"

        async def publish_another() -> None:
            async with client_of(server.url, "let-me-in") as client:
                await client.publish(RUN, [draft(RUN, "e2")])

        anyio.run(publish_another)
        assert json.loads(tail.stdout.readline())["event_id"] == "e2"
        tail.kill()


def test_tail_says_that_nobody_has_registered_a_run_yet(server: ServerProcess) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "acp_bridge", "events", "tail", RUN, "--json", "--events",
         server.url, "--token", "let-me-in"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as tail:  # fmt: skip
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert "registered the run run-1 yet: waiting" in tail.stderr.readline()
        anyio.run(publish_one, server)
        assert json.loads(tail.stdout.readline())["event_id"] == "e1"
        tail.kill()
        assert tail.stderr.read() == ""


def test_sigterm_ends_it_in_time_with_streams_open(server: ServerProcess) -> None:
    async def play() -> tuple[int, float]:
        async with client_of(server.url, "let-me-in") as client:
            async with client.open({RUN: 0}, epoch=None) as stream:
                start = time.monotonic()
                code = await anyio.to_thread.run_sync(server.terminate)
                took_s = time.monotonic() - start
                assert [batch async for batch in stream.batches()] == []
            return code, took_s

    code, took_s = anyio.run(play)
    assert code == 0
    assert took_s < patient(STOP_S)


def test_nothing_of_it_is_imported_unless_it_is_asked_for() -> None:
    code = (
        "import sys, acp_bridge.cli.assemble; print([m for m in sys.modules if 'runevents' in m])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_client_that_is_not_used_opens_nothing() -> None:
    async def play(url: str) -> None:
        async with EventClient(url):
            pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        anyio.run(play, f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(BlockingIOError):
            server.accept()
