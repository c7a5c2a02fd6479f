"""Children that a worker executes, as their home's sessions, logs and consumers see them."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from fake_models import Said
from family_rig import LIST, Family, Home, calls, fork, message, say, spawn
from remote_rig import Estate, Job, child_of, cut_at

from acp_bridge.harness.inbox import splice
from acp_bridge.harness.waiting import WaitingPrompt
from acp_bridge.ports import PermissionAsk, StopChunk, TextChunk
from acp_bridge.runevents.model import RUN_BLOCKED, RunId
from acp_bridge.sessions import Header, SessionQuery
from acp_bridge.subagents.catalog import Child, list_children
from acp_bridge.subagents.limits import Limits
from acp_bridge.subagents.messages import task_message
from acp_bridge.subagents.remote_payloads import (
    AskWithdrawnItem,
    Cancel,
    ChildFinishedItem,
    ChildStartedItem,
    GiveMode,
    RowItem,
    Steer,
    cancel_from_json,
    is_for,
    message_from_json,
)
from acp_bridge.vocabulary import (
    Answer,
    CallId,
    ChildFinished,
    ChildProgressed,
    ChildSaid,
    ChildStarted,
    Draft,
    Event,
    RuntimeEvent,
    SessionId,
    TurnEnd,
)

pytestmark = pytest.mark.anyio

DONE = TurnEnd("completed")


async def ended(turn: WaitingPrompt) -> TurnEnd:
    with anyio.fail_after(60):
        return await turn.ended()


async def done(place: Estate, *answers: Said, answer: str | None = None) -> Job:
    """Claim what waits, execute it, and tell all of it."""
    job = await place.worker.claim()
    await job.works(*answers)
    await job.tell()
    await job.settle(answer=answer)
    return job


def shown(told: Sequence[RuntimeEvent]) -> list[object]:
    """What consumers were told of subagents, without ids and times."""
    found: list[object] = []
    for event in told:
        match event:
            case ChildStarted():
                found.append(("started", event.label, event.task, event.call_id))
            case ChildSaid(event=Event() as row):
                found.append((row.seq, row.type))
            case ChildSaid(event=said):
                found.append(said)
            case ChildFinished():
                found.append(("finished", event.end, event.answer))
            case _:
                pass
    return found


def notices(family: Family) -> list[str]:
    """The summaries of the settlements that the root's log holds."""
    found = []
    for data in family.rows(family.root.session_id, "agent/inbox/spliced"):
        inserted = data["inserted"]
        assert isinstance(inserted, list)
        for one in inserted:
            assert isinstance(one, dict)
            source = one["source"]
            assert isinstance(source, dict)
            if source.get("form") == "notice":
                found.append(str(source["summary"]))
    return found


async def test_a_remote_child_is_shown_and_stored_as_a_local_one(
    place: Estate, tmp_path: Path
) -> None:
    root: Sequence[Said] = [spawn("find it", "Find the bug."), say("started"), say("noted")]
    child: Sequence[Said] = [
        calls(("bash", {"command": "true", "description": "look"})),
        say("It is in a.py."),
    ]
    (tmp_path / "local").mkdir()
    async with Home(tmp_path / "local").family({"1": root, "1/1": child}, mode="full") as family:
        assert await family.prompt() == DONE
        local, there = family, child_of(family)
        local_log = [(row.type, row.surface_op) for row in local.log(there)]
    async with place.home.family({"1": root}, mode="full") as family:
        turn = family.admit()
        job = await place.worker.claim()
        assert (job.task.label, job.task.place, job.task.mode) == ("find it", "1/1", "full")
        await job.works(*child)
        await job.tell_new()
        await job.settle(answer="It is in a.py.")
        assert await ended(turn) == DONE
        assert shown(family.told) == shown(local.told)
        assert notices(family) == [one.replace(there, job.child_id) for one in notices(local)]
        ours = [(row.type, row.surface_op) for row in family.log(job.child_id)]
        assert ours == local_log
        (descriptor,) = family.rows(job.child_id, "subagent/descriptor")
        assert (descriptor["provider"], descriptor["mode"]) == ("remote", "continuable")


async def test_who_works_on_a_child_is_told_as_it_comes(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("ok"), say("ok")]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        (waits,) = (n for n, e in enumerate(family.told) if isinstance(e, ChildProgressed))
        started = family.told.index(family.started()[0])
        assert (family.standing(), waits > started) == (["waits for a worker"], True)
        await job.begins("w1")
        await job.progress(RUN_BLOCKED, {})
        await job.begins("no name for\na title")
        await family.until(lambda: len(family.standing()) == 4)
        await job.works(say("done"))
        await job.tell()
        await job.settle()
        assert await ended(turn) == DONE
        assert family.standing()[1:] == ["works on w1", "is blocked", "works"]
        assert "works on" not in str(family.log(job.child_id))


