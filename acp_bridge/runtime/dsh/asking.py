"""What the control plugin asks and tells: judgements, the user's permission, and deltas."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acp_bridge.ports import PermissionAsk
from acp_bridge.runtime.dsh.control import Control
from acp_bridge.runtime.dsh.control_types import (
    ApprovalAsk,
    CallToJudge,
    Judgement,
    StreamNote,
    UserAnswer,
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
        control.listen_to_streams(self.stream)

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
        grants = session.grants[call.session_id]
        folders = [folder.resolve() for folder in session.folders]
        rules = Rules(session.mode, session.cwd.resolve(), self._temp_dir, grants, folders)
        name, arguments, cwd = call.tool_name, call.arguments, Path(call.cwd)
        judged = judge(name, arguments, cwd=cwd, rules=rules)
        if judged.verdict == "ask":
            question = question_on(name, arguments, cwd=cwd, rules=rules)
            if question is not None:
                self._questions[call.session_id, call.call_id] = question
            if len(self._questions) > QUESTIONS_MAX:
                del self._questions[next(iter(self._questions))]
        return judged

    async def approve(self, ask: ApprovalAsk) -> Answer:
        """The user's answer, to the session or to one of its subagents."""
        session = self._find(ask.root_id)
        child_id = None if ask.session_id == ask.root_id else ask.session_id
        is_seen = session is not None and (child_id is None or session.has_child(child_id))
        if session is None or not is_seen or ask.call_id is None:
            # Its call is shown nowhere: who cannot be seen is refused at once, never parked.
            logger.info("session %s: nobody can be asked for %s", ask.session_id, ask.tool_name)
            return Answer.UNAVAILABLE
        question = self._questions.pop((ask.session_id, ask.call_id), None)
        label = None if question is None else question.always_label
        reason = ask.reason if question is None else question.reason
        permission = PermissionAsk(ask.call_id, ask.tool_name, reason, label, child_id)
        answer = await session.client.ask_permission(permission)
        if answer is Answer.ALLOW_ALWAYS and question is not None and question.grant is not None:
            session.grants[ask.session_id].add(question.grant)
        if answer is Answer.CANCELLED:  # the runtime would only tell the model, and go on
            if child_id is None:
                session.cancel()
            else:
                session.cancel_child(child_id)
        return answer

    async def answer(self, ask: UserAsk) -> Sequence[UserAnswer] | None:
        """The user's answer to a plan, as to a permission; other questions are declined.

        ACP has no way to put them; the model is told that nobody answers.
        """
        session = self._find(ask.session_id)
        plan = next((one for one in ask.questions if one.is_plan_review), None)
        if session is None or plan is None or ask.call_id is None or len(ask.questions) > 1:
            logger.info("session %s: a question of the model was declined", ask.session_id)
            return None
        permission = PermissionAsk(ask.call_id, "exit_plan_mode", plan.question, None)
        match await session.client.ask_permission(permission):
            case Answer.ALLOW_ONCE | Answer.ALLOW_ALWAYS:
                return [UserAnswer(plan.question_id, selected=(plan.options[0][0],))]
            case Answer.REJECT:
                return [UserAnswer(plan.question_id, selected=(plan.options[-1][0],))]
            case _:
                return None
