"""Held prompts, detached children, and the ends of sessions and processes."""

import anyio
import pytest
from family_rig import (
    LIST,
    Family,
    Home,
    aborted,
    begun,
    held,
    message,
    reasons,
    say,
    spawn,
)
from harness_rig import FakeClient

from acp_bridge.bridge.subagent_history import history
from acp_bridge.errors import InvalidParamsError
from acp_bridge.subagents.limits import Limits
from acp_bridge.vocabulary import (
    ChildFinished,
    ChildSaid,
    Command,
    Draft,
    Event,
    JsonValue,
    SessionId,
    TurnEnd,
)

pytestmark = pytest.mark.anyio


# --- held prompts -------------------------------------------------------------------------------


async def test_a_prompt_is_held_until_its_children_have_settled(home: Home) -> None:
    gate = anyio.Event()
    answers = {"1": [spawn(), say("wait"), say("noted")], "1/1": [held("busy", gate)]}
    async with home.family(answers) as family:
        turn = family.admit()
        await begun(family)
        await family.until(lambda: "wait" in family.own_text())
        await anyio.wait_all_tasks_blocked()
        assert family.root.busy
        gate.set()
        assert (await turn.ended()).kind == "completed"
        assert family.own_text() == "waitnoted"
        assert not family.root.busy


async def test_the_next_prompt_ends_a_held_one_and_starts_at_once(home: Home) -> None:
    gate = anyio.Event()
    answers = {"1": [spawn(), say("wait"), say("hello"), say("noted")], "1/1": [held("busy", gate)]}
    async with home.family(answers) as family:
        first = family.admit()
        await begun(family)
        second = family.admit("next")
        assert (await first.ended()).kind == "completed"
        await family.until(lambda: "hello" in family.own_text())
        assert not family.finished()
        gate.set()
        assert (await second.ended()).kind == "completed"
        assert family.own_text() == "waithellonoted"


async def test_a_command_is_answered_while_a_prompt_is_held(home: Home) -> None:
    gate = anyio.Event()
    answers = {"1": [spawn(), say("wait")], "1/1": [held("busy", gate)]}
    async with home.family(answers) as family:
        turn = family.admit()
        await begun(family)
        with anyio.fail_after(60):
            end = await family.root.admit(Command("mode", "plan")).ended()
        assert end.kind == "completed"
        assert family.root.busy
        gate.set()
        assert (await turn.ended()).kind == "completed"


async def test_detached_children_report_in_turns_of_their_own(home: Home) -> None:
    gate = anyio.Event()
    answers = {"1": [spawn(), say("wait"), say("noted")], "1/1": [held("busy", gate)]}
    async with home.family(answers, detaches=True) as family:
        assert (await family.prompt()).kind == "completed"
        await begun(family)
        assert not family.root.busy
        gate.set()
        await family.until(lambda: "noted" in family.own_text())
        assert len(family.rows(family.root.session_id, "turn/start")) == 2


async def test_a_cancel_between_turns_ends_detached_children_without_a_turn(home: Home) -> None:
    answers = {"1": [spawn(), say("wait")], "1/1": [held("busy", anyio.Event())]}
    async with home.family(answers, detaches=True) as family:
        await family.prompt()
        await begun(family)
        family.root.cancel()
        await family.until(family.finished)
        await anyio.wait_all_tasks_blocked()
        await family.prompt("next")
        assert len(family.rows(family.root.session_id, "turn/start")) == 2
        assert any("was stopped" in text for text in family.model.heard("1"))


@pytest.mark.parametrize("whose", ["root", "child"])
async def test_a_held_child_that_is_cancelled_ends_the_same_live_and_replayed(
    home: Home, whose: str
) -> None:
    """Its own turn is completed, and still its work was stopped."""
    answers = {
        "1": [spawn(), say("wait")],
        "1/1": [spawn(), say("hold")],
        "1/1/1": [held("busy", anyio.Event())],
    }
    async with home.family(answers) as family:
        turn = family.admit()
        await begun(family)
        outer, inner = (one.child_id for one in family.started())
        await family.until(lambda: "completed" in str(ends_told(family, outer)))
        if whose == "root":
            family.root.cancel()
        else:
            family.root.cancel_child(outer)
        await turn.ended()
        live = [(one.child_id, one.end) for one in family.finished()]
        assert live == [(inner, TurnEnd("aborted")), (outer, TurnEnd("aborted"))]
        root_id = family.root.session_id
    async with home.family({}, session_id=root_id) as family:
        past = history(root_id, family.root.events, await family.root.descendants())
        replayed = [(one.child_id, one.end) for one in past if isinstance(one, ChildFinished)]
        assert replayed == live


