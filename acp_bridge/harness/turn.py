"""One turn: admission, steps of answer and tool calls, and an end in every case.

The order of rows is the real runtime's (dsh-events section 1, dsh section 3). A text turn takes
two durable batches, admission and end; a tool step adds one for message and calls and one for
results. A compaction stands between steps, or between the turn's start and its first step; the
message that it makes room for is in the log before it, so that a kill does not lose what was said.
"""

import logging

import anyio
import attrs

from acp_bridge.errors import FAULT, BridgeError
from acp_bridge.harness.answer import Answered, AnswerTaker, failure_json
from acp_bridge.harness.calls import CallRunner
from acp_bridge.harness.compaction import TOO_LONG, Room
from acp_bridge.harness.desk import Desk
from acp_bridge.harness.inbox import dropped, message_rows, put_row, taken, taken_by_step
from acp_bridge.harness.standing import birth_rows, request_rows, system_rows
from acp_bridge.ports import FailureChunk
from acp_bridge.vocabulary import Draft, JsonObject, JsonValue, TurnEnd

logger = logging.getLogger(__name__)

STEPS_MAX = 200
"""Model requests in one turn. A model that needs more is going round in circles at a cost."""

STEP_LIMIT = "STEP_LIMIT"
"""The log's code for a turn that this limit ended; the projector says it in text."""

