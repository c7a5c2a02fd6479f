"""Appending: all or nothing, durable before it returns, and undone when the disk refuses."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from session_rows import (
    answer,
    call,
    closing,
    folder_of,
    header,
    opening,
    request_header,
    result,
    store,
    text_turn,
    tree,
    write_turns,
)

from acp_bridge.errors import (
    LocalProtocolError,
    SessionConflictError,
    SessionNotFoundError,
    StoreFailedError,
)
from acp_bridge.sessions import LogWriter
from acp_bridge.sessions.codec import decode, encode_batch
from acp_bridge.sessions.events import dump_events
from acp_bridge.vocabulary import Draft, Event

GRANT = Draft("plugin:acp-bridge/grant", {"tool": "bash"}, ignorable=True)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogWriter]:
    made = store(tmp_path, durable=True).create(header())
    yield made
    made.close()


def log_file(root: Path) -> Path:
    return next(root.rglob("session.v4*"))


def test_nothing_is_on_the_disk_before_the_first_append(tmp_path: Path) -> None:
    made = store(tmp_path / "sessions").create(header())
    assert made.append([]) == []
    made.close()
    assert not (tmp_path / "sessions").exists()
    with pytest.raises(SessionNotFoundError):
        store(tmp_path / "sessions").read("s")


def test_a_new_log_has_one_frame_for_the_header_and_one_for_each_batch(
    writer: LogWriter, tmp_path: Path
) -> None:
    first = writer.append(opening(1))
    path = log_file(tmp_path)
    assert path.name == "session.v4.jsonl.zstd"
    assert path.read_bytes().count(b"\x28\xb5\x2f\xfd") == 2
    writer.append([answer(1)])
    assert path.read_bytes().count(b"\x28\xb5\x2f\xfd") == 3
    assert sorted(one.name for one in path.parent.iterdir()) == [
        "session.lock",
        "session.v4.jsonl.zstd",
    ]
    assert [event.seq for event in first] == list(range(len(first)))
    assert len({event.time_ms for event in first}) == 1
    stored = store(tmp_path).read("s")
    assert stored.events == writer.events
    assert stored.header == writer.header == header()


def test_files_are_readable_by_their_owner_only(writer: LogWriter, tmp_path: Path) -> None:
    writer.append([GRANT])
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


def test_every_batch_is_synced_and_a_new_logs_folders_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    made = store(tmp_path / "sessions", durable=True).create(header())
    made.append([GRANT])
    path = log_file(tmp_path)
    log = path.stat().st_ino
    assert synced[0] == log, "the content, before it gets its name"
    assert set(synced[1:]) == {one.stat().st_ino for one in list(path.parents)[:4]}
    synced.clear()
    made.append([GRANT])
    assert synced == [log]
    made.close()
    synced.clear()
    relaxed = store(tmp_path / "sessions", durable=False).open("s")
    relaxed.append([GRANT])
    relaxed.close()
    assert synced == []


def test_a_root_with_plain_logs_gets_plain_ones(tmp_path: Path) -> None:
    root = store(tmp_path)
    one = root.create(header("one"))
    one.append(text_turn(1))
    one.close()
    path = log_file(tmp_path)
    decoded = decode(path.read_bytes(), "zstd")
    lines = [decoded.header_line, *decoded.lines, b""]
    path.with_suffix("").write_bytes(b"\n".join(lines))
    path.unlink()
    two = root.create(header("two"))
    two.append(text_turn(1))
    two.close()
    assert (folder_of(tmp_path, "two") / "session.v4.jsonl").read_bytes().count(b"\n") == 11
    again = root.open("one")
    again.append(text_turn(2))
    again.close()
    assert root.read("one").encoding == "plain"
    assert [row.name for row in tmp_path.rglob("*.zstd")] == []


BAD_BATCHES = [
    ([Draft("turn/end", {"turn": 1, "reason": {"kind": "completed"}})], "does not end"),
    ([*opening(1), answer(1), answer(1), Draft("turn/start", {"turn": 2})], "while turn 1"),
    ([GRANT, Draft("turn/start", {})], "lacks 'turn'"),
    ([GRANT, Draft("new/thing", {})], "No shape"),
    ([Draft("session/end-seed", {"inherited": True})], "not seeded"),
    ([attrs.evolve(GRANT, data={"x": {1, 2}})], "no JSON"),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(("batch", "why"), BAD_BATCHES)
@pytest.mark.parametrize("started", [False, True])
def test_a_batch_that_would_spoil_the_log_changes_nothing(
    batch: list[Draft], why: str, started: bool, tmp_path: Path
) -> None:
    made = store(tmp_path).create(header())
    if started:
        made.append([GRANT])
    before, events, state = tree(tmp_path), list(made.events), made.state
    with pytest.raises(LocalProtocolError, match=why):
        made.append(batch)
    assert tree(tmp_path) == before
    assert made.events == events
    assert made.state is state
    assert state.next_seq == len(events)
    assert made.append(opening(1))[0].seq == len(events)
    made.close()
    assert store(tmp_path).read("s").events == made.events


def test_a_turn_end_across_a_compaction_needs_its_end_seed_in_the_batch(
    writer: LogWriter, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, "s")
    writer.append([Draft("turn/start", {"turn": 1})])
    writer.close()
    # Compactions are not written yet: put one there as the other runtime would.
    killed = Event(1, 5, "compaction/start", {"compactionId": "k", "turn": 1})
    with (folder / "session.v4.jsonl.zstd").open("ab") as file:
        file.write(encode_batch(dump_events([killed]), "zstd"))
    opened = store(tmp_path).open("s")
    opened.close()
    assert [event.type for event in opened.events[2:]] == ["turn/end", "session/end-seed"]


def test_a_closed_writer_refuses_and_closing_twice_is_fine(writer: LogWriter) -> None:
    writer.append([GRANT])
    writer.close()
    writer.close()
    with pytest.raises(LocalProtocolError, match="closed"):
        writer.append([GRANT])


def test_two_writers_of_one_new_session_cannot_both_publish(tmp_path: Path) -> None:
    one, two = store(tmp_path).create(header()), store(tmp_path).create(header())
    one.append(text_turn(1))
    for _ in range(2):
        with pytest.raises(SessionConflictError, match="exists already"):
            two.append([GRANT])
        assert two.events == []
    two.close()
    one.append(text_turn(2))
    one.close()
    assert store(tmp_path).read("s").events == one.events


def test_a_new_session_does_not_take_an_id_of_another_folder(tmp_path: Path) -> None:
    one = store(tmp_path).create(header())
    one.append([GRANT])
    one.close()
    two = store(tmp_path).create(attrs.evolve(header(), cwd="/elsewhere"))
    with pytest.raises(SessionConflictError, match="exists already"):
        two.append([GRANT])
    assert len(store(tmp_path).list().sessions) == 1


def test_a_file_that_another_program_changed_is_a_conflict(
    writer: LogWriter, tmp_path: Path
) -> None:
    writer.append([GRANT])
    path = log_file(tmp_path)
    with path.open("ab") as file:
        file.write(b"x")
    before = path.read_bytes()
    with pytest.raises(SessionConflictError, match="changed by another program"):
        writer.append([GRANT])
    assert path.read_bytes() == before
    assert len(writer.events) == 1


def test_a_deleted_log_is_a_failure_and_not_a_write_into_nowhere(
    writer: LogWriter, tmp_path: Path
) -> None:
    writer.append([GRANT])
    log_file(tmp_path).unlink()
    with pytest.raises(StoreFailedError, match="gone"):
        writer.append([GRANT])
    assert len(writer.events) == 1


def failing(code: int, *, after: int) -> Callable[[int, bytes], int]:
    """An ``os.write`` that takes some bytes and then refuses."""
    real = os.write
    left = after

    def write(descriptor: int, data: bytes) -> int:
        nonlocal left
        if left == 0:
            raise OSError(code, os.strerror(code))
        taken = real(descriptor, bytes(data)[:left])
        left -= taken
        return taken

    return write


@pytest.mark.parametrize("after", [0, 1, 20])
@pytest.mark.parametrize(
    ("code", "why"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EIO, "reports an error"),
        (errno.EROFS, "read-only"),
        (errno.ENXIO, "ENXIO"),
    ],
)
def test_a_full_disk_leaves_the_log_as_it_was_and_later_appends_work(
    writer: LogWriter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    code: int,
    why: str,
) -> None:
    """R073: a write that fails half way leaves no half row."""
    writer.append(opening(1))
    before = tree(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(code, after=after))
        with pytest.raises(StoreFailedError, match=why) as caught:
            writer.append([answer(1)])
    assert "session s" in caught.value.details
    assert tree(tmp_path) == before
    assert writer.state.next_seq == len(writer.events) == 7
    writer.append([answer(1), *closing(1)])
    assert store(tmp_path).read("s").events == writer.events


@pytest.mark.parametrize("after", [0, 1, 20])
def test_a_full_disk_at_the_first_append_leaves_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    made = store(tmp_path).create(header())
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(errno.ENOSPC, after=after))
        with pytest.raises(StoreFailedError, match="full"):
            made.append(opening(1))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["session.lock"]
    assert store(tmp_path).list().sessions == []
    made.append(opening(1))
    made.close()
    assert store(tmp_path).read("s").events == made.events


def test_a_failing_sync_is_a_failed_append(
    writer: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append([GRANT])
    before = tree(tmp_path)
    with monkeypatch.context() as patch:

        def fsync(_: int) -> None:
            raise OSError(errno.EIO, "")

        patch.setattr(os, "fsync", fsync)
        with pytest.raises(StoreFailedError):
            writer.append([GRANT])
    assert tree(tmp_path) == before


def test_a_roll_back_that_fails_is_made_up_for_before_the_next_write(
    writer: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append([GRANT])

    def ftruncate(_: int, __: int) -> None:
        raise OSError(errno.EIO, "")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(errno.ENOSPC, after=5))
        patch.setattr(os, "ftruncate", ftruncate)
        with pytest.raises(StoreFailedError):
            writer.append([GRANT])
    assert store(tmp_path).read("s").torn
    writer.append([GRANT])
    stored = store(tmp_path).read("s")
    assert not stored.torn
    assert stored.events == writer.events
    assert len(stored.events) == 2


def test_short_writes_are_carried_on(
    writer: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    writer.append(text_turn(1))
    monkeypatch.undo()
    assert store(tmp_path).read("s").events == writer.events


def test_a_read_only_store_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = store(tmp_path).create(header())
    made.append([GRANT])
    made.close()
    for name in ("session.lock",):
        (folder_of(tmp_path, "s") / name).unlink()
    real = os.open

    def read_only(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, mode)

    before = tree(tmp_path)
    monkeypatch.setattr(os, "open", read_only)
    assert len(store(tmp_path).read("s").events) == 1
    with pytest.raises(StoreFailedError, match="read-only"):
        store(tmp_path).open("s")
    with pytest.raises(StoreFailedError, match="read-only"):
        store(tmp_path).create(header("t")).append([GRANT])
    monkeypatch.undo()
    after = tree(tmp_path)
    after.pop("--home-dev-ws--/t", None)  # the folder alone is no session
    assert after == before


def test_a_file_system_without_hard_links_publishes_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "")

    monkeypatch.setattr(os, "link", link)
    made = store(tmp_path).create(header())
    made.append(text_turn(1))
    made.append(text_turn(2))
    made.close()
    assert store(tmp_path).read("s").events == made.events


def test_what_a_crash_left_before_publishing_is_no_session_and_no_obstacle(
    tmp_path: Path,
) -> None:
    folder = folder_of(tmp_path, "s")
    folder.mkdir(parents=True)
    (folder / "session.lock").touch()
    (folder / "pending.tmp").write_bytes(b"half a log")
    listing = store(tmp_path).list()
    assert (listing.sessions, listing.bad) == ([], [])
    made = store(tmp_path).create(header())
    made.append([GRANT])
    made.close()
    assert store(tmp_path).read("s").events == made.events
    assert not (folder / "pending.tmp").exists()


LIMITED = """
import resource, sys
from pathlib import Path
from session_rows import answer, closing, header, opening, store
from acp_bridge.errors import StoreFailedError

