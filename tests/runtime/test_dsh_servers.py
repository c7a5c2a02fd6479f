"""The MCP servers of a session of the real runtime, where there is nothing to call them by."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio
import attrs
import pytest

from acp_bridge.harness.mcp.merging import Wanted
from acp_bridge.harness.mcp.servers import Surroundings
from acp_bridge.runtime.dsh.control_types import CallToRun
from acp_bridge.runtime.dsh.servers import DshServers
from acp_bridge.vocabulary import CallId, HttpServer, SessionId

if TYPE_CHECKING:
    from acp_bridge.runtime.dsh.host import Host

pytestmark = pytest.mark.anyio

SESSION = SessionId("s")
SECRET = "s3cret-value"


@attrs.define
class FakeHost:
    """A process whose plugin lacks what MCP servers need, or is not there."""

    control: object | None

    def can(self, _feature: str) -> bool:
        return False


@pytest.fixture
async def servers() -> AsyncIterator[DshServers]:
    async with anyio.create_task_group() as group:
        yield DshServers(
            SESSION,
            [Wanted(HttpServer("far\naway", f"http://127.0.0.1/{SECRET}"))],
            Surroundings(Path("/"), {}),
            group=group,
            host=lambda: None,
        )


async def test_a_runtime_that_cannot_take_tools_is_said_with_the_names(servers: DshServers) -> None:
    await servers.begin(cast("Host", FakeHost(control=object())))
    [told] = servers.news
    assert told.endswith("The session goes on without: far away.")
    assert SECRET not in told


async def test_without_the_plugin_its_own_notice_is_enough(servers: DshServers) -> None:
    await servers.begin(cast("Host", FakeHost(control=None)))
    assert servers.news == []


async def test_a_tool_that_has_gone_meanwhile_is_a_failure_of_its_call(servers: DshServers) -> None:
    call = CallToRun("a1", SESSION, SESSION, CallId("c1"), "mcp__far__away", {})
    result = await servers.call(call)
    assert (result.text, result.is_error) == ("the tool mcp__far__away is gone.", True)
    assert servers.foreign("mcp__far__away") is None
