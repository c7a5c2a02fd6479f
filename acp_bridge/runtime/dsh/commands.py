"""Slash commands on the real runtime: ours, with our words, and its own ``/compact``.

They are logged as the runtime logs its own: ``command/run``, what it changes, ``command/done``.
"""

from typing import Final, Protocol

import attrs

from acp_bridge.errors import InvalidParamsError, PeerError
from acp_bridge.harness import command_texts
from acp_bridge.ports import OptionName, SessionOptions
from acp_bridge.vocabulary import Command, Draft, Mode

COMMANDS: Final = (
    command_texts.HELP,
    command_texts.MODE,
    command_texts.MODEL,
    command_texts.TITLE,
    # The runtime's takes no wish.
    attrs.evolve(command_texts.COMPACT, hint=None),
)
"""Every command, as clients are told of them."""

NO_COMPACTION: Final = (
    "This needs the control plugin, which did not start in DeepSeek Harness: `acp-bridge doctor` "
    "says what is missing."
)


class Commanded(Protocol):
    """What commands need of their session."""

    @property
    def mode(self) -> Mode:
        """The permission mode in force."""

    def options(self) -> SessionOptions:
        """As `ports.LiveSession.options`."""

    async def choose(self, option: OptionName, value: str) -> None:
        """As `ports.LiveSession.choose`."""

    async def log(self, row: Draft) -> None:
        """Append a row to its log, which is told when this returns."""

    async def rename(self, title: str) -> str:
        """Give it a title; as it is now."""

    async def compact(self, argument: str) -> bool:
        """Have the runtime run and log its ``/compact``. False: it cannot, and nothing is logged.

        What it made of it is in the log.
        """


def is_long(command: Command) -> bool:
    """Whether it asks a model, and so takes its time and can be cancelled."""
    return command.name == command_texts.COMPACT.name


async def run_command(session: Commanded, command: Command, command_id: str) -> None:
    """Run a command of `COMMANDS` and log it; its text reaches the user with its row.

    Raises:
        BridgeError: the log cannot be written.
    """
    if is_long(command) and await session.compact(command.argument):
        return
    run = command_texts.run_data(command_id, command.name, command.argument)
    await session.log(Draft("command/run", run))
    try:
        text, is_error = await _answer(session, command), is_long(command)
    except (InvalidParamsError, PeerError) as refusal:
        text, is_error = refusal.details, True
    done = command_texts.done_data(command_id, text, is_error=is_error)
    await session.log(Draft("command/done", done))


async def _answer(session: Commanded, command: Command) -> str:
    match command.name:
        case "mode":
            if command.argument:
                await session.choose("mode", command.argument)
            return command_texts.modes_text(session.mode)
        case "model":
            if command.argument:
                await session.choose("model", command.argument)
            return command_texts.models_text(session.options())
        case "title":
            title = command_texts.title_from_argument(command.argument)
            return command_texts.titled_text(await session.rename(title))
        case "compact":
            return NO_COMPACTION
        case _:
            return command_texts.help_text(COMMANDS)
