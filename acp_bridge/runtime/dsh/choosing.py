"""What can be chosen in a session of the real runtime, and the rows that say so. Pure."""

from typing import Final

import attrs

from acp_bridge.errors import InvalidParamsError
from acp_bridge.harness.modes import MODES
from acp_bridge.ports import DEFAULT_EFFORT, OptionName, SessionOptions
from acp_bridge.runtime.dsh.control_types import ModelChoice
from acp_bridge.runtime.dsh.models import DshModels, choice_of, model_id_of
from acp_bridge.vocabulary import Draft, Mode

CHOICE_ROWS: Final = frozenset(
    {"sandbox/mode", "approval/policy", "plan/mode", "model/selection", "request/header"}
)
"""Rows after which mode or model may be another."""


def options_of(models: DshModels, mode: Mode, model: ModelChoice) -> SessionOptions:
    """What can be chosen, and what is chosen."""
    infos = list(models.available())
    model_id = model_id_of(model)
    if all(info.model_id != model_id for info in infos):
        infos.insert(0, models.info(model_id))
    return SessionOptions(mode, model_id, model.effort, infos)


def chosen(
    models: DshModels, mode: Mode, model: ModelChoice, option: OptionName, value: str
) -> tuple[Mode, ModelChoice]:
    """Mode and model after a choice.

    Raises:
        InvalidParamsError: there is no such value to choose.
    """
    if option == "mode":
        info = MODES.get(value)
        if info is None:
            raise InvalidParamsError(
                f"There is no mode {value!r:.100}: choose {', '.join(MODES)}.", field="value"
            )
        return info.mode, model
    options = options_of(models, mode, model)
    allowed = [info.model_id for info in options.models]
    if option == "effort":
        allowed = [DEFAULT_EFFORT, *options.efforts] if options.efforts else []
    if value not in allowed:
        there_is = ", ".join(allowed) or "none for this model"
        raise InvalidParamsError(
            f"There is no {option} {value!r:.100} to choose: there is {there_is}.",
            field="value",
        )
    if option == "effort":
        effort = None if value == DEFAULT_EFFORT else value
        return mode, attrs.evolve(model, effort=effort)
    known = models.info(value).efforts
    return mode, choice_of(value, model.effort if model.effort in known else None)


def selection_row(model: ModelChoice) -> Draft:
    """The row that says which model is chosen."""
    effort = {} if model.effort is None else {"reasoningEffort": model.effort}
    return Draft("model/selection", {"provider": model.provider, "model": model.model, **effort})
