"""Messages, interrupts, cancels, restarts: who may do what to a child, and what becomes of it."""

from collections.abc import Sequence

import anyio
import pytest
from family_rig import (
    LIST,
    Cast,
    Family,
    Home,
    aborted,
    begun,
    calls,
    check,
    fork,
    held,
    interrupt,
    message,
    reasons,
    say,
    spawn,
)
from harness_rig import FakeClient

from acp_bridge.errors import StoreFailedError, SubagentRefusedError
from acp_bridge.harness.desk import ToolBox
from acp_bridge.harness.inbox import Target
from acp_bridge.harness.session import HarnessSession
from acp_bridge.ports import TextChunk, ToolContext
from acp_bridge.sessions import LogWriter
from acp_bridge.subagents import refusals
from acp_bridge.subagents.service import SubagentService
from acp_bridge.subagents.tools import ListAgentsTool, SendMessageTool
from acp_bridge.vocabulary import (
    CallId,
    ChildFinished,
    ChildMessaged,
    Draft,
    Event,
    JsonObject,
    SessionId,
    TurnEnd,
)

pytestmark = pytest.mark.anyio


# --- messages -----------------------------------------------------------------------------------


async def test_a_running_child_reads_a_message_before_its_next_step(home: Home) -> None:
    gate, asked = anyio.Event(), anyio.Event()
    answers = {
        "1": [spawn(), held("w", asked)],
        "1/1": [held("busy", gate), say("as you wish")],
    }
    async with home.family(answers) as family:
        turn = family.admit()
        child_id = await begun(family)
        family.model.answers["1"] = [message(child_id, "Do it in Rust."), LIST, say("ok")]
        asked.set()
        await turn_of(family, "Tell it.")
        gate.set()
        assert (await turn.ended()).kind == "completed"
        await family.until(family.finished)
        assert family.results()[1:] == [
            f"message delivered to running subagent {child_id}",
            f"{child_id} [running] — look",
        ]
        (messaged,) = family.messaged()
        assert messaged == ChildMessaged(
            family.root.session_id, child_id, CallId("c0"), "Do it in Rust."
        )
        assert family.model.heard("1/1")[-2:] == [
            f"Message from agent {family.root.session_id}:",
            "Do it in Rust.",
        ]
        assert len(family.rows(child_id, "turn/start")) == 1
        (finished,) = family.finished()
        assert finished.answer == "as you wish"


async def turn_of(family: Family, text: str) -> TurnEnd:
    """A prompt that ends the held one; returns when its first turn is over."""
    turns = len(family.rows(family.root.session_id, "turn/end"))
    family.admit(text)
    await family.until(lambda: len(family.rows(family.root.session_id, "turn/end")) > turns + 1)
    return TurnEnd("completed")


async def test_a_complete_child_works_again_with_what_it_knew(home: Home) -> None:
    answers = {"1": [spawn("name", "task"), say("ok"), say("noted")], "1/1": [say("first")]}
    async with home.family(answers) as family:
        await family.prompt()
        child_id = family.started()[0].child_id
        family.model.answers["1"] = [message(child_id, "more"), LIST, say("x")]
        family.model.answers["1/1"] = [say("second")]
        await family.prompt()
        assert family.results()[1] == f"message delivered to subagent {child_id}, which works again"
        assert [one.task for one in family.started()] == ["task", "more"]
        assert [one.label for one in family.started()] == ["name", "name"]
        assert [one.answer for one in family.finished()] == ["first", "second"]
        log = [event.type for event in family.log(child_id)]
        assert log.count("subagent/descriptor") == 1
        again = log[log.index("session/end-seed") :]
        assert again[:6] == [
            "session/end-seed",
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "step/start",
            "user/message",
        ]
        assert [row["target"] for row in family.rows(child_id, "agent/inbox/spliced")] == [
            "next-turn",
            "next-turn",
            "next-step",
            "next-step",
        ]
        assert family.rows(child_id, "user/message")[-1]["source"] == {
            "kind": "agent-message",
            "form": "relay",
            "senderSessionId": family.root.session_id,
        }


