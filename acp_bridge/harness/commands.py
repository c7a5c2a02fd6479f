"""Slash commands: what a user may type instead of a prompt. They take no model call.

Logged as the real runtime does: ``command/run``, what it changes, ``command/done`` with the text
that the user sees.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import attrs

from acp_bridge.errors import InvalidParamsError
from acp_bridge.harness.choosing import choose, options_of
from acp_bridge.harness.desk import Desk
from acp_bridge.harness.modes import MODES
from acp_bridge.harness.standing import birth_rows
from acp_bridge.ports import CommandInfo
from acp_bridge.vocabulary import Command, Draft, JsonObject

TITLE_CHARS_MAX: Final = 200
"""A title is one line of a list."""


@attrs.frozen(slots=True)
class _Known:
    info: CommandInfo
    run: Callable[[Desk, str], Awaitable[str]]


async def run_command(desk: Desk, command: Command) -> None:
    """Run a command that `COMMANDS` lists and log it; its text reaches the user with its row.

    No cancel comes between its rows: it takes no longer than they do.

    Raises:
        StoreFailedError: the disk refused.
    """
    command_id = desk.world.new_id()
    run: JsonObject = {"commandId": command_id, "name": command.name}
    if command.argument:
        run["args"] = command.argument
    run["source"] = {"kind": "user"}
    with anyio.CancelScope(shield=True):
        await desk.committer.commit(lambda _seq: [*birth_rows(desk), Draft("command/run", run)])
        done: JsonObject = {"commandId": command_id, "kind": "success"}
        try:
            done["text"] = await _KNOWN[command.name].run(desk, command.argument)
        except InvalidParamsError as refusal:
            done["kind"] = "error"
            done["text"] = refusal.details
        await desk.committer.commit([Draft("command/done", done)])


async def _help(_desk: Desk, _argument: str) -> str:
    lines = [
        f"- `/{info.name}{'' if info.hint is None else ' ' + info.hint}`: {info.description}"
        for info in COMMANDS
    ]
    return "\n".join(lines)


async def _mode(desk: Desk, argument: str) -> str:
    if argument:
        await choose(desk, "mode", argument)
    lines = [
        f"- `{info.mode}`{' (now)' if info.mode == desk.choices.mode else ''}: {info.description}"
        for info in MODES.values()
    ]
    return "\n".join(lines)


async def _model(desk: Desk, argument: str) -> str:
    if argument:
        await choose(desk, "model", argument)
    options = options_of(desk)
    lines = [
        f"- `{info.model_id}`{' (now)' if info.model_id == options.model_id else ''}: {info.title}"
        for info in options.models
    ]
    return "\n".join(lines)


async def _title(desk: Desk, argument: str) -> str:
    title = " ".join(argument.split())[:TITLE_CHARS_MAX]
    if not title:
        raise InvalidParamsError("Say the title: /title Fix the parser", field="prompt")
    data: JsonObject = {"title": title, "messageSeqs": [], "source": {"kind": "user"}}
    await desk.committer.commit([Draft("session/title", data)])
    return f"The title is now: {title}"


_KNOWN: Final = {
    known.info.name: known
    for known in (
        _Known(CommandInfo("help", "Show what can be typed"), _help),
        _Known(CommandInfo("mode", "Show or switch the permission mode", "[MODE]"), _mode),
        _Known(CommandInfo("model", "Show or switch the model", "[MODEL]"), _model),
        _Known(CommandInfo("title", "Name this session", "TITLE"), _title),
    )
}

COMMANDS: Final = tuple(known.info for known in _KNOWN.values())
"""Every command, as clients are told of them."""
