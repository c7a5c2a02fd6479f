"""Which model a session of the SDK wire begins with: the settings' or the one that is named."""

import pytest
from fake_models import FakeCatalog, FakeModel

from acp_bridge.errors import ConfigError, InvalidParamsError
from acp_bridge.runtime.sdk.naming import NamedCatalog


def models() -> FakeCatalog:
    found = FakeCatalog(FakeModel("first"), FakeModel("flash", provider="deepseek"))
    found.give("flash", "low", "high")
    return found


def preferred(catalog: NamedCatalog) -> str:
    return catalog.open(None).info.model_id


def test_the_named_model_is_preferred_in_either_harness_words() -> None:
    catalog = NamedCatalog(models(), pinned=False)
    assert preferred(catalog) == "fake:first"
    assert catalog.name("deepseek-official", "flash", "high") == "high"
    assert preferred(catalog) == "deepseek:flash"
    assert catalog.name("fake", "first", None) is None
    assert catalog.name("deepseek", "flash", None) is None
    assert preferred(catalog) == "deepseek:flash"
    assert catalog.open("fake:first").info.model_id == "fake:first"
    assert len(catalog.available()) == 2


def test_what_cannot_be_used_changes_nothing() -> None:
    catalog = NamedCatalog(models(), pinned=False)
    catalog.name("deepseek", "flash", None)
    with pytest.raises(ConfigError):
        catalog.name("deepseek", "none", None)
    with pytest.raises(InvalidParamsError, match="fake:first has no effort 'high'; it has none"):
        catalog.name("fake", "first", "high")
    assert preferred(catalog) == "deepseek:flash"


def test_the_settings_model_wins_and_drops_an_effort_that_was_meant_for_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog = NamedCatalog(models(), pinned=True)
    assert catalog.name("deepseek", "none", "high") is None
    assert "has no effort 'high'" in caplog.text
    assert preferred(catalog) == "fake:first"


def test_signing_out_forgets_what_is_beneath() -> None:
    beneath = models()
    NamedCatalog(beneath, pinned=False).forget()
    assert beneath.available() == []
