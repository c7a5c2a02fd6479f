"""Homes that end and begin again, services that are killed or lose their log, and what stays."""

import shutil
import socket
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from family_rig import Family, say, spawn
from remote_rig import Estate, Job, child_of, cut_at, estate, remote_home
from service_rig import served
from serving_process import ServerProcess
from test_remote_children import DONE, inbox_texts, notices

from acp_bridge.ports import PermissionAsk
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.log import open_log
from acp_bridge.runevents.model import RunId
from acp_bridge.sessions import SessionQuery
from acp_bridge.subagents.catalog import Child
from acp_bridge.subagents.elsewhere import PendingRun
from acp_bridge.subagents.ledger import LEDGER_NAME, Ledger
from acp_bridge.subagents.remote_payloads import Relayed, RowItem, message_json
from acp_bridge.vocabulary import Answer, CallId, ChildSaid, Event, SessionId

pytestmark = pytest.mark.anyio


async def left(place: Estate, *, told: str = "step/start") -> tuple[str, Job, int]:
    """A home that ended in the middle of a child's turn: the root, the job, and what was told."""
    async with place.home.family({"1": [spawn(), say("a")]}, leaves=True) as family:
        family.admit()
        job = await place.worker.claim()
        items = await job.works(say("whole"))
        cut = cut_at(items, told)
        await job.tell(*items[:cut])
        await place.until(lambda: told in rows_of(family))
        root_id = family.root.session_id
    return root_id, job, cut


def rows_of(family: Family) -> list[str]:
    """The types of the rows that children told."""
    said = [event.event for event in family.told if isinstance(event, ChildSaid)]
    return [row.type for row in said if isinstance(row, Event)]


def has_rows(family: Family, count: int) -> bool:
    return len(rows_of(family)) >= count


async def settled_notice(place: Estate, family: Family, count: int = 1) -> None:
    def came() -> bool:
        return len(notices(family)) == count and not family.root.busy

    await place.until(came)


async def test_a_home_that_ends_leaves_its_child_at_work_and_hears_the_rest(place: Estate) -> None:
    root_id, job, cut = await left(place)
    assert (await place.client.run(job.run_id)).state == "claimed"
    log = place.home.store.read(job.child_id).events
    assert log[-1].type == "step/start"  # nothing closed its turn
    await job.tell(*job.items[cut:])  # while nobody is at home
    await job.settle()
    async with place.home.family({"1": [say("noted")]}, session_id=root_id) as family:
        await settled_notice(place, family)
        assert [row.type for row in family.log(job.child_id)][-1] == "turn/end"
        assert family.said(job.child_id) == []  # its pieces are past; its message is whole
        assert "has finished" in notices(family)[0]
        await place.until(lambda: family.own_text() == "noted")  # in a turn of its own
    async with place.home.family({}, session_id=root_id) as family:
        assert await family.prompt() == DONE
        assert len(notices(family)) == 1  # it is told once, whatever restarts


async def test_a_child_at_work_is_running_from_the_start_of_the_next_home(place: Estate) -> None:
    root_id, job, cut = await left(place)
    async with place.home.family({"1": [say("noted")]}, session_id=root_id) as family:
        (one,) = await family.root.descendants()
        assert (one.session_id, one.is_running) == (job.child_id, True)
        service = family.runtime._subagents
        (child,) = await service.list_children(SessionId(root_id))
        assert child == Child(job.child_id, "look", "running")
        assert await service.send_message(SessionId(root_id), CallId("m"), job.child_id, "More.")
        assert await job.heard("new_message")
        await job.tell(*job.items[cut:])
        await job.settle()
        again = await place.worker.claim()  # the message came too late for it
        await again.works(say("more"))
        await again.tell()
        await again.settle()
        await settled_notice(place, family, 2)
        assert family.said(job.child_id) == ["more"]


async def test_a_child_that_nobody_took_waits_for_the_next_home_too(place: Estate) -> None:
    async with place.home.family({"1": [spawn(), say("a")]}, leaves=True) as family:
        family.admit()
        await family.until(family.started)
        await place.state_of_child(child_of(family), "waiting")
        root_id = family.root.session_id
    async with place.home.family({"1": [say("noted")]}, session_id=root_id) as family:
        await family.until(lambda: family.standing() == ["waits for a worker"])
        job = await place.worker.claim()
        await job.begins()
        await family.until(lambda: family.standing()[1:] == ["works on w1"])
        await job.works(say("whole"))
        await job.tell()
        await job.settle()
        await settled_notice(place, family)


