"""The tool calls of one answer: asked for where they must be, run side by side, answered.

Every call goes message, [asked, decided], ``tool/call``, result (sessions: "Writing"). Questions
are put one at a time and in order; what needs no question runs meanwhile. The last result shares
its batch with the step's end and the next step's start.
"""

import logging
from collections.abc import Callable, Sequence

import anyio
import attrs

from acp_bridge.errors import BridgeError
from acp_bridge.harness.approvals import Question, Refusal, verdict_on
from acp_bridge.harness.desk import Desk
from acp_bridge.harness.inbox import message_rows, taken_by_step
from acp_bridge.harness.memory import GRANT_ROW
from acp_bridge.harness.tools.arguments import (
    check_arguments,
    invalid_arguments,
    parse_arguments,
)
from acp_bridge.ports import (
    PermissionAsk,
    QuestionAnswer,
    QuestionsAsk,
    Tool,
    ToolContext,
    ToolResult,
)
from acp_bridge.ports import Question as UserQuestion
from acp_bridge.vocabulary import (
    Answer,
    CallId,
    Draft,
    FileDiff,
    JsonObject,
    JsonValue,
    ToolOutput,
    ToolPreview,
    ToolTerminal,
)

logger = logging.getLogger(__name__)

ABORTED_OUTPUT_CHARS_MAX = 8_000
"""How much of a cancelled command's output its result keeps: enough to see where it was."""

_OUTCOMES = {
    Answer.ALLOW_ONCE: "allowed-once",
    Answer.ALLOW_ALWAYS: "allowed-once",
    Answer.REJECT: "rejected",
    Answer.CANCELLED: "cancelled",
    Answer.UNAVAILABLE: "unavailable",
}

_REFUSALS = {
    Answer.REJECT: "Error: the user rejected this call. It did not run.",
    Answer.CANCELLED: "Error: the user dismissed the question. The call did not run.",
    Answer.UNAVAILABLE: "Error: nobody could be asked for permission. The call did not run.",
}


@attrs.define(slots=True)
class Planned:
    """A call on its way. ``fault`` is a result known before running; ``seq`` its ``tool/call``.

    ``output`` is the end of what it told, for its result if it is cancelled.
    """

    call_id: CallId
    name: str
    arguments_text: str
    tool: Tool | None
    arguments: JsonObject
    question: Question | None = None
    fault: ToolResult | None = None
    ask_id: str | None = None
    seq: int | None = None
    output: str = ""


