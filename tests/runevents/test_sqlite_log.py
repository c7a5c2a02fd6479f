"""The file of the SQLite log: who may open it, and what is said of one that cannot be used."""

import sqlite3
import stat
from functools import partial
from pathlib import Path

import anyio
import pytest

from acp_bridge.errors import StoreFailedError
from acp_bridge.runevents.log import open_log
from acp_bridge.runevents.log.sqlite import open_sqlite_log
from acp_bridge.runevents.model import EventDraft, RunId
from acp_bridge.runevents.runs import registered

pytestmark = pytest.mark.anyio


async def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'events.sqlite'}"
    async with open_log(url):
        with pytest.raises(StoreFailedError, match="Another process serves"):
            async with open_log(url):
                pass
    async with open_log(url):
        pass


async def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "events.sqlite"
    async with open_log(f"sqlite:{file}"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "events.sqlite"
    async with open_log(f"sqlite:{file}"):
        pass
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(StoreFailedError, match="version 9"):
        async with open_log(f"sqlite:{file}"):
            pass


@pytest.mark.parametrize("content", [b"no database at all" * 100, None])
async def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "events.sqlite"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(StoreFailedError, match=r"events\.sqlite"):
        async with open_log(f"sqlite:{file}"):
            pass
    if content is not None:
        assert file.read_bytes() == content


async def test_a_full_disk_is_told_to_everybody_in_the_commit_and_leaves_no_gap(
    tmp_path: Path,
) -> None:
    def draft(event_id: str, text: str = "") -> EventDraft:
        return EventDraft("rows", run, event_id, "2026-11-30T12:00:00Z", payload={"text": text})

    run = RunId("run")
    async with open_sqlite_log(str(tmp_path / "events.sqlite")) as log:
        await log.change_run(
            run, partial(registered, run_id=run, parent_id=None, task=None, task_id=None)
        )
        assert await log.append([draft("ok")]) == [1]
        log._writer.execute("PRAGMA max_page_count = 20")
        refused: list[str] = []

        async def publish(event_id: str, text: str) -> None:
            try:
                await log.append([draft(event_id, text)])
            except StoreFailedError as error:
                refused.append(error.details)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish, "large", "x" * 1_000_000)
            tasks.start_soon(publish, "its neighbour", "")
        assert ["SQLITE_FULL" in details for details in refused] == [True, True]
        log._writer.execute("PRAGMA max_page_count = 1000000")
        assert await log.append([draft("after")]) == [2]