async def test_an_open_question_is_asked_again_by_the_next_home(place: Estate) -> None:
    asked = anyio.Event()

    async def never(_ask: PermissionAsk) -> Answer:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    answers: list[Answer] = []
    async with anyio.create_task_group() as tasks:

        async def ask(job: Job) -> None:
            answers.append(await job.ask(PermissionAsk(CallId("c"), "bash", "runs", None)))

        async with place.home.family({"1": [spawn(), say("a")]}, leaves=True) as family:
            family.client.replier = never
            family.admit()
            job = await place.worker.claim()
            tasks.start_soon(ask, job)
            with anyio.fail_after(60):
                await asked.wait()
            root_id = family.root.session_id
        async with place.home.family({}, session_id=root_id) as family:
            family.client.answers = [Answer.ALLOW_ALWAYS]
            await place.until(lambda: answers)
            await job.works(say("ok"))
            await job.tell()
            await job.settle()
            await settled_notice(place, family)
            assert len(family.client.asks) == 1
    assert answers == [Answer.ALLOW_ALWAYS]


async def test_a_child_that_was_waited_for_is_ended_when_its_caller_is_gone(place: Estate) -> None:
    async with place.home.family({"1": [spawn(wait=True)]}, leaves=True) as family:
        family.admit()
        job = await place.worker.claim()
        root_id = family.root.session_id
    async with place.home.family({}, session_id=root_id) as family:
        assert await job.heard("cancel")
        await job.settle()
        await place.until(family.finished)
        assert notices(family) == []


async def test_without_its_ledger_a_home_finds_its_children_by_the_service(
    place: Estate, tmp_path: Path
) -> None:
    root_id, job, cut = await left(place)
    for file in (tmp_path / "home").glob(f"{LEDGER_NAME}*"):
        file.unlink()
    await job.tell(*job.items[cut:])
    await job.settle()
    async with place.home.family({}, session_id=root_id) as family:
        await settled_notice(place, family)
        assert [row.type for row in family.log(job.child_id)][-1] == "turn/end"
    for file in (tmp_path / "home").glob(f"{LEDGER_NAME}*"):
        file.unlink()
    async with place.home.family({}, session_id=root_id) as family:
        # All of it comes again, and nothing of it happens again.
        async with EventClient(place.service.url) as client:
            await client.message(RunId(root_id), "m1", message_json(Relayed("hello")))
        await place.until(lambda: "hello" in inbox_texts(family, root_id))
        assert len(notices(family)) == 1
        assert family.started() == []


async def test_a_message_to_a_parent_comes_into_its_inbox_once(place: Estate) -> None:
    root_id, job, _ = await left(place)
    payload = message_json(Relayed("The build is green."))
    await place.client.message(RunId(root_id), "m1", payload, sender=RunId("other"))
    async with place.home.family({}, session_id=root_id, leaves=True) as family:
        await place.until(lambda: "The build is green." in inbox_texts(family, root_id))
        await place.client.message(RunId(root_id), "m1", payload)  # tried again
        await place.client.message(RunId(root_id), "m2", message_json(Relayed("Second.")))
        await place.until(lambda: "Second." in inbox_texts(family, root_id))
        assert inbox_texts(family, root_id).count("The build is green.") == 1
    assert job.child_id


async def test_a_deleted_session_stops_its_children_elsewhere(place: Estate) -> None:
    root_id, job, _ = await left(place)
    async with place.home.runtime(model=None) as runtime:  # type: ignore[arg-type]
        await runtime.delete_session(SessionId(root_id))
        assert await job.heard("cancel")
    assert place.home.store.session_ids() == []


async def test_a_lost_event_log_ends_the_child_with_a_sentence(tmp_path: Path) -> None:
    async with estate(tmp_path) as place:
        root_id, job, _ = await left(place)
    async with open_log(f"sqlite:{tmp_path / 'another.sqlite'}") as log, served(log) as service:
        place.home.remote = lambda: remote_home(service.url, tmp_path)
        async with place.home.family({}, session_id=root_id) as family:
            await settled_notice(place, family)
            assert "knows nothing of it any more" in notices(family)[0]
            assert [row.type for row in family.log(job.child_id)][-2:] == ["step/end", "turn/end"]


