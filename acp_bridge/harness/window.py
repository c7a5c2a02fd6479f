"""The model's window: how much of it is taken, when it is full, what a summary may stand for. Pure.

Tokens are counted by the provider where it counted, and estimated for what came after. An estimate
errs, so the limits leave room for it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import attrs

from acp_bridge.sessions.validation.blocks import message_of
from acp_bridge.vocabulary import Event, JsonObject, JsonValue

FULL_RATIO: Final = 0.8
"""From this part of the window on, the next request could be one too many."""

TAIL_RATIO: Final = 0.16
"""The newest part of the messages that stays as it is: the real runtime's number. Not of the
window: an estimate below the provider's count would make the tail as much too long."""

ROOM_RATIO: Final = 0.5
"""However long an answer may get, this part of the window is for what it answers."""

WORTH_RATIO: Final = 0.1
"""A summary that nobody asked for must stand for this part of the messages, or it frees too little
for what it costs."""

BYTES_PER_TOKEN: Final = 4
"""Of UTF-8: right for English and code, a little too careful for most other languages."""

IMAGE_TOKENS: Final = 1600
"""What providers count for the largest image that they do not scale down."""

_MESSAGE_TOKENS: Final = 4
_CUTS_CHARS: Final = (8192, 2048, 512, 128)
_USAGE: Final = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")


@attrs.frozen(slots=True)
class Shadow:
    """A slice of the surface that a summary may replace: whole exchanges, never the head.

    ``tokens`` is their estimate.
    """

    rows: tuple[Event, ...]
    tokens: int


def estimate(messages: Iterable[JsonObject]) -> int:
    """About how many tokens these messages take."""
    return sum(_MESSAGE_TOKENS + sum(map(_block_tokens, _blocks(one))) for one in messages)


