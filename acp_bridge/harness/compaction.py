"""Compaction: a summary takes the place of earlier messages in what the model sees.

The log keeps everything. Rows are the real runtime's (dsh-events sections 1.4 and 3): start;
summary, the checkpoint that replaces the slice, end; or start and an end with an error, and what
the model sees is as it was. `Room` decides in a turn, `compact_by_hand` for ``/compact``.
"""

import json
import logging
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Final

import anyio
import attrs

from acp_bridge.errors import BridgeError
from acp_bridge.harness.answer import CUT_OFF, EMPTY, failure_json, is_empty
from acp_bridge.harness.desk import Desk
from acp_bridge.harness.memory import SUMMARY_RETRY_ROW
from acp_bridge.harness.recorder import AnswerRecorder
from acp_bridge.harness.requests import (
    messages_of,
    model_request,
    surface_rows,
    system_text,
)
from acp_bridge.harness.retry import RETRIES_MAX, Retry, next_retry
from acp_bridge.harness.window import (
    ROOM_RATIO,
    Shadow,
    estimate,
    fitting,
    is_worth,
    newest_exchange,
    newest_said,
    shadow_of,
    tail_of,
    text_tokens,
    tokens_held,
    tokens_max,
)
from acp_bridge.ports import FailureChunk, Model, ModelRequest, StopChunk
from acp_bridge.vocabulary import Draft, Event, JsonObject, JsonValue

logger = logging.getLogger(__name__)

TOO_LONG: Final = "CONTEXT_WINDOW"
"""The log's code for a request that the provider found too long."""

CANCELLED: Final = "cancelled"
"""The error of a compaction that a cancel ended; the projector knows it."""

_HALVINGS_MAX: Final = 3
"""How often the request for a summary is made half as long after it was too long itself: the
window that we know of a model may be wrong, and estimates are."""

_REQUEST: Final = """\
Pause the work here: call no tool and do not answer what was asked last. Write a summary of the \
conversation above instead. It will take the place of these messages, and the work goes on from \
it, so what it leaves out is lost.

Write under these headings, and leave out a heading that has nothing to say:

## Wanted
What the user asked for, newest last, with every condition, correction and refusal; in their own \
words where the wording matters.

## Done
What was done and found out: files with their paths and what matters in them, changes made, \
commands and their outcomes, errors and how they were solved.

## Decided
Choices that hold from here on, and why.

## Next
What was under way at the end, exactly, and what is left to do.

Write in the language of the user. Be exact about names, paths, numbers and error texts, and brief \
about everything else. Answer with the summary alone."""

_OPENING: Final = (
    "[The earlier part of this conversation was summarized to save space. What the summary says "
    "happened; go on from it, without mentioning it.]\n\n<summary>\n"
)
_CLOSING: Final = "\n</summary>"


@attrs.frozen(slots=True)
class Compacted:
    """A compaction that worked: its summary's row, and what it freed (tokens are estimates)."""

    summary_seq: int
    messages: int
    tokens_before: int
    tokens_after: int


@attrs.frozen(slots=True)
class _Summary:
    text: str
    usage: JsonObject | None
    model: Model


class Room:
    """Keeps the requests of one turn inside the model's window."""

    def __init__(self, desk: Desk, *, turn: int) -> None:
        self._desk = desk
        self._turn = turn
        self._failed = False
        self._pressed = False

    def shadow_before(self, messages: Sequence[JsonObject]) -> Shadow | None:
        """What to summarize before these messages are answered; None: there is room for them."""
        return self._shadow(surface_rows(self._desk)) if self.is_full_with(messages) else None

    def is_full_with(self, messages: Sequence[JsonObject]) -> bool:
        """Whether these messages, behind what the model sees now, leave too little room."""
        if self._failed or not self._desk.world.compacts:
            return False
        return self._held(surface_rows(self._desk)) + estimate(messages) >= self._tokens_max

    def is_full(self, messages: Sequence[JsonObject]) -> bool:
        """Whether the last answer and these messages, which follow it, leave too little room."""
        if self._failed or not self._desk.world.compacts:
            return False
        rows = surface_rows(self._desk)
        before = rows[: len(rows) - newest_exchange(rows) + 1]
        return self._held(before) + estimate(messages) >= self._tokens_max

    def shadow_between_steps(self) -> Shadow | None:
        """What to summarize between two steps; None: nothing that is worth it."""
        rows = surface_rows(self._desk)
        return self._shadow(rows, kept=self._newest(rows))

    def shadow_in_need(self) -> Shadow | None:
        """What to summarize after a request was too long; None if that was so just before."""
        if self._pressed:
            return None
        self._pressed = True
        rows = surface_rows(self._desk)
        return shadow_of(rows, tail_tokens=tail_of(rows), kept=self._newest(rows))

    def answered(self) -> None:
        """The model answered: the next request that is too long is another case."""
        self._pressed = False

    async def make(self, shadow: Shadow) -> str | None:
        """Compact, or say why that failed: then not again in this turn without need."""
        made = await compact(self._desk, shadow, turn=self._turn)
        if isinstance(made, Compacted):
            return None
        self._failed = True
        return made

    @property
    def _tokens_max(self) -> int:
        model = self._desk.model
        return tokens_max(
            context_window=model.context_window, output_tokens_max=model.info.output_tokens_max
        )

    def _held(self, rows: list[Event]) -> int:
        return tokens_held(rows, beside=lambda: _tools_tokens(self._desk))

    def _shadow(self, rows: list[Event], *, kept: int = 0) -> Shadow | None:
        if self._failed or not self._desk.world.compacts:
            return None
        shadow = shadow_of(rows, tail_tokens=tail_of(rows), kept=kept)
        return shadow if shadow is not None and is_worth(shadow, rows) else None

    def _newest(self, rows: list[Event]) -> int:
        """The rows at the end that the model is to go on from: they stay.

        But an answer with its results does not if it alone takes up so much that summarizing the
        rest is no help.
        """
        said = newest_said(rows)
        count = newest_exchange(rows)
        if said and rows[len(rows) - said - 1].type != "tool/result":
            return said
        tokens = estimate(messages_of(rows[len(rows) - count :]))
        return count if tokens < ROOM_RATIO * self._tokens_max else said


