"""Content blocks and message shapes: ``dsh-events`` sections 1.2 and 4."""

from collections.abc import Iterator

from acp_bridge.sessions.validation.state import nonempty, refuse
from acp_bridge.vocabulary import Event, JsonObject, JsonValue

_TOOL_CHANGES = ("tool-addition", "tool-removal")
_WRAPPER = "tool-result"
"""A retired block type that no content may hold."""


def check_content(seq: int, content: list[JsonValue], role: str) -> None:
    """Blocks are objects; retired ones and tool changes outside their place are refused."""
    for block in content:
        if type(block) is not dict:
            refuse(seq, "a content block is not an object")
        kind = block.get("type")
        if kind == "text":
            if type(block.get("text")) is not str:
                refuse(seq, "a text block without text")
        elif kind == _WRAPPER:
            refuse(seq, "a retired tool-result block")
        elif kind in _TOOL_CHANGES and role != "developer":
            refuse(seq, "a tool change outside a developer message")


def check_no_wrapper(seq: int, content: JsonValue) -> None:
    """No block of the array, if it is one, is a retired wrapper."""
    if type(content) is list:
        for block in content:
            if type(block) is dict and block.get("type") == _WRAPPER:
                refuse(seq, "a retired tool-result block")


def check_stream(seq: int, stream: JsonValue) -> None:
    """A recorded stream starts and ends no retired block. Its other members are not checked."""
    if type(stream) is not list:
        return
    for record in stream:
        chunk = record.get("chunk") if type(record) is dict else None
        if type(chunk) is not dict:
            continue
        block = chunk.get("block")
        if chunk.get("blockType") == _WRAPPER or (
            type(block) is dict and block.get("type") == _WRAPPER
        ):
            refuse(seq, "a retired tool-result block in a stream")


def check_message(event: Event, message: JsonValue, role: str) -> JsonObject:
    """The message of a surface row, sound in id, role, content and source."""
    if type(message) is not dict:
        refuse(event.seq, f"{event.type} without a message")
    if message.get("role") != role:
        refuse(event.seq, f"{event.type} whose role is not {role}")
    if not nonempty(message.get("id")):
        refuse(event.seq, f"{event.type} without a message id")
    content = message.get("content")
    if type(content) is not list:
        refuse(event.seq, f"{event.type} without content")
    source = message.get("source")
    if type(source) is not dict or not nonempty(source.get("kind")) or source["kind"] == "plugin":
        refuse(event.seq, f"{event.type} without a sound source")
    check_content(event.seq, content, role)
    return message


def source_of(message: JsonObject) -> JsonObject:
    """The source of a checked message."""
    source = message["source"]
    assert isinstance(source, dict)
    return source


def content_of(message: JsonObject) -> list[JsonValue]:
    """The content of a checked message."""
    content = message["content"]
    assert isinstance(content, list)
    return content


def message_of(event: Event) -> JsonObject:
    """The message of a checked surface row: a user row is its message, the others hold one."""
    data = event.data
    assert isinstance(data, dict)
    message = data if event.type == "user/message" else data["message"]
    assert isinstance(message, dict)
    return message


def image_blocks(content: JsonValue) -> Iterator[JsonObject]:
    """The image blocks of some content, depth first, as ``image/offload`` counts them."""
    if type(content) is not list:
        return
    for block in content:
        if type(block) is dict:
            if block.get("type") == "image":
                yield block
            yield from image_blocks(block.get("content"))
