"""Forks of the real runtime's sessions, and what a warm index saves."""

from pathlib import Path

import pytest
from index_world import World, exact_times
from session_rows import Clock, folder_of, header, homes, opening, placed, put, text_turn

from acp_bridge.errors import SessionConflictError
from acp_bridge.sessions import Fork, SessionStore, StoredLog
from acp_bridge.sessions.codec import decode, encode_batch
from acp_bridge.sessions.events import dump_events
from acp_bridge.sessions.fork import own_rows
from acp_bridge.sessions.header import dump_header
from acp_bridge.vocabulary import Draft

__all__ = ["exact_times"]

NOW_MS = 1_800_000_000_000
ONE = len(text_turn(1))
TWO = ONE + len(text_turn(2))


def source(root: Path, *batches: list[Draft]) -> Path:
    """A log with these batches, each a frame."""
    events = placed([draft for batch in batches for draft in batch])
    data, seq = encode_batch(dump_header(header("src")), "zstd"), 0
    for batch in batches:
        data += encode_batch(dump_events(events[seq : seq + len(batch)]), "zstd")
        seq += len(batch)
    return put(root, "src", data)


@pytest.mark.usefixtures("exact_times")
@pytest.mark.parametrize("tail", [[], opening(3)])
@pytest.mark.parametrize("at_seq", [None, ONE - 1])
def test_with_a_warm_index_nothing_is_decoded_and_the_bytes_are_the_same(
    at_seq: int | None, tail: list[Draft], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    batches = [text_turn(1), text_turn(2), *([tail] if tail else [])]
    source(world.root, *batches)
    cold = world.store(indexed=False).fork("src", new_id="new", created_at_ms=9, at_seq=at_seq)
    (path,) = folder_of(world.root, "new").glob("session.v4*")
    data = path.read_bytes()
    for one in path.parent.iterdir():
        one.unlink()
    path.parent.rmdir()
    world.tick()
    world.store().list()

    def refuse(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("acp_bridge.sessions.forking.load", refuse)
    monkeypatch.setattr("acp_bridge.sessions.forking.unpacker", refuse)
    warm = world.store().fork("src", new_id="new", created_at_ms=9, at_seq=at_seq)
    assert warm == cold
    assert path.read_bytes() == data


@pytest.mark.usefixtures("exact_times")
def test_a_source_that_grew_since_it_was_indexed_is_decoded_from_there_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    path = source(world.root, text_turn(1), text_turn(2))
    world.tick()
    world.store().list()
    world.extend(path, text_turn(3))
    world.tick()

    def refuse(*_: object) -> None:
        raise AssertionError("read whole")

    monkeypatch.setattr("acp_bridge.sessions.forking.load", refuse)
    made = world.store().fork("src", new_id="new", created_at_ms=9)
    assert made.inherited_count == TWO + len(text_turn(3))
    old = world.store(indexed=False).read("src")
    assert world.store().read("new").events[: made.inherited_count] == old.events


@pytest.mark.usefixtures("exact_times")
def test_a_source_that_is_replaced_while_it_is_forked_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    path = source(world.root, text_turn(1))

    def slow(*arguments: object, **more: object) -> object:
        data = path.read_bytes()
        path.rename(path.with_name("kept"))
        path.write_bytes(data)
        return own_rows(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("acp_bridge.sessions.store.own_rows", slow)
    with pytest.raises(SessionConflictError, match="try again"):
        world.store().fork("src", new_id="new", created_at_ms=9)


REAL = [(path.parents[3].name, path) for path in sorted(homes().glob("*/sessions/*/*/session.v4*"))]


@pytest.mark.parametrize(
    ("case", "path"), REAL, ids=[f"{case}-{path.parent.name}" for case, path in REAL]
)
def test_every_real_session_forks_nests_and_opens_at_every_boundary(
    case: str, path: Path, tmp_path: Path
) -> None:
    """Ordinary, nested, historical and subagents' sessions, plain and zstd."""
    root = tmp_path / "sessions"
    target = root / path.parent.parent.name / path.parent.name
    target.mkdir(parents=True)
    (target / path.name).write_bytes(path.read_bytes())
    one = SessionStore(root, clock=Clock(), durable=False)
    listing = one.list()
    if listing.bad:
        assert not listing.sessions
        return
    source_id = listing.sessions[0].session_id
    old = one.read(source_id)
    ends = [event.seq for event in old.events if event.type == "turn/end"]
    for number, at_seq in enumerate([None, *ends]):
        made = one.fork(source_id, new_id=f"f{number}", created_at_ms=NOW_MS, at_seq=at_seq)
        if not made.is_stored:
            assert not ends
            continue
        _check_real(one, old, made)
        again = one.fork(f"f{number}", new_id=f"g{number}", created_at_ms=NOW_MS)
        _check_real(one, one.read(f"f{number}"), again)
        dsh = one.fork(
            source_id, new_id=f"d{number}", created_at_ms=1, at_seq=at_seq, shape="dsh-0.2.1"
        )
        named = {
            event.data["sessionId"]
            for event in one.read(f"d{number}").events
            if event.type.startswith("session-log") and isinstance(event.data, dict)
        }
        assert named <= {dsh.header.session_id}
        assert case
    assert (target / path.name).read_bytes() == path.read_bytes()
    assert one.list().bad == []


def _check_real(one: SessionStore, old: StoredLog, made: Fork) -> None:
    log = one.read(made.header.session_id)
    count = made.inherited_count
    assert log.events[:count] == old.events[:count]
    assert log.events[count].data == {"inherited": True}
    assert log.header.parent_session is None
    assert log.header.origin is None
    assert log.header.delegation_depth == 0
    raw, new = (decode(each.path.read_bytes(), each.encoding).lines for each in (old, log))
    assert new[:count] == raw[:count], "row by row, as bytes"
    writer = one.open(made.header.session_id)
    assert writer.state.inherited_count == count
    assert not any(writer.state.inbox.values())
    turn = writer.state.last_turn + 1
    writer.append(
        [
            Draft("turn/start", {"turn": turn}),
            Draft("turn/end", {"turn": turn, "reason": {"kind": "completed"}}),
        ]
    )
    writer.close()
    assert one.read(made.header.session_id).events == writer.events
