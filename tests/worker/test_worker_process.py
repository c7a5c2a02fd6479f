"""Worker processes, the service as a process, and a small home: a run from claim to settlement."""

from pathlib import Path

import pytest
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

from acp_bridge.subagents.messages import relay_message
from acp_bridge.subagents.remote_payloads import Cancel, GiveMode, Settlement, Steer
from acp_bridge.vocabulary import Answer, SessionId, TurnEnd

pytestmark = [pytest.mark.anyio, pytest.mark.process]


async def test_a_child_works_and_its_home_has_every_row(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {"1/1": [text("I ", "look.")]})
    w1 = worker()
    child = await home.delegate("child-1")
    await home.until(lambda: child.settlements)
    assert child.settlements == [
        ("run_succeeded", Settlement(TurnEnd("completed"), answer="I look."))
    ]
    assert child.said() == [child.streamed()] == ["I look."]
    assert child.reasons() == [{"kind": "completed"}]
    assert child.workers == ["w1"]
    await eventually(lambda: list((w1.home / "worker").glob("*/*")) == [])
    assert "child-1" in w1.log()
    assert "look" not in w1.log()


async def test_a_question_is_asked_through_the_home_and_the_answer_counts(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    answers = [[bash("echo yes > yes")], [bash("echo no > no", "c2")], text("Asked twice.")]
    write_script(script, {"1/1": answers})
    worker()
    child = await home.delegate("child-1")
    await home.until(lambda: child.asks)
    ((first, payload),) = child.asks.items()
    assert (payload.ask.child_id, payload.ask.tool_name) == ("child-1", "bash")
    assert not (home.cwd / "yes").exists()
    await home.answer(child, first, Answer.ALLOW_ONCE)
    await home.until(lambda: len(child.asks) == 2)
    assert (home.cwd / "yes").exists()
    await home.answer(child, list(child.asks)[1], Answer.REJECT)
    await home.until(lambda: child.settlements)
    assert not (home.cwd / "no").exists()
    assert child.withdrawn == set()
    assert len(child.rows("approval/decided")) == 2
    assert child.settlements[0][1].answer == "Asked twice."


async def test_a_cancel_ends_a_child_and_takes_its_question_back(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {"1/1": [[*text("Hm."), bash("echo no > no")]]})
    worker()
    child = await home.delegate("child-1")
    await home.until(lambda: child.asks)
    await home.cancel(child, Cancel("parent"))
    await home.until(lambda: child.settlements)
    assert child.withdrawn == set(child.asks)
    assert child.settlements == [("run_cancelled", Settlement(TurnEnd("aborted"), answer="Hm."))]
    assert child.reasons() == [{"kind": "aborted", "reason": {"kind": "parent"}}]
    assert not (home.cwd / "no").exists()


async def test_a_cancel_of_an_earlier_task_is_not_obeyed(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {"1/1": [text("One."), [*text("Two"), {"wait": "go"}]]})
    child = await home.delegate("child-1")
    worker()
    await home.until(lambda: child.settlements)
    old = child.task_id
    await home.wake(child, "go on")
    await home.cancel(child, Cancel("user"), task_id=old)
    await home.until(lambda: child.streamed() == "One.Two")
    await home.cancel(child, Cancel("user"), task_id=old, event_id="again")
    await home.cancel(child, Cancel("user"), task_id=None, event_id="nobodys")
    await home.until(lambda: len(child.settlements) == 2)
    assert [kind for kind, _ in child.settlements] == ["run_succeeded", "run_cancelled"]
    assert child.said() == ["One.", "Two"]


async def test_an_interrupt_ends_the_turn_and_keeps_the_inbox(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {"1/1": [[*text("busy"), {"wait": "never"}], text("Now that.")]})
    worker()
    child = await home.delegate("child-1")
    await home.until(child.streamed)
    await home.cancel(child, Cancel("parent", what="turn"))
    await home.until(lambda: child.settlements)
    assert child.settlements[0][0] == "run_cancelled"
    assert child.reasons() == [{"kind": "aborted", "reason": {"kind": "parent"}}]
    await home.wake(child, "and now?")
    await home.until(lambda: len(child.settlements) == 2)
    assert child.settlements[1][1].answer == "Now that."


async def test_a_running_child_is_steered(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {"1/1": [[*text("busy"), {"wait": "go"}], text("Heard you.")]})
    worker()
    child = await home.delegate("child-1")
    await home.until(child.streamed)
    message = relay_message("look left", sender=SessionId("parent"), message_id="left")
    await home.say(child, Steer(message), "steer-1")
    put = "agent/inbox/spliced"
    await home.until(lambda: any("look left" in str(row) for row in child.rows(put)))
    release(script, "go")
    await home.until(lambda: child.settlements)
    assert child.said() == ["busy", "Heard you."]
    assert [row for row in child.rows("user/message") if row["id"] == "left"] == [message]


async def test_a_mode_is_given_to_a_running_child(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {"1/1": [[*text("busy"), {"wait": "go"}, bash("echo yes > yes")]]})
    worker()
    child = await home.delegate("child-1")
    await home.until(child.streamed)
    await home.say(child, GiveMode("full"), "mode-1")
    await home.until(
        lambda: {"policy": "never", "source": "delegation"} in child.rows("approval/policy")
    )
    release(script, "go")
    await home.until(lambda: child.settlements)
    assert child.asks == {}
    assert (home.cwd / "yes").exists()


async def test_its_own_subagents_are_told_of_with_all_their_rows(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    task = {"description": "deeper", "prompt": "look deeper"}
    answers = {
        "1/1": [text("Before."), [call("subagent", **task)], [call("subagent_fork", "c2", **task)],
                text("Waiting."), *[text("More.")] * 4],
        "1/1/1": [[*text("Deep."), bash("echo deep > deep")], text("Deeper.")],
        "1/1/2": [text("Forked.")],
    }  # fmt: skip
    write_script(script, answers)
    worker()
    child = await home.delegate("child-1")
    await home.until(lambda: child.settlements)  # a turn that its fork can begin with
    await home.wake(child, "delegate")
    await home.until(lambda: child.asks and len(child.started()) == 2)
    ((ask_id, payload),) = child.asks.items()
    spawned, forked = child.started()
    assert payload.ask.child_id == spawned.child_id
    assert (spawned.parent_id, spawned.label, spawned.task) == ("child-1", "deeper", "look deeper")
    assert (spawned.header.delegation_depth, spawned.header.origin) == (2, "subagent")
    await home.answer(child, ask_id, Answer.ALLOW_ONCE)
    await home.until(lambda: len(child.settlements) == 2)
    assert (home.cwd / "deep").exists()
    assert child.said(spawned.child_id) == ["Deep.", "Deeper."]
    assert child.said(forked.child_id) == ["Before.", "Forked."]  # its seed is in its log
    assert {(one.child_id, one.end.kind, one.answer) for one in child.finished()} == {
        (spawned.child_id, "completed", "Deeper."),
        (forked.child_id, "completed", "Forked."),
    }


async def test_a_cancel_reaches_a_subagent_of_its_own_alone(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    task = {"description": "deeper", "prompt": "look deeper"}
    answers = {
        "1/1": [[call("subagent", **task)], text("Waiting."), text("It was stopped.")],
        "1/1/1": [[*text("Deep"), {"wait": "never"}]],
    }
    write_script(script, answers)
    worker()
    child = await home.delegate("child-1")
    await home.until(lambda: child.started() and child.streamed(child.started()[0].child_id))
    await home.cancel(child, Cancel("user", session_id=child.started()[0].child_id))
    await home.until(lambda: child.settlements)
    assert [one.end.kind for one in child.finished()] == ["aborted"]
    assert child.settlements[0][1] == Settlement(TurnEnd("completed"), "It was stopped.")


async def test_a_subagent_of_its_own_that_is_woken_goes_on_with_its_log(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    task = {"description": "deeper", "prompt": "look deeper"}
    wake = call("send_message", "m1", agent_id="{{subagent 1}}", message="once more")
    answers = {
        "1/1": [
            [call("subagent", **task)],
            text("Waiting."),
            [wake],
            text("Again."),
            text("Done."),
        ],
        "1/1/1": [text("Deep."), text("Deeper.")],
    }
    write_script(script, answers)
    worker()
    child = await home.delegate("child-1")
    await home.until(lambda: child.settlements)
    first, second = child.started()
    assert (first.child_id, first.header) == (second.child_id, second.header)
    assert second.task == "once more"
    assert child.said(first.child_id) == ["Deep.", "Deeper."]
    assert [one.answer for one in child.finished()] == ["Deep.", "Deeper."]
    assert child.settlements[0][1].answer == "Done."


async def test_the_commands_of_a_child_do_not_see_the_workers_token(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {"1/1": [[bash("env > env")], text("Done.")]})
    worker("w1", ACP_BRIDGE_EVENTS_TOKEN="secret-token")
    child = await home.delegate("child-1", mode="full")
    await home.until(lambda: child.settlements)
    seen = (home.cwd / "env").read_text()
    assert "PATH=" in seen
    assert "secret-token" not in seen


# --- what cannot work here ---------------------------------------------------------------------


async def test_a_folder_that_is_not_here_is_said(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {})
    worker()
    child = await home.delegate("child-1", cwd=home.cwd / "elsewhere")
    await home.until(lambda: child.settlements)
    ((kind, settlement),) = child.settlements
    assert (kind, settlement.end.code) == ("run_errored", "FOLDER_MISSING")
    assert f"The worker w1 has no folder {home.cwd}/elsewhere" in str(settlement.end.details)


async def test_a_model_that_is_not_here_is_said(home: TestHome, worker: StartWorker) -> None:
    worker("w1", "--model", "anthropic:some")
    child = await home.delegate("child-1")
    await home.until(lambda: child.settlements)
    ((kind, settlement),) = child.settlements
    assert (kind, settlement.end.code) == ("run_errored", "MODEL_UNAVAILABLE")
    assert "cannot use the model anthropic:some" in str(settlement.end.details)


async def test_a_task_that_cannot_be_read_is_said(
    home: TestHome, worker: StartWorker, script: Path
) -> None:
    write_script(script, {})
    worker()
    child = await home.delegate("child-1", spoil={"rows": [{"type": "turn/start"}]})
    await home.until(lambda: child.settlements)
    child_2 = await home.delegate("child-2", spoil={"version": 9})
    await home.until(lambda: child_2.settlements)
    for one, words in ((child, "task.rows[0]"), (child_2, "use the same acp-bridge")):
        ((kind, settlement),) = one.settlements
        assert (kind, settlement.end.code) == ("run_errored", "TASK_UNREADABLE")
        assert words in str(settlement.end.details)
