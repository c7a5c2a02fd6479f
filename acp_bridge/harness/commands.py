"""Slash commands: what a user may type instead of a prompt.

But for ``/compact`` they take no model call. Logged as the real runtime does: ``command/run``, what
it changes, ``command/done`` with the text that the user sees.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import attrs

from acp_bridge.errors import BridgeError, InvalidParamsError
from acp_bridge.harness import command_texts
from acp_bridge.harness.choosing import choose, options_of
from acp_bridge.harness.command_texts import (
    done_data,
    help_text,
    models_text,
    modes_text,
    run_data,
    title_data,
    title_from_argument,
    titled_text,
)
from acp_bridge.harness.desk import Desk
from acp_bridge.harness.standing import birth_rows
from acp_bridge.vocabulary import Command, CommandInfo, Draft


@attrs.frozen(slots=True)
class _Said:
    """A command's answer. ``source_seq`` is the row that did what it says, if one row did."""

    text: str
    is_error: bool = False
    source_seq: int | None = None


@attrs.frozen(slots=True)
class _Known:
    """A command. ``run`` gets the argument and the command's id; ``is_long``: it can be cancelled.

    The others take no longer than their rows do.
    """

    info: CommandInfo
    run: Callable[[Desk, str, str], Awaitable[_Said]]
    is_long: bool = False


async def run_command(desk: Desk, command: Command) -> None:
    """Run a command that `COMMANDS` lists and log it; its text reaches the user with its row.

    A cancel never leaves it without its end in the log.

    Raises:
        StoreFailedError: the disk refused.
    """
    known = _KNOWN[command.name]
    command_id = desk.world.new_id()
    run = run_data(command_id, command.name, command.argument)
    with anyio.CancelScope(shield=not known.is_long):
        await desk.committer.commit(lambda _seq: [*birth_rows(desk), Draft("command/run", run)])
        try:
            said = await known.run(desk, command.argument, command_id)
        except InvalidParamsError as refusal:
            said = _Said(refusal.details, is_error=True)
        except anyio.get_cancelled_exc_class():
            await _log_end(desk, command_id, _Said("Cancelled.", is_error=True))
            raise
        await _log_end(desk, command_id, said)


async def _log_end(desk: Desk, command_id: str, said: _Said) -> None:
    done = done_data(command_id, said.text, is_error=said.is_error)
    if said.source_seq is not None:
        done["sourceEventSeq"] = said.source_seq
    await desk.committer.commit([Draft("command/done", done)])


async def _help(desk: Desk, _argument: str, _command_id: str) -> _Said:
    return _Said(help_text(commands_of(desk)))


async def _mode(desk: Desk, argument: str, _command_id: str) -> _Said:
    if argument:
        await choose(desk, "mode", argument)
    return _Said(modes_text(desk.choices.mode))


async def _model(desk: Desk, argument: str, _command_id: str) -> _Said:
    if argument:
        await choose(desk, "model", argument)
    return _Said(models_text(options_of(desk)))


async def _title(desk: Desk, argument: str, _command_id: str) -> _Said:
    title = title_from_argument(argument)
    await desk.committer.commit([Draft("session/title", title_data(title))])
    return _Said(titled_text(title))


async def _fork(desk: Desk, _argument: str, _command_id: str) -> _Said:
    try:
        fork_id = await desk.fork()
    except BridgeError as failure:
        return _Said(failure.details, is_error=True)
    if fork_id is None:
        return _Said(command_texts.NOTHING_TO_FORK, is_error=True)
    return _Said(command_texts.forked_text(fork_id))


async def _compact(desk: Desk, argument: str, command_id: str) -> _Said:
    from acp_bridge.harness.compaction import compact_by_hand

    made = await compact_by_hand(desk, command_id=command_id, instructions=argument)
    match made:
        case None:
            return _Said("There is nothing to compact yet.", is_error=True)
        case str():
            text = f"The conversation stays as it is: {made}."
            return _Said(text, is_error=True)
    freed = made.tokens_before - made.tokens_after
    text = f"Compacted {made.messages} messages into a summary: about {freed:,} tokens less."
    return _Said(text, source_seq=made.summary_seq)


_KNOWN: Final = {
    known.info.name: known
    for known in (
        _Known(command_texts.HELP, _help),
        _Known(command_texts.MODE, _mode),
        _Known(command_texts.MODEL, _model),
        _Known(command_texts.TITLE, _title),
        _Known(command_texts.FORK, _fork),
        _Known(command_texts.COMPACT, _compact, is_long=True),
    )
}

COMMANDS: Final = tuple(known.info for known in _KNOWN.values())
"""Every command of ours, as clients are told of them."""

COMMAND_NAMES: Final = frozenset(_KNOWN)


def commands_of(desk: Desk) -> list[CommandInfo]:
    """The session's commands: ours, then those that people have written down."""
    return [*COMMANDS, *(command.info for command in desk.project.found.commands)]
