"""Which models can be chosen with the real runtime: what it says, and until then what we know."""

from pathlib import Path

from acp_bridge.config import ModelSettings
from acp_bridge.runtime.dsh.control_types import ModelChoice, RuntimeModel
from acp_bridge.runtime.dsh.models import PROVIDER, DshModels

NEW = RuntimeModel(
    provider=PROVIDER,
    model="deepseek-v9",
    title="DeepSeek-V9",
    context_window=2_000_000,
    efforts=("off", "high"),
    default_effort="high",
    takes_images=True,
)


def models(
    *, configured: str | None = None, overrides: dict[str, ModelSettings] | None = None
) -> DshModels:
    return DshModels(
        home=Path("/nowhere"),
        configured=configured,
        overrides=overrides or {},
        find_key=lambda: None,
        forget=lambda: None,
    )


def ids(menu: DshModels) -> list[str]:
    return [info.model_id for info in menu.available()]


def test_the_menu_is_what_we_know_until_the_runtime_says_what_it_has() -> None:
    menu = models()
    known = ids(menu)
    assert known[0] == "deepseek:deepseek-flash"
    assert menu.learn([NEW])
    [info] = menu.available()
    assert (info.model_id, info.title, info.context_window) == (
        "deepseek:deepseek-v9",
        "DeepSeek-V9",
        2_000_000,
    )
    assert (info.efforts, info.takes_images) == (("off", "high"), True)


def test_hearing_the_same_again_or_nothing_changes_nothing() -> None:
    menu = models()
    menu.learn([NEW])
    assert not menu.learn([NEW])
    assert not menu.learn([])
    assert ids(menu) == ["deepseek:deepseek-v9"]


def test_models_of_providers_that_we_have_no_name_for_are_not_offered() -> None:
    menu = models()
    assert not menu.learn([RuntimeModel("house", "own", "Own", None, (), None, takes_images=False)])
    assert "deepseek:deepseek-flash" in ids(menu)


def test_what_the_user_says_of_a_model_counts_most() -> None:
    settings = ModelSettings(context_window=9000, efforts=("max",))
    menu = models(configured="deepseek:mine", overrides={"deepseek:deepseek-v9": settings})
    menu.learn([NEW])
    assert ids(menu) == ["deepseek:mine", "deepseek:deepseek-v9"]
    info = menu.info("deepseek:deepseek-v9")
    assert (info.context_window, info.efforts, info.title) == (9000, ("max",), "DeepSeek-V9")


def test_a_new_session_begins_with_the_same_model_before_and_after() -> None:
    menu = models()
    before = menu.first()
    menu.learn([NEW])
    assert menu.first() == before == ModelChoice(PROVIDER, "deepseek-flash")
    configured = models(configured="deepseek:mine")
    assert configured.first() == ModelChoice(PROVIDER, "mine")
