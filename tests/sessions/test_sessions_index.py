"""The index saves time and nothing else: what it does not open, and what it survives."""

import os
import sqlite3
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from index_world import (
    BOUNDARY,
    MODE,
    NEWER,
    TITLE_BY_USER,
    World,
    catalog,
    descriptor,
    exact_times,
    rows,
)
from session_rows import Clock, folder_of, header, homes, opening, text_turn

from acp_bridge.errors import BridgeError, StoreFailedError
from acp_bridge.sessions import SessionStore, growth, sweep
from acp_bridge.sessions.codec import Frames, encode_batch
from acp_bridge.sessions.digest import digest_of
from acp_bridge.sessions.events import dump_events
from acp_bridge.sessions.header import dump_header
from acp_bridge.sessions.reading import Loaded, Stamp, fold_rows, load
from acp_bridge.vocabulary import Draft

__all__ = ["exact_times"]

pytestmark = pytest.mark.usefixtures("exact_times")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of the logs that are read whole, as they are."""
    seen: list[str] = []

    def counted(path: Path, session_id: str | None) -> Loaded:
        seen.append(path.parent.name)
        return load(path, session_id)

    monkeypatch.setattr(sweep, "load", counted)
    return seen


def test_no_unchanged_log_is_opened(
    world: World, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        world.add(name, text_turn(1))
    world.add("bad", [NEWER])
    world.tick()
    first = world.store().list()
    assert sorted(opened) == ["a", "b", "bad", "c"]
    opened.clear()
    with monkeypatch.context() as patch:

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("a log was opened")

        patch.setattr(Path, "open", refuse)
        again = world.store().list()
    assert opened == []
    assert again == first


def test_only_what_changed_is_read_again(world: World, opened: list[str]) -> None:
    paths = {name: world.add(name, text_turn(1)) for name in ("a", "b", "c")}
    world.tick()
    one = world.store()
    one.list()
    opened.clear()
    data = paths["b"].read_bytes()
    paths["b"].write_bytes(data)
    world.add("d", text_turn(1))
    world.tick()
    one.list()
    assert sorted(opened) == ["b", "d"]


def test_a_page_looks_once_at_each_log_and_at_the_folders_of_what_it_shows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        world.add(name, text_turn(1))
    world.add("bad", [NEWER])
    world.tick()
    world.store().list()
    looked: list[str] = []
    real = os.stat

    def counted(path: Any, **more: Any) -> os.stat_result:
        parts = Path(path).parts
        looked.append("/".join(parts[-2:] if parts[-1].startswith("session.v4") else parts[-1:]))
        return real(path, **more)

    one = world.store()
    monkeypatch.setattr(os, "stat", counted)
    one.summaries(limit=1)
    monkeypatch.undo()
    logs = [f"{name}/session.v4.jsonl.zstd" for name in ("a", "b", "bad", "c")]
    wanted = sorted([*logs, "bad", "a", "--home-dev-ws--"])  # "a" is shown
    assert sorted(looked) == wanted


def test_a_new_process_shows_pages_without_taking_over_all_that_the_index_knows(
    world: World,
) -> None:
    for number, session_id in enumerate(("a", "b", "c", "child")):
        made = header(session_id, **({"origin": "subagent"} if session_id == "child" else {}))
        world.add(session_id, text_turn(1), head=attrs.evolve(made, created_at_ms=number))
    (world.root / "--home-dev-deserted--").mkdir()
    world.tick()
    world.store().list()
    after = None
    for shown in (["a", "b"], ["c"]):
        one = world.store()
        page = one.summaries(after=after, limit=2)
        assert not one._catalog._open_index().is_loaded  # type: ignore[union-attr]
        assert page == world.store(indexed=False).summaries(after=after, limit=2)
        assert [each.session_id for each in page.sessions] == shown
        after = page.after
    assert after is None
    world.add("bad", [NEWER])
    world.tick()
    world.store().list()
    one = world.store()
    assert len(one.summaries().bad) == 1
    assert one._catalog._open_index().is_loaded  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["session.v5.jsonl.zstd", "session.v4.jsonl"])
def test_a_session_that_got_a_second_log_is_on_no_page_and_told_as_bad(
    world: World, name: str
) -> None:
    for session_id in ("a", "b", "c"):
        world.add(session_id, text_turn(1))
    world.tick()
    one = world.store()
    first = one.summaries(limit=1)
    assert [each.session_id for each in first.sessions] == ["a"]
    (folder_of(world.root, "b") / name).write_bytes(b"x")
    world.tick()
    for store in (one, world.store(), world.store(indexed=False)):
        second = store.summaries(after=first.after, limit=1)
        assert [each.session_id for each in second.sessions] == ["c"]
        assert [bad.path.parent.name for bad in second.bad] == ["--home-dev-ws--"]


def test_what_was_written_right_before_it_was_read_is_read_again(
    world: World, opened: list[str]
) -> None:
    world.add("a", text_turn(1))
    one = world.store()  # by its clock the file comes from the future
    one.list()
    one.list()
    assert opened == ["a", "a"]
    world.tick()
    one.list()
    one.list()
    assert opened == ["a", "a", "a"]


def test_a_log_that_grew_is_decoded_from_its_last_completed_turn_on(
    world: World, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.add("a", text_turn(1), text_turn(2))
    world.tick()
    world.store().list()
    opened.clear()
    starts: list[int] = []

    def counted(frames: Frames, *rest: object) -> object:
        starts.append(frames.start)
        return fold_rows(frames, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(growth, "fold_rows", counted)
    before = path.stat().st_size
    world.extend(path, text_turn(3))
    world.tick()
    assert world.store().list() == world.store(indexed=False).list()
    assert opened == ["a"], "only the store without an index read it whole"
    assert starts == [before]
    details = world.store().details("a")
    assert details is not None
    loaded = load(path, "a")
    assert details.digest == digest_of(loaded.log.header, loaded.log.events, loaded.places)


TAILS: list[list[list[Draft]]] = [
    [text_turn(3)],
    [text_turn(3), text_turn(4)],
    [opening(3)],
    [opening(3)[:2], opening(3)[2:]],
    [[TITLE_BY_USER, MODE]],
    [[BOUNDARY], text_turn(3)],
    [[catalog("kid")], [catalog("kid2")]],
    [[descriptor("x")]],
    [text_turn(3), [NEWER]],
    [opening(3, system=True)],
    [[catalog("kid"), catalog("kid")]],
    [text_turn(4)],
    [text_turn(3)[:5], text_turn(3)[5:]],
]


@pytest.mark.parametrize("tail", TAILS, ids=range(len(TAILS)))
@pytest.mark.parametrize("seeded", [False, True])
def test_a_tail_gets_the_verdict_that_the_whole_log_gets(
    tail: list[list[Draft]], seeded: bool, world: World
) -> None:
    marker = Draft("session/end-seed", {"inherited": True})
    first = [text_turn(1), [marker]] if seeded else [text_turn(1)]
    path = world.add("a", *first, text_turn(2), head=header("a", is_seeded=seeded))
    seq = sum(map(len, first)) + len(text_turn(2))
    for batch in tail:
        world.tick()
        world.store().list()
        with path.open("ab") as file:
            file.write(encode_batch(dump_events(rows(batch, seq)), "zstd"))
        seq += len(batch)
        world.tick()
        assert world.store().list() == world.store(indexed=False).list()


GROWS = {
    "approval",
    "blocked",
    "cancel",
    "deleg",
    "forks",
    "goals",
    "max_tokens_tools",
    "misc",
    "nodelivery",
    "retry",
    "tools-subagents",
}
"""The stores with a log of several turns whose later rows can be judged from a bookmark."""


@pytest.mark.parametrize("case", sorted(path.name for path in homes().iterdir()))
def test_a_real_log_that_grew_has_the_digest_of_the_whole(case: str) -> None:
    grew = 0
    for path in sorted((homes() / case / "sessions").glob("*/*/session.v4*")):
        try:
            loaded = load(path, None)
        except BridgeError:
            continue  # what is refused is tested elsewhere
        log, places = loaded.log, loaded.places
        whole = digest_of(log.header, log.events, places)
        for end in whole.turn_ends[:-1]:
            part = digest_of(log.header, log.events[: end.seq + 1], places)
            if part.bookmark is None:
                continue
            guard = zlib.crc32(path.read_bytes()[: part.bookmark.offset])
            known = Stamp(loaded.stamp.inode, part.bookmark.offset, 0, 0)
            found = growth.grown(path, known, guard, part)
            if found is not None:
                assert found == (loaded.stamp, whole)
                grew += 1
    assert bool(grew) == (case in GROWS)


def test_a_spoilt_beginning_is_not_taken_for_growth(world: World) -> None:
    path = world.add("a", text_turn(1), text_turn(2))
    world.tick()
    world.store().list()
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    with path.open("r+b") as file:
        file.write(data + encode_batch(dump_events(rows([MODE], 21)), "zstd"))
    world.tick()
    assert "damaged" in world.store().list().bad[0].reason


def test_the_index_is_private_and_outside_the_sessions(world: World) -> None:
    world.add("a", text_turn(1))
    world.tick()
    world.store().list()
    assert stat.S_IMODE(world.index.stat().st_mode) == 0o600
    assert not list(world.root.rglob("*sqlite*"))
    with pytest.raises(AssertionError, match="sessions only"):
        SessionStore(world.root, clock=Clock(), index=world.root / "index.sqlite3")


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _readonly_file(path: Path) -> None:
    path.unlink()
    path.symlink_to("/proc/version")


def _other_version(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 7")
    db.close()


def _no_tables(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE details")
    db.close()


@pytest.mark.parametrize("befall", [_directory, _readonly_file, _other_version, _no_tables])
def test_whatever_lies_in_the_place_of_the_index_no_result_changes(
    befall: Callable[[Path], None], world: World
) -> None:
    world.add("a", text_turn(1))
    world.tick()
    kept = world.store()
    want = kept.list()
    befall(world.index)
    assert kept.list() == want
    assert world.store().list() == want
    assert world.store().details("a") is None or befall not in {_directory, _readonly_file}


def test_an_index_that_another_process_writes_is_done_without(
    world: World, opened: list[str]
) -> None:
    world.add("a", text_turn(1))
    world.tick()
    kept = world.store()
    kept.list()
    world.add("b", text_turn(1))
    world.tick()
    other = sqlite3.connect(world.index, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    opened.clear()
    assert len(kept.list().sessions) == 2
    other.execute("ROLLBACK")
    other.close()
    assert opened == ["b"]
    assert len(kept.list().sessions) == 2
    opened.clear()
    world.store().list()
    assert opened == [], "what could not be written was written the next time"


def test_a_home_without_an_index_folder_is_listed_all_the_same(tmp_path: Path) -> None:
    one = SessionStore(tmp_path / "no" / "sessions", clock=Clock(), index=tmp_path / "no" / "i")
    assert one.list().sessions == []
    assert list(tmp_path.iterdir()) == []


LISTER = """
import sys
from pathlib import Path
from index_world import World
from acp_bridge.sessions import sweep
sweep.UNSETTLED_NS = 0
world = World(Path(sys.argv[1]))
world.tick()
for _ in range(30):
    assert len(world.store().list().sessions) == int(sys.argv[2])