async def test_two_messages_at_once_to_a_complete_child_make_one_activation(home: Home) -> None:
    async with home.family({"1": [spawn()]}) as family:
        await family.prompt()
        child_id = family.started()[0].child_id
        one = ("send_message", {"agent_id": child_id, "message": "one"})
        two = ("send_message", {"agent_id": child_id, "message": "two"})
        family.model.answers["1"] = [calls(one, two)]
        await family.prompt()
        assert len(family.started()) == 2
        assert {"one", "two"} <= set(family.model.heard("1/1"))
        assert sorted(text.split()[-1] for text in family.results()[1:]) == ["again", child_id]


async def test_messages_to_others_are_not_delivered_and_the_result_says_so(home: Home) -> None:
    answers = {
        "1": [spawn("a"), spawn("b", wait=True), say("ok")],
        "1/1": [spawn("c")],
    }
    async with home.family(answers) as family:
        await family.prompt()
        mine, grandchild, one_shot = (
            next(one.child_id for one in family.started() if one.label == label)
            for label in ("a", "c", "b")
        )
        stranger = await family.runtime.new_session(home.cwd, FakeClient())
        family.model.answers["1"] = [
            message("nobody", "x"),
            message(one_shot, "x"),
            message(grandchild, "x"),
            message(family.root.session_id, "x"),
            message(stranger.session_id, "x"),
            message(mine, " "),
        ]
        before = {name: family.log(name) for name in (one_shot, grandchild)}
        await family.prompt()
        not_delivered = "Error: the message was not delivered. "
        assert family.results()[-6:] == [
            f"{not_delivered}Subagent nobody cannot be read: Session not found: nobody",
            (
                f"{not_delivered}Subagent {one_shot} was asked for one answer only and takes no"
                " messages."
            ),
            f"{not_delivered}Session {grandchild} is no subagent of this session.",
            f"{not_delivered}Session {family.root.session_id} is no subagent of this session.",
            f"{not_delivered}Session {stranger.session_id} is no subagent of this session.",
            'Error: invalid arguments: property "message" must not be empty',
        ]
        assert {name: family.log(name) for name in before} == before


async def test_a_fork_of_the_parent_has_no_say_over_its_children(home: Home) -> None:
    async with home.family({"1": [spawn()]}) as family:
        await family.prompt()
        child_id = family.started()[0].child_id
        twin = await family.runtime.fork_session(family.root.session_id, home.cwd, FakeClient())
        service = family.runtime._subagents
        assert await service.list_children(twin.session_id) == []
        with pytest.raises(SubagentRefusedError) as refused:
            await service.send_message(twin.session_id, CallId("c"), child_id, "x")
        assert refused.value.refusal_code == refusals.NOT_YOURS


async def test_a_child_may_not_message_its_parent_or_a_sibling(home: Home) -> None:
    made = ("subagent", {"description": "d", "prompt": "p"})
    gate = anyio.Event()
    answers = {"1": [calls(made, made), say("ok")], "1/1": [held("busy", gate)], "1/2": [say("x")]}
    async with home.family(answers) as family:
        turn = family.admit()
        child_id = await begun(family)
        await family.until(lambda: len(family.started()) == 2)
        sibling = next(one.child_id for one in family.started() if one.child_id != child_id)
        service = family.runtime._subagents
        for other in (family.root.session_id, sibling):
            with pytest.raises(SubagentRefusedError) as refused:
                await service.send_message(child_id, CallId("c"), other, "x")
            assert refused.value.refusal_code == refusals.NOT_YOURS
        gate.set()
        await turn.ended()


async def test_a_child_that_is_open_in_another_program_is_not_taken_over(home: Home) -> None:
    async with home.family({"1": [spawn()]}) as family:
        await family.prompt()
        child_id = family.started()[0].child_id
        other = home.store.open(child_id)
        before = family.log(child_id)
        with pytest.raises(SubagentRefusedError) as refused:
            await family.runtime._subagents.send_message(
                family.root.session_id, CallId("c"), child_id, "x"
            )
        assert refused.value.refusal_code == refusals.CONFLICT
        assert family.log(child_id) == before
        other.close()
        assert family.runtime._subagents.sessions() == []


async def test_a_child_whose_provider_is_not_registered_is_listed_and_not_woken(home: Home) -> None:
    async with home.family({"1": [fork("f")]}) as family:
        await family.prompt()
        child_id = family.started()[0].child_id
        family.runtime._subagents._providers = {}
        family.model.answers["1"] = [LIST, message(child_id, "x"), spawn()]
        await family.prompt()
        assert family.results()[1:] == [
            f"{child_id} [complete] — f",
            (
                "Error: the message was not delivered. There is no provider 'fork' of subagents in"
                " this runtime."
            ),
            "Error: There is no provider 'spawn' of subagents in this runtime.",
        ]


