"""One turn: admission, steps of answer and tool calls, and an end in every case.

The order of rows is the real runtime's (dsh-events section 1, dsh section 3). A text turn takes
two durable batches, admission and end; a tool step adds one for message and calls and one for
results.
"""

import logging

import anyio

from acp_bridge.errors import BridgeError
from acp_bridge.harness.answer import Answered, AnswerTaker, failure_json
from acp_bridge.harness.calls import CallRunner
from acp_bridge.harness.desk import Desk
from acp_bridge.harness.inbox import message_rows, put_row, taken, taken_by_step
from acp_bridge.harness.standing import birth_rows, request_rows, system_rows
from acp_bridge.ports import FailureChunk
from acp_bridge.vocabulary import Draft, JsonObject, JsonValue, TurnEnd

logger = logging.getLogger(__name__)

STEPS_MAX = 200
"""Model requests in one turn. A model that needs more is going round in circles at a cost."""

STEP_LIMIT = "STEP_LIMIT"
"""The log's code for a turn that this limit ended; the projector says it in text."""

_REFUSAL: JsonObject = {"message": "The model refused to answer.", "code": "REFUSAL"}
FAULT = "Something went wrong inside acp-bridge; its log holds the details. Try again."


class Turn:
    """One turn over one user message, and whatever else waits in the log's inbox but prompts.

    ``message`` is None for a turn of what waits alone. ``pending`` says that the message already
    waits in the log's inbox (another harness left it, or a parent put it there).
    """

    def __init__(
        self, desk: Desk, message: JsonObject | None, *, title: str, pending: bool
    ) -> None:
        self._desk = desk
        self._message = message
        self._title = title
        self._pending = pending
        self._number = desk.committer.writer.state.last_turn + 1
        self._step: int | None = None
        self._taker: AnswerTaker | None = None
        self._calls: CallRunner | None = None

    async def run(self) -> TurnEnd:
        """Run to the end; a cancellation closes the turn in the log and goes on up."""
        try:
            await self._admit()
            return await self._steps()
        except anyio.get_cancelled_exc_class():
            reason: JsonObject = {"kind": "aborted", "reason": {"kind": self._desk.abort}}
            await self._close_cut_turn(reason)
            raise
        except BridgeError as failure:
            return await self._fail(failure.details, "STORE")
        except Exception:
            logger.exception("session %s: turn %d failed", self._desk.session_id, self._number)
            return await self._fail(FAULT, "INTERNAL")

    async def _admit(self) -> None:
        """One batch: birth rows if they are missing, inbox, turn and step start, the request."""
        async with self._desk.inbox:
            await self._desk.committer.commit(self._admission_rows)
            self._step = 1

    def _admission_rows(self, first_seq: int) -> list[Draft]:
        desk, turn, own = self._desk, self._number, self._message
        rows = birth_rows(desk)
        if own is not None and not self._pending:
            rows.append(put_row(desk, "next-turn", own))
        splices, messages = taken(desk, own, is_queued=self._pending)
        rows += [
            Draft("turn/start", {"turn": turn}),
            *splices,
            Draft("step/start", {"turn": turn, "step": 1}),
            *system_rows(desk, turn=turn, step=1),
        ]
        seqs = {str(message["id"]): first_seq + len(rows) + n for n, message in enumerate(messages)}
        rows += message_rows(messages)
        rows += request_rows(desk)
        if own is not None and desk.memory.title is None and self._title:
            source: JsonObject = {"kind": "fallback"}
            named: list[JsonValue] = [seqs[str(own["id"])]]
            title: JsonObject = {"title": self._title, "messageSeqs": named, "source": source}
            rows.append(Draft("session/title", title))
        return rows

    async def _steps(self) -> TurnEnd:
        while True:
            assert self._step is not None
            await self._apply_choices(self._step)
            taker = AnswerTaker(self._desk, turn=self._number, step=self._step)
            self._taker = taker
            answer = await taker.take()
            if isinstance(answer, FailureChunk):
                return await self._fail(answer.message, answer.code, failure_json(answer))
            calls = answer.recorder.calls() if answer.reason != "max_tokens" else []
            if not calls or answer.reason == "refusal":
                end = await self._finish(taker, answer)
                if end is None:
                    continue
                return end
            message = taker.message_row(answer.recorder, with_calls=True, cut=False)
            runner = CallRunner(self._desk, turn=self._number, step=self._step, calls=calls)
            await runner.start(message)
            taker.open_recorder, self._calls = None, runner
            await runner.finish()
            self._step += 1
            self._calls = None
            if self._step > STEPS_MAX:
                self._taker = None
                await self._fail(f"Stopped after {STEPS_MAX} steps. Say so to go on.", STEP_LIMIT)
                return TurnEnd("step-limit")

    async def _apply_choices(self, step: int) -> None:
        """Log what the user chose since the last request, so that this one goes by it.

        Again and again, since the user may choose while these rows are written: what the log
        says of a request is what the model gets.
        """
        while rows := [
            *system_rows(self._desk, turn=self._number, step=step),
            *request_rows(self._desk),
        ]:
            await self._desk.committer.commit(rows)

    async def _finish(self, taker: AnswerTaker, answer: Answered) -> TurnEnd | None:
        """Last message and the turn's end, in one batch; None: messages came, the turn goes on."""
        match answer.reason:
            case "max_tokens":
                reason: JsonObject = {"kind": "max-tokens"}
                end = TurnEnd("max-tokens")
            case "refusal":
                reason = {"kind": "error", "error": _REFUSAL}
                end = TurnEnd("refusal", str(_REFUSAL["message"]), "REFUSAL")
            case _:
                reason = {"kind": "completed"}
                end = TurnEnd("completed")
        assert self._step is not None
        message = taker.message_row(answer.recorder, with_calls=False, cut=False)
        async with self._desk.inbox:
            splices, messages = taken_by_step(self._desk)
            goes_on = bool(messages) and end.kind == "completed" and self._step < STEPS_MAX
            step_end, turn_end = self._end_rows(reason)
            rows = [turn_end]
            if goes_on:
                start = Draft("step/start", {"turn": self._number, "step": self._step + 1})
                rows = [*splices, start, *message_rows(messages)]
            await self._desk.committer.commit([message, step_end, *rows])
            taker.open_recorder = None
            if goes_on:
                self._step += 1
                self._taker = None
        return None if goes_on else end

    async def _fail(self, details: str, code: str, error: JsonObject | None = None) -> TurnEnd:
        shown: JsonObject = error or {"message": details, "code": code}
        await self._close_cut_turn({"kind": "error", "error": shown})
        return TurnEnd("error", details, code)

    async def _close_cut_turn(self, reason: JsonObject) -> None:
        """Close what is open in the log: a half answer, calls, the step, the turn."""
        if self._step is None:
            return
        rows: list[Draft] = []
        recorder = self._taker.open_recorder if self._taker is not None else None
        if recorder is not None and self._taker is not None:
            said = bool(recorder.content(with_calls=False))
            rows.append(
                self._taker.message_row(recorder, with_calls=False, cut=True)
                if said
                else self._taker.attempt_row(recorder)
            )
        if self._calls is not None:
            if self._calls.step_ended:
                self._step += 1
            else:
                rows += self._calls.abort_rows()
        try:
            await self._desk.committer.commit([*rows, *self._end_rows(reason)])
        except BridgeError as failure:
            # The next turn, or the next opening, closes it; what was told is safe.
            logger.error(  # noqa: TRY400  # the sentence says it all
                "session %s: turn %d could not be closed: %s",
                self._desk.session_id,
                self._number,
                failure.details,
            )

    def _end_rows(self, reason: JsonObject) -> list[Draft]:
        return [
            Draft("step/end", {"turn": self._number, "step": self._step}),
            Draft("turn/end", {"turn": self._number, "reason": reason}),
        ]