print("ok")
"""


@pytest.mark.process
def test_several_processes_share_one_index(world: World, opened: list[str]) -> None:
    for number in range(20):
        world.add(f"s{number}", text_turn(1))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", LISTER, str(world.home), "20"]
    listers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) for _ in range(3)
    ]
    for lister in listers:
        assert lister.communicate(timeout=60)[0] == "ok\n"
    world.tick()
    world.store().list()
    assert opened == []


def test_pages_neither_repeat_nor_skip_when_sessions_come_and_go(world: World) -> None:
    for number in range(7):
        head = attrs.evolve(header(f"s{number}"), created_at_ms=number)
        world.add(f"s{number}", head=head)
    world.add("kid", head=header("kid", origin="subagent", parent_session="s1"))
    world.add("nowhere", head=attrs.evolve(header("nowhere"), cwd="/home/dev/other"))
    world.tick()
    one = world.store()
    first = one.summaries(cwd=Path("/home/dev/../dev/ws"), limit=3)
    assert [each.session_id for each in first.sessions] == ["s6", "s5", "s4"]
    world.add("newest", text_turn(1))
    world.tick()
    second = one.summaries(cwd=Path("/home/dev/ws"), after=first.after, limit=3)
    third = one.summaries(cwd=Path("/home/dev/ws"), after=second.after, limit=3)
    assert [each.session_id for each in second.sessions] == ["s3", "s2", "s1"]
    assert [each.session_id for each in third.sessions] == ["s0"]
    assert third.after is None


def test_a_session_without_a_folder_to_work_in_is_on_no_page(world: World) -> None:
    head = attrs.evolve(header("lost"), cwd=None)
    folder = world.root / "_no-cwd" / "lost"
    folder.mkdir(parents=True)
    (folder / "session.v4.jsonl.zstd").write_bytes(encode_batch(dump_header(head), "zstd"))
    assert [one.session_id for one in world.store().list().sessions] == ["lost"]
    assert world.store().summaries().sessions == []


def test_a_project_folder_that_cannot_be_read_leaves_its_sessions_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("a", text_turn(1))
    other = attrs.evolve(header("b"), cwd="/b")
    folder = world.root / "--b--" / "b"
    folder.mkdir(parents=True)
    (folder / "session.v4.jsonl.zstd").write_bytes(encode_batch(dump_header(other), "zstd"))
    world.tick()
    one = world.store()
    assert len(one.list().sessions) == 2
    opening_ = os.open

    def guarded(path: object, *rest: int, **more: int) -> int:
        if str(path).endswith("--b--"):
            raise PermissionError(13, "")
        return opening_(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", guarded)
    listing = one.list()
    assert [each.session_id for each in listing.sessions] == ["a"]
    assert [bad.path.name for bad in listing.bad] == ["--b--"]
    with pytest.raises(StoreFailedError):
        one.entries()
    monkeypatch.undo()


def test_names_that_are_no_utf_8_are_kept(world: World) -> None:
    os.mkdir(os.fsencode(world.root) + b"/--\xff--")  # noqa: PTH102  # no Path for these bytes
    os.mkdir(os.fsencode(world.root) + b"/--\xff--/\xfe")  # noqa: PTH102
    target = os.fsencode(world.root) + b"/--\xff--/\xfe/session.v4.jsonl.zstd"
    with open(target, "wb") as file:  # noqa: PTH123
        file.write(encode_batch(dump_header(header("x")), "zstd"))
    world.tick()
    kept = world.store()
    assert kept.list() == world.store(indexed=False).list()
    assert world.store().list() == kept.list()