async def test_a_woken_child_has_its_parents_permission_of_now(home: Home) -> None:
    async with home.family({"1": [spawn()]}, mode="full") as family:
        await family.prompt()
        child_id = family.started()[0].child_id
        await family.root.choose("mode", "plan")
        family.model.answers["1"] = [message(child_id, "x")]
        await family.prompt()
        assert family.rows(child_id, "sandbox/mode")[-1]["mode"] == "read-only"
        assert family.rows(child_id, "plan/mode") == [{"active": True}]


# --- interrupts and cancels ---------------------------------------------------------------------


async def test_an_interrupt_ends_the_turn_and_the_parent_is_told(home: Home) -> None:
    asked = anyio.Event()
    answers = {"1": [spawn(), held("w", asked)], "1/1": [held("busy", anyio.Event())]}
    async with home.family(answers) as family:
        turn = family.admit()
        child_id = await begun(family)
        family.model.answers["1"] = [interrupt(child_id), say("ok"), say("noted")]
        asked.set()
        assert (await family.prompt("next")).kind == "completed"
        await turn.ended()
        assert family.results()[1] == f"interrupt requested for subagent {child_id}"
        assert reasons(family, child_id) == [aborted("parent")]
        (finished,) = family.finished()
        assert (finished.end.kind, finished.answer) == ("aborted", "busy")
        assert any("was stopped before it was done" in text for text in family.model.heard("1"))
        family.model.answers["1"] = [interrupt(child_id), interrupt("nobody")]
        await family.prompt()
        assert family.results()[-2:] == [
            f"Error: No turn of subagent {child_id} runs now: there is nothing to interrupt.",
            "Error: No turn of subagent nobody runs now: there is nothing to interrupt.",
        ]


async def test_an_interrupt_keeps_the_messages_that_were_not_read(home: Home) -> None:
    async with home.family({"1": [spawn()], "1/1": [held("busy", anyio.Event())]}) as family:
        turn = family.admit()
        child_id = await begun(family)
        service, root_id = family.runtime._subagents, family.root.session_id
        assert await service.send_message(root_id, CallId("m"), child_id, "later")
        service.interrupt(root_id, child_id)
        await turn.ended()
        assert len(family.rows(child_id, "turn/start")) == 1
        assert not await service.send_message(root_id, CallId("n"), child_id, "now")
        await family.until(lambda: len(family.finished()) == 2)
        heard = family.model.heard("1/1")
        assert heard.index("later") < heard.index("now")


async def test_a_message_right_after_an_interrupt_sets_the_child_to_work(home: Home) -> None:
    answers = {"1": [spawn()], "1/1": [held("busy", anyio.Event()), say("Rust it is")]}
    async with home.family(answers) as family:
        turn = family.admit()
        child_id = await begun(family)
        service, root_id = family.runtime._subagents, family.root.session_id
        service.interrupt(root_id, child_id)
        assert await service.send_message(root_id, CallId("m"), child_id, "Rust instead")
        await turn.ended()
        (finished,) = family.finished()
        assert (finished.end.kind, finished.answer) == ("completed", "Rust it is")


async def test_a_cancel_ends_children_first_and_starts_no_turn(home: Home) -> None:
    forever = anyio.Event()
    answers = {
        "1": [spawn("a"), held("root busy", forever)],
        "1/1": [spawn("b"), held("child busy", forever)],
        "1/1/1": [held("busy", forever)],
    }
    async with home.family(answers) as family:
        turn = family.admit()
        await begun(family)
        await family.until(lambda: "root busy" in family.own_text())
        family.root.cancel()
        assert (await turn.ended()).kind == "aborted"
        assert family.runtime._subagents.sessions() == []
        child, grandchild = (one.child_id for one in family.started())
        assert [one.child_id for one in family.finished()] == [grandchild, child]
        assert reasons(family, family.root.session_id) == [aborted("user")]
        assert reasons(family, child) == [aborted("parent")]
        assert reasons(family, grandchild) == [aborted("parent")]
        asked = len(family.model.asked)
        await anyio.wait_all_tasks_blocked()
        assert len(family.model.asked) == asked
        family.model.answers["1"] = [say("yes?")]
        await family.prompt("still there?")
        heard = family.model.heard("1")
        assert heard[-1] == "still there?"
        assert any("was stopped before it was done" in text for text in heard)
        assert len(family.rows(family.root.session_id, "turn/start")) == 2


