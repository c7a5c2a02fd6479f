"""The slash commands by name, and what they answer: the same words with either runtime. Pure."""

from collections.abc import Iterable
from typing import Final

from acp_bridge.errors import InvalidParamsError
from acp_bridge.harness.modes import MODES
from acp_bridge.ports import SessionOptions
from acp_bridge.vocabulary import CommandInfo, JsonObject, Mode

TITLE_CHARS_MAX: Final = 200
"""A title is one line of a list."""

HELP: Final = CommandInfo("help", "Show what can be typed")
MODE: Final = CommandInfo("mode", "Show or switch the permission mode", "[MODE]")
MODEL: Final = CommandInfo("model", "Show or switch the model", "[MODEL]")
TITLE: Final = CommandInfo("title", "Name this session", "TITLE")
FORK: Final = CommandInfo("fork", "Begin another session with the turns of this one")
COMPACT: Final = CommandInfo(
    "compact", "Summarize the conversation so far, to make room", "[INSTRUCTIONS]"
)

NOTHING_TO_FORK: Final = "There is nothing to fork yet: no turn is completed."


def help_text(commands: Iterable[CommandInfo]) -> str:
    """What there is to type."""
    return "\n".join(
        f"- `/{info.name}{'' if info.hint is None else ' ' + info.hint}`: {info.description}"
        for info in commands
    )


def modes_text(now: Mode) -> str:
    """The permission modes, and which is in force."""
    return "\n".join(
        f"- `{info.mode}`{' (now)' if info.mode == now else ''}: {info.description}"
        for info in MODES.values()
    )


def models_text(options: SessionOptions) -> str:
    """The models, and which is chosen."""
    return "\n".join(
        f"- `{info.model_id}`{' (now)' if info.model_id == options.model_id else ''}: {info.title}"
        for info in options.models
    )


def title_from_argument(argument: str) -> str:
    """The title that was typed, in one line.

    Raises:
        InvalidParamsError: none was.
    """
    title = " ".join(argument.split())[:TITLE_CHARS_MAX]
    if not title:
        raise InvalidParamsError("Say the title: /title Fix the parser", field="prompt")
    return title


def titled_text(title: str) -> str:
    """What ``/title`` answers."""
    return f"The title is now: {title}"


def forked_text(fork_id: str) -> str:
    """What ``/fork`` answers."""
    return (
        f"Forked: session `{fork_id}` begins with the completed turns of this one, which goes on "
        "as it is. Open it from your editor's list of sessions; "
        f"`acp-bridge sessions show {fork_id}` prints it."
    )


def title_data(title: str) -> JsonObject:
    """The data of a ``session/title`` row that the user gives."""
    return {"title": title, "messageSeqs": [], "source": {"kind": "user"}}


def run_data(command_id: str, name: str, argument: str) -> JsonObject:
    """The data of a ``command/run`` row."""
    args: JsonObject = {"args": argument} if argument else {}
    return {"commandId": command_id, "name": name, **args, "source": {"kind": "user"}}


def done_data(command_id: str, text: str, *, is_error: bool = False) -> JsonObject:
    """The data of a ``command/done`` row; ``text`` is what the user sees."""
    kind = "error" if is_error else "success"
    return {"commandId": command_id, "kind": kind, "text": text}
