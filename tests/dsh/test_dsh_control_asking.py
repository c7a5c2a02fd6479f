"""The control plugin on the real runtime: who asks, what an answer does, modes, questions."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import attrs
import pytest
from control_rig import Rig, dsh_rig
from dsh_rig import GATE, WAIT_S, pieces, text, tool

from acp_bridge.errors import RemoteProtocolError, RuntimeFailedError
from acp_bridge.ports import QuestionAnswer, QuestionOption
from acp_bridge.runtime.dsh.control_types import (
    ApprovalAsk,
    CallToJudge,
    Judgement,
    UserAsk,
)
from acp_bridge.runtime.dsh.judging import Rules, judge
from acp_bridge.vocabulary import Answer, Mode, SessionId

pytestmark = [pytest.mark.dsh, pytest.mark.process, pytest.mark.anyio]


@attrs.define
class Bridge:
    """What the bridge will do, in short: modes, and answers as each test wants them."""

    work: Path
    modes: dict[str, Mode] = attrs.field(factory=dict)
    answers: dict[str, Answer | None] = attrs.field(factory=dict)
    """By the session that asks; None: nobody answers."""
    judged: list[CallToJudge] = attrs.field(factory=list)
    asked: list[ApprovalAsk] = attrs.field(factory=list)
    withdrawn: list[str] = attrs.field(factory=list)
    questions: list[UserAsk] = attrs.field(factory=list)
    replies: dict[str, list[QuestionAnswer] | None] = attrs.field(factory=dict)
    broken: set[str] = attrs.field(factory=set)
    bare: set[str] = attrs.field(factory=set)
    news: anyio.Event = attrs.field(factory=anyio.Event)

    async def judge(self, call: CallToJudge) -> Judgement:
        self.judged.append(call)
        if call.root_id in self.broken:
            raise RuntimeFailedError("The rules are lost.")
        if call.call_id == "w2" and call.root_id in self.bare:
            return Judgement("run")
        mode = self.modes.get(call.root_id, "full")
        rules = Rules(mode, self.work, Path("/tmp/none"))
        return judge(call.tool_name, call.arguments, cwd=Path(call.cwd), rules=rules)

    async def approve(self, ask: ApprovalAsk) -> Answer:
        self.asked.append(ask)
        self.tell()
        answer = self.answers.get(ask.root_id, Answer.ALLOW_ONCE)
        if answer is None:
            try:
                await anyio.sleep_forever()
            finally:
                self.withdrawn.append(ask.ask_id)
                self.tell()
        assert answer is not None
        return answer

    async def answer(self, ask: UserAsk) -> list[QuestionAnswer] | None:
        self.questions.append(ask)
        return self.replies[ask.session_id]

    def tell(self) -> None:
        self.news.set()
        self.news = anyio.Event()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until an ask, or its end, makes it so."""
        with anyio.fail_after(WAIT_S):
            while not is_so():
                await self.news.wait()

    def asks_of(self, session_id: str) -> list[ApprovalAsk]:
        return [ask for ask in self.asked if ask.session_id == session_id]


@attrs.define
class Desk:
    rig: Rig
    bridge: Bridge

    async def open(self, mode: Mode) -> SessionId:
        session = await self.rig.open()
        await self.set_mode(session, mode)
        return session

    async def set_mode(self, session: SessionId, mode: Mode) -> None:
        self.bridge.modes[session] = mode
        await self.rig.control.set_mode(session, mode)

    async def shell(self, session: SessionId, call_id: str, command: str, **more: str) -> str:
        """A turn of one command; the call's result."""
        call = tool(call_id, "bash", description="d", command=command, **more)
        self.rig.model.answer(session, call)
        self.rig.model.answer(session, text("done"))
        assert await self.rig.prompt(session, call_id) == "completed"
        return self.rig.wire.results(session)[call_id]

    async def write(self, session: SessionId, call_id: str, path: Path) -> str:
        """A turn that writes one file; the call's result."""
        call = tool(call_id, "write", file_path=str(path), content="written")
        self.rig.model.answer(session, call)
        self.rig.model.answer(session, text("done"))
        assert await self.rig.prompt(session, call_id) == "completed"
        return self.rig.wire.results(session)[call_id]


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    folder = tmp_path_factory.mktemp("asking")
    bridge = Bridge((folder / "work").resolve())
    async with dsh_rig(folder, judge=bridge.judge) as rig:
        rig.control.answer_approvals(bridge.approve)
        rig.control.answer_questions(bridge.answer)
        yield Desk(rig, bridge)
    rig.check_quiet()


