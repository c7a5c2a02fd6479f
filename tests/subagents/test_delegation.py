"""Delegation through the whole runtime: what a child is, what its parent and the user are told."""

import inspect
import sys
from pathlib import Path

import anyio
import pytest
from family_rig import Home, calls, fork, held, say, spawn
from harness_rig import FlakyWriter

from acp_bridge.errors import StoreFailedError
from acp_bridge.harness.committer import Committer, Rows
from acp_bridge.harness.session import HarnessSession
from acp_bridge.ports import FailureChunk, PermissionAsk, StopChunk, TextChunk
from acp_bridge.sessions import Header, LogWriter, SessionStore
from acp_bridge.subagents.limits import Limits
from acp_bridge.subagents.tree import descendants
from acp_bridge.vocabulary import (
    Answer,
    ChildSaid,
    ChildStarted,
    Draft,
    Event,
    JsonObject,
    SessionId,
)

pytestmark = pytest.mark.anyio


def kinds(events: list[Event], *, start: str) -> list[str]:
    """Row types from the first ``start`` on."""
    found = [event.type for event in events]
    return found[found.index(start) :]


def texts(data: JsonObject) -> list[str]:
    """The texts of a message."""
    content = data["content"]
    assert isinstance(content, list)
    return [str(block["text"]) for block in content if isinstance(block, dict)]


async def test_a_child_works_beside_its_parent_and_its_end_is_told(home: Home) -> None:
    answers = {
        "1": [spawn("find it", "Find the bug."), say("started"), say("noted")],
        "1/1": [say("It is in a.py.")],
    }
    async with home.family(answers) as family:
        assert (await family.prompt()).kind == "completed"
        (started,), (finished,) = family.started(), family.finished()
        child_id = started.child_id
        assert started == ChildStarted(
            family.root.session_id, child_id, "find it", "Find the bug.", started.call_id, home.cwd
        )
        assert started.call_id == "c0"
        assert finished.answer == "It is in a.py."
        assert family.own_text() == "startednoted"
        assert family.results() == [f"started subagent {child_id}"]
        assert family.model.heard("1")[1:] == [
            (
                f'Subagent {child_id} ("find it") has finished.'
                " It works no more unless you send it a message."
            ),
            "Its last message:",
            "It is in a.py.",
        ]
    header = home.store.read(child_id).header
    assert (header.parent_session, header.origin) == (family.root.session_id, "subagent")
    assert (header.delegation_depth, header.is_seeded) == (1, False)
    assert kinds(family.log(child_id), start="subagent/descriptor") == [
        "subagent/descriptor",
        "sandbox/mode",
        "approval/policy",
        "agent/inbox/spliced",
        "turn/start",
        "agent/inbox/spliced",
        "step/start",
        "system/message",
        "user/message",
        "request/header",
        "request/context",
        "session/title",
        "assistant/message",
        "step/end",
        "turn/end",
    ]
    (row,) = family.rows(family.root.session_id, "subagent/catalog")
    assert row == {
        "version": 0,
        "childId": child_id,
        "childCreatedAt": header.created_at_ms,
        "mode": "continuable",
        "label": "find it",
    }


async def test_a_childs_events_come_in_the_order_of_its_log_after_it_was_announced(
    home: Home,
) -> None:
    async with home.family({"1": [spawn()]}) as family:
        await family.prompt()
        (started,) = family.started()
        place = family.told.index(started)
        said = [e.event for e in family.told[place:] if isinstance(e, ChildSaid)]
        assert [e for e in said if isinstance(e, Event)] == family.log(started.child_id)
        assert not any(isinstance(event, ChildSaid) for event in family.told[:place])


