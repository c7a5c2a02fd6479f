"""Finding, listing, opening: every bad neighbour has its own error and nobody else's."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from session_rows import (
    CWD,
    START_MS,
    folder_of,
    header,
    log_bytes,
    opening,
    put,
    store,
    text_turn,
    tree,
)

from acp_bridge.errors import (
    BridgeError,
    LocalProtocolError,
    SessionConflictError,
    SessionCorruptError,
    SessionMisplacedError,
    SessionNotFoundError,
    SessionUnsupportedError,
    StoreFailedError,
)
from acp_bridge.sessions import Header
from acp_bridge.sessions.codec import encode_batch
from acp_bridge.sessions.logfile import take_lock
from acp_bridge.sessions.paths import Encoding
from acp_bridge.vocabulary import Draft, SessionSummary

TITLE = Draft(
    "session/title", {"title": "Hello", "messageSeqs": [5], "source": {"kind": "fallback"}}
)
ENCODINGS: list[Encoding] = ["plain", "zstd"]


def packed(lines: list[bytes], encoding: Encoding) -> bytes:
    return encode_batch(lines[0], encoding) + encode_batch(b"".join(lines[1:]), encoding)


def good(session_id: str, encoding: Encoding = "zstd") -> bytes:
    rows = [*opening(1), TITLE]
    return packed(log_bytes(rows, header(session_id)), encoding)


def lines_of(session_id: str) -> list[bytes]:
    return log_bytes(text_turn(1), header(session_id))


def damaged(session_id: str, encoding: Encoding) -> tuple[bytes, type[BridgeError] | None]:
    """A log with the damage that its name tells, and the error it must give; None for none."""
    lines = lines_of(session_id)
    whole = packed(lines, encoding)
    match session_id:
        case "zero-bytes":
            return b"", SessionCorruptError
        case "nuls":
            return bytes(500), SessionCorruptError
        case "torn":
            return whole + encode_batch(b'{"type":"x"}\n', encoding)[:-3], None
        case "garbage":
            return packed([*lines[:4], b"\x00garbage\n", *lines[5:]], encoding), SessionCorruptError
        case "gap":
            return packed([*lines[:4], *lines[5:]], encoding), SessionCorruptError
        case "duplicate":
            return packed([*lines[:5], *lines[4:]], encoding), SessionCorruptError
        case "version":
            newer = lines[0].replace(b'"version":4', b'"version":5')
            return packed([newer, *lines[1:]], encoding), SessionUnsupportedError
        case "blank":
            return packed([*lines[:4], b"\n", *lines[4:]], encoding), SessionCorruptError
        case _:
            raise AssertionError(session_id)


DAMAGED = ["zero-bytes", "nuls", "torn", "garbage", "gap", "duplicate", "version", "blank"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_list_shows_the_good_sessions_beside_the_bad_ones(
    encoding: Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R073: one damaged file hides nobody else's session."""
    for name in ("one", "two", "three"):
        put(tmp_path, name, good(name, encoding), encoding)
    refused = {"unreadable"}
    for name in DAMAGED:
        data, error = damaged(name, encoding)
        put(tmp_path, name, data, encoding)
        if error is not None:
            refused.add(name)
    unreadable = put(tmp_path, "unreadable", good("unreadable", encoding), encoding)
    real = Path.open

    def guarded(path: Path, mode: str = "r") -> object:
        if path == unreadable:
            raise PermissionError(13, "Permission denied")
        return real(path, mode)

    before = tree(tmp_path)
    monkeypatch.setattr(
        Path, "open", guarded
    )  # the tests may run as root, whom chmod does not stop
    listing = store(tmp_path).list()
    with pytest.raises(StoreFailedError, match="permission is missing"):
        store(tmp_path).read("unreadable")
    monkeypatch.undo()
    assert {one.session_id for one in listing.sessions} == {"one", "two", "three", "torn"}
    assert {bad.path.parent.name for bad in listing.bad} == refused
    assert all(bad.reason.endswith(".") for bad in listing.bad)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_session_gives_its_error_on_read_and_open(
    name: str, encoding: Encoding, tmp_path: Path
) -> None:
    """R073: damage is a clear error for that session alone; its bytes stay."""
    data, error = damaged(name, encoding)
    put(tmp_path, name, data, encoding)
    before = tree(tmp_path)
    if error is None:
        stored = store(tmp_path).read(name)
        assert stored.torn
        assert len(stored.events) == len(lines_of(name)) - 1
        assert tree(tmp_path) == before
        store(tmp_path).open(name).close()
        assert not store(tmp_path).read(name).torn
        return
    for attempt in (store(tmp_path).read, store(tmp_path).open):
        with pytest.raises(error, match=name) as caught:
            attempt(name)
        assert type(caught.value) is error
    assert tree(tmp_path) == before


