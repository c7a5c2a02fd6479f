"""What a model is asked: the messages that the log's surface amounts to, system text, tools.

Reads the desk, writes nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import anyio.to_thread

from acp_bridge.harness.desk import Desk
from acp_bridge.ports import ModelRequest
from acp_bridge.sessions.surface import text_of
from acp_bridge.vocabulary import Event, JsonObject, JsonValue


def surface_rows(desk: Desk) -> list[Event]:
    """The rows that the model sees, in their order, as far as consumers know them."""
    told = desk.committer.told
    # A batch that another thread writes right now is on the surface before it is told.
    return [told[seq] for seq in list(desk.committer.writer.state.surface) if seq < len(told)]


def messages_of(rows: Iterable[Event]) -> list[JsonObject]:
    """The messages that surface rows give the model; the system row and empty ones give none."""
    return [message for row in rows if (message := _model_message(row)) is not None]


def model_request(
    desk: Desk,
    messages: Sequence[JsonObject],
    *,
    purpose: Literal["turn", "compact"],
    position: int,
    effort: str | None,
) -> ModelRequest:
    """A request over these messages, with the session's system text and tools."""

    async def find_image(attachment_id: str) -> bytes | None:
        return await anyio.to_thread.run_sync(desk.world.find_attachment, attachment_id)

    surface = surface_rows(desk)
    return ModelRequest(
        system=system_text(surface[0]) if surface else "",
        messages=messages,
        tools=tool_list(desk),
        purpose=purpose,
        agent=desk.place,
        position=position,
        effort=effort,
        find_image=find_image,
    )


def tool_list(desk: Desk) -> Sequence[JsonObject]:
    """The tools as ``request/header`` rows and model requests list them."""
    return [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in desk.tools.values()
    ]


def system_text(head: Event) -> str:
    """The system prompt as the log has it; nothing where another program left it out."""
    if head.type != "system/message":
        return ""
    assert isinstance(head.data, dict)
    message = head.data["message"]
    assert isinstance(message, dict)
    return text_of(message)


def _model_message(event: Event) -> JsonObject | None:
    """The message that a surface row gives the model; None for the system row and empty ones.

    Ids, and the client's form of attachments, are ours alone: a model sees neither.
    """
    assert isinstance(event.data, dict)
    message = event.data if event.type == "user/message" else event.data["message"]
    assert isinstance(message, dict)
    content = message["content"]
    if event.type == "system/message" or not content:
        return None
    assert isinstance(content, list)
    seen: list[JsonValue] = [
        {key: value for key, value in block.items() if key != "_meta"}
        for block in content
        if isinstance(block, dict)
    ]
    return {**{key: value for key, value in message.items() if key != "id"}, "content": seen}