_REFUSAL: JsonObject = {"message": "The model refused to answer.", "code": "REFUSAL"}
NO_ROOM = "Send a shorter message, choose a model with a larger window, or go on in a new session."
MAKE_ROOM = (
    "Make room with /compact, choose a model with a larger window, or go on in a new session."
)


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
        self._step = 0
        self._room = Room(desk, turn=self._number)
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
        """One batch: birth rows if they are missing, inbox, turn and step start, the request.

        Two if there is no room for the messages, and a compaction between them.
        """
        commit = self._desk.committer.commit
        # However early a cancel comes, a prompt that began is in the log.
        with anyio.CancelScope(shield=True):
            async with self._desk.inbox:
                splices, messages = taken(self._desk, self._message, is_queued=self._pending)
                shadow = self._room.shadow_before(messages)
                if shadow is None:
                    await commit(lambda first_seq: self._all_rows(first_seq, splices, messages))
                else:
                    said = await commit(
                        lambda _seq: [*self._opening_rows(splices), *message_rows(messages)]
                    )
        if shadow is not None:
            await self._room.make(shadow)
            first = said[-len(messages)].seq
            await commit(lambda _seq: [self._step_row(1), *self._asking_rows(first, messages)])
        self._step = 1

    def _all_rows(
        self, first_seq: int, splices: list[Draft], messages: list[JsonObject]
    ) -> list[Draft]:
        rows = [
            *self._opening_rows(splices),
            self._step_row(1),
            *system_rows(self._desk, turn=self._number, step=1),
        ]
        asking = self._asking_rows(first_seq + len(rows), messages)
        return [*rows, *message_rows(messages), *asking]

    def _opening_rows(self, splices: list[Draft]) -> list[Draft]:
        rows = birth_rows(self._desk)
        if self._message is not None and not self._pending:
            rows.append(put_row(self._desk, "next-turn", self._message))
        return [*rows, Draft("turn/start", {"turn": self._number}), *splices]

    def _step_row(self, step: int) -> Draft:
        return Draft("step/start", {"turn": self._number, "step": step})

    def _asking_rows(self, first_seq: int, messages: list[JsonObject]) -> list[Draft]:
        """The request and the title; ``first_seq`` is where the messages stand in the log."""
        rows = request_rows(self._desk)
        own = self._message
        if own is not None and self._desk.memory.title is None and self._title:
            place: JsonValue = first_seq + [one["id"] for one in messages].index(own["id"])
            source: JsonObject = {"kind": "fallback"}
            title: JsonObject = {"title": self._title, "messageSeqs": [place], "source": source}
            rows.append(Draft("session/title", title))
        return rows

    async def _steps(self) -> TurnEnd:
        while True:
            await self._apply_choices(self._step)
            taker = AnswerTaker(self._desk, turn=self._number, step=self._step)
            self._taker = taker
            answer = await taker.take()
            if isinstance(answer, FailureChunk):
                if answer.code == TOO_LONG:
                    advice = await self._shorten()
                    if advice is None:
                        continue
                    text = f"{answer.message.rstrip('.')}. {advice}"
                    answer = attrs.evolve(answer, message=text)
                return await self._fail(answer.message, answer.code, failure_json(answer))
            self._room.answered()
            calls = answer.recorder.calls() if answer.reason != "max_tokens" else []
            if not calls or answer.reason == "refusal":
                end = await self._finish(taker, answer)
                if end is None:
                    continue
                return end
            message = taker.message_row(answer.recorder, with_calls=True, cut=False)
            runner = CallRunner(
                self._desk,
                turn=self._number,
                step=self._step,
                calls=calls,
                is_full=self._room.is_full,
            )
            await runner.start(message)
            taker.open_recorder, self._calls = None, runner
            await runner.finish()
            self._step += 1
            self._calls = self._taker = None
            if self._step > STEPS_MAX:
                await self._fail(f"Stopped after {STEPS_MAX} steps. Say so to go on.", STEP_LIMIT)
                return TurnEnd("step-limit")
            if not runner.next_started:
                await self._make_room()

    async def _shorten(self) -> str | None:
        """After a request that was too long: a new step over less, or what the user can do."""
        if not self._desk.world.compacts:
            return MAKE_ROOM
        shadow = self._room.shadow_in_need()
        if shadow is None:
            return NO_ROOM
        await self._desk.committer.commit(self._step_end_rows())
        why = await self._room.make(shadow)
        if why is not None:
            return f"Compacting the conversation failed: {why}. {NO_ROOM}"
        self._step += 1
        await self._desk.committer.commit([self._step_row(self._step)])
        return None

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
        message = taker.message_row(answer.recorder, with_calls=False, cut=False)
        step_end, turn_end = self._end_rows(reason)
        async with self._desk.inbox:
            splices, messages = taken_by_step(self._desk)
            if not messages or end.kind != "completed" or self._step >= STEPS_MAX:
                await self._desk.committer.commit([message, step_end, turn_end])
                taker.open_recorder = None
                return end
            is_full = self._room.is_full_with([_message_of(message), *messages])
            start = [] if is_full else [self._step_row(self._step + 1)]
            rows = [message, step_end, *splices, *start, *message_rows(messages)]
            await self._desk.committer.commit(rows)
            taker.open_recorder = None
        self._step += 1
        self._taker = None
        if is_full:
            await self._make_room()
        return None

    async def _make_room(self) -> None:
        """Compact what can be, and start the step."""
        shadow = self._room.shadow_between_steps()
        if shadow is not None:
            await self._room.make(shadow)
        await self._desk.committer.commit([self._step_row(self._step)])

    async def _fail(self, details: str, code: str, error: JsonObject | None = None) -> TurnEnd:
        shown: JsonObject = error or {"message": details, "code": code}
        await self._close_cut_turn({"kind": "error", "error": shown})
        return TurnEnd("error", details, code)

    async def _close_cut_turn(self, reason: JsonObject) -> None:
        """Close what is open in the log: a half answer, calls, the step, the turn."""
        if self._desk.committer.writer.state.turn != self._number:
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
            rows += self._calls.abort_rows()
        try:
            with anyio.CancelScope(shield=True):
                async with self._desk.inbox:
                    unsaid = dropped(self._desk) if reason["kind"] == "aborted" else []
                    await self._desk.committer.commit([*rows, *self._end_rows(reason), *unsaid])
        except BridgeError as failure:
            # The next turn, or the next opening, closes it; what was told is safe.
            logger.error(  # noqa: TRY400  # the sentence says it all
                "session %s: turn %d could not be closed: %s",
                self._desk.session_id,
                self._number,
                failure.details,
            )

    def _end_rows(self, reason: JsonObject) -> list[Draft]:
        end = Draft("turn/end", {"turn": self._number, "reason": reason})
        return [*self._step_end_rows(), end]

    def _step_end_rows(self) -> list[Draft]:
        """The end of the step that is open in the log, if one is."""
        step = self._desk.committer.writer.state.step
        return [] if step is None else [Draft("step/end", {"turn": self._number, "step": step})]


def _message_of(row: Draft) -> JsonObject:
    assert isinstance(row.data, dict)
    message = row.data["message"]
    assert isinstance(message, dict)
    return message
