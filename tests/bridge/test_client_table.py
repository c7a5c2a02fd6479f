"""Who is shown subagents as sessions: what a client says, what it means, and the setting."""

import pytest

from acp_bridge.acp.hello import ClientTraits, client_traits
from acp_bridge.bridge.clients import view_for


@pytest.mark.parametrize(
    ("offered", "native"), [({}, True), (None, False), (True, False), ([], False)]
)
def test_subagents_are_native_where_the_capability_is_an_object(
    offered: object, native: bool
) -> None:
    traits = client_traits({"clientCapabilities": {"subagents": offered}})  # type: ignore[dict-item]
    assert view_for(traits).native_subagents is native


def test_a_client_that_says_nothing_gets_the_fallback() -> None:
    assert not view_for(client_traits({"clientCapabilities": {}})).native_subagents


@pytest.mark.parametrize(
    "traits",
    [
        ClientTraits(name="zed", subagents=True),
        ClientTraits(name="JetBrains.IntelliJ IDEA", subagents=True),
        ClientTraits(platform="intellij", subagents=True),
    ],
)
def test_a_client_that_means_an_older_draft_gets_the_fallback_unless_set(
    traits: ClientTraits,
) -> None:
    assert not view_for(traits).native_subagents
    assert view_for(traits, subagents="native").native_subagents


def test_the_setting_overrides_what_a_client_says() -> None:
    speaks, silent = ClientTraits(name="x", subagents=True), ClientTraits(name="x")
    assert not view_for(speaks, subagents="fallback").native_subagents
    assert view_for(silent, subagents="native").native_subagents
