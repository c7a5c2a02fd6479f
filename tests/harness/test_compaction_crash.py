"""A log that ends, or is forked, after any row of a compaction: what stands then, and goes on."""

from pathlib import Path

import pytest
from fake_models import FakeCatalog, FakeModel
from harness_rig import SESSION, rig, store

from acp_bridge.errors import InvalidParamsError
from acp_bridge.ports import StopChunk, TextChunk, UsageChunk
from acp_bridge.sessions.codec import encode_batch
from acp_bridge.sessions.events import dump_events
from acp_bridge.sessions.header import dump_header
from acp_bridge.sessions.surface import model_view
from acp_bridge.vocabulary import Command, Event, TurnEnd

pytestmark = pytest.mark.anyio

LONG = "a long story " * 600
SUMMARY = "They talked of a story."
BOTH = pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "automatic"])


def model() -> FakeModel:
    made = FakeModel("plain")
    made.context_window = 10_000
    return made


async def written(folder: Path, *, by_hand: bool) -> list[Event]:
    """A turn, a compaction (in the second turn, or before it), and a turn after it."""
    fake = model()
    used = UsageChunk(10 if by_hand else 9000, 10)
    fake.answers = [
        [TextChunk(0, LONG), used, StopChunk("end_turn")],
        [TextChunk(0, SUMMARY), UsageChunk(10, 10), StopChunk("end_turn")],
    ]
    async with rig(folder, FakeCatalog(fake)) as r:
        await r.prompt("first")
        if by_hand:
            await r.ended(r.session.admit(Command("compact", "")))
        await r.prompt("second")
        await r.prompt("third")
        assert len(r.data("compaction/summary")) == 1
        return list(r.session.events)


def log_path(folder: Path) -> Path:
    [path] = folder.rglob("session.v4*")
    return path


def cuts(events: list[Event]) -> list[int]:
    """Every number of rows from the end of the first turn on."""
    first = next(event.seq for event in events if event.type == "turn/end")
    return list(range(first + 1, len(events) + 1))


def is_checkpoint(event: Event) -> bool:
    return event.type == "user/message" and isinstance(event.surface_op, tuple)


def is_in_turn(events: list[Event]) -> bool:
    kinds = [event.type for event in events]
    return kinds.count("turn/start") > kinds.count("turn/end")


@BOTH
async def test_a_kill_after_any_row_is_repaired_and_the_session_goes_on(
    tmp_path: Path, by_hand: bool
) -> None:
    events = await written(tmp_path, by_hand=by_hand)
    log = store(tmp_path).read(SESSION)
    path = log_path(tmp_path)
    for cut in cuts(events):
        kept = events[:cut]
        path.write_bytes(
            encode_batch(dump_header(log.header), "zstd") + encode_batch(dump_events(kept), "zstd")
        )
        fake = model()
        async with rig(tmp_path, FakeCatalog(fake), compacts=False) as r:
            assert r.session.events[:cut] == kept
            repair = [event.type for event in r.session.events[cut:]]
            if is_in_turn(kept):
                assert repair[-2:] == ["turn/end", "session/end-seed"]
                assert r.reason() == {"kind": "interrupted"}
            else:
                assert repair == ["session/end-seed"]
            assert await r.prompt("and then") == TurnEnd("completed")
            said = [str(event.data) for event in r.session.events if event.type == "user/message"]
        text = str(fake.asked[-1].messages)
        compacted = any(map(is_checkpoint, kept))
        assert (SUMMARY in text, LONG in text) == (compacted, not compacted), cut
        assert ("second" in text) == ("second" in str(said)), "what was said is never lost"
        assert "and then" in text


@BOTH
async def test_a_fork_after_any_row_has_what_its_source_had_there(
    tmp_path: Path, by_hand: bool
) -> None:
    events = await written(tmp_path, by_hand=by_hand)
    sessions = store(tmp_path)
    path = log_path(tmp_path)
    before = path.read_bytes()
    for cut in cuts(events):
        kept, name = events[:cut], f"fork-{cut}"
        if is_in_turn(kept):
            with pytest.raises(InvalidParamsError):
                sessions.fork(SESSION, new_id=name, created_at_ms=1, at_seq=cut - 1)
            continue
        sessions.fork(SESSION, new_id=name, created_at_ms=1, at_seq=cut - 1)
        writer = sessions.open(name)
        writer.close()
        assert writer.events[:cut] == kept
        assert writer.state.compaction is None
        view = model_view(writer.events)
        compacted = any(map(is_checkpoint, kept))
        text = str(view.messages)
        assert (SUMMARY in text, LONG in text) == (compacted, not compacted), cut
        assert view == model_view(kept)
    assert path.read_bytes() == before


async def test_a_fork_of_a_session_that_was_compacted_last_is_compacted_too(
    tmp_path: Path,
) -> None:
    fake = model()
    fake.answers = [
        [TextChunk(0, LONG), StopChunk("end_turn")],
        [TextChunk(0, SUMMARY), StopChunk("end_turn")],
    ]
    async with rig(tmp_path, FakeCatalog(fake)) as r:
        await r.prompt("first")
        await r.ended(r.session.admit(Command("compact", "")))
    sessions = store(tmp_path)
    sessions.fork(SESSION, new_id="fork", created_at_ms=1)
    view = model_view(sessions.read("fork").events)
    assert SUMMARY in str(view.messages)
    assert LONG not in str(view.messages)
