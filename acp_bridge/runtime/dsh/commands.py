"""Slash commands on the real runtime: ours, with our words, and its own ``/compact``.

They are logged as the runtime logs its own: ``command/run``, what it changes, ``command/done``.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import attrs

from acp_bridge.errors import BridgeError
from acp_bridge.harness import command_texts
from acp_bridge.ports import OptionName, SessionOptions
from acp_bridge.vocabulary import Command, CommandInfo, Draft, Mode, SessionId

COMMANDS: Final = (
    command_texts.HELP,
    command_texts.MODE,
    command_texts.MODEL,
    command_texts.TITLE,
    command_texts.FORK,
    # The runtime's takes no wish.
    attrs.evolve(command_texts.COMPACT, hint=None),
)
"""Every command of ours, as clients are told of them."""

COMMAND_NAMES: Final = frozenset(info.name for info in COMMANDS)

NO_COMPACTION: Final = (
    "This needs the control plugin, which did not start in DeepSeek Harness: `acp-bridge doctor` "
    "says what is missing."
)


class Commanded(Protocol):
    """What commands need of their session."""

    @property
    def commands(self) -> Sequence[CommandInfo]:
        """As `ports.LiveSession.commands`."""

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

    async def fork(self) -> SessionId | None:
        """Store a fork of its completed turns and leave it closed; None: there are none.

        Raises:
            BridgeError: it cannot be made; says why.
        """

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
        said = await _answer(session, command)
    except BridgeError as refusal:
        said = _Said(refusal.details, is_error=True)
    done = command_texts.done_data(command_id, said.text, is_error=said.is_error)
    await session.log(Draft("command/done", done))


class _Said(NamedTuple):
    text: str
    is_error: bool = False


async def _answer(session: Commanded, command: Command) -> _Said:
    match command.name:
        case "mode":
            if command.argument:
                await session.choose("mode", command.argument)
            return _Said(command_texts.modes_text(session.mode))
        case "model":
            if command.argument:
                await session.choose("model", command.argument)
            return _Said(command_texts.models_text(session.options()))
        case "title":
            title = command_texts.title_from_argument(command.argument)
            return _Said(command_texts.titled_text(await session.rename(title)))
        case "fork":
            fork_id = await session.fork()
            if fork_id is None:
                return _Said(command_texts.NOTHING_TO_FORK, is_error=True)
            return _Said(command_texts.forked_text(fork_id))
        case "compact":
            return _Said(NO_COMPACTION, is_error=True)
        case _:
            return _Said(command_texts.help_text(session.commands))