async def test_a_command_asks_with_its_arguments_and_runs_when_allowed(desk: Desk) -> None:
    session = await desk.open("ask")
    result = await desk.shell(session, "c1", "echo out-of-the-shell > made.txt; cat made.txt")
    assert "out-of-the-shell" in result
    [ask] = desk.bridge.asks_of(session)
    assert (ask.tool_name, ask.call_id, ask.place) == ("bash", "c1", (1, 1))
    assert (ask.root_id, ask.parent_id) == (session, None)
    assert ask.arguments is not None
    assert "cat made.txt" in ask.arguments
    assert ask.reason == "runs a command"
    rows = [row["type"] for row in desk.rig.wire.rows(session)]
    at = rows.index("approval/asked")
    assert rows[at - 1 : at + 2] == ["tool/call", "approval/asked", "approval/decided"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer.REJECT, "the user rejected"),
        (Answer.CANCELLED, "was cancelled"),
        (Answer.UNAVAILABLE, "no approval channel"),
    ],
)
async def test_a_call_that_is_not_allowed_does_not_run(
    desk: Desk, answer: Answer, says: str
) -> None:
    session = await desk.open("ask")
    desk.bridge.answers[session] = answer
    made = desk.rig.cwd / f"{answer.value}.txt"
    assert says in await desk.shell(session, "c1", f"touch {made}")
    assert not made.exists()


async def test_nobody_answers_until_the_session_is_cancelled(desk: Desk) -> None:
    session = await desk.open("ask")
    desk.bridge.answers[session] = None
    desk.rig.model.answer(session, tool("c1", "bash", description="d", command="echo x"))
    await desk.rig.send(session, "wait for me")
    await desk.bridge.until(lambda: bool(desk.bridge.asks_of(session)))
    assert await desk.rig.control.cancel(session)
    assert desk.rig.wire.ends(session) == ["aborted"]
    [ask] = desk.bridge.asks_of(session)
    await desk.bridge.until(lambda: ask.ask_id in desk.bridge.withdrawn)
    [decided] = desk.rig.wire.rows(session, "approval/decided")
    assert decided["data"]["outcome"] == "cancelled"


@pytest.mark.parametrize(
    ("mode", "asks", "is_written"),
    [("ask", 1, True), ("accept-edits", 0, True), ("plan", 0, False), ("full", 0, True)],
)
async def test_an_edit_in_the_workspace_in_each_mode(
    desk: Desk, mode: Mode, asks: int, is_written: bool
) -> None:
    session = await desk.open(mode)
    path = desk.rig.cwd / f"{mode}.txt"
    result = await desk.write(session, "w1", path)
    assert len(desk.bridge.asks_of(session)) == asks
    assert path.exists() == is_written
    assert ("plan mode allows no call" in result) == (not is_written)


async def test_an_edit_outside_asks_and_is_made_when_allowed(desk: Desk, tmp_path: Path) -> None:
    session = await desk.open("accept-edits")
    await desk.write(session, "w1", tmp_path / "out.txt")
    [ask] = desk.bridge.asks_of(session)
    assert "outside the workspace" in ask.reason
    assert (tmp_path / "out.txt").read_text() == "written"


async def test_only_the_allowed_call_leaves_the_sandbox(desk: Desk) -> None:
    """Were the bridge to let a call run without a word on the sandbox, the session's own holds."""
    session = await desk.open("ask")
    desk.bridge.bare.add(session)
    allowed, bare = desk.rig.cwd / "allowed.txt", desk.rig.cwd / "bare.txt"
    await desk.write(session, "w1", allowed)
    assert "denied under read-only mode" in await desk.write(session, "w2", bare)
    assert (allowed.exists(), bare.exists()) == (True, False)