async def test_a_withdrawn_prompt_takes_its_children_along(home: Home) -> None:
    answers = {"1": [spawn(), say("ok")], "1/1": [held("busy", anyio.Event())]}
    async with home.family(answers) as family:
        turn = family.admit()
        child_id = await begun(family)
        await family.until(lambda: reasons(family, family.root.session_id))
        turn.withdraw()
        assert (await turn.ended()).kind == "aborted"
        assert reasons(family, child_id) == [aborted("parent")]
        assert reasons(family, family.root.session_id) == [{"kind": "completed"}]


async def test_a_waiting_call_that_is_cancelled_takes_its_child_along(home: Home) -> None:
    answers = {"1": [spawn(wait=True)], "1/1": [held("busy", anyio.Event())]}
    async with home.family(answers) as family:
        turn = family.admit()
        child_id = await begun(family)
        family.root.interrupt("parent")  # as a parent ends one turn, not the work for it
        assert (await turn.ended()).kind == "aborted"
        assert reasons(family, child_id) == [aborted("parent")]


async def test_accepted_work_survives_the_end_of_the_turn_that_asked_for_it(home: Home) -> None:
    gate = anyio.Event()
    answers = {"1": [spawn(), held("w", anyio.Event()), say("noted")], "1/1": [held("busy", gate)]}
    async with home.family(answers) as family:
        turn = family.admit()
        await begun(family)
        await family.until(lambda: "w" in family.own_text())
        assert family.root.interrupt("parent")
        gate.set()
        assert (await turn.ended()).kind == "completed"
        (finished,) = family.finished()
        assert finished.answer == "busy"
        assert family.own_text().endswith("noted")


async def test_the_user_may_end_one_child_and_the_parent_goes_on(home: Home) -> None:
    forever = anyio.Event()
    answers = {
        "1": [spawn(), say("ok"), say("then I do it")],
        "1/1": [spawn("below"), held("child busy", forever)],
        "1/1/1": [held("busy", forever)],
    }
    async with home.family(answers) as family:
        turn = family.admit()
        await begun(family)
        await begun(family, "child busy")
        child, grandchild = (one.child_id for one in family.started())
        family.root.cancel_child(SessionId("nobody"))
        family.root.cancel_child(child)
        assert (await turn.ended()).kind == "completed"
        assert family.own_text() == "okthen I do it"
        assert reasons(family, child) == [aborted("user")]
        assert reasons(family, grandchild) == [aborted("parent")]


async def test_a_sessions_children_cannot_be_ended_by_another_root(home: Home) -> None:
    gate = anyio.Event()
    async with home.family({"1": [spawn()], "1/1": [held("busy", gate)]}) as family:
        turn = family.admit()
        child_id = await begun(family)
        other = await family.runtime.new_session(home.cwd, FakeClient())
        other.cancel_child(child_id)
        gate.set()
        await turn.ended()
        assert family.finished()[0].end.kind == "completed"


# --- loading ------------------------------------------------------------------------------------


async def test_listing_needs_a_query_and_messaging_does_not(home: Home) -> None:
    async with home.runtime(Cast({})) as runtime:
        service = SubagentService(
            runtime,
            store=home.store,
            query=None,
            catalog=runtime._catalog,
            clock=home.clock,
            new_id=home.new_id,
        )
        with pytest.raises(SubagentRefusedError) as refused:
            ListAgentsTool(service)
        assert refused.value.refusal_code == "SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE"
        assert refused.value.data() == {
            "details": refused.value.details,
            "refusalCode": refused.value.refusal_code,
        }
        with pytest.raises(SubagentRefusedError) as refused:
            await service.list_children(None)  # before anything: the caller is not even looked at
        assert refused.value.refusal_code == refusals.QUERY_UNAVAILABLE
        assert list(await service.descendants(SessionId("s"))) == []
        assert SendMessageTool(service).name == "send_message"


