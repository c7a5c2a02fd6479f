"""What a log means to its readers: the model's view, the title, the last request header.

Pure folds over events that are known to be sound (`LogState` has seen them).
"""

from collections.abc import Iterable, Sequence

import attrs

from acp_bridge.sessions.validation.blocks import message_of
from acp_bridge.vocabulary import Event, JsonObject, JsonValue

_SKIPPED_IF_EMPTY = frozenset({"system/message", "developer/message", "assistant/message"})


@attrs.frozen(slots=True)
class ModelView:
    """What the model sees: the head's text ("" without one) and the messages after it.

    ``messages`` are log messages in surface order. A system message that is not the head stays
    among them, with its role.
    """

    system: str
    messages: list[JsonObject]


def model_view(events: Iterable[Event]) -> ModelView:
    """The surface of a log, replacements and offloaded images applied (``dsh-events`` 3)."""
    surface: list[Event] = []
    offloaded: dict[int, set[int]] = {}
    for event in events:
        op = event.surface_op
        if event.type == "image/offload":
            _note_offload(offloaded, event.data)
        elif op is None or event.ignorable:
            continue
        elif op == "append":
            surface.append(event)
        else:
            seqs = [one.seq for one in surface]
            first, last = seqs.index(int(op[0])), seqs.index(int(op[1]))
            surface[first : last + 1] = [event]
    system = ""
    if surface and surface[0].type == "system/message":
        system = text_of(message_of(surface.pop(0)))
    messages = [
        _with_offloads(message_of(event), offloaded.get(event.seq))
        for event in surface
        if event.type not in _SKIPPED_IF_EMPTY or message_of(event)["content"]
    ]
    return ModelView(system, messages)


def text_of(message: JsonObject) -> str:
    """The text blocks of a message, joined."""
    content = message["content"]
    assert isinstance(content, list)
    texts = [
        block["text"]
        for block in content
        if isinstance(block, dict) and block.get("type") == "text"
    ]
    return "".join(text for text in texts if isinstance(text, str))


def _note_offload(offloaded: dict[int, set[int]], data: JsonValue) -> None:
    assert isinstance(data, dict)
    targets = data["targets"]
    assert isinstance(targets, list)
    for target in targets:
        assert isinstance(target, dict)
        seq, indexes = target["seq"], target["imageIndexes"]
        assert isinstance(seq, int | float)
        assert isinstance(indexes, list)
        known = offloaded.setdefault(int(seq), set())
        known.update(int(index) for index in indexes if isinstance(index, int | float))


def _with_offloads(message: JsonObject, indexes: set[int] | None) -> JsonObject:
    """A copy whose named images, counted depth first, say that their bytes are gone."""
    if not indexes:
        return message
    content, _ = _mark(message["content"], indexes, 0)
    return {**message, "content": content}


def _mark(content: JsonValue, indexes: set[int], seen: int) -> tuple[JsonValue, int]:
    if not isinstance(content, list):
        return content, seen
    marked: list[JsonValue] = []
    for block in content:
        new = block
        if isinstance(block, dict):
            new = dict(block)
            if block.get("type") == "image":
                if seen in indexes:
                    new["offloaded"] = True
                seen += 1
            if "content" in block:
                new["content"], seen = _mark(block["content"], indexes, seen)
        marked.append(new)
    return marked, seen


def title(events: Sequence[Event]) -> str | None:
    """The newest title."""
    for event in reversed(events):
        if event.type == "session/title" and isinstance(event.data, dict):
            text = event.data.get("title")
            return text if isinstance(text, str) else None
    return None


def request_header(events: Sequence[Event]) -> JsonObject | None:
    """The newest request header: config, adapterDefaults, tools."""
    for event in reversed(events):
        if event.type == "request/header":
            assert isinstance(event.data, dict)
            header = event.data["header"]
            assert isinstance(header, dict)
            return header
    return None