@pytest.mark.parametrize("wish", ["danger-full-access", "workspace-write"])
@pytest.mark.parametrize("mode", ["ask", "accept-edits", "full"])
async def test_a_call_that_wishes_for_a_sandbox_is_asked_for_once_and_gets_it(
    desk: Desk, mode: Mode, wish: str
) -> None:
    session = await desk.open(mode)
    made = desk.rig.cwd / f"{mode}-{wish}.txt"
    more = {"sandbox_permissions": wish, "justification": "it must"}
    call = tool("w1", "write", file_path=str(made), content="written", **more)
    desk.rig.model.answer(session, call)
    desk.rig.model.answer(session, text("done"))
    assert await desk.rig.prompt(session) == "completed"
    assert made.exists(), desk.rig.wire.results(session)
    # An edit that runs by itself in its mode asks for what is wider than the mode.
    is_free = mode == "full" or (mode == "accept-edits" and wish == "workspace-write")
    assert len(desk.bridge.asks_of(session)) == (0 if is_free else 1)


async def test_what_was_allowed_for_a_job_does_not_hold_when_the_job_wakes_its_agent(
    desk: Desk,
) -> None:
    session = await desk.open("ask")
    go = desk.rig.cwd / "go"
    command = f"while [ ! -e {go} ]; do sleep 0.05; done; echo job-is-done"
    call = tool("c1", "bash", description="d", command=command, run_in_background=True)
    desk.rig.model.answer(session, call)
    desk.rig.model.answer(session, text("it runs"))
    desk.rig.model.answer(session, tool("c1", "bash", description="d", command="echo again"))
    desk.rig.model.answer(session, text("over"))
    assert await desk.rig.prompt(session) == "completed"
    go.touch()
    await desk.rig.wire.until(lambda: len(desk.rig.wire.ends(session)) == 2)
    assert len(desk.bridge.asks_of(session)) == 2
    assert "danger-full-access" not in desk.rig.model.asked(session)


async def test_a_change_of_mode_holds_for_the_next_call_of_a_running_turn(desk: Desk) -> None:
    session = await desk.open("accept-edits")
    made = desk.rig.cwd / "between.txt"
    desk.rig.model.answer(session, pieces("first ", GATE), tool("t1", "todo_write", todos=[]))
    desk.rig.model.answer(session, tool("w1", "write", file_path=str(made), content="x"))
    desk.rig.model.answer(session, text("done"))
    await desk.rig.send(session, "go")
    await desk.rig.wire.until(lambda: bool(desk.rig.wire.notes("bridge.stream", session)))
    await desk.set_mode(session, "plan")
    desk.rig.model.go(session)
    await desk.rig.wait(session)
    assert "plan mode allows no call" in desk.rig.wire.results(session)["w1"]
    assert not made.exists()
    assert (await desk.rig.control.state(session)).is_planning


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("ask", ("read-only", "ask", False)),
        ("accept-edits", ("workspace-write", "ask", False)),
        ("plan", ("read-only", "never", True)),
        ("full", ("danger-full-access", "never", False)),
    ],
)
async def test_a_mode_is_in_the_log_as_the_embedded_harness_writes_it(
    desk: Desk, mode: Mode, expected: tuple[str, str, bool]
) -> None:
    session = await desk.open(mode)
    state = await desk.rig.control.state(session)
    assert (state.sandbox, state.policy, state.is_planning) == expected


@pytest.mark.parametrize("mode", ["ask", "full"])
async def test_a_subagent_is_judged_by_its_roots_mode_and_asks_itself(
    desk: Desk, mode: Mode
) -> None:
    session = await desk.open(mode)
    words = f"shell of {session}"
    desk.rig.model.answer(session, tool("d", "subagent", description="d", prompt=words))
    desk.rig.model.promise(words, tool("c1", "bash", description="d", command="echo by-the-child"))
    assert await desk.rig.prompt(session, "delegate") == "completed"
    [child] = desk.rig.wire.children(session)
    assert "by-the-child" in desk.rig.wire.results(child)["c1"]
    asks = desk.bridge.asks_of(child)
    assert [(ask.root_id, ask.parent_id) for ask in asks] == [(session, session)] * (mode == "ask")


async def test_parent_and_child_ask_at_once_and_a_cancel_voids_both(desk: Desk) -> None:
    session = await desk.open("ask")
    desk.bridge.answers[session] = None
    words = f"both of {session}"
    desk.rig.model.answer(session, tool("d", "subagent", description="d", prompt=words))
    desk.rig.model.answer(session, tool("c0", "bash", description="d", command="echo root"))
    desk.rig.model.promise(words, tool("c1", "bash", description="d", command="echo child"))
    await desk.rig.send(session, "delegate")
    await desk.bridge.until(
        lambda: len([ask for ask in desk.bridge.asked if ask.root_id == session]) == 2
    )
    assert await desk.rig.control.cancel(session)
    [child] = desk.rig.wire.children(session)
    assert desk.rig.wire.ends(child) == desk.rig.wire.ends(session) == ["aborted"]