def test_a_summary_tells_what_a_list_shows(tmp_path: Path) -> None:
    put(tmp_path, "s", good("s"))
    child = attrs.evolve(header("c"), origin="subagent", parent_session="s", delegation_depth=1)
    put(tmp_path, "c", encode_batch(log_bytes([], child)[0], "plain"), "plain")
    listing = store(tmp_path).list()
    assert listing.bad == []
    assert {one.session_id: one for one in listing.sessions} == {
        "s": SessionSummary(
            session_id=header("s").session_id,  # type: ignore[arg-type]
            cwd=Path(CWD),
            title="Hello",
            created_at_ms=START_MS,
            updated_at_ms=START_MS + 7,
            origin=None,
            parent_session=None,
        ),
        "c": SessionSummary(
            session_id=child.session_id,  # type: ignore[arg-type]
            cwd=Path(CWD),
            title=None,
            created_at_ms=START_MS,
            updated_at_ms=START_MS,
            origin="subagent",
            parent_session="s",
        ),
    }
    assert set(store(tmp_path).session_ids()) == {"s", "c"}


def test_no_store_and_an_empty_store_have_no_sessions(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "missing"):
        listing = store(root).list()
        assert (listing.sessions, listing.bad) == ([], [])
        assert list(store(root).session_ids()) == []
        with pytest.raises(SessionNotFoundError):
            store(root).read("s")
    (tmp_path / "a file").touch()
    (tmp_path / "--p--").mkdir()
    (tmp_path / "--p--" / "a file").touch()
    (tmp_path / "--p--" / "s").mkdir()
    assert store(tmp_path).list().bad == []


def test_ids_are_listed_without_looking_at_rows(tmp_path: Path) -> None:
    put(tmp_path, "good", good("good"))
    put(tmp_path, "damaged", packed([*lines_of("damaged")[:3], b"x\n"], "zstd"))
    put(tmp_path, "no header", b"")
    put(tmp_path, "moved", good("other"))
    assert set(store(tmp_path).session_ids()) == {"good", "damaged"}


@pytest.mark.parametrize(
    ("names", "error", "why"),
    [
        (["session.v5.jsonl.zstd"], SessionUnsupportedError, "version 5"),
        (["session.v5.jsonl.zstd", "session.v4.jsonl.zstd"], SessionUnsupportedError, "version 5"),
        (["session.v3.jsonl"], SessionUnsupportedError, "version 3"),
        (["session.jsonl"], SessionUnsupportedError, "version 0"),
        (["session.v4.jsonl", "session.v4.jsonl.zstd"], SessionCorruptError, "two logs"),
    ],
)
def test_the_file_name_tells_the_generation(
    names: list[str], error: type[BridgeError], why: str, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, "s")
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(good("s"))
    before = tree(tmp_path)
    for attempt in (store(tmp_path).read, store(tmp_path).open):
        with pytest.raises(error, match=why):
            attempt("s")
    (bad,) = store(tmp_path).list().bad
    assert why in bad.reason
    assert tree(tmp_path) == before


def test_an_older_generation_beside_the_current_one_is_ignored(tmp_path: Path) -> None:
    path = put(tmp_path, "s", good("s"))
    path.with_name("session.v3.jsonl.zstd").write_bytes(b"old")
    assert store(tmp_path).read("s").path == path


def test_a_log_in_the_wrong_folder_is_misplaced(tmp_path: Path) -> None:
    put(tmp_path, "s", good("other"))
    elsewhere = attrs.evolve(header("t"), cwd="/elsewhere")
    put(tmp_path, "t", encode_batch(log_bytes([], elsewhere)[0], "zstd"))
    before = tree(tmp_path)
    for session_id in ("s", "t"):
        for attempt in (store(tmp_path).read, store(tmp_path).open):
            with pytest.raises(SessionMisplacedError, match="move it there"):
                attempt(session_id)
    assert len(store(tmp_path).list().bad) == 2
    assert tree(tmp_path) == before


def test_one_id_in_two_folders_is_refused_and_reported_twice(tmp_path: Path) -> None:
    path = put(tmp_path, "s", good("s"))
    copy = tmp_path / "--copy--" / "s"
    copy.mkdir(parents=True)
    (copy / path.name).write_bytes(path.read_bytes())
    for attempt in (store(tmp_path).read, store(tmp_path).open):
        with pytest.raises(SessionMisplacedError, match="two folders"):
            attempt("s")
    listing = store(tmp_path).list()
    assert listing.sessions == []
    assert len(listing.bad) == 2


def test_a_torn_tail_is_cut_only_after_the_log_was_found_sound(tmp_path: Path) -> None:
    lines = lines_of("s")
    bad = packed([*lines[:4], *lines[5:]], "zstd") + b"\x28\xb5"
    put(tmp_path, "s", bad)
    before = tree(tmp_path)
    with pytest.raises(SessionCorruptError):
        store(tmp_path).open("s")
    assert tree(tmp_path) == before


def test_a_second_open_in_this_process_is_a_conflict(tmp_path: Path) -> None:
    put(tmp_path, "s", good("s"))
    one = store(tmp_path)
    writer = one.open("s")
    before = tree(tmp_path)
    for other in (one, store(tmp_path)):
        with pytest.raises(SessionConflictError, match="already open for writing"):
            other.open("s")
    assert tree(tmp_path) == before
    assert one.read("s").events == writer.events, "reading takes no lock"
    writer.close()
    one.open("s").close()


