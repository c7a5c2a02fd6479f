"""Ordinary forks: what is copied, what is not, and that the source never notices."""

from itertools import pairwise
from pathlib import Path

import attrs
import pytest
import zstandard
from index_world import MODE, TITLE_BY_USER, World, catalog, descriptor, exact_times, tool_turn
from session_rows import (
    CWD,
    Clock,
    closing,
    folder_of,
    header,
    homes,
    log_bytes,
    opening,
    placed,
    put,
    spliced,
    store,
    text_turn,
    tree,
    user,
)

from acp_bridge.errors import (
    BridgeError,
    InvalidParamsError,
    LocalProtocolError,
    SessionConflictError,
    SessionCorruptError,
    SessionNotFoundError,
    StoreFailedError,
)
from acp_bridge.sessions import Fork, Header, SessionStore, model_view, title
from acp_bridge.sessions.codec import decode, encode_batch
from acp_bridge.sessions.events import dump_events
from acp_bridge.sessions.fork import Shape, next_title
from acp_bridge.sessions.header import dump_header
from acp_bridge.sessions.paths import Encoding
from acp_bridge.vocabulary import Draft, Event, JsonObject

__all__ = ["exact_times"]

ENCODINGS: list[Encoding] = ["plain", "zstd"]
NOW_MS = 1_800_000_000_000
ONE = len(text_turn(1))
TWO = ONE + len(text_turn(2))

TITLE = Draft(
    "session/title",
    {"title": "Fix parser", "messageSeqs": [5], "source": {"kind": "fallback"}},
)


def delivery(session_id: str, through: int) -> Draft:
    data: JsonObject = {"sessionId": session_id, "throughSeq": through, "sessionFormatVersion": 4}
    return Draft("session-log-deepseek/delivery-accepted", data)


def packed(batches: list[list[Draft]], encoding: Encoding, head: Header) -> bytes:
    events = placed([draft for batch in batches for draft in batch])
    data, seq = encode_batch(dump_header(head), encoding), 0
    for batch in batches:
        data += encode_batch(dump_events(events[seq : seq + len(batch)]), encoding)
        seq += len(batch)
    return data


def source(
    root: Path, *batches: list[Draft], encoding: Encoding = "zstd", head: Header | None = None
) -> Path:
    made = header("src") if head is None else head
    return put(root, "src", packed([*batches], encoding, made), encoding)


def fork(root: Path, **more: object) -> Fork:
    arguments = {"new_id": "new", "created_at_ms": NOW_MS, **more}
    return store(root).fork("src", **arguments)  # type: ignore[arg-type]


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


def own(root: Path, made: Fork) -> list[Event]:
    return store(root).read(made.header.session_id).events[made.inherited_count :]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_fork_copies_the_completed_turns_and_names_no_source(
    encoding: Encoding, tmp_path: Path
) -> None:
    path = source(tmp_path, text_turn(1), [TITLE], text_turn(2), encoding=encoding)
    before = path.read_bytes()
    made = fork(tmp_path)
    assert made == Fork(
        Header("new", NOW_MS, CWD, is_seeded=True), inherited_count=TWO + 1, title="Fix parser (2)"
    )
    assert path.read_bytes() == before
    log, old = store(tmp_path).read("new"), store(tmp_path).read("src")
    assert log.header == made.header
    assert log.encoding == encoding
    assert log.events[:-2] == old.events
    marker, named = log.events[-2:]
    assert (marker.type, marker.data) == ("session/end-seed", {"inherited": True})
    assert marker.time_ms == old.events[-1].time_ms
    assert (named.type, named.time_ms) == ("session/title", NOW_MS)
    assert named.data == {
        "title": "Fix parser (2)",
        "messageSeqs": [],
        "source": {"kind": "user"},
    }
    assert b"src" not in decode(log.path.read_bytes(), encoding).header_line
    assert title(log.events) == "Fix parser (2)"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_whole_frames_are_copied_byte_for_byte(encoding: Encoding, tmp_path: Path) -> None:
    batches = [text_turn(1), text_turn(2), opening(3)]
    path = source(tmp_path, *batches, encoding=encoding)
    fork(tmp_path)
    log = store(tmp_path).read("new")
    old_head, new_head = (
        len(encode_batch(log_bytes([], head)[0], encoding)) for head in (header("src"), log.header)
    )
    kept = len(packed(batches[:2], encoding, header("src"))) - old_head
    copied = path.read_bytes()[old_head:][:kept]
    assert log.path.read_bytes()[new_head:].startswith(copied)


