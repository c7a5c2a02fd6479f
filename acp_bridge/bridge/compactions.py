"""A compaction as a client sees it: an item of its own where it takes that, else a thought.

A thought, because a summary takes a while in which nothing else is shown, and because it is not
what the agent said.
"""

from collections.abc import Iterable, Iterator

from acp_bridge.acp.types import (
    AgentThoughtChunk,
    CompactionStatus,
    CompactionUpdate,
    SessionUpdate,
    TextContent,
)
from acp_bridge.vocabulary import JsonObject, JsonValue

SUMMARY_CHARS_MAX = 150_000
"""A longer summary is shown cut: a line of the wire stays below 1 MiB."""

_BYTES_PER_TOKEN = 4
_CANCELLED = "cancelled"
"""The error of a compaction that a cancel ended."""


class Compactions:
    """The fold for one session. ``as_items``: the client has negotiated ``session.compaction``."""

    def __init__(self, *, as_items: bool) -> None:
        self._as_items = as_items
        self._open: str | None = None
        self._summary = ""
        self._freed = 0
        self._left = 0

    def project(self, kind: str, data: JsonObject) -> Iterable[SessionUpdate]:
        """What a row means: one of a compaction, its retry, or a boundary that cuts it off."""
        match kind:
            case "compaction/start":
                self._open = str(data.get("compactionId"))
                self._freed = self._left = 0
                yield from self._tell("in_progress", "Summarizing what was said before…")
            case "compaction/summary":
                self._note(data)
            case "compaction/end":
                yield from self._end(data.get("error"))
            case "session/end-seed":
                yield from self._cut_off()
            case _:
                yield from self._retry(data)

    def used_after(self, used: int) -> int:
        """The tokens in the context after the compaction that ended, by what its rows estimate."""
        return min(used, max(self._left, used - self._freed + self._left))

    def _note(self, data: JsonObject) -> None:
        self._summary = "".join(_texts(data.get("summary")))
        freed, usage = data.get("shadowedTokenCount"), data.get("usage")
        said = usage.get("outputTokens") if isinstance(usage, dict) else None
        self._freed = int(freed) if isinstance(freed, int | float) else 0
        estimated = len(self._summary.encode("utf-8", "replace")) // _BYTES_PER_TOKEN
        self._left = int(said) if isinstance(said, int | float) and said else estimated

    def _end(self, error: JsonValue) -> Iterator[SessionUpdate]:
        if self._open is None:
            return
        if error is None:
            yield from self._tell("completed", "Done: the model goes on from a summary of it.")
        elif error == _CANCELLED:
            yield from self._tell("cancelled", "Cancelled.")
        else:
            yield from self._tell("failed", f"That failed: {error}.", error=str(error))
        self._open = None

    def _cut_off(self) -> Iterator[SessionUpdate]:
        """The process that compacted was killed: what it had begun counts for nothing."""
        if self._open is not None:
            yield from self._tell("cancelled", "It was cut off.")
            self._open = None

    def _retry(self, data: JsonObject) -> Iterator[SessionUpdate]:
        if not self._as_items:
            failure = data.get("failure")
            cause = failure.get("message") if isinstance(failure, dict) else None
            count = f"{data.get('retry')} of {data.get('maxRetries')}"
            yield self._thought(f"The model call failed: {cause}. Trying again ({count}).")

    def _tell(
        self, status: CompactionStatus, text: str, *, error: str | None = None
    ) -> Iterator[SessionUpdate]:
        if not self._as_items:
            yield self._thought(text)
            return
        assert self._open is not None
        update = CompactionUpdate(compaction_id=self._open, status=status)
        if status == "completed":
            shown = self._summary
            if len(shown) > SUMMARY_CHARS_MAX:
                shown = shown[: SUMMARY_CHARS_MAX - 1] + "…"
            update.summary = [TextContent(text=shown)]
        if error is not None:
            update.error = error
        yield update

    def _thought(self, text: str) -> SessionUpdate:
        content = TextContent(text=f"{text}\n")
        return AgentThoughtChunk(content=content, message_id=f"compaction.{self._open}")


def _texts(content: JsonValue) -> Iterator[str]:
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == "text":
            yield str(block.get("text", ""))