def test_a_new_session_is_locked_from_its_first_append(tmp_path: Path) -> None:
    writer = store(tmp_path).create(header())
    writer.append(text_turn(1))
    with pytest.raises(SessionConflictError, match="already open for writing"):
        store(tmp_path).open("s")
    writer.close()
    store(tmp_path).open("s").close()


def test_a_log_that_changed_while_it_was_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "s", good("s"))
    longer = packed(log_bytes([*opening(1), TITLE, TITLE], header("s")), "zstd")

    def slow(folder: Path, session_id: str, *, create: bool) -> int | None:
        if create:
            path.write_bytes(longer)  # another program, between our reading and our lock
        return take_lock(folder, session_id, create=create)

    monkeypatch.setattr("acp_bridge.sessions.store.take_lock", slow)
    writer = store(tmp_path).open("s")
    writer.close()
    assert [event.type for event in writer.events].count("session/title") == 2
    assert store(tmp_path).read("s").events == writer.events


HOLDER = """
import sys
from pathlib import Path
from session_rows import store
writer = store(Path(sys.argv[1])).open("s")
print("held", flush=True)
sys.stdin.read()
"""


def holder(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )


@pytest.mark.process
def test_a_second_process_gets_a_conflict_and_a_killed_holder_frees_the_lock(
    tmp_path: Path,
) -> None:
    put(tmp_path, "s", good("s"))
    with holder(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        before = tree(tmp_path)
        with pytest.raises(SessionConflictError, match="Session s is already open for writing"):
            store(tmp_path).open("s")
        assert tree(tmp_path) == before
        # Whoever only reads is not in its way: to fork is to read.
        assert store(tmp_path).read("s").events
        assert [one.session_id for one in store(tmp_path).list().sessions] == ["s"]
        made = store(tmp_path).fork("s", new_id="f", created_at_ms=1)
        assert made.is_stored
        assert before.items() <= tree(tmp_path).items()
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    store(tmp_path).open("s").close()


def test_folders_that_cannot_be_read_are_reported_and_hide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "good", good("good"))
    put(tmp_path, "locked", good("locked"))
    (tmp_path / "--locked--").mkdir()
    locked = {str(tmp_path / "--locked--"), str(folder_of(tmp_path, "locked"))}
    scan, listdir = os.scandir, os.listdir

    def guarded_scan(path: Path) -> object:
        if str(path) in locked:
            raise PermissionError(13, "")
        return scan(path)

    def guarded_list(path: Path) -> list[str]:
        if str(path) in locked:
            raise PermissionError(13, "")
        return listdir(path)

    monkeypatch.setattr(os, "scandir", guarded_scan)
    monkeypatch.setattr(os, "listdir", guarded_list)
    listing = store(tmp_path).list()
    assert store(tmp_path).read("good").events
    for attempt in (store(tmp_path).read, store(tmp_path).open):
        with pytest.raises(StoreFailedError, match="permission is missing"):
            attempt("locked")
    monkeypatch.undo()
    assert [one.session_id for one in listing.sessions] == ["good"]
    assert {str(bad.path) for bad in listing.bad} == locked
    assert all("permission is missing" in bad.reason for bad in listing.bad)


@pytest.mark.parametrize("target", ["ftruncate", "fsync"])
def test_a_repair_that_the_disk_refuses_frees_the_lock(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "s", good("s") + b"\x28\xb5")

    def refuse(*_: object) -> None:
        raise OSError(28, "")

    with monkeypatch.context() as patch:
        patch.setattr(os, target, refuse)
        with pytest.raises(StoreFailedError, match="full"):
            store(tmp_path, durable=True).open("s")
    assert path.read_bytes().startswith(good("s"))
    store(tmp_path).open("s").close()


def test_a_new_session_cannot_take_the_id_of_a_damaged_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "s")
    folder.mkdir(parents=True)
    (folder / "session.v5.jsonl").write_bytes(b"newer")
    with pytest.raises(SessionConflictError, match="exists already"):
        store(tmp_path).create(header()).append(text_turn(1))
    assert [path.name for path in folder.iterdir()] == ["session.v5.jsonl"]


@pytest.mark.parametrize(
    "head", [attrs.evolve(header(), cwd="relative"), attrs.evolve(header(), created_at_ms=-1)]
)
def test_a_header_that_no_reader_takes_is_not_written(head: Header, tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="No log can have the header"):
        store(tmp_path).create(head)


def test_a_root_that_cannot_be_read_is_one_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "")

    monkeypatch.setattr(os, "scandir", refuse)
    one = store(tmp_path)
    for attempt in (one.list, one.session_ids, lambda: one.read("s"), lambda: one.open("s")):
        with pytest.raises(StoreFailedError, match="permission is missing") as caught:
            attempt()
        assert str(tmp_path) in caught.value.details