async def test_without_a_verdict_nothing_runs(desk: Desk) -> None:
    session = await desk.open("full")
    desk.bridge.broken.add(session)
    made = desk.rig.cwd / "unjudged.txt"
    result = await desk.write(session, "w1", made)
    assert "The rules are lost." in result
    assert not made.exists()


async def test_the_users_answer_reaches_the_model(desk: Desk) -> None:
    session = await desk.open("ask")
    options = [{"label": "Red", "description": "warm"}, {"label": "Blue"}]
    question = {"id": "colour", "question": "Which?", "header": "Paint", "options": options}
    desk.bridge.replies[session] = [QuestionAnswer("colour", ("Blue",), "a dark one")]
    desk.rig.model.answer(session, tool("q1", "ask_user_question", questions=[question]))
    desk.rig.model.answer(session, text("so be it"))
    assert await desk.rig.prompt(session, "paint") == "completed"
    [ask] = [one for one in desk.bridge.questions if one.session_id == session]
    assert ask.call_id == "q1"
    [asked] = ask.questions
    assert asked.options == (QuestionOption("Red", "warm"), QuestionOption("Blue"))
    assert (asked.header, asked.takes_many, ask.reviews_plan) == ("Paint", False, False)
    result = desk.rig.wire.results(session)["q1"]
    assert "Blue" in result
    assert "a dark one" in result


async def test_a_user_who_declines_is_told_to_the_model(desk: Desk) -> None:
    session = await desk.open("ask")
    desk.bridge.replies[session] = None
    question = {"id": "colour", "question": "Which?"}
    desk.rig.model.answer(session, tool("q1", "ask_user_question", questions=[question]))
    desk.rig.model.answer(session, text("then not"))
    assert await desk.rig.prompt(session, "paint") == "completed"
    assert "did not answer" in desk.rig.wire.results(session)["q1"]


async def test_an_approved_plan_ends_plan_mode_and_calls_may_ask_again(desk: Desk) -> None:
    session = await desk.open("plan")
    desk.bridge.replies[session] = [QuestionAnswer("plan", ("Approve",))]
    desk.rig.model.answer(session, tool("p1", "exit_plan_mode", plan="# Do it\n\nAll of it."))
    desk.rig.model.answer(session, text("on it"))
    first = desk.bridge.answer

    async def approve(ask: UserAsk) -> list[QuestionAnswer] | None:
        await first(ask)
        [question] = ask.questions
        desk.bridge.modes[session] = "ask"
        return [QuestionAnswer(question.question_id, (question.options[0].label,))]

    desk.rig.control.answer_questions(approve)
    assert await desk.rig.prompt(session, "plan it") == "completed"
    desk.rig.control.answer_questions(first)
    [ask] = [one for one in desk.bridge.questions if one.session_id == session]
    [question] = ask.questions
    assert ask.reviews_plan
    assert question.detail == "# Do it\n\nAll of it."
    assert ask.call_id == "p1"
    state = await desk.rig.control.state(session)
    assert (state.is_planning, state.policy) == (False, "ask")
    assert "carried-out" in await desk.shell(session, "c1", "echo carried-out")


async def test_a_client_that_goes_away_while_it_is_asked_leaves_no_runtime(tmp_path: Path) -> None:
    bridge = Bridge((tmp_path / "work").resolve())
    async with dsh_rig(tmp_path, judge=bridge.judge) as rig:
        rig.control.answer_approvals(bridge.approve)
        session = await rig.open()
        bridge.modes[session], bridge.answers[session] = "ask", None
        rig.model.answer(session, tool("c1", "bash", description="d", command="echo x"))
        await rig.send(session, "ask me")
        await bridge.until(lambda: bool(bridge.asked))
        assert rig.wire.process.stdin is not None
        await rig.wire.process.stdin.aclose()
        with anyio.fail_after(WAIT_S):
            assert await rig.wire.process.wait() == 0


async def test_a_note_of_another_shape_is_named(desk: Desk) -> None:
    desk.rig.control.listen_to_streams(lambda _session, _note: None)
    listener = desk.rig.wire._listeners["bridge.stream"]
    with pytest.raises(RemoteProtocolError, match="`turn` that is not an integer"):
        listener({"sessionId": "s", "turn": "1"})