def test_only_the_frame_that_holds_the_boundary_is_made_anew(tmp_path: Path) -> None:
    path = source(tmp_path, text_turn(1), [*text_turn(2), *opening(3)])
    made = fork(tmp_path)
    assert made.inherited_count == TWO
    log = store(tmp_path).read("new")
    first = encode_batch(dump_events(placed(text_turn(1))), "zstd")
    assert first in path.read_bytes()
    assert first in log.path.read_bytes()
    assert log.events[:TWO] == store(tmp_path).read("src").events[:TWO]


def test_rows_that_span_frames_are_copied_as_they_are(tmp_path: Path) -> None:
    lines = log_bytes([*text_turn(1), *text_turn(2), *opening(3)], header("src"))
    compress = zstandard.ZstdCompressor().compress
    body = b"".join(lines[1:])
    cuts = [0, 40, 41, 1900, 1901, 2000, 3100, len(body)]
    data = compress(lines[0])
    for start, end in pairwise(cuts):
        data += compress(body[start:end])
    put(tmp_path, "src", data)
    for shape in ("current", "dsh-0.2.1"):
        made = fork(tmp_path, new_id=shape, shape=shape)
        raw = decode(store(tmp_path).read(shape).path.read_bytes(), "zstd")
        assert raw.lines[: made.inherited_count] == [line[:-1] for line in lines[1 : TWO + 1]]


def test_a_busy_session_is_forked_at_its_last_completed_turn(tmp_path: Path) -> None:
    one = store(tmp_path)
    writer = one.create(header("src"))
    writer.append(text_turn(1))
    writer.append(opening(2))
    made = one.fork("src", new_id="new", created_at_ms=NOW_MS)
    assert made.inherited_count == ONE
    writer.append(closing(2))
    writer.close()
    assert one.read("new").events[:ONE] == writer.events[:ONE]


def test_a_torn_tail_of_the_source_is_not_copied(tmp_path: Path) -> None:
    path = source(tmp_path, text_turn(1))
    with path.open("ab") as file:
        file.write(b"\x28\xb5\x2f")
    before = path.read_bytes()
    made = fork(tmp_path)
    assert made.inherited_count == ONE
    assert not store(tmp_path).read("new").torn
    assert path.read_bytes() == before


@pytest.mark.parametrize("at_seq", [0, 4, ONE - 1, ONE, ONE + 4, TWO - 1, TWO, TWO + 1])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_explicit_boundary_is_taken_or_refused_and_never_moved(
    at_seq: int, encoding: Encoding, tmp_path: Path
) -> None:
    source(
        tmp_path, [*text_turn(1), TITLE, *text_turn(2)[:-1]], text_turn(2)[-1:], encoding=encoding
    )
    before = tree(tmp_path)
    if at_seq in {0, ONE - 1, ONE, TWO}:
        made = fork(tmp_path, at_seq=at_seq)
        assert made.inherited_count == at_seq + 1
        log, old = store(tmp_path).read("new"), store(tmp_path).read("src")
        assert log.events[: at_seq + 1] == old.events[: at_seq + 1]
        return
    with pytest.raises(InvalidParamsError, match=f"at seq {at_seq}") as caught:
        fork(tmp_path, at_seq=at_seq)
    assert caught.value.field == "at_seq"
    assert (f"its last row is seq {TWO}." in caught.value.details) == (at_seq > TWO)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("at_seq", [None, -1])
def test_a_fork_of_nothing_is_a_new_session_and_not_stored(
    at_seq: int | None, tmp_path: Path
) -> None:
    source(tmp_path, opening(1) if at_seq is None else text_turn(1))
    before = tree(tmp_path)
    made = fork(tmp_path, at_seq=at_seq)
    assert not made.is_stored
    assert made.header == Header("new", NOW_MS, CWD)
    assert tree(tmp_path) == before
    writer = store(tmp_path).create(made.header)
    writer.append(text_turn(1))
    writer.close()
    assert len(store(tmp_path).read("new").events) == ONE


def test_what_was_set_after_the_last_turn_is_inherited(tmp_path: Path) -> None:
    source(tmp_path, text_turn(1), [MODE, TITLE_BY_USER], opening(2))
    made = fork(tmp_path)
    assert made.inherited_count == ONE + 1
    assert own(tmp_path, made)[1].data == {
        "title": "Named (2)",
        "messageSeqs": [],
        "source": {"kind": "user"},
    }


