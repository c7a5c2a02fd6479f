"""What breaks around a worker: the service, the worker itself, its lease, and signals to it."""

import signal
import time
from pathlib import Path

import pytest
from service_rig import NOW
from serving_process import ServerProcess
from worker_rig import (
    StartWorker,
    TestHome,
    bash,
    call,
    eventually,
    release,
    text,
    write_script,
)

from acp_bridge.runevents.model import EventDraft
from acp_bridge.runevents.runs import LEASE_MS
from acp_bridge.vocabulary import Answer
from acp_bridge.worker.pool import STOP_S

pytestmark = [pytest.mark.anyio, pytest.mark.process]

LAPSE_S = LEASE_MS / 1000 + 60
KILLS = 3


def lives(pid_file: Path) -> bool:
    """Whether the process whose id is in the file lives (a zombie does not)."""
    try:
        pid = int(pid_file.read_text())
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (OSError, ValueError):
        return False


SLEEPS = "echo $$ > pid; exec sleep 1000"


async def test_a_service_that_is_killed_costs_no_row_and_no_piece(
    home: TestHome, worker: StartWorker, script: Path, server: ServerProcess
) -> None:
    pieces = [item for n in range(60) for item in (*text(f"piece {n} "), {"delay_ms": 25})]
    answers = [[*pieces, bash(f"echo {n}", f"c{n}")] for n in range(3)]
    write_script(script, {"1/1": [*answers, text("Done.")]})
    worker()
    child = await home.delegate("child-1", mode="full")
    said = "".join(f"piece {n} " for n in range(60))
    for kill in range(KILLS):
        await home.until(lambda n=kill: len(child.streamed()) > (n * len(said)) + len(said) // 3)  # type: ignore[misc]
        server.kill()
        time.sleep(0.3)  # noqa: ASYNC251  # the worker goes on meanwhile, and nobody here
        server.start()
    await home.until(lambda: child.settlements)
    assert child.said() == [said, said, said, "Done."]
    assert child.streamed() == "".join(child.said())
    assert [kind for kind, _ in child.settlements] == ["run_succeeded"]


async def test_a_question_outlives_the_service(
    home: TestHome, worker: StartWorker, script: Path, server: ServerProcess
) -> None:
    write_script(script, {"1/1": [[bash("echo yes > yes")], text("Done.")]})
    worker()
    child = await home.delegate("child-1")
    await home.until(lambda: child.asks)
    server.kill()
    server.start()
    await home.answer(child, next(iter(child.asks)), Answer.ALLOW_ONCE)
    await home.until(lambda: child.settlements)
    assert (home.cwd / "yes").exists()
    assert len(child.asks) == 1


async def test_a_killed_workers_child_is_errored_and_another_worker_continues_it(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    task = {"description": "deeper", "prompt": "look deeper"}
    answers = {
        "1/1": [[call("subagent", **task)], [*text("busy"), {"wait": "go"}, *text("!")]],
        "1/1/1": [[*text("deep"), {"wait": "never"}]],
    }
    write_script(script, answers)
    first = worker("w1")
    child = await home.delegate("child-1")
    await home.until(lambda: "busy" in child.streamed() and len(child.logs) == 2)
    nested = child.started()[0].child_id
    await home.until(lambda: child.streamed(nested))
    first.signal(signal.SIGKILL)
    await home.until(lambda: child.settlements, wait_s=LAPSE_S)
    assert [kind for kind, _ in child.settlements] == ["run_errored"]
    release(script, "go")
    await home.wake(child, "go on")
    worker("w2")
    await home.until(lambda: len(child.settlements) == 2)
    assert child.workers == ["w1", "w2"]
    assert child.settlements[1][1].answer == "busy!"  # it was never said to its end before
    assert child.streamed() == "busybusy!"
    assert child.reasons() == [{"kind": "interrupted"}, {"kind": "completed"}]
    left = first.left()
    assert len(left) == 2, "what it could not remove"
    again = first.start()
    await eventually(lambda: again.left() and not set(again.left()) & set(left))


async def test_a_lost_run_is_stopped_at_once_and_nothing_more_is_told(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {"1/1": [[bash(SLEEPS)], text("Never.")]})
    w1 = worker()
    child = await home.delegate("child-1", mode="full")
    await eventually(lambda: lives(home.cwd / "pid"))
    run = await home.client.run(child.run_id)
    end = EventDraft("run_errored", child.run_id, "end", NOW, execution_id=run.execution_id)
    await home.client.publish(child.run_id, [end])
    rows = len(child.log)
    await eventually(lambda: not lives(home.cwd / "pid"))
    await eventually(lambda: "is lost" in w1.log())
    assert len(child.log) == rows
    await home.wake(child, "go on")  # and it takes it again
    await home.until(lambda: len(child.settlements) == 2)


async def test_sigterm_settles_what_runs_and_leaves_no_process(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {"1/1": [[*text("Begun."), bash(SLEEPS)]], "1/2": [[bash("echo", "c2")]]})
    w1 = worker()
    child = await home.delegate("child-1", mode="full")
    asking = await home.delegate("child-2", place="1/2")
    await home.until(lambda: asking.asks and child.streamed())
    await eventually(lambda: lives(home.cwd / "pid"))
    w1.signal(signal.SIGTERM)
    assert w1.wait(STOP_S) == 0
    assert not lives(home.cwd / "pid")
    await home.until(lambda: child.settlements and asking.settlements)
    for one in (child, asking):
        ((kind, settlement),) = one.settlements
        assert (kind, settlement.end.code) == ("run_errored", "WORKER_STOPPED")
        assert one.reasons() == [{"kind": "aborted", "reason": {"kind": "disposed"}}]
    assert child.settlements[0][1].answer == "Begun."
    assert asking.withdrawn == set(asking.asks)
    assert w1.left() == []


async def test_a_second_signal_ends_at_once_and_its_commands_too(
    home: TestHome, worker: StartWorker, script: Path, server: ServerProcess
) -> None:
    write_script(script, {"1/1": [[bash(f"trap '' TERM; {SLEEPS}")]]})
    w1 = worker()
    child = await home.delegate("child-1", mode="full")
    await home.until(lambda: child.rows("tool/call"))
    await eventually(lambda: lives(home.cwd / "pid"))
    server.kill()  # so that it cannot settle
    w1.signal(signal.SIGTERM)
    await eventually(lambda: "Stopped by SIGTERM" in w1.log())
    w1.signal(signal.SIGTERM)
    assert w1.wait(STOP_S / 2) == 128 + signal.SIGTERM
    assert not lives(home.cwd / "pid")
    server.start()


async def test_an_idle_worker_ends_at_once(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {"1/1": [text("Done.")]})
    w1 = worker()
    child = await home.delegate("child-1")
    await home.until(lambda: child.settlements)
    w1.signal(signal.SIGINT)
    assert w1.wait(STOP_S / 2) == 0


async def test_a_worker_that_is_to_outlive_its_terminal_does(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {"1/1": [text("Done.")]})
    w1 = worker().start("nohup")
    child = await home.delegate("child-1")
    await home.until(lambda: child.settlements)
    w1.signal(signal.SIGHUP)
    w1.signal(signal.SIGTERM)
    assert w1.wait(STOP_S / 2) == 0
    log = w1.log()
    assert "Stopped by SIGTERM" in log
    assert "SIGHUP" not in log


async def test_two_workers_share_what_waits_and_keep_their_limits(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    answers = {f"1/{n}": [[*text(f"busy {n}"), {"wait": "go"}]] for n in range(1, 6)}
    write_script(script, answers)
    worker("w1", "--limit", "2")
    worker("w2", "--limit", "2")
    children = [await home.delegate(f"child-{n}", place=f"1/{n}") for n in range(1, 6)]
    await home.until(lambda: sum(bool(child.streamed()) for child in children) == 4)
    running = [child for child in children if child.streamed()]
    assert sorted(child.workers[0] for child in running) == ["w1", "w1", "w2", "w2"]
    assert [run.state for run in await home.client.waiting()] == ["waiting"]
    release(script, "go")
    await home.until(lambda: all(child.settlements for child in children))
    assert all(len(child.workers) == 1 for child in children)


async def test_a_worker_waits_for_a_service_that_is_not_there_yet(
    home: TestHome, worker: StartWorker, script: Path, server: ServerProcess
) -> None:
    write_script(script, {"1/1": [text("Done.")]})
    server.kill()
    w1 = worker()
    await eventually(lambda: "no runs are heard of" in w1.log())
    server.start()
    child = await home.delegate("child-1")
    await home.until(lambda: child.settlements)
