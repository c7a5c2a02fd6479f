"""Slash commands: what a user may type instead of a prompt.

But for ``/compact`` they take no model call. Logged as the real runtime does: ``command/run``, what
it changes, ``command/done`` with the text that the user sees.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import attrs

from acp_bridge.errors import BridgeError, InvalidParamsError
from acp_bridge.harness.choosing import choose, options_of
from acp_bridge.harness.desk import Desk
from acp_bridge.harness.modes import MODES
from acp_bridge.harness.standing import birth_rows
from acp_bridge.vocabulary import Command, CommandInfo, Draft, JsonObject

TITLE_CHARS_MAX: Final = 200
"""A title is one line of a list."""


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
    run: JsonObject = {"commandId": command_id, "name": command.name}
    if command.argument:
        run["args"] = command.argument
    run["source"] = {"kind": "user"}
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
    done: JsonObject = {
        "commandId": command_id,
        "kind": "error" if said.is_error else "success",
        "text": said.text,
    }
    if said.source_seq is not None:
        done["sourceEventSeq"] = said.source_seq
    await desk.committer.commit([Draft("command/done", done)])


async def _help(desk: Desk, _argument: str, _command_id: str) -> _Said:
    lines = [
        f"- `/{info.name}{'' if info.hint is None else ' ' + info.hint}`: {info.description}"
        for info in commands_of(desk)
    ]
    return _Said("\n".join(lines))


async def _mode(desk: Desk, argument: str, _command_id: str) -> _Said:
    if argument:
        await choose(desk, "mode", argument)
    lines = [
        f"- `{info.mode}`{' (now)' if info.mode == desk.choices.mode else ''}: {info.description}"
        for info in MODES.values()
    ]
    return _Said("\n".join(lines))


async def _model(desk: Desk, argument: str, _command_id: str) -> _Said:
    if argument:
        await choose(desk, "model", argument)
    options = options_of(desk)
    lines = [
        f"- `{info.model_id}`{' (now)' if info.model_id == options.model_id else ''}: {info.title}"
        for info in options.models
    ]
    return _Said("\n".join(lines))


async def _title(desk: Desk, argument: str, _command_id: str) -> _Said:
    title = " ".join(argument.split())[:TITLE_CHARS_MAX]
    if not title:
        raise InvalidParamsError("Say the title: /title Fix the parser", field="prompt")
    data: JsonObject = {"title": title, "messageSeqs": [], "source": {"kind": "user"}}
    await desk.committer.commit([Draft("session/title", data)])
    return _Said(f"The title is now: {title}")


async def _fork(desk: Desk, _argument: str, _command_id: str) -> _Said:
    try:
        fork_id = await desk.fork()
    except BridgeError as failure:
        return _Said(failure.details, is_error=True)
    if fork_id is None:
        return _Said("There is nothing to fork yet: no turn is completed.", is_error=True)
    return _Said(
        f"Forked: session `{fork_id}` begins with the completed turns of this one, which goes on "
        "as it is. Open it from your editor's list of sessions; "
        f"`acp-bridge sessions show {fork_id}` prints it."
    )


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
        _Known(CommandInfo("help", "Show what can be typed"), _help),
        _Known(CommandInfo("mode", "Show or switch the permission mode", "[MODE]"), _mode),
        _Known(CommandInfo("model", "Show or switch the model", "[MODEL]"), _model),
        _Known(CommandInfo("title", "Name this session", "TITLE"), _title),
        _Known(CommandInfo("fork", "Begin another session with the turns of this one"), _fork),
        _Known(
            CommandInfo(
                "compact",
                "Summarize the conversation so far, to make room",
                "[INSTRUCTIONS]",
            ),
            _compact,
            is_long=True,
        ),
    )
}

COMMANDS: Final = tuple(known.info for known in _KNOWN.values())
"""Every command of ours, as clients are told of them."""

COMMAND_NAMES: Final = frozenset(_KNOWN)


def commands_of(desk: Desk) -> list[CommandInfo]:
    """The session's commands: ours, then those that people have written down."""
    return [*COMMANDS, *(command.info for command in desk.project.found.commands)]