async def test_25_a_home_that_crashes_anywhere_has_everything_once_in_the_end(
    place: Estate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is copied at every step of a run: what a crash there would leave behind."""

    async def keep_all(*_: object, **__: object) -> None:
        pass

    monkeypatch.setattr(EventClient, "delivered", keep_all)  # later copies need the events too
    home, copies = tmp_path / "home", list[Path]()

    def crash() -> None:
        copies.append(shutil.copytree(home, tmp_path / f"copy-{len(copies)}"))

    told = Ledger.told

    async def crash_before(ledger: Ledger, run: PendingRun, event_id: str) -> None:
        if len(copies) == copies_before_end:
            crash()  # the parent's log has its notice, and nothing else says so yet
        await told(ledger, run, event_id)

    copies_before_end = -1
    monkeypatch.setattr(Ledger, "told", crash_before)
    answers = {"1": [spawn(), say("a"), say("b")]}
    async with place.home.family(answers, leaves=True) as family:
        turn = family.admit()
        job = await place.worker.claim()
        crash()
        for item in await job.works(say("whole")):
            await job.tell(item)
            if isinstance(item, RowItem):
                wanted = item.event.seq + 1
                await place.until(partial(has_rows, family, wanted))
                crash()
        copies_before_end = len(copies)
        await job.settle(answer="whole")
        with anyio.fail_after(60):
            assert await turn.ended() == DONE
        crash()
        assert len(copies) == copies_before_end + 2
        root_id, whole = family.root.session_id, [row.type for row in family.log(job.child_id)]
    assert len(copies) > 8
    for copy in copies:
        shutil.rmtree(home)
        shutil.copytree(copy, home)
        for _ in range(2):
            async with place.home.family({}, session_id=root_id) as family:
                await settled_notice(place, family)
                assert [row.type for row in family.log(job.child_id)] == whole
                messages = family.rows(job.child_id, "assistant/message")
                assert len(messages) == 1
                await nothing_pending(home, root_id)


async def nothing_pending(home: Path, root_id: str) -> None:
    """Wait until all that was to be told is told."""
    ledger = Ledger(home / LEDGER_NAME)
    with anyio.fail_after(60):
        while await ledger.pending(SessionId(root_id)):
            await anyio.lowlevel.checkpoint()
    await ledger.close()


async def test_a_log_that_is_lost_under_a_home_ends_its_child(
    place: Estate, tmp_path: Path
) -> None:
    async with place.home.family({"1": [spawn(), say("a"), say("b")]}) as family:
        turn = family.admit()
        job = await place.worker.claim()
        place.service.stop.set()
        async with open_log(f"sqlite:{tmp_path / 'another.sqlite'}") as log:
            port = await free(place.service.port)
            async with served(log, port=port):
                with anyio.fail_after(60):
                    assert await turn.ended() == DONE
                assert "knows nothing of it any more" in notices(family)[0]
        assert job.child_id == child_of(family)


async def free(port: int) -> int:
    """The port, once nobody listens on it."""
    with anyio.fail_after(60):
        while True:
            try:
                with socket.create_server(("127.0.0.1", port)):
                    return port
            except OSError:
                await anyio.lowlevel.checkpoint()


@pytest.mark.process
async def test_a_killed_service_loses_and_repeats_nothing(tmp_path: Path) -> None:
    server = ServerProcess(f"sqlite:{tmp_path / 'killed.sqlite'}")
    server.start()
    try:
        async with estate(tmp_path) as place:
            place.home.remote = lambda: remote_home(server.url, tmp_path)
            async with (
                EventClient(server.url) as client,
                place.home.family({"1": [spawn(), say("a"), say("noted")]}) as family,
            ):
                place.worker.client = client
                turn = family.admit()
                job = await place.worker.claim()
                items = await job.works(say("one"))
                for number, item in enumerate(items):
                    await job.tell(item)
                    if number % 5 == 4:
                        server.kill()
                        server.start()
                await job.settle()
                with anyio.fail_after(60):
                    assert await turn.ended() == DONE
                assert len(notices(family)) == 1
                assert child_of(family) == job.child_id
                query = SessionQuery(family.store)
                rows = query.list_events(job.child_id)
                assert [row.type for row in rows][-1] == "turn/end"
                assert family.said(job.child_id) == ["one"]
    finally:
        server.stop()
