"""A child that another process delegated, in a runtime of this one: its log, place and servers."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import anyio
import pytest
from fake_models import OneModel
from family_rig import Cast, say
from harness_rig import Clock, FakeClient, ids
from mcp_rig import site

from acp_bridge.config import McpSettings
from acp_bridge.errors import LocalProtocolError, SessionConflictError
from acp_bridge.harness.desk import Choices
from acp_bridge.harness.inbox import splice
from acp_bridge.harness.modes import delegated_rows
from acp_bridge.harness.session import HarnessSession
from acp_bridge.harness.tools import builtin_tools
from acp_bridge.runtime.embedded import EmbeddedRuntime, Outside
from acp_bridge.sessions import Header
from acp_bridge.subagents.messages import task_message
from acp_bridge.vocabulary import Event, SessionId

pytestmark = pytest.mark.anyio


def begun() -> list[Event]:
    """A child's log that holds its task."""
    put = splice("next-turn", start=0, inserted=[task_message("go", message_id="m")])
    drafts = [*delegated_rows("ask", before=None), put]
    return [Event(seq, 7, draft.type, draft.data) for seq, draft in enumerate(drafts)]


@asynccontextmanager
async def runtime_of(
    folder: Path, model: Cast, servers: Mapping[str, McpSettings] | None = None
) -> AsyncIterator[EmbeddedRuntime]:
    with anyio.fail_after(60):
        async with EmbeddedRuntime(
            home=folder / "home",
            catalog=OneModel(lambda: model),
            mode="ask",
            tools=builtin_tools,
            outside=Outside(Clock(), ids(), lambda: 0.5, {}),
            servers=servers or {},
            durable=False,
        ) as runtime:
            yield runtime


async def taken(
    runtime: EmbeddedRuntime,
    folder: Path,
    model: Cast,
    events: list[Event] | None = None,
    *,
    system_prompt: str = "",
    images: Mapping[str, bytes] = MappingProxyType({}),
) -> HarnessSession:
    header = Header(
        session_id="child",
        created_at_ms=7,
        cwd=str(folder),
        delegation_depth=1,
        parent_session="parent",
        origin="subagent",
    )
    return await runtime.take_child(
        header,
        begun() if events is None else events,
        choices=Choices("ask", model),
        place="4/2",
        client=FakeClient(),
        system_prompt=system_prompt,
        images=images,
    )


async def test_it_works_in_the_place_that_it_is_given(tmp_path: Path) -> None:
    model = Cast({"4/2": [say("Done.")]})
    async with runtime_of(tmp_path, model) as runtime:
        session = await taken(runtime, tmp_path, model)
        assert runtime.live(SessionId("child")) is session
        assert (await session.awake(title="look").ended()).kind == "completed"
        assert [event.time_ms for event in session.events[:3]] == [7, 7, 7]
        assert len(model.requests("4/2")) == 1
        await session.close()
        assert runtime.live(SessionId("child")) is None


async def test_its_model_gets_what_the_editor_at_home_gave(tmp_path: Path) -> None:
    model, image = Cast({"4/2": [say("Done.")]}), f"sha256:{'ab' * 32}"
    async with runtime_of(tmp_path, model) as runtime:
        session = await taken(
            runtime, tmp_path, model, system_prompt="Be kind.", images={image: b"png"}
        )
        await session.awake().ended()
        (request,) = model.requests("4/2")
        assert "Be kind." in request.system
        assert request.find_image is not None
        assert await request.find_image(image) == b"png"


async def test_it_waits_for_its_mcp_servers_before_it_begins(tmp_path: Path) -> None:
    model = Cast({})
    async with site(is_sse=False) as found:
        servers = {"site": McpSettings(url=f"http://127.0.0.1:{found.port}/mcp")}
        async with runtime_of(tmp_path, model, servers) as runtime:
            session = await taken(runtime, tmp_path, model)
            assert "mcp__site__add" in session.tools


async def test_it_is_taken_once(tmp_path: Path) -> None:
    model = Cast({})
    async with runtime_of(tmp_path, model) as runtime:
        await taken(runtime, tmp_path, model)
        with pytest.raises(SessionConflictError, match="open already"):
            await taken(runtime, tmp_path, model)


async def test_rows_that_are_no_log_from_its_start_are_refused(tmp_path: Path) -> None:
    model = Cast({})
    async with runtime_of(tmp_path, model) as runtime:
        with pytest.raises(SessionConflictError, match="goes on with row 0"):
            await taken(runtime, tmp_path, model, begun()[1:])
        with pytest.raises(LocalProtocolError, match="would become unreadable"):
            await taken(runtime, tmp_path, model, [Event(0, 7, "turn/end", {"turn": 3})])
        await taken(runtime, tmp_path, model)