class CallRunner:
    """Runs one answer's calls. ``unanswered`` are those without a result, for whoever cancels.

    ``is_full`` says of all results whether something must be done before the next step starts.
    """

    def __init__(
        self,
        desk: Desk,
        *,
        turn: int,
        step: int,
        calls: list[JsonObject],
        is_full: Callable[[list[JsonObject]], bool],
    ) -> None:
        self._desk = desk
        self._turn = turn
        self._step = step
        self._failure: BridgeError | None = None
        self._is_full = is_full
        self._results: list[JsonObject] = []
        self.next_started = False
        """Whether the next step's start is in the log, behind this one's end."""
        self.unanswered: dict[CallId, Planned] = {}
        for call in calls:
            planned = self._plan(call)
            self.unanswered[planned.call_id] = planned

    async def start(self, message: Draft) -> None:
        """Commit the answer's row with what begins its calls.

        Raises:
            StoreFailedError: the disk refused: neither answer nor calls are in the log.
        """
        calls = list(self.unanswered.values())
        rows = [self._ask_row(c) if c.question else self._call_row(c) for c in calls]
        events = await self._desk.committer.commit([message, *rows])
        for call, event in zip(calls, events[1:], strict=True):
            if call.question is None:
                call.seq = event.seq

    async def finish(self) -> None:
        """Take every call to its result.

        Raises:
            StoreFailedError: the disk refused a row.
        """
        async with anyio.create_task_group() as group:
            for call in list(self.unanswered.values()):
                group.start_soon(self._guarded, call, group.cancel_scope.cancel)
        if self._failure is not None:
            raise self._failure

    def abort_rows(self) -> list[Draft]:
        """The rows that close every call which a cancel cut off."""
        rows: list[Draft] = []
        for call in self.unanswered.values():
            if call.seq is None:
                if call.ask_id is not None:
                    rows.append(self._decided_row(call.ask_id, Answer.CANCELLED))
                rows.append(self._call_row(call))
                text, code = "Error: cancelled before it ran.", "ABORTED_BEFORE_DISPATCH"
            else:
                text, code = (
                    f"{call.output}\nError: cancelled while running.".lstrip("\n"),
                    "ABORTED",
                )
            result = ToolResult(text, is_error=True, error_name="ToolAbortedError", error_code=code)
            rows.append(self._result_row(call, result))
        self.unanswered.clear()
        return rows

    async def _guarded(self, call: Planned, stop: Callable[[], None]) -> None:
        try:
            await self._take(call)
        except BridgeError as failure:
            self._failure = self._failure or failure
            stop()

    async def _take(self, call: Planned) -> None:
        if call.question is not None and not await self._allowed(call):
            return
        result = call.fault if call.fault is not None else await self._result(call)
        await self._answer(call, result)

    async def _allowed(self, call: Planned) -> bool:
        """Ask, log the decision, and answer the call when it is refused."""
        assert call.ask_id is not None
        async with self._desk.asking:
            # Mode and grants may have changed since the call was planned.
            verdict = self._verdict(call)
            answer = await self._decide(call, verdict)
            rows = [self._decided_row(call.ask_id, answer)]
            if answer is Answer.ALLOW_ALWAYS and isinstance(verdict, Question) and verdict.grant:
                rows.append(Draft(GRANT_ROW, {"grant": verdict.grant}, ignorable=True))
            rows.append(self._call_row(call))
            events = await self._desk.committer.commit(rows)
            call.seq = events[-1].seq
            call.ask_id = None
        if answer in {Answer.ALLOW_ONCE, Answer.ALLOW_ALWAYS}:
            return True
        text = verdict.text if isinstance(verdict, Refusal) else _REFUSALS[answer]
        await self._answer(call, _refused(text))
        return False

    async def _decide(self, call: Planned, verdict: Question | Refusal | None) -> Answer:
        match verdict:
            case None:
                return Answer.ALLOW_ONCE
            case Refusal():
                return Answer.UNAVAILABLE
            case question:
                return await self._ask(call, question)

    async def _ask(self, call: Planned, question: Question) -> Answer:
        assert call.tool is not None
        diffs: tuple[FileDiff, ...] = ()
        try:
            diffs = await call.tool.preview(call.arguments, self._context(call))
        except Exception:  # the question can be put without it
            logger.exception("session %s: no preview of %s", self._desk.session_id, call.name)
        if diffs:
            self._desk.committer.emit(ToolPreview(call.call_id, diffs))
        ask = PermissionAsk(call.call_id, call.name, question.reason, question.always_label)
        return await self._desk.client.ask_permission(ask)

    async def _result(self, call: Planned) -> ToolResult:
        assert call.tool is not None
        try:
            return await call.tool.run(call.arguments, self._context(call))
        except Exception:
            logger.exception("session %s: tool %s failed", self._desk.session_id, call.name)
            text = f"Error: the tool {call.name} failed in an unexpected way; see the log."
            return ToolResult(text, is_error=True, error_name="ToolError", error_code="INTERNAL")

    async def _answer(self, call: Planned, result: ToolResult) -> None:
        rows = [Draft(kind, data) for kind, data in result.rows]
        row = self._result_row(call, result)
        assert isinstance(row.data, dict)
        result_message = row.data["message"]
        assert isinstance(result_message, dict)
        rows.append(row)
        self._results.append(result_message)
        del self.unanswered[call.call_id]
        is_last = not self.unanswered
        try:
            if is_last:
                async with self._desk.inbox:
                    await self._desk.committer.commit([*rows, *self._next_step_rows()])
            else:
                await self._desk.committer.commit(rows)
        except BaseException:
            self.unanswered[call.call_id] = call
            raise

    def _next_step_rows(self) -> list[Draft]:
        """The step's end and, if there is room, the next one's start; what came meanwhile."""
        splices, messages = taken_by_step(self._desk)
        rows = [Draft("step/end", {"turn": self._turn, "step": self._step}), *splices]
        self.next_started = not self._is_full([*self._results, *messages])
        if self.next_started:
            rows.append(Draft("step/start", {"turn": self._turn, "step": self._step + 1}))
        return [*rows, *message_rows(messages)]

    def _plan(self, call: JsonObject) -> Planned:
        name, text = str(call["name"]), str(call["arguments"])
        tool = self._desk.tools.get(name)
        arguments = parse_arguments(text)
        planned = Planned(
            call_id=CallId(str(call["id"])),
            name=name,
            arguments_text=text,
            tool=tool,
            arguments=arguments if isinstance(arguments, dict) else {},
        )
        if tool is None:
            planned.fault = ToolResult(
                f'Error: unknown tool "{name}"',
                is_error=True,
                error_name="ToolNotFoundError",
                error_code="UNKNOWN_TOOL",
            )
        elif isinstance(arguments, str):
            planned.fault = invalid_arguments(arguments)
        else:
            planned.fault = check_arguments(tool.parameters, arguments)
        if planned.fault is None:
            match self._verdict(planned):
                case Question() as question:
                    planned.question = question
                    planned.ask_id = self._desk.world.new_id()
                case Refusal(text=text):
                    planned.fault = _refused(text)
        return planned

    def _verdict(self, call: Planned) -> Question | Refusal | None:
        assert call.tool is not None
        access = call.tool.access(call.arguments, self._desk.folder)
        return verdict_on(
            access,
            mode=self._desk.choices.mode,
            workspace=self._desk.cwd.resolve(),
            folders=[folder.resolve() for folder in self._desk.given.folders],
            spill_dir=self._desk.world.spill_dir.resolve(),
            grants=self._desk.memory.grants,
        )

    def _context(self, call: Planned) -> ToolContext:
        def emit(text: str) -> None:
            call.output = (call.output + text)[-ABORTED_OUTPUT_CHARS_MAX:]
            self._desk.committer.emit(ToolOutput(call.call_id, text))

        def in_terminal(terminal_id: str) -> None:
            self._desk.committer.emit(ToolTerminal(call.call_id, terminal_id))

        async def ask(questions: Sequence[UserQuestion]) -> Sequence[QuestionAnswer] | None:
            async with self._desk.asking:
                asked = QuestionsAsk(call.call_id, tuple(questions))
                return await self._desk.client.ask_questions(asked)

        world = self._desk.world
        return ToolContext(
            cwd=self._desk.folder,
            files=self._desk.files,
            emit=emit,
            spill_dir=world.spill_dir,
            env=world.env,
            flow=self._desk.client.flow,
            runner=None if world.runs_here else self._desk.client,
            in_terminal=in_terminal,
            ask=ask if self._desk.client.takes_questions else None,
            session_id=self._desk.session_id,
            call_id=call.call_id,
        )

    def _ask_row(self, call: Planned) -> Draft:
        assert call.question is not None
        data: JsonObject = {"id": call.ask_id, "toolName": call.name, "callId": call.call_id}
        return Draft("approval/asked", {**data, "reason": call.question.reason})

    def _decided_row(self, ask_id: str, answer: Answer) -> Draft:
        return Draft("approval/decided", {"id": ask_id, "outcome": _OUTCOMES[answer]})

    def _call_row(self, call: Planned) -> Draft:
        data: JsonObject = {
            "turn": self._turn,
            "step": self._step,
            "callId": call.call_id,
            "name": call.name,
            "arguments": call.arguments_text,
        }
        return Draft("tool/call", data)

    def _result_row(self, call: Planned, result: ToolResult) -> Draft:
        content: list[JsonValue] = [{"type": "text", "text": result.text}]
        data: JsonObject = {
            "turn": self._turn,
            "step": self._step,
            "message": {
                "role": "tool",
                "source": {"kind": "tool", "callId": call.call_id},
                "toolCallId": call.call_id,
                "content": content,
                "isError": result.is_error,
                "id": self._desk.world.new_id(),
            },
        }
        if result.is_error and result.error_name is not None:
            data["error"] = {"name": result.error_name, "code": result.error_code}
        if result.meta is not None:
            data["meta"] = result.meta
        sources = None if call.seq is None else (call.seq,)
        return Draft("tool/result", data, surface_op="append", source_event_seqs=sources)


def _refused(text: str) -> ToolResult:
    return ToolResult(text, is_error=True, error_name="ToolRejectedError", error_code="REJECTED")
