"""One model answer, recorded as it streams: the log's ``stream`` records and content blocks. Pure.

Shapes: dsh-events section 3, "Stream arrays". Runs of equal kind and block are packed into one
record of texts with their time steps, so a row of 5,000 deltas is one record.
"""

from collections.abc import Callable
from typing import Literal

from acp_bridge.ports import ReasoningChunk, TextChunk, ToolCallChunk, UsageChunk
from acp_bridge.vocabulary import JsonObject, JsonValue

BlockType = Literal["text", "reasoning", "tool-call"]


class AnswerRecorder:
    """Feed it chunks in order; read ``stream``, `content` and ``usage`` at any time.

    ``clock`` gives milliseconds since the epoch. Tool call ids that repeat within the answer are
    renamed, since a log may not hold two calls of one id in one message.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._blocks: list[JsonObject] = []
        self._texts: list[str] = []
        self._block: tuple[int, BlockType] | None = None
        self._run: tuple[list[JsonValue], list[JsonValue]] | None = None
        self._run_time = 0
        self._call_ids: set[str] = set()
        self.stream: list[JsonValue] = []
        self.usage: JsonObject | None = None
        self.replay_state: JsonObject | None = None

    @property
    def index(self) -> int:
        """The place of the block under way, from 0: as the log counts, not the provider."""
        return len(self._blocks) - 1

    def add(self, chunk: TextChunk | ReasoningChunk | ToolCallChunk | UsageChunk) -> None:
        """Record a chunk."""
        match chunk:
            case TextChunk():
                self._text(chunk.block, "text", chunk.text)
            case ReasoningChunk():
                self._text(chunk.block, "reasoning", chunk.text)
            case ToolCallChunk():
                self._call(chunk)
            case UsageChunk():
                self._close_block()
                cached = chunk.cache_read_tokens + chunk.cache_write_tokens
                self.usage = {
                    "inputTokens": chunk.input_tokens,
                    "outputTokens": chunk.output_tokens,
                    "cacheReadTokens": chunk.cache_read_tokens,
                    "cacheWriteTokens": chunk.cache_write_tokens,
                    "totalTokens": chunk.input_tokens + cached + chunk.output_tokens,
                }
                self._record({"type": "usage", "usage": self.usage})

    def finish(self, reason: JsonObject, *, replay_state: JsonObject | None = None) -> None:
        """Record the answer's end, and what the provider wants back with it."""
        self._close_block()
        self.replay_state = replay_state
        end: JsonObject = {"type": "finish", "reason": reason}
        self._record(end if replay_state is None else {**end, "replayState": replay_state})

    def content(self, *, with_calls: bool) -> list[JsonValue]:
        """The committed blocks; an interrupted or cut-off answer leaves its tool calls out."""
        self._store_text()
        return [
            dict(block)
            for block in self._blocks
            if (with_calls or block["type"] != "tool-call")
            and (block["type"] == "tool-call" or block["text"])
        ]

    def calls(self) -> list[JsonObject]:
        """The tool calls in order: ``{type, id, name, arguments}``."""
        self._store_text()
        return [dict(block) for block in self._blocks if block["type"] == "tool-call"]

    def _text(self, block: int, kind: Literal["text", "reasoning"], text: str) -> None:
        if self._block != (block, kind):
            self._open_block((block, kind), {"type": kind, "text": ""})
        if self._run is None:
            self._open_run({"type": f"{kind}-chunks"}, texts="texts")
        self._append(text)

    def _call(self, chunk: ToolCallChunk) -> None:
        place: tuple[int, BlockType] = (chunk.block, "tool-call")
        if self._block != place or chunk.name is not None:
            call_id = self._unique(chunk.call_id)
            call: JsonObject = {"type": "tool-call", "id": call_id, "name": chunk.name or ""}
            self._open_block(place, {**call, "arguments": ""})
            first: JsonObject = {
                "type": "tool-call-chunks",
                "id": call_id,
                "name": chunk.name or "",
            }
            self._open_run(first, texts="args")
            self._append(chunk.arguments_delta)
            self._run = None
            return
        if self._run is None:
            call_id = str(self._blocks[-1]["id"])
            self._open_run({"type": "tool-call-chunks", "id": call_id}, texts="args")
        self._append(chunk.arguments_delta)

    def _unique(self, call_id: str) -> str:
        base = call_id or "call"
        name, n = base, 2
        while name in self._call_ids:
            name, n = f"{base}~{n}", n + 1
        self._call_ids.add(name)
        return name

    def _open_block(self, place: tuple[int, BlockType], value: JsonObject) -> None:
        self._close_block()
        self._block = place
        self._blocks.append(value)
        self._record(
            {"type": "block-start", "index": len(self._blocks) - 1, "blockType": value["type"]}
        )

    def _close_block(self) -> None:
        if self._block is None:
            return
        self._store_text()
        self._record(
            {
                "type": "block-end",
                "index": len(self._blocks) - 1,
                "block": dict(self._blocks[-1]),
            }
        )
        self._texts = []
        self._block = None
        self._run = None

    def _store_text(self) -> None:
        if self._block is not None:
            block = self._blocks[-1]
            key = "arguments" if block["type"] == "tool-call" else "text"
            block[key] = "".join(self._texts)

    def _open_run(self, head: JsonObject, *, texts: Literal["texts", "args"]) -> None:
        self._run_time = self._clock()
        steps: list[JsonValue] = []
        pieces: list[JsonValue] = []
        self._run = (steps, pieces)
        kind = head.pop("type")
        self.stream.append(
            {
                "type": kind,
                "time0": self._run_time,
                "index": len(self._blocks) - 1,
                "dt": steps,
                **head,
                texts: pieces,
            }
        )

    def _append(self, text: str) -> None:
        assert self._run is not None
        steps, pieces = self._run
        if pieces:
            now = self._clock()
            steps.append(now - self._run_time)
            self._run_time = now
        pieces.append(text)
        self._texts.append(text)

    def _record(self, chunk: JsonObject) -> None:
        self._run = None
        self.stream.append({"type": "chunk", "time": self._clock(), "chunk": chunk})
