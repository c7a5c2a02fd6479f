"""One way into the log: durable, then told, in order, and never half."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from harness_rig import SESSION, Clock, FlakyWriter, store

from acp_bridge.errors import LocalProtocolError, StoreFailedError
from acp_bridge.harness.committer import Committer
from acp_bridge.sessions import Header
from acp_bridge.vocabulary import Draft, Event, RuntimeEvent

pytestmark = pytest.mark.anyio


def made(tmp_path: Path) -> tuple[Committer, FlakyWriter, list[RuntimeEvent]]:
    writer = FlakyWriter.around(store(tmp_path, Clock()).create(Header(SESSION, 1, "/w")))
    committer = Committer(writer)
    told: list[RuntimeEvent] = []
    committer.attach(told.append)
    return committer, writer, told


def preset(name: str) -> Draft:
    return Draft("permission/preset", {"preset": name})


BAD = Draft("step/end", {"turn": 1, "step": 1})


def names(events: Sequence[RuntimeEvent]) -> list[object]:
    return [e.data["preset"] for e in events if isinstance(e, Event) and isinstance(e.data, dict)]


async def test_rows_that_come_together_share_a_batch_and_keep_their_order(tmp_path: Path) -> None:
    committer, writer, told = made(tmp_path)
    got: dict[str, list[Event]] = {}

    async def bring(name: str) -> None:
        got[name] = await committer.commit([preset(name), preset(name + "'")])

    async with anyio.create_task_group() as group:
        for name in "abcd":
            group.start_soon(bring, name)
    assert len(writer.batches) <= 2
    assert names(told) == ["a", "a'", "b", "b'", "c", "c'", "d", "d'"]
    assert {name: names(events) for name, events in got.items()} == {
        name: [name, name + "'"] for name in "abcd"
    }
    assert told == committer.told == writer.events
    writer.close()


async def test_a_bad_batch_does_not_sink_those_beside_it(tmp_path: Path) -> None:
    committer, writer, told = made(tmp_path)
    failed: list[str] = []

    async def bring(name: str, draft: Draft) -> None:
        try:
            await committer.commit([draft])
        except LocalProtocolError:
            failed.append(name)

    async with anyio.create_task_group() as group:
        for name in "abxc":
            group.start_soon(bring, name, BAD if name == "x" else preset(name))
    assert failed == ["x"]
    assert names(told) == ["a", "b", "c"]
    writer.close()


async def test_a_cancel_leaves_no_row_untold(tmp_path: Path) -> None:
    committer, writer, told = made(tmp_path)
    async with anyio.create_task_group() as group:
        for name in "abcdef":
            group.start_soon(committer.commit, [preset(name)])
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    await committer.commit([preset("after")])
    assert told == writer.events == committer.told
    assert names(told)[-1] == "after"
    writer.close()


async def test_a_disk_that_fails_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    committer, writer, told = made(tmp_path)
    await committer.commit([preset("a")])
    writer.fail = lambda _drafts: True
    with pytest.raises(StoreFailedError):
        await committer.commit([preset("b")])
    writer.fail = lambda _drafts: False
    await committer.commit([preset("c")])
    assert names(told) == ["a", "c"]
    writer.close()


async def test_repair_tells_the_rows_that_close_the_turn(tmp_path: Path) -> None:
    committer, writer, told = made(tmp_path)
    await committer.repair()
    assert told == []
    await committer.commit([Draft("turn/start", {"turn": 1})])
    await committer.repair()
    assert [e.type for e in told if isinstance(e, Event)] == [
        "turn/start",
        "turn/end",
        "session/end-seed",
    ]
    writer.close()
