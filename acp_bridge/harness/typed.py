"""What the model gets of a prompt: where a command of a file was typed, what it stands for."""

from collections.abc import Sequence

from acp_bridge.harness.project.lookout import Project
from acp_bridge.vocabulary import JsonObject, Prompt


def content_of(prompt: Prompt, project: Project) -> Sequence[JsonObject]:
    """The prompt's blocks; what a command stands for is what the model gets.

    What was typed stays beside it, in the form in which a replay shows it (R063).
    """
    typed = prompt.command
    command = None if typed is None else project.command(typed.name)
    if typed is None or command is None:
        return prompt.content

    from acp_bridge.harness.project.commands import expanded  # loaded with the command

    text = expanded(command, typed.argument)
    shown: JsonObject = {"type": "text", "text": str(prompt.content[0]["text"])}
    return [{"type": "text", "text": text, "_meta": {"acp": shown}}]
