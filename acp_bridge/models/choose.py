"""From the text of ``--model`` to a model. Adapters are imported when they are chosen."""

from pathlib import Path

from acp_bridge.errors import AuthRequiredError, ConfigError
from acp_bridge.ports import Model

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
