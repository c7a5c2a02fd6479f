"""A prompt of the user as the log's message, and the bytes that it brings."""

from collections.abc import Sequence

import anyio.to_thread

from acp_bridge.harness.desk import Desk
from acp_bridge.vocabulary import JsonObject, JsonValue, Prompt


async def keep_attachments(desk: Desk, prompt: Prompt) -> None:
    """Store the bytes that its message will name.

    Raises:
        StoreFailedError: the disk refused.
    """
    for name, data in prompt.attachments.items():
        await anyio.to_thread.run_sync(desk.world.keep_attachment, name, data)


def user_message(desk: Desk, prompt: Prompt) -> JsonObject:
    """The message that the log will hold."""
    content: list[JsonValue] = list(_content(desk, prompt))
    return {
        "content": content,
        "source": {"kind": "user"},
        "role": "user",
        "id": prompt.message_id or desk.world.new_id(),
    }


def _content(desk: Desk, prompt: Prompt) -> Sequence[JsonObject]:
    """The prompt's blocks; what a command stands for is what the model gets.

    What was typed stays beside it, in the form in which a replay shows it (R063).
    """
    typed = prompt.command
    command = None if typed is None else desk.project.command(typed.name)
    if typed is None or command is None:
        return prompt.content
    from acp_bridge.harness.project.commands import expanded  # loaded with the command

    text = expanded(command, typed.argument)
    shown: JsonObject = {"type": "text", "text": str(prompt.content[0]["text"])}
    return [{"type": "text", "text": text, "_meta": {"acp": shown}}]
