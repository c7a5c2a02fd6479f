"""Which model a session of the SDK wire begins with: the settings' or the one that is named."""

import pytest
from fake_models import FakeCatalog, FakeModel

from acp_bridge.errors import ConfigError
from acp_bridge.runtime.sdk.naming import NamedCatalog


def models() -> FakeCatalog:
    return FakeCatalog(FakeModel("first"), FakeModel("flash", provider="deepseek"))


def test_the_named_model_is_preferred_in_either_harness_words() -> None:
    catalog = NamedCatalog(models(), pinned=False)
    assert catalog.open(None).info.model_id == "fake:first"
    assert catalog.name("deepseek-official", "flash").model_id == "deepseek:flash"
    assert catalog.open(None).info.model_id == "deepseek:flash"
    assert catalog.name("deepseek", "flash").model_id == "deepseek:flash"
    assert catalog.open("fake:first").info.model_id == "fake:first"
    assert len(catalog.available()) == 2


def test_a_model_that_cannot_be_used_changes_nothing() -> None:
    catalog = NamedCatalog(models(), pinned=False)
    catalog.name("deepseek", "flash")
    with pytest.raises(ConfigError):
        catalog.name("deepseek", "none")
    assert catalog.open(None).info.model_id == "deepseek:flash"


def test_the_settings_model_wins() -> None:
    catalog = NamedCatalog(models(), pinned=True)
    assert catalog.name("deepseek", "none").model_id == "fake:first"
    assert catalog.open(None).info.model_id == "fake:first"


def test_signing_out_forgets_what_is_beneath() -> None:
    beneath = models()
    NamedCatalog(beneath, pinned=False).forget()
    assert beneath.available() == []
