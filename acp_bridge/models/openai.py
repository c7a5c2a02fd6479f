"""The chat completions API, streamed, with tools: OpenAI's own, and what speaks it.

Source: Chat Completions API, "Streaming"; reasoning and usage as the usual servers add them.
"""

import json
import logging
from collections.abc import Sequence
from typing import Any, Final, Literal

import attrs

from acp_bridge.models.http import ProviderHttp
from acp_bridge.models.http_model import AnswerReader, Dialect
from acp_bridge.models.jsontext import event_json
from acp_bridge.models.openai_body import chat_body, without_reasoning
from acp_bridge.ports import (
    Chunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)
from acp_bridge.vocabulary import JsonObject, JsonValue

logger = logging.getLogger(__name__)

_REASONING_BLOCK: Final = 0
_TEXT_BLOCK: Final = 1
_FIRST_CALL_BLOCK: Final = 2
_REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
"""Not OpenAI's: how DeepSeek and vLLM, and how OpenRouter tell their reasoning."""

_Reason = Literal["end_turn", "tool_calls", "max_tokens", "refusal"]

_STOPS: Final[dict[str, _Reason]] = {
    "stop": "end_turn",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "max_tokens",
    "content_filter": "refusal",
}


@attrs.define(slots=True)
class _Call:
    """A tool call as it comes together."""

    call_id: str = ""
    name: str = ""
    pieces: list[str] = attrs.field(factory=list)


class ChatReader(AnswerReader):
    """Keeps tool calls until the end: their pieces may be mixed, and nobody waits for them."""

    def __init__(self, http: ProviderHttp, replay_kind: str, model: str) -> None:
        super().__init__(http, replay_kind, model)
        self._calls: list[_Call] = []
        self._places: dict[int, int] = {}
        self._usage: JsonObject | None = None
        self._refused = False
        self._field: str | None = None

    def _event(self, data: str) -> tuple[Chunk, ...]:
        if data.strip() == "[DONE]":
            self._end = self._stopped()
            return ()
        event: Any = event_json(data)
        if event.get("error"):
            self._end = self._http.failed(event["error"])
            return ()
        usage = event.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        choices = event.get("choices")
        if not choices:
            return ()
        choice = choices[0]
        chunks = self._delta(choice.get("delta") or {})
        self._stop = choice.get("finish_reason") or self._stop
        return chunks

    def _last(self) -> Sequence[Chunk]:
        chunks: list[Chunk] = []
        for number, call in enumerate(self._calls):
            block = _FIRST_CALL_BLOCK + number
            chunks.append(ToolCallChunk(block, call.call_id, call.name, ""))
            chunks.append(ToolCallChunk(block, call.call_id, None, "".join(call.pieces) or "{}"))
        if self._usage is not None:
            chunks.append(_usage(self._usage))
        return chunks

    def _delta(self, delta: JsonObject) -> tuple[Chunk, ...]:
        chunks: tuple[Chunk, ...] = ()
        for field in _REASONING_FIELDS:
            thought = delta.get(field)
            if isinstance(thought, str) and thought:
                self._field = self._field or field
                chunks = (ReasoningChunk(_REASONING_BLOCK, thought),)
                break
        text = delta.get("content")
        if isinstance(text, str) and text:
            chunks = (*chunks, TextChunk(_TEXT_BLOCK, text))
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            chunks = (*chunks, TextChunk(_TEXT_BLOCK, refusal))
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for piece in calls:
                self._add(piece)
        return chunks

    def _add(self, piece: JsonValue) -> None:
        """Put a piece to its call: by place, and by id where a server gives all one place."""
        if not isinstance(piece, dict):
            raise TypeError("a tool call is no object")
        call_id = piece.get("id")
        place = piece.get("index")
        if not isinstance(place, int):
            place = len(self._calls) if call_id else max(0, len(self._calls) - 1)
        number = self._places.get(place)
        fresh = isinstance(call_id, str) and bool(call_id)
        if number is None or (fresh and self._calls[number].call_id not in {"", call_id}):
            number = self._places[place] = len(self._calls)
            self._calls.append(_Call())
        call = self._calls[number]
        if fresh:
            call.call_id = str(call_id)
        function = piece.get("function")
        if isinstance(function, dict):
            call.name = call.name or str(function.get("name") or "")
            arguments = function.get("arguments")
            if isinstance(arguments, dict):  # not the official API: a server that has them whole
                arguments = json.dumps(arguments, ensure_ascii=False)
            if isinstance(arguments, str):
                call.pieces.append(arguments)

    def _stopped(self) -> StopChunk:
        reason = _STOPS.get(self._stop or "")
        if reason is None:
            logger.warning("%s stopped for %r", self._model, self._stop)
            reason = "tool_calls" if self._calls else "end_turn"
        if self._refused:
            reason = "refusal"
        if self._field is None:
            return StopChunk(reason)
        response: JsonObject = {
            "kind": self._replay_kind,
            "version": 1,
            "model": self._model,
            "reasoning": self._field,
        }
        return StopChunk(reason, {"response": response})


def _usage(usage: JsonObject) -> UsageChunk:
    """The counts, cached tokens taken out of the input that this API counts them into."""
    prompt = _count(usage.get("prompt_tokens"))
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    read = min(prompt, _count(cached) or _count(usage.get("prompt_cache_hit_tokens")))
    return UsageChunk(
        input_tokens=prompt - read,
        output_tokens=_count(usage.get("completion_tokens")),
        cache_read_tokens=read,
    )


def _count(value: JsonValue) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def _mended(body: JsonObject, refusal: str) -> JsonObject | None:
    """The request to send instead of one that a model refuses to reason about with tools."""
    if "reasoning_effort" not in refusal or "tools" not in refusal:
        return None
    logger.info("the model takes tools only without reasoning: asking again without it")
    return without_reasoning(body)


CHAT: Final = Dialect(headers=_headers, body=chat_body, reader=ChatReader, mended=_mended)