@pytest.mark.parametrize("is_done", [True, False])
def test_a_compaction_is_inherited_whole_or_not_at_all(is_done: bool, tmp_path: Path) -> None:
    case = "compact_manual"
    (path,) = (homes() / case / "sessions").glob("*/*/session.v4*")
    log = SessionStore(homes() / case / "sessions", clock=Clock()).read(path.parent.name)
    ends = [event.seq for event in log.events if event.type == "compaction/end"]
    last = ends[-1] if is_done else ends[-1] - 1
    head = attrs.evolve(log.header, session_id="src", cwd=CWD)
    data = encode_batch(dump_header(head), "zstd")
    events = [_named(event, "src") for event in log.events[: last + 1]]
    put(tmp_path, "src", data + encode_batch(dump_events(events), "zstd"))
    made = fork(tmp_path)
    copied = log.events[: made.inherited_count]
    assert ("compaction/end" in types(copied)) == is_done or len(ends) > 1
    assert copied[-1].type == ("compaction/end" if is_done else "turn/end")
    store(tmp_path).open("new").close()


def _named(event: Event, session_id: str) -> Event:
    if not event.type.startswith("session-log"):
        return event
    assert isinstance(event.data, dict)
    return attrs.evolve(event, data={**event.data, "sessionId": session_id})


def test_queued_messages_never_run_in_the_fork(tmp_path: Path) -> None:
    step = Draft(
        "agent/inbox/spliced",
        {"target": "next-step", "start": 0, "inserted": [user("q3"), user("q4")]},
    )
    queued = [spliced(inserted=[user("q1")]), spliced(start=1, inserted=[user("q2")]), step]
    source(tmp_path, [*opening(1), *queued, *closing(1)], text_turn(2)[:1])
    made = fork(tmp_path)
    rows = own(tmp_path, made)
    assert types(rows) == ["session/end-seed", "agent/inbox/spliced", "agent/inbox/spliced"]
    assert [row.data for row in rows[1:]] == [
        {
            "target": target,
            "start": 0,
            "removedCount": 2,
            "inserted": [],
            "outcome": "canceled",
        }
        for target in ("next-turn", "next-step")
    ]
    writer = store(tmp_path).open("new")
    assert writer.state.inbox == {"next-turn": [], "next-step": []}
    writer.close()


def test_another_working_folder_is_that_of_the_fork_whatever_was_changed(tmp_path: Path) -> None:
    moved = Draft("working-directory/change", {"cwd": "/moved"})
    source(tmp_path, [*text_turn(1)[:-1], moved, text_turn(1)[-1]])
    made = fork(tmp_path, cwd="/other")
    assert made.header.cwd == "/other"
    rows = own(tmp_path, made)
    assert types(rows) == ["session/end-seed", "working-directory/change"]
    assert rows[1].data == {"cwd": "/other"}
    assert folder_of(tmp_path, "new", "/other").is_dir()
    stays = fork(tmp_path, new_id="stays")
    assert types(own(tmp_path, stays)) == ["session/end-seed"], "it works where the source did"


def test_a_fork_of_a_fork_and_of_that_live_on_by_themselves(tmp_path: Path) -> None:
    one = store(tmp_path)
    source(tmp_path, text_turn(1), [TITLE])
    names = ["src", "b", "c", "d"]
    for turn, (old, new) in enumerate(pairwise(names), start=2):
        made = one.fork(old, new_id=new, created_at_ms=NOW_MS)
        assert made.title == f"Fix parser ({turn})"
        writer = one.open(new)
        writer.append(text_turn(turn))
        writer.close()
    for name in names[:-1]:
        for path in folder_of(tmp_path, name).iterdir():
            path.unlink()
    log = one.read("d")
    assert types(log.events).count("turn/end") == 4
    assert len(model_view(log.events).messages) == 8
    assert one.list().bad == []


def test_a_historical_fork_is_forked_without_its_parent(tmp_path: Path) -> None:
    marker = Draft("session/end-seed", {"inherited": True})
    rows = [*text_turn(1), delivery("old", 3), marker, *text_turn(2)]
    head = header("src", is_seeded=True, parent_session="old")
    source(tmp_path, rows, head=head)
    made = fork(tmp_path)
    assert made.header.parent_session is None
    assert store(tmp_path).read("new").events[:-1] == store(tmp_path).read("src").events
    assert store(tmp_path).read("src").header == head


def test_a_subagents_session_forks_into_an_ordinary_one(tmp_path: Path) -> None:
    head = header(
        "src", origin="subagent", parent_session="p", delegation_depth=1, agent_preset="x"
    )
    source(tmp_path, [descriptor("kid"), *text_turn(1), catalog("grandchild")], head=head)
    made = fork(tmp_path)
    assert made.header == Header("new", NOW_MS, CWD, is_seeded=True, agent_preset="x")
    one = World(tmp_path)
    one.root = tmp_path
    entries = {entry.session_id: entry for entry in one.store(indexed=False).entries()}
    assert entries["new"].origin is None
    assert entries["new"].parent_session is None