def _tools_tokens(desk: Desk) -> int:
    return sum(
        text_tokens(f"{tool.name}{tool.description}{json.dumps(tool.parameters)}")
        for tool in desk.tools.values()
    )


async def compact_by_hand(
    desk: Desk, *, command_id: str, instructions: str
) -> Compacted | str | None:
    """Compact between turns, whatever room there is.

    None: there is nothing to compact. A text says why it failed.

    Raises:
        StoreFailedError: the disk refused.
    """
    rows = surface_rows(desk)
    shadow = shadow_of(rows, tail_tokens=tail_of(rows))
    if shadow is None or shadow.tokens <= estimate([_checkpoint_message("", {}, "")]):
        return None
    return await compact(desk, shadow, turn=None, command_id=command_id, instructions=instructions)


async def compact(
    desk: Desk,
    shadow: Shadow,
    *,
    turn: int | None,
    command_id: str | None = None,
    instructions: str = "",
) -> Compacted | str:
    """Replace a slice of the surface by a summary of it; a text says why that failed.

    A cancel ends it in the log, and goes on up.

    Raises:
        StoreFailedError: the disk refused.
    """
    marks: JsonObject = {"compactionId": desk.world.new_id()}
    if command_id is not None:
        marks["sourceCommandId"] = command_id
    [start] = await desk.committer.commit([Draft("compaction/start", {**marks, "turn": turn})])

    async def fail(why: str) -> None:
        end: JsonObject = {**marks, "turn": turn, "error": why}
        await desk.committer.commit([Draft("compaction/end", end)])

    try:
        made = await _Summarizer(desk, marks).take(shadow, instructions)
    except BaseException as fault:
        cancelled = isinstance(fault, anyio.get_cancelled_exc_class())
        with suppress(BridgeError):  # the next prompt closes it; the first failure counts
            await fail(CANCELLED if cancelled else "it broke off")
        raise
    if isinstance(made, _Summary):
        message = _checkpoint_message(made.text, marks, desk.world.new_id())
        after = estimate([message])
        if after < shadow.tokens:
            return await _replace(desk, shadow, made, message, start=start, marks=marks, turn=turn)
        made = "the summary came out no shorter than what it stands for"
    logger.warning("session %s: compaction failed: %s", desk.session_id, made)
    await fail(made)
    return made


async def _replace(
    desk: Desk,
    shadow: Shadow,
    made: _Summary,
    message: JsonObject,
    *,
    start: Event,
    marks: JsonObject,
    turn: int | None,
) -> Compacted:
    """Write summary, checkpoint and end in one batch: a kill leaves all of it or nothing."""
    seqs = [row.seq for row in shadow.rows]
    text: list[JsonValue] = [{"type": "text", "text": made.text}]
    shadowed: list[JsonValue] = [*seqs]
    summary: JsonObject = {
        **marks,
        "summary": text,
        "rawOutput": list(text),
        "llmStreamCall": True,
        "shadowedRange": {"start": seqs[0], "end": seqs[-1]},
        "shadowedSeqs": shadowed,
        "shadowedTokenCount": shadow.tokens,
        "provider": made.model.provider,
        "model": made.model.name,
    }
    if made.usage is not None:
        summary["usage"] = made.usage

    def rows(first_seq: int) -> list[Draft]:
        checkpoint = Draft(
            "user/message",
            message,
            surface_op=(seqs[0], seqs[-1]),
            source_event_seqs=(start.seq, first_seq, *seqs),
        )
        end = Draft("compaction/end", {**marks, "turn": turn})
        return [Draft("compaction/summary", summary), checkpoint, end]

    events = await desk.committer.commit(rows)
    after = estimate([message])
    logger.info(
        "session %s: %d messages of about %d tokens became a summary of about %d",
        desk.session_id,
        len(seqs),
        shadow.tokens,
        after,
    )
    return Compacted(events[0].seq, len(seqs), shadow.tokens, after)