async def test_a_notice_that_comes_while_the_parent_answers_is_taken_at_its_next_step(
    home: Home,
) -> None:
    gate = anyio.Event()
    answers = {
        "1": [spawn(), held("working", gate), say("noted")],
        "1/1": [say("done")],
    }
    async with home.family(answers) as family:
        turn = family.admit()
        await family.until(family.finished)
        await family.until(
            lambda: len(family.rows(family.root.session_id, "agent/inbox/spliced")) == 3
        )
        gate.set()
        assert (await turn.ended()).kind == "completed"
        log = family.log(family.root.session_id)
        assert [event.type for event in log].count("turn/start") == 1
        assert kinds(log, start="subagent/catalog")[4:] == [
            "agent/inbox/spliced",
            "assistant/message",
            "step/end",
            "agent/inbox/spliced",
            "step/start",
            "user/message",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        targets = [
            row["target"] for row in family.rows(family.root.session_id, "agent/inbox/spliced")
        ]
        assert targets == ["next-turn", "next-turn", "next-step", "next-step"]


async def test_a_notice_that_comes_while_the_turn_ends_begins_the_next_one(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, notified = anyio.Event(), anyio.Event()
    commit, notify = Committer.commit, HarnessSession.notify

    async def late(committer: Committer, rows: Rows) -> list[Event]:
        ends = not callable(rows) and rows[-1].type == "turn/end"
        if ends and committer.writer.header.parent_session is None and not notified.is_set():
            gate.set()
            await notified.wait()
            await anyio.wait_all_tasks_blocked()
        return await commit(committer, rows)

    async def noticed(session: HarnessSession, message: JsonObject, *, wakes: bool) -> bool:
        notified.set()
        return await notify(session, message, wakes=wakes)

    monkeypatch.setattr(Committer, "commit", late)
    monkeypatch.setattr(HarnessSession, "notify", noticed)
    async with home.family({"1": [spawn()], "1/1": [held("done", gate)]}) as family:
        await family.prompt()
        rows = family.rows(family.root.session_id, "agent/inbox/spliced")
        assert {str(row["target"]) for row in rows} == {"next-turn"}
        assert len(family.rows(family.root.session_id, "turn/end")) == 2


async def test_a_notice_that_comes_while_a_tool_runs_is_taken_with_the_next_step(
    home: Home,
) -> None:
    answers = {
        "1": [
            spawn(),
            calls(("bash", {"command": "true", "description": "x"})),
            say("noted"),
        ],
        "1/1": [say("done")],
    }
    async with home.family(answers) as family:

        async def answer(_ask: PermissionAsk) -> Answer:
            await family.until(family.finished)
            await family.until(
                lambda: len(family.rows(family.root.session_id, "agent/inbox/spliced")) == 3
            )
            return Answer.REJECT

        family.client.replier = answer
        await family.prompt()
        assert "done" in family.model.heard("1")
        assert len(family.rows(family.root.session_id, "turn/start")) == 1


async def test_children_side_by_side_are_told_of_in_one_turn_or_more_and_none_is_lost(
    home: Home,
) -> None:
    made = ("subagent", {"description": "d", "prompt": "p"})
    answers = {"1": [calls(made, made, made), say("wait")]} | {
        f"1/{n}": [say(f"answer {n}")] for n in (1, 2, 3)
    }
    async with home.family(answers) as family:
        await family.prompt()
        heard = family.model.heard("1")
        assert {"answer 1", "answer 2", "answer 3"} <= set(heard)
        assert len(family.finished()) == 3
        names = [row["childId"] for row in family.rows(family.root.session_id, "subagent/catalog")]
        assert sorted(map(str, names)) == sorted(one.child_id for one in family.started())


async def test_a_call_that_waits_gets_the_answer_and_nobody_else_does(home: Home) -> None:
    answers = {
        "1": [spawn(wait=True), calls(("list_agents", {})), say("done")],
        "1/1": [say("42")],
    }
    async with home.family(answers) as family:
        await family.prompt()
        assert family.results() == ["42", "(no subagents)"]
        (started,) = family.started()
        assert len(family.rows(family.root.session_id, "turn/start")) == 1
        assert family.rows(started.child_id, "subagent/descriptor") == []
        assert family.rows(family.root.session_id, "subagent/catalog")[0]["mode"] == "one-shot"


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ([FailureChunk("it broke", "SERVER")], "failed: it broke"),
        ([TextChunk(0, "half"), StopChunk("max_tokens")], "stopped at its token limit"),
        ([TextChunk(0, "no"), StopChunk("refusal")], "refused to go on"),
    ],
)
@pytest.mark.parametrize("wait", [True, False])
async def test_a_child_that_fails_is_told_of_and_its_sibling_goes_on(
    home: Home,
    end: list[object],
    told: str,
    wait: bool,
) -> None:
    bad = ("subagent", {"description": "bad", "prompt": "p", "wait": wait})
    good = ("subagent", {"description": "good", "prompt": "p", "wait": wait})
    answers = {"1": [calls(bad, good)], "1/1": [end], "1/2": [say("all well")]}
    async with home.family(answers) as family:  # type: ignore[arg-type]
        await family.prompt()
        heard = " ".join([*family.model.heard("1"), *family.results()])
        assert told in heard
        assert "all well" in heard


async def test_children_may_delegate_down_to_the_limit(home: Home) -> None:
    answers = {
        "1": [spawn("one")],
        "1/1": [spawn("two")],
        "1/1/1": [spawn("three")],
        "1/1/1/1": [spawn("four"), say("I do it myself")],
    }
    async with home.family(answers) as family:
        await family.prompt()
        labels = [one.label for one in family.started()]
        assert labels == ["one", "two", "three"]
        assert next(one.answer for one in family.finished()) == "I do it myself"
        deepest = family.started()[-1].child_id
        assert family.results(deepest) == [
            "Error: A subagent here would be at depth 4, and 3 is the limit: do the work yourself."
        ]
        assert family.started()[2].parent_id == family.started()[1].child_id


