"""What the control plugin asks us, answered for the session that it is about."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import attrs
import pytest

from acp_bridge.ports import (
    PermissionAsk,
    Question,
    QuestionAnswer,
    QuestionOption,
    QuestionsAsk,
    ToolResult,
)
from acp_bridge.runtime.dsh.asking import QUESTIONS_MAX, Asking
from acp_bridge.runtime.dsh.control_types import (
    ApprovalAsk,
    CallToJudge,
    CallToRun,
    PluginFault,
    StreamStarted,
    UserAsk,
)
from acp_bridge.vocabulary import (
    Answer,
    CallId,
    ForeignTool,
    JsonObject,
    Mode,
    SessionId,
    StreamDelta,
)

if TYPE_CHECKING:
    from acp_bridge.runtime.dsh.session import DshSession

pytestmark = pytest.mark.anyio

ROOT, CHILD = SessionId("root"), SessionId("child")


class FakeServers:
    """MCP servers with two tools, one of which only reads."""

    def foreign(self, tool_name: str) -> ForeignTool | None:
        if tool_name not in {"mcp__tiny__look", "mcp__tiny__change"}:
            return None
        return ForeignTool(tool_name, f"{tool_name} of tiny", tool_name == "mcp__tiny__look")

    async def call(self, call: CallToRun) -> ToolResult:
        return ToolResult(f"{call.tool_name} was called")


@attrs.define
class FakeSession:
    """An open session and the client that drives it."""

    cwd: Path
    answers: Sequence[Answer] = ()
    mode: Mode = "ask"
    grants: dict[SessionId, set[str]] = attrs.field(factory=lambda: defaultdict(set))
    asked: list[PermissionAsk] = attrs.field(factory=list)
    told: list[StreamDelta] = attrs.field(factory=list)
    told_of_child: list[StreamDelta] = attrs.field(factory=list)
    cancelled: int = 0
    stopped: list[SessionId] = attrs.field(factory=list)
    children: tuple[SessionId, ...] = ()
    servers: FakeServers | None = None
    folders: tuple[Path, ...] = ()
    takes_questions: bool = False
    questions: list[QuestionsAsk] = attrs.field(factory=list)
    replies: Sequence[QuestionAnswer] | None = None
    session_id: SessionId = ROOT

    async def ask_questions(self, ask: QuestionsAsk) -> Sequence[QuestionAnswer] | None:
        self.questions.append(ask)
        return self.replies

    async def grants_of(self, session_id: SessionId) -> Collection[str]:
        return self.grants[session_id]

    async def grant(self, session_id: SessionId, grant: str) -> None:
        self.grants[session_id].add(grant)

    @property
    def client(self) -> "FakeSession":
        return self

    async def ask_permission(self, ask: PermissionAsk) -> Answer:
        self.asked.append(ask)
        return self.answers[len(self.asked) - 1]

    def tell(self, delta: StreamDelta) -> None:
        self.told.append(delta)

    def has_child(self, child_id: SessionId) -> bool:
        return child_id in self.children

    def tell_of_child(self, _child_id: SessionId, delta: StreamDelta) -> None:
        self.told_of_child.append(delta)

    def cancel(self) -> None:
        self.cancelled += 1

    def cancel_child(self, child_id: SessionId) -> None:
        self.stopped.append(child_id)


def asking_for(session: FakeSession) -> Asking:
    live = cast("DshSession", session)
    above = dict.fromkeys(session.children, live)
    return Asking({ROOT: live}.get, above.get, Path("/tmp"))


def call(
    session: FakeSession, name: str, call_id: str = "c1", *, by: SessionId = ROOT, **arguments: Any
) -> CallToJudge:
    given: JsonObject = arguments
    return CallToJudge("a1", by, ROOT, CallId(call_id), name, given, str(session.cwd))


def ask(name: str, call_id: str = "c1", *, by: SessionId = ROOT) -> ApprovalAsk:
    parent = None if by == ROOT else ROOT
    return ApprovalAsk("a1", by, ROOT, parent, CallId(call_id), name, "{}", (1, 1), "dsh asks")


async def test_a_call_that_asks_puts_its_question_and_always_holds_for_the_next(
    tmp_path: Path,
) -> None:
    session = FakeSession(tmp_path, [Answer.ALLOW_ALWAYS])
    asking = asking_for(session)
    judged = await asking.judge(call(session, "bash", command="git status"))
    assert judged.verdict == "ask"
    assert await asking.approve(ask("bash")) is Answer.ALLOW_ALWAYS
    (question,) = session.asked
    assert question.reason == "runs a command"
    assert "git status" in str(question.always_label)
    assert (await asking.judge(call(session, "bash", command="git status -s"))).verdict == "run"
    assert (await asking.judge(call(session, "bash", command="git push"))).verdict == "ask"


async def test_what_the_runtime_asks_by_itself_is_put_in_its_words_without_always(
    tmp_path: Path,
) -> None:
    session = FakeSession(tmp_path, [Answer.REJECT])
    assert await asking_for(session).approve(ask("bash")) is Answer.REJECT
    assert session.asked == [PermissionAsk(CallId("c1"), "bash", "dsh asks", None)]
    assert session.cancelled == 0


async def test_a_question_that_is_cancelled_ends_the_turn(tmp_path: Path) -> None:
    session = FakeSession(tmp_path, [Answer.CANCELLED])
    assert await asking_for(session).approve(ask("bash")) is Answer.CANCELLED
    assert session.cancelled == 1


async def test_whose_call_is_shown_nowhere_is_refused_at_once(tmp_path: Path) -> None:
    session = FakeSession(tmp_path)
    asking = asking_for(session)
    assert await asking.approve(ask("bash", by=CHILD)) is Answer.UNAVAILABLE
    stranger = attrs.evolve(ask("bash"), root_id=SessionId("stranger"))
    assert await asking.approve(stranger) is Answer.UNAVAILABLE
    unknown = attrs.evolve(call(session, "read"), root_id=SessionId("stranger"))
    assert (await asking.judge(unknown)).verdict == "refuse"
    assert session.asked == []


async def test_a_subagent_asks_under_its_own_name_and_always_is_for_it_alone(
    tmp_path: Path,
) -> None:
    session = FakeSession(tmp_path, [Answer.ALLOW_ALWAYS], children=(CHILD,))
    asking = asking_for(session)
    await asking.judge(call(session, "bash", by=CHILD, command="git status"))
    assert await asking.approve(ask("bash", by=CHILD)) is Answer.ALLOW_ALWAYS
    assert [one.child_id for one in session.asked] == [CHILD]
    again = call(session, "bash", "c2", by=CHILD, command="git status -s")
    assert (await asking.judge(again)).verdict == "run"
    assert (await asking.judge(attrs.evolve(again, session_id=ROOT))).verdict == "ask"


async def test_a_subagents_question_that_is_cancelled_ends_the_subagent_alone(
    tmp_path: Path,
) -> None:
    session = FakeSession(tmp_path, [Answer.CANCELLED], children=(CHILD,))
    assert await asking_for(session).approve(ask("bash", by=CHILD)) is Answer.CANCELLED
    assert (session.stopped, session.cancelled) == ([CHILD], 0)


async def test_a_subagents_deltas_are_told_as_its_own(tmp_path: Path) -> None:
    session = FakeSession(tmp_path, children=(CHILD,))
    delta = StreamDelta(1, 1, 1, 0, "text", "Hi")
    asking_for(session).stream(CHILD, delta)
    assert (session.told, session.told_of_child) == ([], [delta])


async def test_judgements_that_never_ask_are_forgotten_in_time(tmp_path: Path) -> None:
    session = FakeSession(tmp_path, [Answer.REJECT])
    asking = asking_for(session)
    for number in range(QUESTIONS_MAX + 1):
        await asking.judge(call(session, "bash", f"c{number}", command="make x"))
    await asking.approve(ask("bash", "c0"))
    assert session.asked[0].always_label is None


async def test_deltas_reach_their_own_session_and_nobody_elses(tmp_path: Path) -> None:
    session = FakeSession(tmp_path)
    asking = asking_for(session)
    delta = StreamDelta(1, 1, 1, 0, "text", "Hi")
    asking.stream(ROOT, delta)
    asking.stream(CHILD, delta)
    asking.stream(ROOT, StreamStarted(1, 1, 1))
    assert session.told == [delta]


PLAN = Question(
    "q1",
    "Is this plan good?",
    detail="1. Do it",
    options=(QuestionOption("Approve"), QuestionOption("Keep planning")),
)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer.ALLOW_ONCE, [QuestionAnswer("q1", ("Approve",))]),
        (Answer.REJECT, [QuestionAnswer("q1", ("Keep planning",))]),
        (Answer.CANCELLED, None),
    ],
)
async def test_a_plan_is_put_to_the_user_as_a_permission(
    tmp_path: Path, answer: Answer, expected: list[QuestionAnswer] | None
) -> None:
    session = FakeSession(tmp_path, [answer], takes_questions=True)
    review = UserAsk("a1", ROOT, CallId("c1"), (PLAN,), reviews_plan=True)
    assert await asking_for(session).answer(review) == expected
    assert session.asked == [
        PermissionAsk(CallId("c1"), "exit_plan_mode", "Is this plan good?", None)
    ]
    assert session.questions == []


async def test_questions_are_put_to_a_client_that_takes_them(tmp_path: Path) -> None:
    answers = [QuestionAnswer("q2", ("Red",), "but dark")]
    session = FakeSession(tmp_path, takes_questions=True, replies=answers)
    question = Question("q2", "Which?", options=(QuestionOption("Red"), QuestionOption("Blue")))
    asked = UserAsk("a1", ROOT, CallId("c1"), (question,))
    assert await asking_for(session).answer(asked) == answers
    assert session.questions == [QuestionsAsk(CallId("c1"), (question,))]


async def test_questions_that_nobody_can_be_asked_are_declined(tmp_path: Path) -> None:
    session = FakeSession(tmp_path)
    asking = asking_for(session)
    ask = UserAsk("a1", ROOT, CallId("c1"), (Question("q2", "Which?"),))
    assert await asking.answer(ask) is None
    session.takes_questions = True
    assert await asking.answer(attrs.evolve(ask, call_id=None)) is None
    assert await asking.answer(attrs.evolve(ask, session_id=SessionId("stranger"))) is None
    assert not session.asked
    assert not session.questions


async def test_a_tool_of_an_mcp_server_asks_by_itself_and_is_named_as_on_the_other_runtime(
    tmp_path: Path,
) -> None:
    session = FakeSession(tmp_path, [Answer.ALLOW_ALWAYS], servers=FakeServers())
    asking = asking_for(session)
    assert (await asking.judge(call(session, "mcp__tiny__change"))).verdict == "ask"
    assert await asking.approve(ask("mcp__tiny__change")) is Answer.ALLOW_ALWAYS
    assert session.asked[0].reason == "uses mcp__tiny__change of tiny"
    assert (await asking.judge(call(session, "mcp__tiny__change"))).verdict == "run"
    assert (await asking.judge(call(session, "mcp__tiny__look"))).verdict == "ask"


async def test_plan_mode_refuses_a_tool_that_may_change_things_unasked(tmp_path: Path) -> None:
    session = FakeSession(tmp_path, servers=FakeServers(), mode="plan")
    judged = await asking_for(session).judge(call(session, "mcp__tiny__change"))
    assert judged.verdict == "refuse"
    assert "plan mode allows no call" in str(judged.reason)
    assert session.asked == []


@pytest.mark.parametrize(
    ("answer", "verdict", "cancelled"),
    [
        (Answer.ALLOW_ONCE, "run", 0),
        (Answer.REJECT, "refuse", 0),
        (Answer.UNAVAILABLE, "refuse", 0),
        (Answer.CANCELLED, "refuse", 1),
    ],
)
async def test_plan_mode_asks_every_time_for_a_tool_that_only_reads(
    tmp_path: Path, answer: Answer, verdict: str, cancelled: int
) -> None:
    session = FakeSession(tmp_path, [answer, answer], servers=FakeServers(), mode="plan")
    asking = asking_for(session)
    for _ in range(2):
        assert (await asking.judge(call(session, "mcp__tiny__look"))).verdict == verdict
    assert [one.always_label for one in session.asked] == [None, None]
    assert session.cancelled == 2 * cancelled


async def test_a_call_is_run_by_the_servers_of_its_root_session(tmp_path: Path) -> None:
    session = FakeSession(tmp_path, servers=FakeServers())
    asking = asking_for(session)
    asked = CallToRun("a1", CHILD, ROOT, CallId("c1"), "mcp__tiny__look", {})
    assert await asking.call(asked) == ToolResult("mcp__tiny__look was called")
    stranger = attrs.evolve(asked, root_id=SessionId("stranger"))
    assert (await asking.call(stranger)).is_error


def test_a_fault_of_the_plugin_is_in_the_log_without_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    control = MagicMock()
    Asking(lambda _id: None, lambda _id: None, Path("/tmp")).listen(control)
    (listener,) = control.listen_to_faults.call_args.args
    listener(PluginFault("subagent s1", "it said: my secret"))
    assert "subagent s1" in caplog.text
    assert "secret" not in caplog.text