async def test_rows_say_that_a_child_waits_no_more(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("ok"), say("ok")]}) as family:
        turn = family.admit()
        await done(place, say("done"))
        assert await ended(turn) == DONE
        assert family.standing() == ["waits for a worker", "works"]


async def test_a_fork_begins_elsewhere_with_what_was_said(place: Estate) -> None:
    async with place.home.family({"1": [say("Blue."), fork(), say("ok"), say("ok")]}) as family:
        await family.prompt("Which colour?")
        turn = family.admit("Ask somebody.")
        job = await place.worker.claim()
        assert job.task.header.is_seeded
        assert any("Blue." in str(row.data) for row in job.task.events)
        await job.works(say("Red."))
        await job.tell()
        await job.settle()
        assert await ended(turn) == DONE


async def test_a_question_of_a_remote_child_reaches_the_user(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("ok"), say("ok")]}) as family:
        family.client.answers = [Answer.ALLOW_ONCE]
        turn = family.admit()
        job = await place.worker.claim()
        touch = calls(("bash", {"command": "touch x", "description": "make it"}))
        await job.works(touch, asked=job.relaying())
        await job.tell_new()
        await job.settle()
        assert await ended(turn) == DONE
        (ask,) = family.client.asks
        assert (ask.child_id, ask.tool_name) == (job.child_id, "bash")
        (decided,) = family.rows(job.child_id, "approval/decided")
        assert decided["outcome"] == "allowed-once"


async def test_a_question_that_nobody_waits_for_is_taken_back(place: Estate) -> None:
    taken_back = anyio.Event()

    async def never(_ask: PermissionAsk) -> Answer:
        try:
            await anyio.sleep_forever()
        finally:
            taken_back.set()
        raise AssertionError

    async with place.home.family({"1": [spawn(), say("ok"), say("ok")]}) as family:
        family.client.replier = never
        turn = family.admit()
        job = await place.worker.claim()
        async with anyio.create_task_group() as tasks:
            ask = PermissionAsk(CallId("c"), "bash", "runs", None)
            tasks.start_soon(job.ask, ask, "q9")
            await place.until(lambda: family.client.asks)
            await job.tell(AskWithdrawnItem("q9"))
            with anyio.fail_after(60):
                await taken_back.wait()
            tasks.cancel_scope.cancel()
        await job.works(say("done"))
        await job.tell()
        await job.settle()
        assert await ended(turn) == DONE


async def test_the_prompts_cancel_reaches_the_worker(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("started")]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        turn.withdraw()
        (event,) = await job.heard("cancel")
        assert cancel_from_json(event.payload) == Cancel("parent")
        assert is_for(event.payload, job.run.task_id)
        await job.settle(TurnEnd("aborted"))
        assert await ended(turn) == TurnEnd("aborted")
        (finished,) = family.finished()
        assert finished.end == TurnEnd("aborted")


async def test_a_child_that_nobody_took_is_cancelled_at_once(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("started")]}) as family:
        turn = family.admit()
        await place.until(family.started)
        child_id = child_of(family)
        await place.state_of_child(child_id, "waiting")
        turn.withdraw()
        assert await ended(turn) == TurnEnd("aborted")
        assert (await place.client.run(RunId(child_id))).state == "settled"