async def test_more_children_than_the_limit_are_refused_until_one_ends(home: Home) -> None:
    gate = anyio.Event()
    made = ("subagent", {"description": "d", "prompt": "p"})
    answers = {
        "1": [calls(made, made, made), held("wait", anyio.Event()), spawn(), say("ok")],
        "1/1": [held("a", gate)],
        "1/2": [held("b", gate)],
    }
    answers["1"][1] = say("wait")
    async with home.family(answers, limits=Limits(live_max=2)) as family:
        turn = family.admit()
        await family.until(lambda: len(family.started()) == 2)
        gate.set()
        await turn.ended()
        refused = [text for text in family.results() if text.startswith("Error")]
        assert refused == [
            "Error: 2 subagents work already, which is the limit: wait for one to finish."
        ]
        assert len(family.started()) == 3


async def test_permission_is_asked_in_the_childs_name_at_any_depth(home: Home) -> None:
    bash = ("bash", {"command": "true", "description": "x"})
    answers = {
        "1": [calls(("subagent", {"description": "a", "prompt": "p"}), bash)],
        "1/1": [spawn("b"), calls(bash)],
        "1/1/1": [calls(bash)],
    }
    async with home.family(answers) as family:
        seen: list[PermissionAsk] = []
        all_asked = anyio.Event()

        async def answer(ask: PermissionAsk) -> Answer:
            seen.append(ask)
            if len(seen) == 3:
                all_asked.set()
            await all_asked.wait()  # all of them are open at the same time
            return Answer.REJECT if ask.child_id is None else Answer.ALLOW_ONCE

        family.client.replier = answer
        await family.prompt()
        parent, child = (one.child_id for one in family.started())
        assert {ask.child_id for ask in seen} == {None, parent, child}
        assert "rejected" in family.results()[1]
        assert "rejected" not in family.results(parent)[1] + family.results(child)[0]


async def test_a_child_has_its_parents_mode_and_none_of_its_grants(home: Home) -> None:
    write = ("write", {"file_path": "a.txt", "content": "a"})
    answers = {"1": [calls(write), fork("d")], "1/1": [calls(write)]}
    async with home.family(answers) as family:
        family.client.answers = [Answer.ALLOW_ALWAYS, Answer.REJECT]
        await family.prompt()
        assert [ask.child_id for ask in family.client.asks] == [
            None,
            family.started()[0].child_id,
        ]
    async with home.family({"1": [spawn()]}, mode="plan") as family:
        await family.prompt()
        child_id = family.started()[0].child_id
        assert family.rows(child_id, "plan/mode") == [{"active": True}]
        assert family.rows(child_id, "sandbox/mode") == [
            {"mode": "read-only", "source": "delegation"}
        ]
        assert "plan mode" in family.model.requests("1/1")[0].system


async def test_another_folder_is_the_childs_and_is_asked_for_outside_the_workspace(
    home: Home, tmp_path: Path
) -> None:
    inside, outside = home.cwd / "sub", tmp_path / "elsewhere"
    inside.mkdir()
    outside.mkdir()
    answers = {
        "1": [spawn(cwd="sub"), spawn(cwd=str(outside)), spawn(cwd="nowhere"), say("ok")],
    }
    async with home.family(answers) as family:
        family.client.answers = [Answer.REJECT]
        await family.prompt()
        (ask,) = family.client.asks
        assert str(outside) in ask.reason
        (started,) = family.started()
        assert started.cwd == inside
        assert family.results()[1:] == [
            "Error: the user rejected this call. It did not run.",
            f'Error: invalid arguments: property "cwd" is no folder: {home.cwd / "nowhere"}',
        ]


async def test_a_fork_begins_with_the_completed_turns_and_ends_its_seed_before_it_is_described(
    home: Home,
) -> None:
    answers = {
        "1": [say("first"), fork("again", "Go on."), say("ok")],
        "1/1": [say("went on")],
    }
    async with home.family(answers) as family:
        await family.prompt("one")
        await family.prompt("two")
        (started,) = family.started()
        log = family.log(started.child_id)
        header = home.store.read(started.child_id).header
        assert (header.is_seeded, header.origin) == (True, "subagent")
        marks = [event.seq for event in log if event.type == "session/end-seed"]
        assert log[: marks[0]] == family.log(family.root.session_id)[: marks[0]]
        assert log[marks[0]].data == {"inherited": True}
        assert kinds(log[marks[0] :], start="session/end-seed")[:4] == [
            "session/end-seed",
            "subagent/descriptor",
            "sandbox/mode",
            "approval/policy",
        ]
        (row,) = family.rows(started.child_id, "subagent/descriptor")
        assert (row["provider"], row["label"]) == ("fork", "again")
        assert family.model.heard("1/1") == ["one", "Go on."]
        told = [e.event for e in family.told if isinstance(e, ChildSaid)]
        assert next(e.seq for e in told if isinstance(e, Event)) == marks[0] + 1