def text_tokens(text: str) -> int:
    """About how many tokens a text takes."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def tokens_held(rows: Sequence[Event], *, beside: Callable[[], int]) -> int:
    """What the next request over these surface rows takes, an estimate included.

    ``beside`` estimates what a request holds beside its messages: asked only where no provider's
    count can be used. A count is void once rows before it were replaced by shorter ones.
    """
    cut = max((row.seq for row in rows if _is_cut(row)), default=-1)
    for place in range(len(rows) - 1, -1, -1):
        counted = _counted(rows[place])
        if counted and rows[place].seq > cut:
            return counted + estimate(map(message_of, rows[place + 1 :]))
    return beside() + estimate(map(message_of, rows))


def tail_of(rows: Sequence[Event]) -> int:
    """How many tokens of these rows are the tail that stays, estimated."""
    return int(TAIL_RATIO * estimate(map(message_of, rows)))


def is_worth(shadow: Shadow, rows: Sequence[Event]) -> bool:
    """Whether a slice is so much of the rows that a summary of it gains something."""
    return shadow.tokens >= WORTH_RATIO * estimate(map(message_of, rows))


def tokens_max(*, context_window: int, output_tokens_max: int | None) -> int:
    """What a request may take before the window counts as full.

    Providers refuse a request that leaves no room for the longest answer, so that room is kept.
    """
    room = max(context_window - (output_tokens_max or 0), int(context_window * ROOM_RATIO))
    return min(int(context_window * FULL_RATIO), room)


def shadow_of(rows: Sequence[Event], *, tail_tokens: int, kept: int = 0) -> Shadow | None:
    """The slice to replace: all but the head and a tail of about ``tail_tokens``; None: nothing.

    ``kept`` is how many of the last rows stay whatever they take. A call stays with its results.
    Summaries alone are no slice.
    """
    first = 1 if rows and rows[0].type == "system/message" else 0
    last = len(rows) - kept
    ends = [end for end in _ends_of_exchanges(rows, first) if end <= last]
    if not ends:
        return None
    sizes = [estimate([message_of(row)]) for row in rows]
    end = next((end for end in ends if sum(sizes[end:]) <= tail_tokens), ends[-1])
    taken = tuple(rows[first:end])
    if all(_is_checkpoint(row) for row in taken):
        return None
    return Shadow(taken, sum(sizes[first:end]))


def newest_exchange(rows: Sequence[Event]) -> int:
    """How many rows the last answer and what followed it are."""
    place = next(
        (n for n in range(len(rows) - 1, -1, -1) if rows[n].type == "assistant/message"), len(rows)
    )
    return len(rows) - place


def newest_said(rows: Sequence[Event]) -> int:
    """How many rows at the end are messages that nobody answered yet."""
    place = len(rows)
    while place and rows[place - 1].type == "user/message":
        place -= 1
    return len(rows) - place


def fitting(messages: Sequence[JsonObject], *, tokens: int) -> list[JsonObject]:
    """The messages, their long parts cut in the middle as far as it takes to fit; else the last."""
    fit = list(messages)
    for chars in _CUTS_CHARS:
        if estimate(fit) <= tokens:
            return fit
        fit = [_shortened(message, chars) for message in messages]
    while len(fit) > 1 and estimate(fit) > tokens:
        fit = fit[len(fit) // 2 :]
    return fit


def _ends_of_exchanges(rows: Sequence[Event], first: int) -> Iterator[int]:
    """Places after ``first`` where a slice may end: no call before it waits for a result."""
    waiting: set[str] = set()
    for place, row in enumerate(rows[first:], start=first + 1):
        message = message_of(row)
        if row.type == "assistant/message":
            waiting |= {
                str(block.get("id"))
                for block in _blocks(message)
                if block.get("type") == "tool-call"
            }
        elif row.type == "tool/result":
            waiting.discard(str(message.get("toolCallId")))
        if not waiting:
            yield place


def _is_cut(row: Event) -> bool:
    return isinstance(row.surface_op, tuple) and row.type != "system/message"


def _is_checkpoint(row: Event) -> bool:
    source = message_of(row).get("source")
    return isinstance(source, dict) and source.get("kind") == "compact-checkpoint"


def _counted(row: Event) -> int:
    """The provider's count of all that the context held with this answer; 0 without one."""
    usage = row.data.get("usage") if isinstance(row.data, dict) else None
    if row.type != "assistant/message" or not isinstance(usage, dict):
        return 0
    counts = [usage.get(name) for name in _USAGE]
    return sum(int(count) for count in counts if isinstance(count, int | float))


def _blocks(message: JsonObject) -> list[JsonObject]:
    content = message.get("content")
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []


def _block_tokens(block: JsonObject) -> int:
    match block.get("type"):
        case "text" | "reasoning":
            return text_tokens(str(block.get("text")))
        case "tool-call":
            return text_tokens(f"{block.get('name')}{block.get('arguments')}")
        case "image":
            return IMAGE_TOKENS
        case _:
            return text_tokens(json.dumps(block))


def _shortened(message: JsonObject, chars: int) -> JsonObject:
    """A message for a summary's request: no reasoning, no image, no text above ``chars``."""
    content: list[JsonValue] = []
    for block in _blocks(message):
        match block.get("type"):
            case "text":
                content.append({"type": "text", "text": _cut(str(block.get("text")), chars)})
            case "tool-call" if len(arguments := str(block.get("arguments"))) > chars:
                # Providers want JSON here.
                cut = json.dumps({"shortened": _cut(arguments, chars)}, ensure_ascii=False)
                content.append({**block, "arguments": cut})
            case "tool-call":
                content.append(block)
            case "reasoning":
                pass
            case kind:
                content.append({"type": "text", "text": f"[{kind}]"})
    short: JsonObject = {**message, "content": content}
    source = message.get("source")
    if isinstance(source, dict):
        # What a provider wants back belongs to the whole answer.
        short["source"] = {key: one for key, one in source.items() if key != "replayState"}
    return short


def _cut(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    head, tail = chars * 3 // 4, chars // 4
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"