made = store(Path(sys.argv[1]), durable=True).create(header())
made.append(opening(1))
size = next(Path(sys.argv[1]).rglob("session.v4*")).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, resource.RLIM_INFINITY))
try:
    made.append([answer(1, text="x" * 100)])
except StoreFailedError as error:
    print(error.details)
assert next(Path(sys.argv[1]).rglob("session.v4*")).stat().st_size == size
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
made.append([answer(1), *closing(1)])
made.close()
"""


@pytest.mark.process
def test_a_file_that_really_may_not_grow_is_rolled_back_by_the_kernel_s_word(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert done.returncode == 0, done.stderr
    assert "may not grow" in done.stdout
    assert len(store(tmp_path).read("s").events) == 10


def test_appends_from_many_threads_make_one_dense_log(tmp_path: Path) -> None:
    made = store(tmp_path).create(header())
    made.append([GRANT])

    def work() -> None:
        for _ in range(20):
            made.append([GRANT, GRANT])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    made.close()
    stored = store(tmp_path).read("s")
    assert [event.seq for event in stored.events] == list(range(161))
    assert stored.events == made.events


def test_a_whole_conversation_with_tools_reads_back_equal(tmp_path: Path) -> None:
    made = store(tmp_path).create(header())
    write_turns(made, 5)
    made.append(opening(6))
    made.append([answer(6, "a", "b"), call(6, "a"), call(6, "b")])
    made.append([result(6, "b", made.state.next_seq - 1)])
    made.append([request_header("change")])
    made.close()
    stored = store(tmp_path).read("s")
    assert stored.events == made.events
    assert not stored.torn


def test_adopted_rows_keep_their_times_and_make_an_equal_log(tmp_path: Path) -> None:
    made = store(tmp_path / "there").create(header())
    write_turns(made, 2)
    copied = store(tmp_path / "here", durable=True).create(header())
    later = [attrs.evolve(event, time_ms=event.time_ms + 7) for event in made.events[:3]]
    copied.adopt(later)
    copied.adopt(made.events[3:])
    copied.adopt([])
    assert copied.state.next_seq == len(made.events)
    copied.close()
    stored = store(tmp_path / "here").read("s")
    assert stored.events == [*later, *made.events[3:]]
    made.close()


def test_adopted_rows_that_leave_a_gap_or_spoil_the_log_change_nothing(
    writer: LogWriter, tmp_path: Path
) -> None:
    made = store(tmp_path / "there").create(header())
    write_turns(made, 1)
    writer.adopt(made.events[:2])
    with pytest.raises(SessionConflictError, match="goes on with row 2, and row 3 was brought"):
        writer.adopt(made.events[3:])
    with pytest.raises(SessionConflictError, match="row 1 was brought"):
        writer.adopt(made.events[1:])
    closed_twice = attrs.evolve(made.events[-1], seq=len(made.events))
    with pytest.raises(LocalProtocolError, match="would become unreadable"):
        writer.adopt([*made.events[2:], closed_twice])
    assert writer.events == made.events[:2]
    writer.adopt(made.events[2:])
    assert writer.events == made.events
    made.close()


def test_an_interrupt_during_a_write_leaves_no_half_row(
    writer: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append([GRANT])
    before = tree(tmp_path)
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        real(descriptor, data[:5])
        raise KeyboardInterrupt

    for target in ("write", "link"):
        with monkeypatch.context() as patch:
            patch.setattr(os, target, write)
            made = writer if target == "write" else store(tmp_path).create(header("t"))
            with pytest.raises((KeyboardInterrupt, TypeError)):
                made.append([GRANT])
    after = {name: data for name, data in tree(tmp_path).items() if "/t" not in name}
    assert after == before
    assert writer.append([GRANT])[0].seq == 1


def test_a_log_that_appears_while_ours_is_made_is_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link(source: Path, target: Path) -> None:
        target.write_bytes(b"theirs")
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(SessionConflictError, match="exists already"):
        store(tmp_path).create(header()).append([GRANT])
    assert log_file(tmp_path).read_bytes() == b"theirs"
