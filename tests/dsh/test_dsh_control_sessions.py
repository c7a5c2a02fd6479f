"""The control plugin on the real runtime: opening, closing, models, history, forks."""

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from control_rig import Rig, dsh_rig
from dsh_rig import GATE, pieces, text, tool
from session_rows import homes

from acp_bridge.errors import PeerError
from acp_bridge.runtime.dsh.control_types import ModelChoice, Opening
from acp_bridge.sessions import SessionStore
from acp_bridge.vocabulary import JsonObject, SessionId

pytestmark = [pytest.mark.dsh, pytest.mark.process, pytest.mark.anyio]


@pytest.fixture(scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with dsh_rig(tmp_path_factory.mktemp("sessions")) as rig:
        yield rig
    rig.check_quiet()


def store(rig: Rig) -> SessionStore:
    return SessionStore(rig.home / "sessions", clock=lambda: 0)


def opening(rig: Rig, session: str, **more: Any) -> Opening:
    return Opening(SessionId(session), str(rig.cwd), **more)


async def test_a_closed_session_is_whole_on_the_disk_unlocked_and_can_go_on(rig: Rig) -> None:
    session = await rig.open()
    await rig.prompt(session, "first")
    assert await rig.control.close(session)
    told = rig.wire.rows(session)
    with closing(store(rig).open(session)) as writer:  # the lock is free
        assert [event.seq for event in writer.events][: len(told)] == [r["seq"] for r in told]
    assert not await rig.control.close(session)
    assert await rig.control.resume_session(opening(rig, session)) == str(rig.cwd)
    assert await rig.prompt(session, "second") == "completed"
    assert "first" in rig.model.asked(session)


async def test_a_close_ends_a_running_turn_and_its_subagents(rig: Rig) -> None:
    session, other = await rig.open(), await rig.open()
    words = f"work of {session}"
    rig.model.answer(session, tool("d", "subagent", description="d", prompt=words))
    rig.model.answer(session, pieces("half ", GATE))
    rig.model.promise(words, pieces("child ", GATE))
    rig.model.answer(other, pieces("other ", GATE, "whole"))
    for one in (session, other):
        await rig.send(one, "go")
    await rig.wire.until(lambda: bool(rig.wire.children(session)))
    [child] = rig.wire.children(session)
    started = (session, child, other)
    await rig.wire.until(lambda: all(rig.wire.notes("bridge.stream", one) for one in started))
    assert await rig.control.close(session)
    assert rig.wire.ends(session) == rig.wire.ends(child) == ["aborted"]
    rig.model.go(other)
    await rig.wait(other)
    assert rig.wire.ends(other) == ["completed"]


async def test_an_id_is_opened_once(rig: Rig) -> None:
    session = await rig.open()
    with pytest.raises(PeerError, match="already open or opening"):
        await rig.control.open_session(opening(rig, session))
    with pytest.raises(PeerError, match="already open or opening"):
        await rig.control.resume_session(opening(rig, session))


async def test_a_prompt_right_behind_an_opening_waits_for_it(rig: Rig) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(rig.control.open_session, opening(rig, "racing"))
        group.start_soon(rig.send, "racing", "at once")
    await rig.wait("racing")
    assert rig.wire.ends("racing") == ["completed"]


async def test_models_and_their_efforts_are_listed(rig: Rig) -> None:
    models = {one.model: one for one in await rig.control.models()}
    flash = models["deepseek-flash"]
    assert (flash.provider, flash.context_window) == ("deepseek-official", 1_000_000)
    assert flash.efforts == ("off", "low", "high", "max")
    assert flash.default_effort == "high"
    assert (flash.takes_images, models["deepseek-v4-pro"].takes_images) == (True, False)


def asked_with(rig: Rig, session: str) -> tuple[str, str | None]:
    body = rig.model.requests[session][-1]
    return body["model"], body.get("output_config", {}).get("effort")


async def test_a_choice_of_model_holds_from_the_next_step_and_over_a_resume(rig: Rig) -> None:
    session = await rig.open()
    chosen = ModelChoice("deepseek-official", "deepseek-v4-pro", "max")
    rig.model.answer(session, pieces("one ", GATE), tool("t1", "todo_write", todos=[]))
    await rig.send(session, "go")
    await rig.wire.until(lambda: bool(rig.wire.notes("bridge.stream", session)))
    await rig.control.set_model(session, chosen)
    assert (await rig.control.state(session)).model == chosen
    rig.model.go(session)
    await rig.wait(session)
    assert rig.model.requests[session][0]["model"] == "deepseek-flash"
    assert asked_with(rig, session) == ("deepseek-v4-pro", "max")
    await rig.control.close(session)
    await rig.control.resume_session(opening(rig, session))
    await rig.prompt(session)
    assert asked_with(rig, session) == ("deepseek-v4-pro", "max")
    await rig.control.set_model(session, ModelChoice("deepseek-official", "deepseek-flash"))
    await rig.prompt(session)
    assert asked_with(rig, session) == ("deepseek-flash", "high")


async def test_a_session_may_be_opened_with_its_model(rig: Rig) -> None:
    session = await rig.open(model=ModelChoice("deepseek-official", "deepseek-v4-pro", "low"))
    await rig.prompt(session)
    assert asked_with(rig, session) == ("deepseek-v4-pro", "low")


async def test_a_choice_that_cannot_be_is_refused_and_changes_nothing(rig: Rig) -> None:
    session = await rig.open()
    before = (await rig.control.state(session)).model
    for provider, effort in (("nobody", None), ("deepseek-official", "tremendous")):
        with pytest.raises(PeerError):
            await rig.control.set_model(session, ModelChoice(provider, "deepseek-flash", effort))
    assert (await rig.control.state(session)).model == before


async def test_a_title_is_made_one_line_told_and_kept(rig: Rig) -> None:
    session = await rig.open()
    await rig.prompt(session, "a first question")
    assert await rig.control.rename(session, " A better\nname ") == "A better name"
    assert (await rig.control.state(session)).title == "A better name"
    [*_, row] = rig.wire.rows(session, "session/title")
    assert row["data"]["source"] == {"kind": "user"}
    with pytest.raises(PeerError):
        await rig.control.rename(session, "\n")


async def pages(rig: Rig, session: str) -> list[list[JsonObject]]:
    found: list[list[JsonObject]] = []
    at: int | None = 0
    while at is not None:
        page = await rig.control.history(SessionId(session), from_seq=at)
        assert page.header["id"] == session
        found.append(page.rows)
        at = page.next_seq
    return found


async def test_a_history_is_the_same_open_and_cold_and_comes_in_pages(rig: Rig) -> None:
    session = await rig.open()
    rig.model.answer(session, text("x" * 1_500_000))
    await rig.prompt(session, "much")
    await rig.prompt(session, "more")
    live = await pages(rig, session)
    assert len(live) == 2
    assert [row for page in live for row in page] == rig.wire.rows(session)
    await rig.control.close(session)
    assert await pages(rig, session) == live
    empty = await rig.control.history(session, from_seq=1000)
    assert (empty.rows, empty.next_seq) == ([], None)


@pytest.mark.parametrize("source_is", ["open", "busy", "cold"])
async def test_a_fork_has_the_completed_turns_and_goes_its_own_way(
    rig: Rig, source_is: str
) -> None:
    source = await rig.open()
    rig.model.answer(source, text("an old answer"))
    await rig.prompt(source, "an old question")
    last = rig.wire.rows(source, "turn/end")[-1]["seq"]
    if source_is == "busy":
        rig.model.answer(source, pieces("half ", GATE, "whole"))
        await rig.send(source, "a question not yet answered")
        await rig.wire.until(lambda: len(rig.wire.rows(source, "turn/start")) == 2)
    if source_is == "cold":
        await rig.control.close(source)
    fork = f"fork of {source_is}"
    assert await rig.control.fork_session(source, opening(rig, fork)) == last
    assert rig.wire.children(source) == []
    assert await rig.prompt(fork, "a new question") == "completed"
    asked = rig.model.asked(fork)
    assert "an old answer" in asked
    assert "not yet answered" not in asked
    await rig.control.close(SessionId(fork))
    header = store(rig).read_header(fork)
    assert (header.is_seeded, header.parent_session, header.origin) == (True, None, None)
    await rig.control.resume_session(opening(rig, fork))
    assert await rig.prompt(fork, "and on") == "completed"
    if source_is == "busy":
        rig.model.go(source)
        await rig.wait(source)
        assert rig.wire.ends(source) == ["completed", "completed"]


async def test_a_fork_may_be_cut_inside_a_turn_and_may_live_elsewhere(
    rig: Rig, tmp_path: Path
) -> None:
    source = await rig.open()
    rig.model.answer(source, tool("t1", "todo_write", todos=[]))
    await rig.prompt(source, "two steps")
    [call] = rig.wire.rows(source, "tool/call")
    elsewhere = Opening(SessionId("cut"), str(tmp_path))
    await rig.control.fork_session(source, elsewhere, through_seq=call["seq"])
    assert (await rig.control.state(SessionId("cut"))).cwd == str(tmp_path)
    assert await rig.prompt("cut", "go on") == "completed"
    await rig.control.close(SessionId("cut"))
    assert store(rig).read("cut").header.cwd == str(tmp_path)


async def test_a_fork_of_what_was_uploaded_and_its_fork_can_be_resumed(rig: Rig) -> None:
    """The source holds delivery rows: copied as they are they make a fork unreadable."""
    log = Path("sessions/--home-dev-ws_retry--/rt/session.v4.jsonl.zstd")
    (rig.home / log).parent.mkdir(parents=True)
    (rig.home / log).write_bytes((homes() / "retry" / log).read_bytes())
    assert any(event.type.startswith("session-log") for event in store(rig).read("rt").events)
    for source, fork in (("rt", "nested1"), ("nested1", "nested2")):
        await rig.control.fork_session(SessionId(source), opening(rig, fork))
        await rig.control.close(SessionId(fork))
        await rig.control.resume_session(opening(rig, fork))
        assert await rig.prompt(fork, f"in {fork}") == "completed"
    assert "in nested1" in rig.model.asked("nested2")


async def test_what_has_no_turn_or_no_such_row_is_not_forked(rig: Rig) -> None:
    session = await rig.open()
    with pytest.raises(PeerError, match="no completed turn"):
        await rig.control.fork_session(session, opening(rig, "f1"))
    await rig.prompt(session)
    with pytest.raises(PeerError, match="no row 9999"):
        await rig.control.fork_session(session, opening(rig, "f1"), through_seq=9999)