async def test_a_call_of_no_session_is_refused(home: Home) -> None:
    async with home.family({}) as family:
        await family.prompt()
        context = ToolContext(
            cwd=home.cwd,
            files=family.root._desk.files,
            emit=lambda _text: None,
            spill_dir=home.folder,
            env={},
            flow=family.client.flow,
        )
        for name, arguments in (
            ("list_agents", {}),
            ("send_message", {"agent_id": "x", "message": "y"}),
            ("interrupt_agent", {"agent_id": "x"}),
            ("subagent", {"description": "d", "prompt": "p"}),
        ):
            result = await family.root._desk.tools[name].run(dict(arguments), context)
            assert result.is_error
            assert result.error_code == refusals.CALLER_MISSING
            assert "No session calls" in result.text


async def test_an_unloaded_tool_is_gone_from_the_next_request(home: Home) -> None:
    async with home.family({}) as family:
        box = family.root._desk.tools
        assert isinstance(box, ToolBox)
        unload = box.add(ListAgentsTool(family.runtime._subagents))
        await family.prompt()
        unload()
        unload()
        family.model.answers["1"] = [LIST]
        await family.prompt()
        offered = [[str(tool["name"]) for tool in one.tools] for one in family.model.asked]
        assert "list_agents" in offered[0]
        assert "list_agents" not in offered[1]
        assert family.results() == ['Error: unknown tool "list_agents"']


async def test_the_end_of_a_child_is_told_before_the_prompt_is_answered(home: Home) -> None:
    async with home.family({"1": [spawn()]}) as family:
        turn = family.admit()
        await turn.ended()
        assert isinstance(
            next(one for one in reversed(family.told) if isinstance(one, ChildFinished)),
            ChildFinished,
        )
        check(family)


# --- the mode that is given ---------------------------------------------------------------------


async def test_running_children_at_any_depth_get_the_mode_that_the_user_chooses(
    home: Home,
) -> None:
    gates = [anyio.Event(), anyio.Event()]
    bash = ("bash", {"command": "touch made", "description": "Makes a file"})
    makes = calls(bash)
    async with home.family(
        {
            "1": [spawn(), say("started")],
            "1/1": [spawn(), [TextChunk(0, "outer"), gates[0], *makes]],
            "1/1/1": [[TextChunk(0, "inner"), gates[1], *makes]],
        },
        mode="full",
    ) as family:
        turn = family.admit()
        outer, inner = await begun(family, "outer"), await begun(family, "inner")
        await family.root.choose("mode", "plan")
        for child_id in (outer, inner):
            assert family.rows(child_id, "sandbox/mode")[-1] == {
                "mode": "read-only",
                "source": "delegation",
            }
        for gate in gates:
            gate.set()
        with anyio.fail_after(60):
            await turn.ended()
        for child_id in (outer, inner):
            assert "plan mode allows no call" in family.results(child_id)[-1]
        assert not (home.cwd / "made").exists()


async def test_a_child_that_is_being_born_gets_the_mode_that_is_chosen_meanwhile(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, chosen = HarnessSession.receive, anyio.Event()
    async with home.family({"1": [spawn()]}, mode="full") as family, anyio.create_task_group() as t:

        async def choose() -> None:
            await family.root.choose("mode", "ask")
            chosen.set()

        async def late(
            session: HarnessSession, rows: Sequence[Draft], message: JsonObject, target: Target
        ) -> None:
            t.start_soon(choose)
            await anyio.wait_all_tasks_blocked()
            await receive(session, rows, message, target)

        monkeypatch.setattr(HarnessSession, "receive", late)
        await family.prompt()
        with anyio.fail_after(60):
            await chosen.wait()
        child_id = family.started()[0].child_id
        modes = [row["mode"] for row in family.rows(child_id, "sandbox/mode")]
        assert modes == ["danger-full-access", "read-only"]


async def test_a_child_that_cannot_write_down_its_new_mode_is_ended(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = anyio.Event()
    answers = {"1": [spawn(), say("started")], "1/1": [held("busy", gate)]}
    async with home.family(answers, mode="full") as family:
        turn = family.admit()
        child_id = await begun(family)
        append = LogWriter.append

        def refuse(writer: LogWriter, rows: Sequence[Draft]) -> list[Event]:
            if writer.header.session_id == child_id and rows[0].type == "sandbox/mode":
                raise StoreFailedError("the disk is full")
            return append(writer, rows)

        monkeypatch.setattr(LogWriter, "append", refuse)
        await family.root.choose("mode", "plan")
        with anyio.fail_after(60):
            await turn.ended()
        assert reasons(family, child_id) == [aborted("parent")]
