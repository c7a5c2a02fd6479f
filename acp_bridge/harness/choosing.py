"""What a user chooses in a session: mode, model, effort; and how a reopened session finds it again.

A choice is logged at once when the session is stored; before its first prompt it waits for the
birth rows. What a log names and the catalog no longer has falls back, and the log says so.
"""

from collections.abc import Callable

from acp_bridge.errors import AuthRequiredError, ConfigError, InvalidParamsError
from acp_bridge.harness.desk import Choices, Desk
from acp_bridge.harness.memory import SessionMemory
from acp_bridge.harness.modes import MODES, delegated_rows, mode_rows
from acp_bridge.ports import (
    DEFAULT_EFFORT,
    Model,
    ModelCatalog,
    OptionName,
    SessionOptions,
)
from acp_bridge.vocabulary import Draft, JsonObject, Mode, OptionsChanged

_OTHER_NAMES = {"deepseek-official": "deepseek"}
"""How the other harness calls a provider in its logs."""


def model_id_from_log(provider: str, name: str) -> str:
    """The catalog's id of a model that a log names, in either harness' words."""
    return f"{_OTHER_NAMES.get(provider, provider)}:{name}"


def first_choices(catalog: ModelCatalog, mode: Mode) -> Choices:
    """What a new session begins with.

    Raises:
        AuthRequiredError, ConfigError: there is no model to talk to.
    """
    return Choices(mode=mode, model=catalog.open(None))


def stored_choices(
    catalog: ModelCatalog, memory: SessionMemory, mode: Mode
) -> tuple[Choices, str | None]:
    """What a reopened session goes on with, and a sentence if that is not what it had.

    ``mode`` is for a log that says nothing of one.

    Raises:
        AuthRequiredError, ConfigError: there is no model at all.
    """
    chosen = first_choices(catalog, memory.mode or mode)
    selection = memory.selection
    if selection is None:
        return chosen, None
    provider, name = str(selection.get("provider")), str(selection.get("model"))
    if (provider, name) != (chosen.model.provider, chosen.model.name):
        wanted = model_id_from_log(provider, name)
        try:
            chosen.model = catalog.open(wanted)
        except (AuthRequiredError, ConfigError):
            return chosen, f"The model {wanted} is not available now; {chosen.model_id} answers."
    effort = selection.get("reasoningEffort")
    if not isinstance(effort, str):
        return chosen, None
    wanted = chosen.model_id
    if effort not in chosen.model.info.efforts:
        return chosen, f"The model {wanted} has no effort {effort!r:.100} now; its default is used."
    chosen.effort = effort
    return chosen, None


def options_of(desk: Desk) -> SessionOptions:
    """What can be chosen now, the current values always among it."""
    choices = desk.choices
    models = list(desk.catalog.available())
    if all(info.model_id != choices.model_id for info in models):
        models.insert(0, choices.model.info)
    return SessionOptions(choices.mode, choices.model_id, choices.effort, models)


async def choose(desk: Desk, option: OptionName, value: str) -> None:
    """Put a choice into force and log it; what is chosen already changes nothing.

    Raises:
        InvalidParamsError: the value cannot be chosen; nothing changed.
        StoreFailedError: the disk refused; nothing changed.
    """
    async with desk.choosing:
        match option:
            case "mode":
                drafts, chosen = _choose_mode(desk, value)
            case "model":
                drafts, chosen = _choose_model(desk, value)
            case "effort":
                drafts, chosen = _choose_effort(desk, value)
        if not drafts:
            return
        await _put_into_force(desk, drafts, chosen)
        if option == "model":
            desk.notice = None  # whatever it said of a model is past
    desk.committer.emit(OptionsChanged())


async def take_mode(desk: Desk, given: Callable[[], Mode]) -> None:
    """Put the mode into force that a parent gives its child now.

    Raises:
        StoreFailedError: the disk refused; nothing changed.
    """
    async with desk.choosing:
        now, mode = desk.choices, given()
        if mode != now.mode:
            drafts = delegated_rows(mode, before=now.mode)
            await _put_into_force(desk, drafts, Choices(mode, now.model, now.effort))


async def _put_into_force(desk: Desk, drafts: list[Draft], chosen: Choices) -> None:
    before = desk.choices

    def rows(first_seq: int) -> list[Draft]:
        # It holds from its place in the log on; birth rows that come next must say it.
        desk.choices = chosen
        return drafts if first_seq else []

    try:
        await desk.committer.commit(rows)
    except BaseException:
        desk.choices = before
        raise


def _choose_mode(desk: Desk, value: str) -> tuple[list[Draft], Choices]:
    info = MODES.get(value)
    if info is None:
        raise InvalidParamsError(
            f"There is no mode {value!r:.100}: choose {', '.join(MODES)}.", field="value"
        )
    now = desk.choices
    rows = [] if info.mode == now.mode else mode_rows(info.mode, before=now.mode)
    return rows, Choices(info.mode, now.model, now.effort)


def _choose_model(desk: Desk, value: str) -> tuple[list[Draft], Choices]:
    options = options_of(desk)
    info = next((info for info in options.models if info.model_id == value), None)
    if info is None:
        names = ", ".join(info.model_id for info in options.models)
        raise InvalidParamsError(
            f"There is no model {value!r:.100} to choose: there is {names}.", field="value"
        )
    now = desk.choices
    if value == now.model_id:
        return [], now
    try:
        model = desk.catalog.open(value)
    except (AuthRequiredError, ConfigError) as failure:
        raise InvalidParamsError(failure.details, field="value") from failure
    effort = now.effort if now.effort in info.efforts else None
    return [_selection(model, effort)], Choices(now.mode, model, effort)


def _choose_effort(desk: Desk, value: str) -> tuple[list[Draft], Choices]:
    now = desk.choices
    efforts = options_of(desk).efforts
    if value not in {DEFAULT_EFFORT, *efforts} or not efforts:
        allowed = ", ".join((DEFAULT_EFFORT, *efforts)) if efforts else "none for this model"
        raise InvalidParamsError(
            f"There is no effort {value!r:.100} to choose: there is {allowed}.", field="value"
        )
    effort = None if value == DEFAULT_EFFORT else value
    rows = [] if effort == now.effort else [_selection(now.model, effort)]
    return rows, Choices(now.mode, now.model, effort)


def _selection(model: Model, effort: str | None) -> Draft:
    data: JsonObject = {"provider": model.provider, "model": model.name}
    if effort is not None:
        data["reasoningEffort"] = effort
    return Draft("model/selection", data)
