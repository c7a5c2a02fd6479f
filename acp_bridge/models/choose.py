"""From the text of ``--model`` to a model. Adapters are imported when they are chosen."""

from pathlib import Path

from acp_bridge.errors import AuthRequiredError, ConfigError
from acp_bridge.ports import Model, ModelInfo

NO_MODEL = (
    "No model is configured. Start acp-bridge with `--model demo` to try it without a key, "
    "or with `--model scripted:FILE`."
)


def model_from_name(name: str | None) -> Model:
    """The model that ``demo`` or ``scripted:PATH`` names.

    Raises:
        AuthRequiredError: no model is named and none can be found.
        ConfigError: the name or the script cannot be used.
    """
    if name is None:
        raise AuthRequiredError(NO_MODEL)
    if name == "demo":
        from acp_bridge.models.demo import DemoModel

        return DemoModel()
    kind, colon, rest = name.partition(":")
    if kind == "scripted" and colon and rest:
        from acp_bridge.models.scripted import ScriptedModel

        return ScriptedModel.load(Path(rest).expanduser())
    raise ConfigError(f"The model {name!r} is not known: use `demo` or `scripted:FILE`.")


class ConfiguredCatalog:
    """A `ports.ModelCatalog` of the one model that is named."""

    def __init__(self, name: str | None) -> None:
        self._name = name

    def available(self) -> list[ModelInfo]:
        """The named model, if there is one."""
        try:
            model = model_from_name(self._name)
        except (AuthRequiredError, ConfigError):
            return []
        return [ModelInfo(f"{model.provider}:{model.name}", model.name, model.context_window)]

    def open(self, model_id: str | None) -> Model:
        """The named model, whatever it is called."""
        model = model_from_name(self._name)
        if model_id not in {None, f"{model.provider}:{model.name}"}:
            raise ConfigError(f"The model {model_id} is not available.")
        return model
