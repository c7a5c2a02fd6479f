"""One model answer for one step: the request, the stream, and retry until an end that counts."""

import logging
from contextlib import aclosing
from typing import Final, Literal

import anyio
import anyio.lowlevel
import attrs

from acp_bridge.harness.desk import Desk
from acp_bridge.harness.recorder import AnswerRecorder
from acp_bridge.harness.requests import messages_of, model_request, surface_rows
from acp_bridge.harness.retry import RETRIES_MAX, Retry, next_retry
from acp_bridge.ports import (
    FailureChunk,
    ModelRequest,
    ReasoningChunk,
    StopChunk,
    TextChunk,
)
from acp_bridge.vocabulary import Draft, JsonObject, JsonValue, StreamDelta

logger = logging.getLogger(__name__)

DELTAS_PER_YIELD = 64
"""Deltas between two looks at the event loop: a hop per delta costs most of the throughput, and
none at all would hold up the reading of a cancel."""

_FINISH: dict[str, JsonValue] = {
    "end_turn": {"kind": "stop"},
    "tool_calls": {"kind": "tool-calls"},
    "max_tokens": {"kind": "max-tokens"},
    "refusal": {"kind": "error", "failure": {"message": "the model refused", "code": "REFUSAL"}},
}


CUT_OFF: Final = FailureChunk(
    message="the model's answer was cut off", code="TRANSPORT", retryable=True
)
"""A stream that ended without a stop."""

EMPTY: Final = FailureChunk(
    message="the model gave an empty answer", code="EMPTY_RESPONSE", retryable=True
)


@attrs.frozen(slots=True)
class Answered:
    """The model answered."""

    recorder: AnswerRecorder
    reason: Literal["end_turn", "tool_calls", "max_tokens", "refusal"]


class AnswerTaker:
    """Takes one step's answer. ``open_recorder`` is the answer under way, for whoever cancels."""

    def __init__(self, desk: Desk, *, turn: int, step: int) -> None:
        self._desk = desk
        self._turn = turn
        self._step = step
        self._attempt = 1
        # The user may choose another model while this one answers, or waits to be asked again.
        self._model = desk.model
        self._effort = desk.choices.effort
        self._asked: JsonObject = {"provider": self._model.provider, "model": self._model.name}
        self.open_recorder: AnswerRecorder | None = None

    async def take(self) -> Answered | FailureChunk:
        """The answer, or the failure that no retry can mend."""
        retry_id = self._desk.world.new_id()
        retries_done = 0
        while True:
            recorder = AnswerRecorder(self._desk.world.clock)
            self.open_recorder = recorder
            end = await self._stream(recorder, self._request())
            if isinstance(end, StopChunk):
                return Answered(recorder, end.reason)
            recorder.finish({"kind": "error", "failure": failure_json(end)})
            chance = self._desk.world.chance()
            retry = next_retry(end, retries_done=retries_done, chance=chance)
            rows = [self.attempt_row(recorder)]
            if retry is not None:
                rows.append(self._retry_row(retry_id, retry, end))
            await self._desk.committer.commit(rows)
            self.open_recorder = None
            if retry is None:
                return end
            logger.info(
                "session %s: model call failed (%s), retry %d in %.1f s",
                self._desk.session_id,
                end.code,
                retry.number,
                retry.delay_s,
            )
            await anyio.sleep(retry.delay_s)
            await self._desk.committer.commit([self._retry_started_row(retry_id, retry)])
            retries_done = retry.number
            self._attempt += 1

    def attempt_row(self, recorder: AnswerRecorder) -> Draft:
        """The row of a call that gave no message."""
        data: JsonObject = {"turn": self._turn, "step": self._step, "stream": recorder.stream}
        return Draft("assistant/attempt", data)

    def message_row(self, recorder: AnswerRecorder, *, with_calls: bool, cut: bool) -> Draft:
        """The row of an answer; ``cut`` when a cancel ended it."""
        source: JsonObject = {"kind": "model", **self._asked}
        if recorder.replay_state is not None:
            source["replayState"] = _replay_state(recorder.replay_state, with_calls=with_calls)
        data: JsonObject = {
            "turn": self._turn,
            "step": self._step,
            "message": {
                "role": "assistant",
                "content": recorder.content(with_calls=with_calls),
                "source": source,
                "id": self._desk.world.new_id(),
            },
        }
        if recorder.usage is not None:
            data["usage"] = recorder.usage
        if cut:
            data["interrupted"] = True
        data["stream"] = recorder.stream
        return Draft("assistant/message", data, surface_op="append")

    async def _stream(
        self, recorder: AnswerRecorder, request: ModelRequest
    ) -> StopChunk | FailureChunk:
        emit = self._desk.committer.emit
        deltas = 0
        async with aclosing(self._model.stream(request)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                match chunk:
                    case TextChunk() | ReasoningChunk():
                        recorder.add(chunk)
                        kind: Literal["text", "reasoning"] = (
                            "text" if isinstance(chunk, TextChunk) else "reasoning"
                        )
                        place = (self._turn, self._step, self._attempt, recorder.index)
                        emit(StreamDelta(*place, kind, chunk.text))
                        deltas += 1
                        if deltas % DELTAS_PER_YIELD == 0:
                            await anyio.lowlevel.checkpoint()
                            await self._desk.client.flow()
                    case StopChunk():
                        return self._checked_stop(recorder, chunk)
                    case FailureChunk():
                        return chunk
                    case _:
                        recorder.add(chunk)
        return CUT_OFF

    def _checked_stop(self, recorder: AnswerRecorder, stop: StopChunk) -> StopChunk | FailureChunk:
        if is_empty(recorder, stop):
            return EMPTY
        finish = _FINISH[stop.reason]
        assert isinstance(finish, dict)
        recorder.finish(finish, replay_state=stop.replay_state)
        return stop

    def _request(self) -> ModelRequest:
        return model_request(
            self._desk,
            messages_of(surface_rows(self._desk)),
            purpose="turn",
            position=self._desk.memory.position,
            effort=self._effort,
        )

    def _retry_row(self, retry_id: str, retry: Retry, failure: FailureChunk) -> Draft:
        data: JsonObject = {
            "retryId": retry_id,
            "turn": self._turn,
            "step": self._step,
            "provider": self._model.provider,
            "mode": "normal",
            "policyKey": "acp-bridge",
            "retry": retry.number,
            "maxRetries": RETRIES_MAX,
            "delayMs": retry.delay_s * 1000,
            "failure": failure_json(failure),
        }
        return Draft("llm/retry", data)

    def _retry_started_row(self, retry_id: str, retry: Retry) -> Draft:
        data: JsonObject = {
            "retryId": retry_id,
            "turn": self._turn,
            "step": self._step,
            "retry": retry.number,
        }
        return Draft("llm/retry-started", data)


def _replay_state(state: JsonObject, *, with_calls: bool) -> JsonObject:
    """A provider's state for the blocks that the message holds."""
    blocks = state.get("blocks")
    if with_calls or not isinstance(blocks, list):
        return state
    kept = [b for b in blocks if not (isinstance(b, dict) and b.get("type") == "tool-call")]
    return {**state, "blocks": kept}


def is_empty(recorder: AnswerRecorder, stop: StopChunk) -> bool:
    """Whether an answer that should say something says nothing."""
    return stop.reason in {"end_turn", "tool_calls"} and not recorder.content(with_calls=True)


def failure_json(failure: FailureChunk) -> JsonObject:
    """A failure as the log holds it."""
    data: JsonObject = {"message": failure.message, "code": failure.code}
    if failure.status is not None:
        data["status"] = failure.status
    return data
