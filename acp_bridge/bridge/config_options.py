"""A session's choices as ACP shows them: modes, and config options for mode, model and effort.

Pure. Both forms are sent and kept in step, since some clients know only one (clients: section 10,
rule 15); options come in the order mode, model, thought level.
"""

from collections.abc import Sequence
from typing import Final

from acp_bridge.acp.types import (
    AvailableCommand,
    AvailableCommandsUpdate,
    SessionConfigOption,
    SessionConfigSelect,
    SessionConfigSelectGroup,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    UnstructuredCommandInput,
)
from acp_bridge.harness.modes import MODES
from acp_bridge.ports import DEFAULT_EFFORT, ModelInfo, OptionName, SessionOptions
from acp_bridge.vocabulary import CommandInfo

OPTIONS: Final[dict[str, OptionName]] = {"mode": "mode", "model": "model", "effort": "effort"}
"""Config option ids to what the runtime calls them."""

_NAME_CHARS_MAX = 32
"""Zed cuts longer names."""


def modes_from_options(options: SessionOptions) -> SessionModeState:
    """The modes, for clients that know no config options."""
    return SessionModeState(
        current_mode_id=options.mode,
        available_modes=[
            SessionMode(id=info.mode, name=info.title, description=info.description)
            for info in MODES.values()
        ],
    )


def config_from_options(options: SessionOptions) -> list[SessionConfigOption]:
    """The full list of config options. Effort is there if the model has levels of it."""
    found: list[SessionConfigOption] = [
        SessionConfigSelect(
            id="mode",
            name="Mode",
            description="When to ask for permission",
            category="mode",
            current_value=options.mode,
            options=[_option(i.mode, i.title, i.description) for i in MODES.values()],
        ),
        SessionConfigSelect(
            id="model",
            name="Model",
            category="model",
            current_value=options.model_id,
            options=_models(options.models),
        ),
    ]
    if options.efforts:
        levels = [DEFAULT_EFFORT, *options.efforts]
        effort = SessionConfigSelect(
            id="effort",
            name="Effort",
            description="How hard the model thinks",
            category="thought_level",
            current_value=options.effort or DEFAULT_EFFORT,
            options=[_option(level, level.capitalize(), None) for level in levels],
        )
        found.append(effort)
    return found


def _models(
    models: Sequence[ModelInfo],
) -> list[SessionConfigSelectOption] | list[SessionConfigSelectGroup]:
    """The models, under the name of their provider if there are several."""
    groups: dict[str, SessionConfigSelectGroup] = {}
    for info in models:
        provider = info.model_id.partition(":")[0]
        name = info.provider_title or provider.capitalize()
        group = groups.setdefault(
            provider, SessionConfigSelectGroup(group=provider, name=name, options=[])
        )
        group.options.append(_option(info.model_id, info.title, info.model_id))
    if len(groups) > 1:
        return list(groups.values())
    return [option for group in groups.values() for option in group.options]


def commands_update(commands: Sequence[CommandInfo]) -> AvailableCommandsUpdate:
    """The slash commands, names without the slash."""
    return AvailableCommandsUpdate(
        available_commands=[
            AvailableCommand(
                name=info.name,
                description=info.description,
                input=None if info.hint is None else UnstructuredCommandInput(hint=info.hint),
            )
            for info in commands
        ]
    )


def _option(value: str, name: str, description: str | None) -> SessionConfigSelectOption:
    short = name if len(name) <= _NAME_CHARS_MAX else name[: _NAME_CHARS_MAX - 1] + "…"
    return SessionConfigSelectOption(value=value, name=short, description=description)