async def test_a_fork_in_the_first_turn_has_nothing_to_copy(home: Home) -> None:
    async with home.family({"1": [fork("d", "Go.")]}) as family:
        await family.prompt()
        (started,) = family.started()
        assert not home.store.read(started.child_id).header.is_seeded
        assert family.model.heard("1/1") == ["Go."]


async def test_a_child_that_cannot_be_stored_is_a_result_and_the_parent_goes_on(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"1": [spawn(), spawn(), say("then not")]}
    async with home.family(answers) as family:
        store = family.runtime._store
        fails = iter([StoreFailedError("The disk is full.")])

        def create(header: Header) -> LogWriter:
            writer = FlakyWriter.around(SessionStore.create(store, header))
            writer.fail = lambda _drafts: next(fails, None) is not None
            return writer

        monkeypatch.setattr(store, "create", create)
        await family.prompt()
        failed, started = family.results()
        assert failed == "Error: The disk is full."
        assert started.startswith("started subagent")
        assert len(family.started()) == 1


async def test_the_tree_is_there_for_a_replay(home: Home) -> None:
    answers = {
        "1": [spawn("a"), spawn("b", wait=True)],
        "1/1": [spawn("c")],
        "1/1/1": [say("deep")],
    }
    async with home.family(answers) as family:
        await family.prompt()
        found = list(await family.root.descendants())
        assert [(one.label, one.is_running) for one in found] == [
            ("a", False),
            ("c", False),
            ("b", False),
        ]
        assert found[1].parent_id == found[0].session_id
        assert found[0].parent_id == found[2].parent_id == family.root.session_id
        assert list(found[1].events) == family.log(found[1].session_id)
        log = next(home.store._finder.root.rglob(f"*{found[0].session_id}*/session*"))
        log.write_bytes(b"garbage")
        assert [one.label for one in await family.root.descendants()] == ["b"]
        log.unlink()


def test_a_tree_may_be_deeper_than_python_calls_nest(home: Home) -> None:
    depth, frames_max = 200, len(inspect.stack()) + 150
    row = Draft("session/title", {"title": "t", "messageSeqs": [], "source": {"kind": "user"}})
    for number in range(depth):
        header = Header(
            session_id=SessionId(f"s{number}"),
            created_at_ms=number,
            cwd=str(home.cwd),
            delegation_depth=number,
            parent_session=f"s{number - 1}" if number else None,
            origin="subagent" if number else None,
        )
        writer = home.store.create(header)
        writer.append([row])
        writer.close()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(frames_max)
    try:
        found = descendants(home.query, SessionId("s0"))
    finally:
        sys.setrecursionlimit(limit)
    assert [one.session_id for one in found] == [f"s{number}" for number in range(1, depth)]


async def test_where_nobody_delegates_there_are_no_descendants(home: Home) -> None:
    async with home.family({}) as family:
        assert list(await family.root.descendants()) == []
        await family.prompt()
        assert list(await family.root.descendants()) == []
        family.root.cancel_child(SessionId("nobody"))


async def test_a_name_cannot_act_on_the_terminal_that_shows_it(home: Home) -> None:
    answers = {"1": [spawn("\x1b[31mred\x00\nor \u202enot\x9b"), spawn("\x1b\u202e\n"), say("ok")]}
    async with home.family(answers) as family:
        await family.prompt()
        assert [one.label for one in family.started()] == ["[31mred or not"]
        assert "description and prompt must not be empty" in family.results()[-1]


async def test_a_folder_is_asked_for_also_where_the_parent_was_moved_out_of_its_workspace(
    home: Home, tmp_path: Path
) -> None:
    outside = tmp_path / "elsewhere"
    (outside / "deep").mkdir(parents=True)
    answers = {"1": [say("hello"), spawn(cwd="deep"), spawn(), say("ok")]}
    async with home.family(answers, mode="accept-edits") as family:
        await family.prompt()
        await family.root.move(str(outside))
        family.client.answers = [Answer.REJECT]
        await family.prompt()
        (ask,) = family.client.asks
        assert str(outside / "deep") in ask.reason
        (started,) = family.started()
        assert started.cwd == home.cwd


async def test_no_child_works_unasked_where_long_output_is_kept(home: Home) -> None:
    spill = home.folder / "home" / "spill"
    async with home.family({"1": [spawn(cwd=str(spill))]}, mode="accept-edits") as family:
        spill.mkdir(parents=True, exist_ok=True)
        family.client.answers = [Answer.REJECT]
        await family.prompt()
        assert len(family.client.asks) == 1
        assert family.started() == []
