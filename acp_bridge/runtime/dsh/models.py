"""Which models the real runtime can use, and with which key: DeepSeek's, under our names."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from acp_bridge.config import ModelSettings
from acp_bridge.errors import AuthRequiredError, ConfigError
from acp_bridge.models.known import DEEPSEEK, model_info
from acp_bridge.ports import ModelInfo
from acp_bridge.runtime.dsh.control_types import ModelChoice
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

    def available(self) -> Sequence[ModelInfo]:
        """What can be chosen, the configured one first."""
        ids = [] if self._configured is None else [self._configured]
        ids += [f"{_PREFIX}{known.name}" for known in DEEPSEEK.models]
        ids += [model_id for model_id in self._overrides if model_id.startswith(_PREFIX)]
        return [self.info(model_id) for model_id in dict.fromkeys(ids)]

    def info(self, model_id: str) -> ModelInfo:
        """What is known of a model of DeepSeek's."""
        return model_info(DEEPSEEK, model_id.removeprefix(_PREFIX), self._overrides)

    def first(self) -> ModelChoice:
        """What a new session begins with."""
        return choice_of(self.available()[0].model_id)


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
