"""What is in a log's rows, read without trust: either runtime wrote them. Pure."""

from collections.abc import Iterable, Sequence
from typing import Literal

from acp_bridge.harness.memory import STOPPED_ROW
from acp_bridge.vocabulary import Event, JsonObject, JsonValue, TurnEnd


def told_texts(data: JsonObject) -> Iterable[tuple[int, Literal["text", "reasoning"], str]]:
    """Block, kind and text of a message, from its stream, or from its content without one."""
    stream = data.get("stream")
    blocks: dict[int, tuple[Literal["text", "reasoning"], list[str]]] = {}
    for record in stream if isinstance(stream, list) else []:
        if not isinstance(record, dict):
            continue
        kind = _CHUNK_RECORDS.get(str(record.get("type")))
        texts = record.get("texts")
        if kind is not None and isinstance(texts, list):
            _, pieces = blocks.setdefault(integer(record, "index"), (kind, []))
            pieces.extend(str(text) for text in texts)
    if blocks:
        return [(block, kind, "".join(texts)) for block, (kind, texts) in sorted(blocks.items())]
    message = data.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [
        (block, "reasoning" if part["type"] == "reasoning" else "text", str(part.get("text")))
        for block, part in enumerate(content if isinstance(content, list) else [])
        if isinstance(part, dict) and part.get("type") in {"text", "reasoning"}
    ]


_CHUNK_RECORDS: dict[str, Literal["text", "reasoning"]] = {
    "text-chunks": "text",
    "reasoning-chunks": "reasoning",
}


def text_of(content: JsonValue) -> str:
    """The text blocks of a content list, joined by line breaks."""
    return "\n".join(_texts_of(content))


def _texts_of(content: JsonValue) -> Iterable[str]:
    return (
        str(block.get("text", ""))
        for block in (content if isinstance(content, list) else [])
        if isinstance(block, dict) and block.get("type") == "text"
    )


def plan_status(status: JsonValue) -> Literal["pending", "in_progress", "completed"]:
    """ACP's word for the status of a todo."""
    match status:
        case "completed" | "in_progress":
            return status
        case "cancelled":
            return "completed"  # ACP has no word for it, and it needs no more work
        case _:
            return "pending"


def integer(data: JsonObject, name: str) -> int:
    """A number of a row; 0 where there is none."""
    value = data.get(name)
    return value if isinstance(value, int) else 0


def own_range(events: Sequence[Event]) -> Sequence[Event]:
    """The rows behind what a fork was seeded with; all rows of any other session."""
    for number in range(len(events) - 1, -1, -1):
        event = events[number]
        if event.type == "session/end-seed" and event.data == {"inherited": True}:
            return events[number + 1 :]
    return events


def end_of(events: Sequence[Event]) -> TurnEnd:
    """How the work of these rows ended: as its last turn, unless it was stopped after that.

    A turn without an end was cut off.
    """
    for event in reversed(events):
        if event.type in {"turn/start", STOPPED_ROW}:
            break
        if event.type == "turn/end" and isinstance(event.data, dict):
            return _end_of_reason(event.data.get("reason"))
    return TurnEnd("aborted")


def _end_of_reason(reason: JsonValue) -> TurnEnd:
    kind = reason.get("kind") if isinstance(reason, dict) else None
    match kind:
        case "completed" | "max-tokens" | "aborted":
            return TurnEnd(kind)
        case "interrupted":
            return TurnEnd("aborted")
    error = reason.get("error") if isinstance(reason, dict) else None
    details = error.get("message") if isinstance(error, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    if code == "STEP_LIMIT":
        return TurnEnd("step-limit")
    return TurnEnd(
        "refusal" if code == "REFUSAL" else "error",
        str(details) if details else f"The turn ended with {kind}.",
        str(code) if code else None,
    )


def last_text(events: Sequence[Event]) -> str | None:
    """The text of the last answer that has one, as its parent is told it."""
    for event in reversed(events):
        if event.type == "assistant/message" and isinstance(event.data, dict):
            message = event.data.get("message")
            content = message.get("content") if isinstance(message, dict) else None
            text = "".join(_texts_of(content)).strip()
            if text:
                return text
    return None