async def test_an_interrupt_ends_the_turn_alone(place: Estate) -> None:
    async with place.home.family({"1": [spawn()]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        items = await job.works(say("busy"))
        cut = cut_at(items, "turn/start")
        await job.tell(*items[:cut])
        await place.until(lambda: "turn/start" in str(shown(family.told)))
        family.runtime._subagents.interrupt(family.root.session_id, job.child_id)
        (event,) = await job.heard("cancel")
        assert cancel_from_json(event.payload) == Cancel("parent", "turn")
        await job.tell(*items[cut:])
        await job.settle()
        assert await ended(turn) == DONE


async def test_a_running_child_is_steered_and_its_row_is_the_receipt(place: Estate) -> None:
    async with place.home.family({"1": [spawn()]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        service = family.runtime._subagents
        root_id = family.root.session_id
        assert await service.send_message(root_id, CallId("m1"), job.child_id, "And tests?")
        (event,) = await job.heard("new_message")
        told = message_from_json(event.payload)
        assert isinstance(told, Steer)
        assert "And tests?" in str(told.message)
        hold = anyio.Event()
        await job.works([TextChunk(0, "busy"), hold, StopChunk("end_turn")], say("yes"),
                        steered=told.message, hold=hold)  # fmt: skip
        await job.tell()
        await job.settle()
        assert await ended(turn) == DONE
        assert len(family.started()) == 1
        assert len(family.messaged()) == 1
        assert inbox_texts(family, job.child_id).count("And tests?") == 1


def inbox_texts(family: Family, session_id: str) -> list[str]:
    """The last text of each message that came into a session's inbox."""
    found = []
    for data in family.rows(session_id, "agent/inbox/spliced"):
        inserted = data["inserted"]
        assert isinstance(inserted, list)
        for one in inserted:
            assert isinstance(one, dict)
            assert isinstance(one["content"], list)
            block = one["content"][-1]
            assert isinstance(block, dict)
            found.append(str(block["text"]))
    return found


async def test_a_message_that_comes_too_late_wakes_the_child(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("a"), say("b"), say("c")]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        await job.works(say("first"))
        await job.tell()
        service = family.runtime._subagents
        assert await service.send_message(
            family.root.session_id, CallId("m1"), job.child_id, "One more."
        )
        await job.settle()  # it has not read the message
        again = await place.worker.claim()
        assert again.child_id == job.child_id
        assert again.run.task_id != job.run.task_id
        await again.works(say("second"))
        await again.tell()
        await again.settle()
        assert await ended(turn) == DONE
        assert [one.task for one in family.started()] == ["look around", "One more."]
        assert family.started()[1].call_id == CallId("m1")
        assert inbox_texts(family, job.child_id).count("One more.") == 1
        assert len(notices(family)) == 2


async def test_a_new_mode_is_given_to_remote_children(place: Estate) -> None:
    async with place.home.family({"1": [spawn()]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        await family.root.choose("mode", "plan")
        (event,) = await job.heard("new_message")
        assert message_from_json(event.payload) == GiveMode("plan")
        await job.works(say("ok"))
        await job.tell()
        await job.settle()
        assert await ended(turn) == DONE


async def test_a_lost_worker_settles_its_child_which_can_go_on(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("a"), say("b"), say("c")]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        items = await job.works(say("half"))
        await job.tell(*items[: cut_at(items, "step/start")])
        await place.until(lambda: "step/start" in str(shown(family.told)))
        place.service.clock.now_ms += 16_000
        assert await ended(turn) == DONE
        (finished,) = family.finished()
        assert (finished.end.kind, finished.end.code) == ("error", "WORKER_LOST")
        assert "lease" in notices(family)[0]
        kinds = [row.type for row in family.log(job.child_id)]
        assert kinds[-2:] == ["step/end", "turn/end"]
        reason = family.rows(job.child_id, "turn/end")[-1]["reason"]
        assert isinstance(reason, dict)
        assert reason["kind"] == "error"  # a load shows what was told
        # It is woken with all that it did, as after a crash.
        family.model.answers["1"] = [message(job.child_id, "Go on."), say("d"), say("e")]
        turn = family.admit()
        again = await done(place, say("whole"))
        assert [row.type for row in again.task.events][: len(kinds)] == kinds
        assert await ended(turn) == DONE
        assert family.said(job.child_id)[-1] == "whole"


async def test_a_leased_child_counts_as_running(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), LIST, say("a"), say("b")]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        await place.until(lambda: family.results()[1:])
        assert f"{job.child_id} [running]" in family.results()[1]
        assert family.runtime._subagents.is_live(job.child_id)
        await job.works(say("ok"))
        await job.tell()
        await job.settle()
        assert await ended(turn) == DONE
        (child,) = list_children(SessionQuery(family.store), family.root.session_id)
        assert child == Child(job.child_id, "look", "complete")


async def test_what_comes_again_changes_nothing(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("a"), say("b")]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        items = await job.works(say("ok"))
        await job.tell(*items, event_id="first")
        await job.tell(*items, event_id="again")  # as a worker that lost its place would
        await job.settle()
        await job.settle()
        assert await ended(turn) == DONE
        assert len(family.log(job.child_id)) == len(job.task.events) + sum(
            isinstance(item, RowItem) for item in items
        )
        assert len(notices(family)) == 1
        # The service keeps its end alone.
        with anyio.fail_after(60):
            while len(await events_of(place, job.child_id)) > 1:
                await anyio.lowlevel.checkpoint()
        (left,) = await events_of(place, job.child_id)
        assert left == "run_succeeded"


async def events_of(place: Estate, run_id: str) -> list[str]:
    async with place.client.open({RunId(run_id): 0}, epoch=None) as stream:
        batches = stream.batches()
        found = await anext(batches)
        await batches.aclose()
    return [event.event_type for event in found]


async def test_a_gap_in_the_rows_ends_the_child(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("a"), say("b")]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        items = [item for item in await job.works(say("ok")) if isinstance(item, RowItem)]
        await job.tell(*items[:2], *items[3:])
        (event,) = await job.heard("cancel")
        assert cancel_from_json(event.payload).what == "run"
        await job.settle(TurnEnd("aborted"))
        assert await ended(turn) == DONE
        (finished,) = family.finished()
        assert finished.end.kind == "error"
        assert "is missing" in str(finished.end.details)


async def test_children_of_a_remote_child_are_kept_and_shown_too(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("a"), say("b")]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        items = await job.works(say("ok"))
        header = Header(
            "below-1", 5, str(place.home.cwd), delegation_depth=2,
            parent_session=job.child_id, origin="subagent",
        )  # fmt: skip
        below = SessionId("below-1")
        started = ChildStartedItem(
            job.child_id, below, "deeper", "Dig.", CallId("c0"), place.home.cwd, header
        )
        cut = cut_at(items, "step/start")
        rows = await job.has_child(header, [prompt_row("Dig.")], say("dug"))
        await job.tell(*items[:cut], started, *rows[:4])
        await place.until(lambda: len(family.started()) == 2)
        assert below in [one.session_id for one in await family.root.descendants()]
        family.root.cancel_child(below)
        (event,) = await job.heard("cancel")
        assert cancel_from_json(event.payload) == Cancel("user", session_id=below)
        await job.tell(*rows[4:], ChildFinishedItem(job.child_id, below, DONE, "dug"))
        await job.tell(*items[cut:])
        await job.settle()
        assert await ended(turn) == DONE
        assert [one.child_id for one in family.finished()] == [below, job.child_id]
        assert family.said(below) == ["dug"]
        assert [row.type for row in family.log(below)][-1] == "turn/end"


def prompt_row(text: str) -> Draft:
    return splice("next-turn", start=0, inserted=[task_message(text, message_id="task-1")])


async def test_children_below_end_with_a_lost_worker(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("a"), say("b")]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        header = Header(
            "below-1", 5, str(place.home.cwd), delegation_depth=2,
            parent_session=job.child_id, origin="subagent",
        )  # fmt: skip
        below = SessionId("below-1")
        rows = await job.has_child(header, [prompt_row("Dig.")], say("dug"))
        started = ChildStartedItem(
            job.child_id, below, "deeper", "Dig.", CallId("c0"), place.home.cwd, header
        )
        await job.tell(started, *rows[:4])
        await place.until(lambda: len(family.started()) == 2)
        place.service.clock.now_ms += 16_000
        assert await ended(turn) == DONE
        assert [one.child_id for one in family.finished()] == [below, job.child_id]


async def test_a_child_that_is_waited_for_gives_its_answer(place: Estate) -> None:
    answers = {"1": [spawn(wait=True), say("thanks")]}
    async with place.home.family(answers) as family:
        turn = family.admit()
        job = await done(place, say("42"), answer="42")
        assert await ended(turn) == DONE
        assert family.results() == ["42"]
        assert family.rows(job.child_id, "subagent/descriptor") == []


async def test_a_conversation_that_is_too_long_is_refused_with_the_limit(place: Estate) -> None:
    answers = {"1": [spawn(prompt="x" * 4_100_000), say("a"), say("b")]}
    async with place.home.family(answers) as family:
        assert await family.prompt() == DONE
        (finished,) = family.finished()
        assert "longer than 4000000 bytes" in str(finished.end.details)


async def test_a_delegation_limit_holds_for_remote_children(place: Estate) -> None:
    answers = {"1": [spawn(), spawn("two"), say("a"), say("b")]}
    async with place.home.family(answers, limits=Limits(live_max=1)) as family:
        turn = family.admit()
        job = await place.worker.claim()
        await place.until(lambda: family.results()[1:])
        assert "limit" in family.results()[1]
        assert (job.task.depth_max, job.task.live_max) == (3, 1)
        await job.works(say("ok"))
        await job.tell()
        await job.settle()
        assert await ended(turn) == DONE