class _Summarizer:
    """Asks the model for a summary, with the retries of any answer. Streams nothing to clients."""

    def __init__(self, desk: Desk, marks: JsonObject) -> None:
        self._desk = desk
        self._marks = marks
        # The user may choose another model meanwhile.
        self._model = desk.model
        self._effort = desk.choices.effort

    async def take(self, shadow: Shadow, instructions: str) -> _Summary | str:
        """The summary, or why there is none."""
        messages = messages_of(shadow.rows)
        tokens = self._tokens_for_messages(instructions)
        retries_done = halvings = 0
        while True:
            recorder = AnswerRecorder(self._desk.world.clock)
            end = await self._ask(recorder, self._request(messages, tokens, instructions))
            if isinstance(end, StopChunk):
                return self._checked(recorder, end)
            if end.code == TOO_LONG and halvings < _HALVINGS_MAX:
                halvings, tokens = halvings + 1, tokens // 2
                await self._log_retry(Retry(halvings, 0.0), _HALVINGS_MAX, end)
                continue
            chance = self._desk.world.chance()
            retry = next_retry(end, retries_done=retries_done, chance=chance)
            if retry is None:
                return end.message
            await self._log_retry(retry, RETRIES_MAX, end)
            await anyio.sleep(retry.delay_s)
            retries_done = retry.number

    def _tokens_for_messages(self, instructions: str) -> int:
        model = self._model
        whole = tokens_max(
            context_window=model.context_window, output_tokens_max=model.info.output_tokens_max
        )
        (head, *_) = surface_rows(self._desk)
        texts = system_text(head) + _REQUEST + instructions
        beside = _tools_tokens(self._desk) + text_tokens(texts)
        return max(whole - beside, model.context_window // 4)

    def _request(self, messages: list[JsonObject], tokens: int, instructions: str) -> ModelRequest:
        text = _REQUEST
        if instructions:
            text += f"\n\nThe user asks of this summary: {instructions}"
        ask: JsonObject = {
            "role": "user",
            "content": [{"type": "text", "text": text}],
            "source": {"kind": "compact-request"},
        }
        # Left as they are where they fit, since the provider has cached them so.
        return model_request(
            self._desk,
            [*fitting(messages, tokens=tokens), ask],
            purpose="compact",
            position=self._desk.memory.summaries,
            effort=self._effort,
        )

    async def _ask(
        self, recorder: AnswerRecorder, request: ModelRequest
    ) -> StopChunk | FailureChunk:
        async with aclosing(self._model.stream(request)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                if isinstance(chunk, StopChunk):
                    return EMPTY if is_empty(recorder, chunk) else chunk
                if isinstance(chunk, FailureChunk):
                    return chunk
                recorder.add(chunk)
        return CUT_OFF

    def _checked(self, recorder: AnswerRecorder, stop: StopChunk) -> _Summary | str:
        texts = [
            str(block["text"])
            for block in recorder.content(with_calls=False)
            if isinstance(block, dict) and block["type"] == "text"
        ]
        text = "\n".join(texts).strip()
        match stop.reason:
            case "refusal":
                return "the model refused to write a summary"
            case "max_tokens":
                return "the model's summary was cut off at its longest answer"
            case _ if not text:
                return "the model wrote no summary"
            case _:
                return _Summary(text, recorder.usage, self._model)

    async def _log_retry(self, retry: Retry, retries_max: int, failure: FailureChunk) -> None:
        """A row of ours: the format knows retries of a step's request alone."""
        data: JsonObject = {
            "compactionId": self._marks["compactionId"],
            "retry": retry.number,
            "maxRetries": retries_max,
            "delayMs": retry.delay_s * 1000,
            "failure": failure_json(failure),
        }
        await self._desk.committer.commit([Draft(SUMMARY_RETRY_ROW, data, ignorable=True)])


def _checkpoint_message(summary: str, marks: JsonObject, message_id: str) -> JsonObject:
    content: list[JsonValue] = [
        {"type": "text", "text": text} for text in (_OPENING, summary, _CLOSING)
    ]
    return {
        "content": content,
        "source": {"kind": "compact-checkpoint", **marks},
        "role": "user",
        "id": message_id,
    }
