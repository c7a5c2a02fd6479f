"""Worker processes, the service as a process, and a small home: a run from claim to settlement."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from serving_process import ServerProcess
from worker_rig import TestHome, WorkerProcess, bash, release, text, write_script

from acp_bridge.runevents.client import EventClient
from acp_bridge.vocabulary import Answer

pytestmark = [pytest.mark.anyio, pytest.mark.process]

StartWorker = Callable[..., WorkerProcess]


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

    def start(name: str = "w1", *flags: str) -> WorkerProcess:
        made.append(WorkerProcess(tmp_path, name, server.url, *flags, script=script).start())
        return made[-1]

    yield start
    for one in made:
        one.stop()


async def test_a_child_works_and_its_home_has_every_row(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {"1/1": [[*text("I ", "look.")], text("Done.")]})
    worker()
    child = await home.delegate("child-1")
    await home.until(lambda: child.settlements)
    (kind, settlement), *rest = child.settlements
    assert (kind, settlement.end.kind, settlement.answer) == (
        "run_succeeded",
        "completed",
        "I look.",
    )
    assert rest == []
    assert child.said() == [child.streamed()] == ["I look."]
    assert child.reasons() == [{"kind": "completed"}]
    assert child.workers == ["w1"]
