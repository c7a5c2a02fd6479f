"""The Messages API, streamed: Anthropic's own, and the one that DeepSeek serves.

Source: Messages API, "Streaming"; dsh section 1.
"""

import json
import logging
from collections.abc import Sequence
from typing import Any, Final

from acp_bridge.models.anthropic_body import messages_body, without_thinking
from acp_bridge.models.http import ProviderHttp
from acp_bridge.models.http_model import AnswerReader, Dialect
from acp_bridge.models.jsontext import event_json
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

VERSION: Final = "2023-06-01"
"""The API's version, sent with each request; there is no other."""

NO_TEXT: Final = "no text where the API says text"

_STOPS: Final[dict[str, StopChunk]] = {
    "end_turn": StopChunk("end_turn"),
    "stop_sequence": StopChunk("end_turn"),
    "tool_use": StopChunk("tool_calls"),
    "max_tokens": StopChunk("max_tokens"),
    "model_context_window_exceeded": StopChunk("max_tokens"),
    "refusal": StopChunk("refusal"),
}


class MessagesReader(AnswerReader):
    """Tells each piece as it comes; ``_marks`` are what must go back with each block."""

    def __init__(self, http: ProviderHttp, replay_kind: str, model: str) -> None:
        super().__init__(http, replay_kind, model)
        self._usage: JsonObject = {}
        self._marks: dict[int, JsonObject] = {}
        self._empty: set[int] = set()

    def _event(self, data: str) -> tuple[Chunk, ...]:
        event: Any = event_json(data)
        match event["type"]:
            case "content_block_delta":
                return self._delta(event["index"], event["delta"])
            case "content_block_start":
                return self._start(event["index"], event["content_block"])
            case "content_block_stop":
                return self._block_end(event["index"])
            case "message_start":
                self._count(event["message"].get("usage"))
            case "message_delta":
                self._count(event.get("usage"))
                self._stop = event["delta"].get("stop_reason") or self._stop
            case "message_stop":
                self._end = self._stopped()
            case "error":
                self._end = self._http.failed(event.get("error"))
            case _:
                pass  # a ping, or what a later version of the API adds
        return ()

    def _last(self) -> Sequence[Chunk]:
        if not self._usage:
            return ()
        return [
            UsageChunk(
                input_tokens=_count(self._usage, "input_tokens"),
                output_tokens=_count(self._usage, "output_tokens"),
                cache_read_tokens=_count(self._usage, "cache_read_input_tokens"),
                cache_write_tokens=_count(self._usage, "cache_creation_input_tokens"),
            )
        ]

    def _delta(self, index: int, delta: JsonObject) -> tuple[Chunk, ...]:
        match delta["type"]:
            case "text_delta":
                text = delta["text"]
                if not isinstance(text, str):
                    raise TypeError(NO_TEXT)
                self._empty.discard(index)
                return (TextChunk(index, text),)
            case "thinking_delta":
                return self._told(index, ReasoningChunk(index, _text(delta["thinking"])))
            case "input_json_delta":
                call_id = str(self._marks[index]["id"])
                piece = _text(delta["partial_json"])
                if not piece:
                    return ()
                return self._told(index, ToolCallChunk(index, call_id, None, piece))
            case "signature_delta":
                mark = self._marks[index]
                mark["signature"] = str(mark.get("signature", "")) + _text(delta["signature"])
            case _:
                pass
        return ()

    def _start(self, index: int, block: JsonObject) -> tuple[Chunk, ...]:
        self._empty.add(index)
        match block["type"]:
            case "text":
                self._marks[index] = {"type": "text"}
                text = block.get("text")
                return self._told(index, TextChunk(index, _text(text))) if text else ()
            case "thinking":
                self._marks[index] = {"type": "reasoning"}
                if signature := block.get("signature"):
                    self._marks[index]["signature"] = _text(signature)
                text = block.get("thinking")
                return self._told(index, ReasoningChunk(index, _text(text))) if text else ()
            case "tool_use":
                call_id = _text(block["id"])
                self._marks[index] = {"type": "tool-call", "id": call_id}
                begun = ToolCallChunk(index, call_id, _text(block["name"]), "")
                if not block.get("input"):
                    return (begun,)
                # Not the official API: a server that has the arguments whole.
                whole = json.dumps(block["input"], ensure_ascii=False)
                return (begun, *self._told(index, ToolCallChunk(index, call_id, None, whole)))
            case "redacted_thinking":
                self._marks[index] = {"type": "hidden", "block": block}
            case _:
                pass  # what a later version of the API adds; nothing that we asked for
        return ()

    def _block_end(self, index: int) -> tuple[Chunk, ...]:
        mark = self._marks.get(index)
        if mark is None or index not in self._empty:
            return ()
        if mark["type"] == "tool-call":
            return (ToolCallChunk(index, str(mark["id"]), None, "{}"),)
        if mark["type"] == "reasoning" and (signature := mark.get("signature")):
            # Thought without telling: the log has no block for it, yet it must go back.
            block: JsonObject = {"type": "thinking", "thinking": "", "signature": signature}
            self._marks[index] = {"type": "hidden", "block": block}
        return ()

    def _told(self, index: int, chunk: Chunk) -> tuple[Chunk, ...]:
        self._empty.discard(index)
        return (chunk,)

    def _count(self, usage: JsonValue) -> None:
        """Keep the newest of each count: later events repeat them as running totals."""
        if isinstance(usage, dict):
            self._usage.update({key: n for key, n in usage.items() if n is not None})

    def _stopped(self) -> StopChunk:
        stop = _STOPS.get(self._stop or "")
        if stop is None:
            logger.warning("%s stopped for %r", self._model, self._stop)
            stop = _STOPS["end_turn"]
        blocks: list[JsonValue] = [
            {key: value for key, value in mark.items() if key != "id"}
            for index, mark in sorted(self._marks.items())
            # An empty block is none to the log, which counts these beside its own.
            if index not in self._empty or mark["type"] in {"hidden", "tool-call"}
        ]
        response: JsonObject = {"kind": self._replay_kind, "version": 1, "model": self._model}
        return StopChunk(stop.reason, {"response": response, "blocks": blocks})


def _text(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise TypeError(NO_TEXT)
    return value


def _count(usage: JsonObject, name: str) -> int:
    value = usage.get(name)
    return max(0, value) if isinstance(value, int) else 0


def _headers(key: str) -> dict[str, str]:
    return {"x-api-key": key, "anthropic-version": VERSION}


def _mended(body: JsonObject, refusal: str) -> JsonObject | None:
    """The request to send instead of one whose old reasoning was refused."""
    if "thinking" not in refusal or not ("signature" in refusal or "redacted" in refusal):
        return None
    logger.info("earlier reasoning was refused: asking again without it")
    return without_thinking(body)


MESSAGES: Final = Dialect(
    headers=_headers, body=messages_body, reader=MessagesReader, mended=_mended
)
