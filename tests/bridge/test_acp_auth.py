"""Signing in and out: what is offered, and that keys are looked up anew (R096)."""

import os
from pathlib import Path

import pytest
from acp_rig import Bench

from acp_bridge.models.credentials import read_keys, write_key
from acp_bridge.vocabulary import JsonObject

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)


async def test_without_a_key_a_session_says_how_to_get_one_r096(bench: Bench) -> None:
    async with bench.editor(model=None) as editor:
        refused = await editor.refused("session/new", new(bench.cwd))
        assert refused["code"] == -32000
        assert "acp-bridge setup" in str(refused["message"])
        assert "--model demo" in str(refused["message"])
        for method in ("configured-model", "setup"):
            refused = await editor.refused("authenticate", {"methodId": method})
            assert refused["code"] == -32000
        unknown = await editor.refused("authenticate", {"methodId": "nope"})
        assert unknown["code"] == -32602
        data = unknown["data"]
        assert isinstance(data, dict)
        assert data["field"] == "methodId"


async def test_a_key_that_is_stored_meanwhile_counts_at_once_r096(bench: Bench) -> None:
    async with bench.editor(model=None) as editor:
        await editor.refused("session/new", new(bench.cwd))
        write_key(bench.home, "deepseek", "sk-a-key-of-some-length")
        for _ in range(2):  # idempotent
            assert await editor.call("authenticate", {"methodId": "configured-model"}) == {}
        assert await editor.new(bench.cwd)


async def test_logout_forgets_the_stored_key(bench: Bench) -> None:
    write_key(bench.home, "deepseek", "sk-a-key-of-some-length")
    async with bench.editor(model=None) as editor:
        assert await editor.new(bench.cwd)
        for _ in range(2):
            assert await editor.call("logout", {}) == {}
        assert read_keys(bench.home) == {}
        assert (await editor.refused("session/new", new(bench.cwd)))["code"] == -32000


async def test_a_client_that_opens_terminals_is_offered_to_set_up_in_one(bench: Bench) -> None:
    async with bench.editor({"auth": {"terminal": True}}) as editor:
        hello = next(m["result"] for m in editor.received if "result" in m)
        assert isinstance(hello, dict)
        methods = hello["authMethods"]
        assert isinstance(methods, list)
        _, setup = methods
        assert isinstance(setup, dict)
        assert (setup["type"], setup["args"]) == ("terminal", ["setup"])


def new(cwd: Path) -> JsonObject:
    return {"cwd": str(cwd), "mcpServers": []}
