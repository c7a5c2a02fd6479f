"""`HarnessClient` against the real runtime, as far as its one level of delegation goes."""

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from dsh_rig import Model, dsh_command, loopback_model, text, tool

from acp_bridge.runtime.dsh.client import HarnessClient
from acp_bridge.runtime.dsh.control import PATCH_FILE
from acp_bridge.runtime.dsh.launch import Launch
from acp_bridge.runtime.dsh.logs import is_subagent, until_stored
from acp_bridge.runtime.dsh.process import DshProcess
from acp_bridge.sessions import Header, SessionStore
from acp_bridge.sessions.codec import encode_batch
from acp_bridge.sessions.header import dump_header
from acp_bridge.sessions.paths import project_folder
from acp_bridge.vocabulary import JsonObject
from acp_bridge.wire.messages import Notification

pytestmark = [pytest.mark.anyio, pytest.mark.dsh, pytest.mark.process]

GO: list[JsonObject] = [{"type": "text", "text": "go"}]


@pytest.fixture
def model() -> Iterator[Model]:
    with loopback_model() as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "home" / "sessions", clock=lambda: 7)


@asynccontextmanager
async def real_client(
    tmp_path: Path, model: Model, store: SessionStore
) -> AsyncIterator[HarnessClient]:
    """A client of a real process that was greeted; work happens in ``tmp_path``."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DSH_")}
    env |= {"DSH_TELEMETRY_MODE": "DISABLED", "DEEPSEEK_BASE_URL": model.url}
    env |= {"DSH_PERMISSION_MODE": "danger-full-access"}
    home = tmp_path / "home"
    launch = Launch(Path(dsh_command()), home, env, "key-of-the-test", patches=[PATCH_FILE])
    process = await DshProcess.start(launch)
    client = HarnessClient(
        process, is_subagent=lambda child: is_subagent(store, child), stray=process.note
    )
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(process.hear_errors)
            group.start_soon(client.run)
            await client.request(
                "initialize",
                {"cwd": str(tmp_path), "provider": "deepseek-official", "model": "deepseek-flash"},
            )
            yield client
            await client.request("shutdown", {})
            client.stop("The test is over.")
    assert process.exit_code == 0


def sessions_of(notifications: Sequence[Notification]) -> set[str]:
    found = set()
    for notification in notifications:
        params = notification.params
        assert isinstance(params, dict)
        found.add(str(params.get("sessionId") or params.get("childSessionId")))
    return found


async def test_a_delegating_run_hears_its_children_and_answers_for_itself(
    tmp_path: Path, model: Model, store: SessionStore
) -> None:
    for name in ("subagent", "subagent_fork"):
        model.answer("root", tool(f"c-{name}", name, description="d", prompt="Child, work."))
    model.answer("root", text("The root says so."))
    model.answer("root", text("The root has heard."))
    model.answer("root", text("The root has heard both."))
    async with real_client(tmp_path, model, store) as client:
        result = await client.session("root").run(GO)
        assert client.drain() == []
        children = sessions_of(result.notifications) - {"root"}
        started = [one for one in result.notifications if one.method == "subagent.started"]
        finished = [one for one in result.notifications if one.method == "subagent.finished"]
        assert (len(children), len(started), len(finished)) == (2, 2, 2)
        assert result.finish_reason == "completed"
        assert result.final_response.startswith("The root")

        # A child that is woken in a later run is still known as this root's.
        one = min(children)
        model.script["root"].clear()  # notices may have come together
        model.answer("root", tool("c-again", "send_message", agent_id=one, message="More."))
        model.answer("root", text("Sent."))
        again = await client.session("root").run(GO)
        assert one in sessions_of(again.notifications)
        assert client.drain() == []
    told = [*result.events, *again.events]
    assert told == store.read("root").events[: len(told)]


async def test_forks_that_name_their_source_are_no_children(
    tmp_path: Path, model: Model, store: SessionStore
) -> None:
    async with real_client(tmp_path, model, store) as client:
        first = await client.session("root").run(GO)
        await until_stored(store, "root", first.events[-1].seq)
        source = store.read("root")
        made = store.fork("root", new_id="plain", created_at_ms=7, shape="dsh-0.2.1")
        assert made.is_stored
        name_parent(store, source.path.parent.parent.parent, "plain", parent="root")
        store.fork("plain", new_id="nested", created_at_ms=8, shape="dsh-0.2.1")
        name_parent(store, source.path.parent.parent.parent, "nested", parent="plain")
        with client.subscribe("root", (heard := list[Notification]()).append):
            for fork in ("plain", "nested"):
                await client.session(fork).resume()
                result = await client.session(fork).run(GO)
                assert sessions_of(result.notifications) == {fork}
        assert heard == []
        assert first.finish_reason == "completed"


def name_parent(store: SessionStore, root: Path, session_id: str, *, parent: str) -> None:
    """Make a fork an older one, whose header names its source: the runtime announces those."""
    path = store.read(session_id).path
    header = store.read_header(session_id)
    old = Header(
        session_id=header.session_id,
        created_at_ms=header.created_at_ms,
        cwd=header.cwd,
        is_seeded=True,
        parent_session=parent,
    )
    data = path.read_bytes()
    frame = encode_batch(dump_header(header), "zstd")
    assert data.startswith(frame)
    path.write_bytes(encode_batch(dump_header(old), "zstd") + data[len(frame) :])
    assert path.parent.parent == root / project_folder(header.cwd)