def ends_told(family: Family, child_id: SessionId) -> list[JsonValue]:
    """The ends of a child's turns, as the consumer was told them."""
    said = (
        one.event for one in family.told if isinstance(one, ChildSaid) and one.child_id == child_id
    )
    return [row.data for row in said if isinstance(row, Event) and row.type == "turn/end"]


# --- ends of sessions and processes -------------------------------------------------------------


async def test_closing_a_session_ends_its_children_first_and_leaves_sound_logs(home: Home) -> None:
    forever = anyio.Event()
    answers = {
        "1": [spawn(), held("root busy", forever)],
        "1/1": [spawn(), held("child busy", forever)],
        "1/1/1": [held("busy", forever)],
    }
    async with home.family(answers) as family:
        turn = family.admit()
        await begun(family)
        await family.until(lambda: "root busy" in family.own_text())
        await family.root.close()
        assert (await turn.ended()).kind == "aborted"
        child, grandchild = (one.child_id for one in family.started())
        for session_id in (family.root.session_id, child, grandchild):
            assert reasons(family, session_id) == [aborted("disposed")]
        home.store.open(grandchild).close()  # its lock is free


async def test_a_child_is_refused_to_clients_while_it_works_and_after(home: Home) -> None:
    gate = anyio.Event()
    async with home.family({"1": [spawn()], "1/1": [held("busy", gate)]}) as family:
        turn = family.admit()
        child_id = await begun(family)
        for _ in range(2):
            with pytest.raises(InvalidParamsError):
                await family.runtime.open_session(child_id, home.cwd, FakeClient())
            with pytest.raises(InvalidParamsError):
                await family.runtime.fork_session(child_id, home.cwd, FakeClient())
            with pytest.raises(InvalidParamsError):
                await family.runtime.delete_session(child_id)
            gate.set()
            await turn.ended()


async def test_deleting_a_session_takes_its_running_children_along(home: Home) -> None:
    answers = {"1": [spawn(), say("w")], "1/1": [held("busy", anyio.Event())]}
    async with home.family(answers) as family:
        family.admit()
        await begun(family)
        await family.runtime.delete_session(family.root.session_id)
        assert family.store.session_ids() == []


async def test_after_a_restart_children_are_complete_and_can_be_messaged(home: Home) -> None:
    async with home.family({"1": [spawn("a"), say("ok"), say("ok")]}) as family:
        await family.prompt()
        root_id, child_id = family.root.session_id, family.started()[0].child_id
    # As a kill leaves it: a turn of the child is open.
    writer = home.store.open(child_id)
    writer.append([Draft("turn/start", {"turn": 2}), Draft("step/start", {"turn": 2, "step": 1})])
    writer.close()
    answers = {"1": [LIST, message(child_id, "go on"), say("ok")], "1/1": [say("here again")]}
    async with home.family(answers, session_id=root_id) as family:
        await family.prompt()
        assert family.results()[-2:] == [
            f"{child_id} [complete] — a",
            f"message delivered to subagent {child_id}, which works again",
        ]
        assert family.finished()[0].answer == "here again"
        assert reasons(family, child_id)[1] == {"kind": "interrupted"}
        assert "here again" in family.model.heard("1")


async def test_a_parent_reopened_has_places_left_for_its_next_children(home: Home) -> None:
    async with home.family({"1": [spawn("a")]}) as family:
        await family.prompt()
        root_id = family.root.session_id
    answers = {"1": [spawn("b")], "1/2": [say("second place")]}
    async with home.family(answers, session_id=root_id) as family:
        await family.prompt()
        assert family.finished()[0].answer == "second place"


async def test_the_limit_of_live_children_counts_woken_ones(home: Home) -> None:
    gate = anyio.Event()
    async with home.family({"1": [spawn("a")]}, limits=Limits(live_max=1)) as family:
        await family.prompt()
        woken = family.started()[0].child_id
        family.model.answers = {
            "1": [spawn("b"), message(woken, "x"), say("ok")],
            "1/2": [held("busy", gate)],
        }
        turn = family.admit()
        await family.until(lambda: any("not delivered" in text for text in family.results()))
        gate.set()
        await turn.ended()
