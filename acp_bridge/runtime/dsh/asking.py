"""What the control plugin asks and tells: judgements, permission, questions, calls, deltas."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from acp_bridge.ports import PermissionAsk, QuestionAnswer, QuestionsAsk, ToolResult
from acp_bridge.ports import Question as UserQuestion
from acp_bridge.runtime.dsh.control import Control
from acp_bridge.runtime.dsh.control_types import (
    ApprovalAsk,
    CallToJudge,
    CallToRun,
    Judgement,
    PluginFault,
    StreamNote,
    UserAsk,
)
from acp_bridge.runtime.dsh.judging import Rules, judge, question_on
from acp_bridge.runtime.dsh.session import DshSession
from acp_bridge.vocabulary import Answer, CallId, SessionId, StreamDelta

if TYPE_CHECKING:
    from acp_bridge.harness.approvals import Question

logger = logging.getLogger(__name__)

QUESTIONS_MAX: Final = 256
"""Calls between their judgement and their question; agents ask one at a time."""


class Asking:
    """``find`` gives an open session, ``find_above`` the one that a working subagent is of.

    ``temp_dir`` is the runtime's temporary folder, resolved.
    """

    def __init__(
        self,
        find: Callable[[SessionId], DshSession | None],
        find_above: Callable[[SessionId], DshSession | None],
        temp_dir: Path,
    ) -> None:
        self._find = find
        self._find_above = find_above
        self._temp_dir = temp_dir
        self._questions: dict[tuple[SessionId, CallId], Question] = {}
        """What calls were judged to ask, until they do."""

    def listen(self, control: Control) -> None:
        """Take what a process's plugin asks and tells; before its hello."""
        control.answer_approvals(self.approve)
        control.answer_questions(self.answer)
        control.answer_calls(self.call)
        control.listen_to_streams(self.stream)
        control.listen_to_faults(_note_fault)

    def stream(self, session_id: SessionId, note: StreamNote) -> None:
        """A piece of an answer, of a session or of a subagent."""
        if not isinstance(note, StreamDelta):
            return
        if (session := self._find(session_id)) is not None:
            session.tell(note)
        elif (session := self._find_above(session_id)) is not None:
            session.tell_of_child(session_id, note)

    async def judge(self, call: CallToJudge) -> Judgement:
        """Whether a call runs, asks or is refused, by the mode of its root session."""
        session = self._find(call.root_id)
        if session is None:
            return Judgement("refuse", reason="nobody here knows the session of this call")
        servers = session.servers
        folders = [folder.resolve() for folder in session.folders]
        rules = Rules(
            session.mode,
            session.cwd.resolve(),
            self._temp_dir,
            await session.grants_of(call.session_id),
            folders,
            None if servers is None else servers.foreign(call.tool_name),
        )
        name, arguments, cwd = call.tool_name, call.arguments, Path(call.cwd)
        judged = judge(name, arguments, cwd=cwd, rules=rules)
        if judged.verdict != "ask":
            return judged
        question = question_on(name, arguments, cwd=cwd, rules=rules)
        if session.mode == "plan":
            return await self._judge_by_asking(session, call, question)
        if question is not None:
            self._questions[call.session_id, call.call_id] = question
        if len(self._questions) > QUESTIONS_MAX:
            del self._questions[next(iter(self._questions))]
        return judged

    async def _judge_by_asking(
        self, session: DshSession, call: CallToJudge, question: "Question | None"
    ) -> Judgement:
        """Put a question here and now: the runtime refuses by itself whatever asks in plan mode."""
        asked = PermissionAsk(call.call_id, call.tool_name, "", None)
        answer = await self._permission(session, call.session_id, asked, question)
        if answer in {Answer.ALLOW_ONCE, Answer.ALLOW_ALWAYS}:
            return Judgement("run")
        if answer is Answer.REJECT:
            return Judgement("refuse", reason=f"the user rejected tool {call.tool_name}")
        return Judgement("refuse", reason="no approval channel is available")

    async def approve(self, ask: ApprovalAsk) -> Answer:
        """The user's answer, to the session or to one of its subagents."""
        session = self._find(ask.root_id)
        if session is None or ask.call_id is None:
            # Its call is shown nowhere: who cannot be seen is refused at once, never parked.
            logger.info("session %s: nobody can be asked for %s", ask.session_id, ask.tool_name)
            return Answer.UNAVAILABLE
        question = self._questions.pop((ask.session_id, ask.call_id), None)
        asked = PermissionAsk(ask.call_id, ask.tool_name, ask.reason, None)
        return await self._permission(session, ask.session_id, asked, question)

    async def _permission(
        self,
        session: DshSession,
        asker_id: SessionId,
        asked: PermissionAsk,
        question: "Question | None",
    ) -> Answer:
        """The user's answer to what was judged to ask, or to what the runtime asks by itself."""
        child_id = None if asker_id == session.session_id else asker_id
        if child_id is not None and not session.has_child(child_id):
            logger.info("session %s: nobody can be asked for %s", asker_id, asked.tool_name)
            return Answer.UNAVAILABLE
        asked = attrs.evolve(asked, child_id=child_id)
        if question is not None:
            asked = attrs.evolve(asked, reason=question.reason, always_label=question.always_label)
        answer = await session.client.ask_permission(asked)
        if answer is Answer.ALLOW_ALWAYS and question is not None and question.grant is not None:
            await session.grant(asker_id, question.grant)
        if answer is Answer.CANCELLED:  # the runtime would only tell the model, and go on
            if child_id is None:
                session.cancel()
            else:
                session.cancel_child(child_id)
        return answer

    async def call(self, call: CallToRun) -> ToolResult:
        """The result of a tool of the session's MCP servers."""
        session = self._find(call.root_id)
        if session is None or session.servers is None:
            return ToolResult(f"nobody here has the tool {call.tool_name}.", is_error=True)
        return await session.servers.call(call)

    async def answer(self, ask: UserAsk) -> Sequence[QuestionAnswer] | None:
        """The user's answers; to a plan as to a permission.

        None: declined, which the model is told; so is what a client cannot show.
        """
        session = self._find(ask.session_id)
        if session is None or ask.call_id is None:
            logger.info("session %s: nobody can be asked a question", ask.session_id)
            return None
        if ask.reviews_plan:
            return await self._review(session, ask.call_id, ask.questions[0])
        if not session.client.takes_questions:
            logger.info("session %s: its client takes no questions", ask.session_id)
            return None
        return await session.client.ask_questions(QuestionsAsk(ask.call_id, ask.questions))

    async def _review(
        self, session: DshSession, call_id: CallId, plan: UserQuestion
    ) -> Sequence[QuestionAnswer] | None:
        permission = PermissionAsk(call_id, "exit_plan_mode", plan.text, None)
        match await session.client.ask_permission(permission):
            case Answer.ALLOW_ONCE | Answer.ALLOW_ALWAYS:
                return [QuestionAnswer(plan.question_id, (plan.options[0].label,))]
            case Answer.REJECT:
                return [QuestionAnswer(plan.question_id, (plan.options[-1].label,))]
            case _:
                return None


def _note_fault(fault: PluginFault) -> None:
    """Where the plugin failed; its words may hold what a session is about, and are left out."""
    logger.warning("the control plugin failed, and went on: %s", fault.where)
