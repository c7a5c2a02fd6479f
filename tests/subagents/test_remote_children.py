"""Children that a worker executes, as their home's sessions, logs and consumers see them."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from family_rig import say, spawn
from remote_rig import Estate, child_of, estate

pytestmark = pytest.mark.anyio


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Estate]:
    async with estate(tmp_path) as made:
        yield made


async def test_a_remote_child_shows_as_a_local_one_and_its_end_is_told(
    place: Estate, tmp_path: Path
) -> None:
    def answers() -> dict[str, list[object]]:
        return {
            "1": [spawn("find it", "Find the bug."), say("started"), say("noted")],
            "1/1": [say("It is in a.py.")],
        }

    async with place.home.family(answers()) as family:  # type: ignore[arg-type]
        turn = family.admit()
        job = await place.worker.claim()
        assert (job.task.label, job.task.place, job.task.mode) == ("find it", "1/1", "ask")
        await job.works(say("It is in a.py."))
        await job.tell()
        await job.settle(answer="It is in a.py.")
        with anyio.fail_after(10):
            assert (await turn.ended()).kind == "completed"
        child_id = child_of(family)
        print(family.told)
        assert family.said(child_id) == ["It is in a.py."]
        assert family.log(child_id)
