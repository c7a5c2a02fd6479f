"""Which models the real runtime can use, and with which key: DeepSeek's, under our names.

Until a process is up, and without the control plugin, that is what we know of them ourselves.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from acp_bridge.config import ModelSettings
from acp_bridge.errors import AuthRequiredError, ConfigError
from acp_bridge.models.known import DEEPSEEK, Known, model_info
from acp_bridge.ports import ModelInfo
from acp_bridge.runtime.dsh.control_types import ModelChoice, RuntimeModel
from acp_bridge.runtime.dsh.launch import has_own_key
from acp_bridge.vocabulary import JsonObject

PROVIDER: Final = "deepseek-official"
"""The one provider that the runtime has."""

_PREFIX: Final = f"{DEEPSEEK.name}:"


class DshModels:
    """Models and the key.

    ``home`` is the runtime's, which may hold a key of its own; ``configured`` the model that the
    settings name; ``overrides`` what they say of models; ``find_key`` looks the key up anew,
    ``forget`` forgets the stored ones.

    Raises:
        ConfigError: the configured model is not one of DeepSeek's.
    """

    def __init__(
        self,
        *,
        home: Path,
        configured: str | None,
        overrides: Mapping[str, ModelSettings],
        find_key: Callable[[], str | None],
        forget: Callable[[], None],
    ) -> None:
        if configured is not None and not configured.partition(_PREFIX)[2].strip():
            raise ConfigError(
                f"The dsh runtime has DeepSeek's models alone: the model must be "
                f"{_PREFIX}NAME, not {configured!r:.100}, or be left out."
            )
        self._home = home
        self._configured = configured
        self._overrides = overrides
        self._told: dict[str, RuntimeModel] = {}
        """What the runtime says of its models, by their names; empty: nothing yet."""
        self.find_key = find_key
        self.forget = forget

    def check(self) -> None:
        """Look whether there is a key.

        Raises:
            AuthRequiredError: there is none, neither ours nor the runtime's own.
            ConfigError: it cannot be used.
        """
        if self.find_key() is None and not has_own_key(self._home):
            raise AuthRequiredError(f"DeepSeek Harness needs a key. {DEEPSEEK.sign_in}")

    def learn(self, models: Sequence[RuntimeModel]) -> bool:
        """Take what the runtime says of its models; whether there is another choice now."""
        before = self.available()
        self._told = {one.model: one for one in models if one.provider == PROVIDER} or self._told
        return before != self.available()

    def available(self) -> list[ModelInfo]:
        """What can be chosen, the configured one first."""
        ids = [] if self._configured is None else [self._configured]
        ids += [f"{_PREFIX}{name}" for name in self._told or map(_name, DEEPSEEK.models)]
        ids += [model_id for model_id in self._overrides if model_id.startswith(_PREFIX)]
        return [self.info(model_id) for model_id in dict.fromkeys(ids)]

    def info(self, model_id: str) -> ModelInfo:
        """What is known of a model of DeepSeek's; what the user says of it counts most."""
        name = model_id.removeprefix(_PREFIX)
        info = model_info(DEEPSEEK, name, self._overrides)
        told = self._told.get(name)
        if told is None:
            return info
        known = attrs.evolve(
            info,
            title=told.title,
            context_window=told.context_window or info.context_window,
            efforts=told.efforts,
            takes_images=told.takes_images,
        )
        theirs = self._overrides.get(info.model_id, ModelSettings())._asdict()
        said = {name: value for name, value in theirs.items() if value is not None}
        return attrs.evolve(known, **said)

    def first(self) -> ModelChoice:
        """What a new session begins with; the same whether a process is up or not."""
        return choice_of(self._configured or f"{_PREFIX}{DEEPSEEK.models[0].name}")


def _name(known: Known) -> str:
    return known.name


def choice_of(model_id: str, effort: str | None = None) -> ModelChoice:
    """A model of our menu in the runtime's words."""
    return ModelChoice(PROVIDER, model_id.removeprefix(_PREFIX), effort)


def model_id_of(choice: ModelChoice) -> str:
    """A model of the runtime's in the words of our menu."""
    return _PREFIX + choice.model


def choice_from_log(selection: JsonObject | None) -> ModelChoice | None:
    """The model that a log names last; None if it names none that the runtime has."""
    if selection is None or selection.get("provider") not in {PROVIDER, DEEPSEEK.name}:
        return None
    model, effort = selection.get("model"), selection.get("reasoningEffort")
    if not isinstance(model, str) or not model:
        return None
    return ModelChoice(PROVIDER, model, effort if isinstance(effort, str) else None)


def selection_name(selection: JsonObject | None) -> str | None:
    """How to call the model that a log names last; None if it names none."""
    if selection is None or not selection.get("model"):
        return None
    return f"{selection.get('provider')}:{selection.get('model')}"
