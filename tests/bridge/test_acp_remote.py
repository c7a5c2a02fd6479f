"""Remote children in an editor: both forms, questions, cancel, restarts; and who is a consumer."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from acp_rig import HI, Bench, Editor, said
from fake_models import Said
from family_rig import calls, say
from harness_rig import FakeClient
from remote_rig import Estate, Job, cut_at, estate
from stage_rig import FALLBACK, NATIVE

from acp_bridge.cli import assemble
from acp_bridge.config import Settings
from acp_bridge.subagents.remote_home import RemoteHome
from acp_bridge.vocabulary import Answer, JsonObject, JsonValue, SessionId, TurnEnd

pytestmark = pytest.mark.anyio

FORMS = pytest.mark.parametrize("form", [NATIVE, FALLBACK], ids=["native", "fallback"])

DELEGATE: list[JsonValue] = [
    {
        "tool_call": {
            "id": "d1",
            "name": "subagent",
            "arguments": {"description": "find it", "prompt": "Find the bug."},
        }
    }
]

SECOND: list[JsonValue] = [
    {
        "tool_call": {
            "id": "d2",
            "name": "subagent",
            "arguments": {"description": "more", "prompt": "Look elsewhere."},
        }
    }
]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Estate]:
    async with estate(tmp_path) as made:
        yield made


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "editor").mkdir()
    return Bench(tmp_path / "editor")


def asked(editor: Editor) -> list[JsonObject]:
    found = []
    for message in editor.received:
        if message.get("method") == "session/request_permission":
            assert isinstance(message["params"], dict)
            found.append(message["params"])
    return found


async def questioned(place: Estate) -> Job:
    """A child that asks to run a command, runs it, and ends."""
    job = await place.worker.claim()
    touch = calls(("bash", {"command": "touch made", "description": "make it"}))
    await job.works(touch, say("It is in a.py."), asked=job.relaying())
    await job.tell_new()
    await job.settle(answer="It is in a.py.")
    return job


@FORMS
async def test_a_remote_child_with_a_question_live_and_loaded(
    place: Estate, bench: Bench, form: JsonObject
) -> None:
    """That a load shows what was seen live is what the bench judges."""
    bench.answers(DELEGATE, HI, HI)
    url = place.service.url
    async with bench.editor(form, events=url) as editor:
        root = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(root))
        job = await questioned(place)
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        (question,) = asked(editor)
        assert question["sessionId"] == (job.child_id if form is NATIVE else root)
        call = question["toolCall"]
        assert isinstance(call, dict)
        assert "touch made" in str(call["title"])
        assert (bench.cwd / "made").exists()  # the worker is on the same machine here
        if form is NATIVE:
            assert editor.text(job.child_id) == "It is in a.py."
        await editor.load(root, bench.cwd)
    async with bench.editor(form, events=url) as editor:
        await editor.load(root, bench.cwd)
        assert "It is in a.py." in str(editor.updates())


@FORMS
async def test_a_lost_worker_live_and_loaded(place: Estate, bench: Bench, form: JsonObject) -> None:
    bench.answers(DELEGATE, HI, HI)
    async with bench.editor(form, events=place.service.url) as editor:
        root = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(root))
        job = await place.worker.claim()
        items = await job.works(say("It is in a.py."))
        await job.tell(*items[: cut_at(items, "step/start")])
        place.service.clock.now_ms += 16_000
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        assert "stopped renewing its lease" in str(editor.updates())
        await editor.load(root, bench.cwd)


@FORMS
async def test_a_child_that_ends_before_its_first_turn_live_and_loaded(
    place: Estate, bench: Bench, form: JsonObject
) -> None:
    bench.answers([*DELEGATE, *SECOND], HI, HI, HI)
    async with bench.editor(form, events=place.service.url) as editor:
        root = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(root))
        jobs = [await place.worker.claim(), await place.worker.claim()]
        await jobs[0].settle(TurnEnd("error", "There is no folder /w here.", "WORKER"))
        await jobs[1].settle(TurnEnd("aborted"))
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        await editor.load(root, bench.cwd)
        assert "There is no folder /w here." in str(editor.updates())


@FORMS
async def test_the_editors_cancel_reaches_the_worker(
    place: Estate, bench: Bench, form: JsonObject
) -> None:
    bench.answers(DELEGATE, HI)
    async with bench.editor(form, events=place.service.url) as editor:
        root = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(root))
        job = await place.worker.claim()
        await editor.cancel(root)
        assert await job.heard("cancel")
        await job.settle(TurnEnd("aborted"))
        assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}


async def test_one_child_can_be_cancelled_by_its_own_id(place: Estate, bench: Bench) -> None:
    bench.answers(DELEGATE, HI, HI)
    async with bench.editor(NATIVE, events=place.service.url) as editor:
        root = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(root))
        job = await place.worker.claim()
        await editor.seen_text(job.child_id)
        await editor.cancel(job.child_id)
        assert await job.heard("cancel")
        await job.settle(TurnEnd("aborted"))
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}


@FORMS
async def test_an_editor_that_comes_back_sees_the_child_run_on(
    place: Estate, bench: Bench, form: JsonObject
) -> None:
    bench.answers(DELEGATE, HI, HI)
    url = place.service.url
    async with bench.editor(form, events=url, is_judged=False) as editor:
        root = await editor.new(bench.cwd)
        await editor.start("session/prompt", said(root))
        job = await place.worker.claim()
        items = await job.works(bash_then("true"), say("It is in a.py."), asked=FakeClient(
            Answer.ALLOW_ONCE))  # fmt: skip
        cut = cut_at(items, "tool/call")
        await job.tell(*items[:cut])
        await editor.seen_text("true")
    await job.tell(*items[cut : cut + 2])  # nobody is there
    async with bench.editor(form, events=url, is_judged=False) as editor:
        await editor.load(root, bench.cwd)
        if form is NATIVE:
            await editor.seen(lambda m: '"state": "running"' in json_of(m, job.child_id))
        await job.tell(*items[cut + 2 :])
        await job.settle(answer="It is in a.py.")
        await editor.seen_text("Hi.")  # the notice starts a turn of its own
        await editor.seen_text("It is in a.py.")
        ends = [u for u in editor.updates() if "completed" in str(u) or "end_turn" in str(u)]
        assert ends


def bash_then(command: str) -> Said:
    return calls(("bash", {"command": command, "description": "look"}))


def json_of(message: JsonObject, needed: str) -> str:
    text = json.dumps(message)
    return text if needed in text else ""


# --- consumers ---------------------------------------------------------------------------------


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch) -> list[RemoteHome]:
    """The homes that are made."""
    made: list[RemoteHome] = []
    real = assemble._remote_home

    def noting(settings: Settings) -> RemoteHome | None:
        home = real(settings)
        if home is not None:
            made.append(home)
        return home

    monkeypatch.setattr(assemble, "_remote_home", noting)
    return made


async def test_a_session_is_a_consumer_while_it_is_open(
    place: Estate, bench: Bench, homes: list[RemoteHome]
) -> None:
    """New, load, resume and fork register; close, delete and the connection's end unregister."""
    bench.answers(HI, HI, agent="1")
    bench.answers(HI, agent="2")
    async with bench.editor(events=place.service.url) as editor:
        (home,) = homes

        def consumers(session_id: str) -> int:
            return home.streams.core.consumers_of(SessionId(session_id))

        first = await editor.new(bench.cwd)
        assert consumers(first) == 1
        await editor.prompt(first)
        params: JsonObject = {"sessionId": first, "cwd": str(bench.cwd), "mcpServers": []}
        await editor.load(first, bench.cwd)
        await editor.call("session/resume", params)
        assert consumers(first) == 1  # it is open once, however often it is asked for
        fork = str((await editor.call("session/fork", params))["sessionId"])
        assert consumers(fork) == 1
        await editor.call("session/close", {"sessionId": first})
        assert (consumers(first), consumers(fork)) == (0, 1)
        second = await editor.new(bench.cwd)  # the client switches
        assert (consumers(first), consumers(second)) == (0, 1)
        await editor.call("session/resume", params)
        assert (consumers(first), consumers(second)) == (1, 1)
        await editor.call("session/delete", {"sessionId": fork})
        assert consumers(fork) == 0
        assert not home.streams.core.knows(SessionId(fork))
        # None has a child: none made a connection, nor a request.
        assert home.streams.snapshot().open_connections == 0
        assert (await place.client.status())["homes"] == []
    assert (consumers(first), consumers(second)) == (0, 0)


async def test_the_service_shows_what_is_open(
    place: Estate, bench: Bench, homes: list[RemoteHome]
) -> None:
    bench.answers(DELEGATE, HI, HI)
    async with bench.editor(events=place.service.url) as editor:
        root = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(root))
        job = await place.worker.claim()
        with anyio.fail_after(60):
            while not (told := (await place.client.status())["homes"]):
                await anyio.lowlevel.checkpoint()
        assert isinstance(told, list)
        (one,) = told
        assert isinstance(one, dict)
        assert one["open_connections"] == 1
        assert one["watched_ids"] == 2
        assert one["sessions"] == [
            {
                "session_id": root,
                "role": "parent",
                "consumers": 1,
                "watched_ids": 2,
                "is_connected": True,
            }
        ]
        await job.works(say("ok"))
        await job.tell()
        await job.settle()
        await editor.answer(prompt)
        assert len(homes) == 1
