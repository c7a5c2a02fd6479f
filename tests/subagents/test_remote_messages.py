"""Messages of other agents to a child that works elsewhere: each comes into its inbox once."""

from pathlib import Path

import anyio
import pytest
from family_rig import Family, say, spawn
from remote_rig import Estate, Job, child_of
from test_remote_children import DONE, done, ended, inbox_texts, notices

from acp_bridge.ports import StopChunk, TextChunk
from acp_bridge.runevents.model import RunId
from acp_bridge.subagents.ledger import LEDGER_NAME
from acp_bridge.subagents.limits import Limits
from acp_bridge.subagents.remote_payloads import Relayed, Steer, message_from_json, message_json
from acp_bridge.vocabulary import CallId

pytestmark = pytest.mark.anyio

ROOT = [spawn(), say("a"), say("b"), say("c")]
OTHER = RunId("other-agent")


async def tell(place: Estate, child_id: str, text: str = "hello", event_id: str = "m1") -> None:
    payload = message_json(Relayed(text))
    await place.client.message(RunId(child_id), event_id, payload, sender=OTHER)


async def works_once_more(place: Estate) -> Job:
    job = await place.worker.claim()
    await job.works(say("more"))
    await job.tell()
    await job.settle()
    return job


def came(family: Family, child_id: str) -> int:
    return inbox_texts(family, child_id).count("hello")


async def test_a_running_child_reads_it_and_knows_whose_it_is(place: Estate) -> None:
    async with place.home.family({"1": ROOT}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        await tell(place, job.child_id)
        _, event = await job.heard("new_message", 2)
        told = message_from_json(event.payload)
        assert isinstance(told, Steer)
        assert event.payload["task_id"] == job.run.task_id
        hold = anyio.Event()
        await job.works([TextChunk(0, "busy"), hold, StopChunk("end_turn")], say("yes"),
                        steered=told.message, hold=hold)  # fmt: skip
        await job.tell()
        await job.settle()
        assert await ended(turn) == DONE
        assert came(family, job.child_id) == 1
        assert "Message from agent other-agent" in str(family.log(job.child_id))
        assert len(family.started()) == 1
        assert family.messaged() == []  # its parent said nothing


async def test_one_that_a_child_did_not_read_wakes_it(place: Estate) -> None:
    async with place.home.family({"1": ROOT}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        await tell(place, job.child_id)
        await job.heard("new_message", 2)
        await job.works(say("first"))
        await job.tell()
        await job.settle()
        again = await works_once_more(place)
        assert await ended(turn) == DONE
        assert again.child_id == job.child_id
        assert came(family, job.child_id) == 1
        assert [(one.task, one.call_id) for one in family.started()[1:]] == [("", CallId(""))]


async def test_a_complete_child_is_woken_by_it(place: Estate) -> None:
    async with place.home.family({"1": ROOT}) as family:
        turn = family.admit()
        job = await done(place, say("first"))
        assert await ended(turn) == DONE
        await tell(place, job.child_id)
        await works_once_more(place)
        await place.until(lambda: len(notices(family)) == 2)
        await place.until(lambda: not family.root.busy)
        assert came(family, job.child_id) == 1


async def test_it_comes_once_whatever_is_lost_and_ends_meanwhile(
    place: Estate, tmp_path: Path
) -> None:
    async with place.home.family({"1": ROOT}) as family:
        turn = family.admit()
        job = await done(place, say("first"))
        assert await ended(turn) == DONE
        root_id = family.root.session_id
    await tell(place, job.child_id)  # nobody is at home
    async with place.home.family({"1": [say("c")]}, session_id=root_id) as family:
        await works_once_more(place)
        await place.until(lambda: len(notices(family)) == 2 and not family.root.busy)
        assert came(family, job.child_id) == 1
    for file in (tmp_path / "home").glob(f"{LEDGER_NAME}*"):
        file.unlink()  # all cursors are lost: it comes again
    async with place.home.family({"1": [say("d")]}, session_id=root_id) as family:
        await tell(place, job.child_id, "another one", "m2")
        await works_once_more(place)
        await place.until(lambda: len(notices(family)) == 3 and not family.root.busy)
        assert came(family, job.child_id) == 1


async def test_over_the_limit_it_waits_for_whatever_wakes_the_child(place: Estate) -> None:
    root = [spawn(), say("a"), say("b"), spawn("more", "Look elsewhere."), say("c"), say("d")]
    async with place.home.family({"1": root}, limits=Limits(live_max=1)) as family:
        turn = family.admit()
        first = await done(place, say("first"))
        assert await ended(turn) == DONE
        turn = family.admit()
        job = await place.worker.claim()
        await tell(place, first.child_id)
        await place.until(lambda: came(family, first.child_id) == 1)
        await job.works(say("second"))
        await job.tell()
        await job.settle()
        assert await ended(turn) == DONE
        assert len(family.started()) == 2
        assert child_of(family) == job.child_id


async def test_a_child_that_was_waited_for_takes_none(place: Estate) -> None:
    async with place.home.family({"1": [spawn(wait=True), say("a")]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        await tell(place, job.child_id)
        await job.works(say("first"))
        await job.tell()
        await job.settle()
        assert await ended(turn) == DONE
        assert came(family, job.child_id) == 0