SHAPES: list[Shape] = ["current", "dsh-0.2.1"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_delivery_rows_are_kept_or_renamed(
    shape: Shape, encoding: Encoding, tmp_path: Path
) -> None:
    other = Draft("session-log-deepseek/delivery-accepted", {"sessionId": "src", "throughSeq": 1})
    mentions = Draft("plugin:x/y", "session-log-deepseek/delivery-accepted", ignorable=True)
    batches = [text_turn(1), [delivery("src", 4), mentions], text_turn(2), [delivery("src", 20)]]
    path = source(tmp_path, *batches, [other, *text_turn(3)], opening(4), encoding=encoding)
    before = path.read_bytes()
    made = fork(tmp_path, shape=shape)
    log, old = store(tmp_path).read("new"), store(tmp_path).read("src")
    count = made.inherited_count
    want = old.events[:count]
    if shape == "dsh-0.2.1":
        want = [
            attrs.evolve(event, data={**event.data, "sessionId": "new"})
            if isinstance(event.data, dict) and "sessionFormatVersion" in event.data
            else event
            for event in want
        ]
    assert log.events[:count] == want
    assert path.read_bytes() == before
    frame = encode_batch(dump_events(old.events[ONE + 2 : TWO + 2]), encoding)
    assert frame in before
    assert frame in log.path.read_bytes(), "frames without such rows are copied"


def test_without_delivery_rows_both_shapes_are_the_same_bytes(tmp_path: Path) -> None:
    source(tmp_path, text_turn(1), tool_turn(2, ONE), opening(3))
    fork(tmp_path)
    data = store(tmp_path).read("new").path.read_bytes()
    for path in folder_of(tmp_path, "new").iterdir():
        path.unlink()
    fork(tmp_path, shape="dsh-0.2.1")
    assert store(tmp_path).read("new").path.read_bytes() == data


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Fix parser", "Fix parser (2)"),
        ("Fix parser (2)", "Fix parser (3)"),
        ("Fix parser (9)", "Fix parser (10)"),
        ("Report (2026)", "Report (2026) (2)"),
        ("f(2)", "f(2) (2)"),
        ("(2)", "(2) (2)"),
        ("a (02)", "a (02) (2)"),
    ],
)
def test_a_title_is_counted_on(old: str, new: str) -> None:
    assert next_title(old) == new


def test_a_source_without_a_title_and_a_fork_that_wants_none_have_no_title_row(
    tmp_path: Path,
) -> None:
    source(tmp_path, text_turn(1))
    made = fork(tmp_path)
    assert made.title is None
    assert types(own(tmp_path, made)) == ["session/end-seed"]
    source(tmp_path, text_turn(1), [TITLE])
    made = fork(tmp_path, new_id="other", title_increment=False)
    assert types(own(tmp_path, made)) == ["session/end-seed"]


def test_an_id_that_exists_is_a_conflict_and_no_byte_changes(tmp_path: Path) -> None:
    source(tmp_path, text_turn(1))
    put(tmp_path, "taken", b"whatever")
    before = tree(tmp_path)
    for new_id in ("src", "taken"):
        with pytest.raises(SessionConflictError, match="exists already"):
            fork(tmp_path, new_id=new_id)
    with pytest.raises(LocalProtocolError, match="No log can have the header"):
        fork(tmp_path, cwd="relative")
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("data", "error"), [(b"damaged", SessionCorruptError), (None, SessionNotFoundError)]
)
def test_a_source_that_cannot_be_read_is_refused(
    data: bytes | None, error: type[BridgeError], tmp_path: Path
) -> None:
    if data is not None:
        put(tmp_path, "src", data)
    before = tree(tmp_path)
    with pytest.raises(error):
        fork(tmp_path)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("call", ["copy_file_range", "write", "fsync", "link"])
def test_a_disk_that_refuses_leaves_no_fork(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = source(tmp_path, text_turn(1))
    before = path.read_bytes()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "")

    with monkeypatch.context() as patch:
        patch.setattr(f"os.{call}", refuse)
        with pytest.raises(StoreFailedError, match="full"):
            store(tmp_path, durable=True).fork("src", new_id="new", created_at_ms=NOW_MS)
    assert path.read_bytes() == before
    with pytest.raises(SessionNotFoundError):
        store(tmp_path).read("new")
    assert fork(tmp_path).is_stored, "and it can be tried again"


@pytest.mark.parametrize("code", [18, 22, None])
def test_where_the_kernel_does_not_copy_we_do(
    code: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source(tmp_path, text_turn(1), text_turn(2))

    def refuse(*_: object) -> None:
        raise OSError(code, "")

    if code is None:
        monkeypatch.delattr("os.copy_file_range")
    else:
        monkeypatch.setattr("os.copy_file_range", refuse)
    made = fork(tmp_path)
    assert store(tmp_path).read("new").events[:TWO] == store(tmp_path).read("src").events
    assert made.inherited_count == TWO
