"""What the tests of workers share: the service as a process, a home, and workers."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from serving_process import ServerProcess
from worker_rig import StartWorker, TestHome, WorkerProcess

from acp_bridge.runevents.client import EventClient


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    running = ServerProcess(f"sqlite:{tmp_path / 'events.sqlite'}")
    running.start()
    yield running
    running.stop()


@pytest.fixture
async def home(server: ServerProcess, tmp_path: Path) -> AsyncIterator[TestHome]:
    cwd = tmp_path / "work"
    cwd.mkdir()
    async with EventClient(server.url) as client, TestHome(client, cwd).hearing() as made:
        yield made
    for child in made.children.values():
        child.check_logs()
        assert child.repeated == 0


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "script.jsonl"


@pytest.fixture
def worker(server: ServerProcess, tmp_path: Path, script: Path) -> Iterator[StartWorker]:
    made: list[WorkerProcess] = []

    def start(name: str = "w1", *flags: str, **variables: str) -> WorkerProcess:
        one = WorkerProcess(tmp_path, name, server.url, *flags, script=script)
        made.append(one.start(**variables))
        return one

    yield start
    for one in made:
        one.stop()
