"""The real runtime's stores have the outcome they must have; their rows survive a round trip."""

import shutil
from pathlib import Path

import pytest
from session_rows import Clock, homes, tree

from acp_bridge.errors import (
    BridgeError,
    SessionCorruptError,
    SessionMisplacedError,
    SessionUnsupportedError,
)
from acp_bridge.sessions import SessionStore, model_view
from acp_bridge.sessions.codec import decode, encode_batch
from acp_bridge.sessions.events import dump_events, row_from_event
from acp_bridge.sessions.header import dump_header
from acp_bridge.sessions.validation.strict import SHAPED_TYPES, check_draft
from acp_bridge.vocabulary import Draft

CHILDREN = "1eccc68a-02ef-4d19-9a2e-b7e123223a4f 354a03d4-5bf7-43c8-aba6-3e24da38cd8c"

SOUND = {
    "approval": "ap",
    "blocked": "bl",
    "cancel": "c-eof c-int c-kill c-shutdown c-term",
    "cforks": "cf-after_turn cf-at_checkpoint cf-at_cmdrun cf-at_end cf-at_start cf-at_summary"
    " cf-before",
    "compact_auto": "ca",
    "compact_manual": "cm",
    "deleg": "dg 493fc3c8-adda-4369-8ada-5f8539857e16 8cfc314b-ffe4-4061-8a0b-53213eef05b1"
    " f94dbe68-e0a3-4c82-b9e7-1bdf61670294",
    "devmsg": "dv",
    # f2-noparent is refused by 0.2.1rc2 and sound under the newer rule for delivery rows.
    "forks": f"p1 ../evil {CHILDREN} f1-correct f2-noparent f5-unseeded-nodelivery"
    " f6-unseeded-rewritten-delivery f9-nochecksum f11-opencut-noclosers f12-opencut-closers"
    " f16-unknown-ignorable f17-plugin-record f18-missing-parent f20-empty-streams",
    "goals": "go",
    "image": "im",
    "jobs": "jb",
    "max_tokens_tools": "mtt",
    "misc": "ms",
    "nodelivery": "nd",
    "orphan_killed": "or",
    "plain-encoding": "pf pf-copy pf-noparent q",
    "plan": "pl",
    "prune": "",
    "retry": "rt",
    "tools": "tools",
    "tools-subagents": f"p1 ../evil {CHILDREN}",
    "workflow": "wf b2d08a99-5e3f-4fd3-8483-bf461a430eff",
}

REFUSED: dict[tuple[str, str], tuple[type[BridgeError], str]] = {
    ("forks", "f3-nomarker"): (SessionCorruptError, "without an inherited end-seed"),
    ("forks", "f4-unseeded-copy"): (SessionCorruptError, "seq 13: the delivery row names"),
    ("forks", "f7-wrong-dir"): (SessionMisplacedError, "--home-dev-ws2--"),
    ("forks", "f8-oneframe"): (SessionCorruptError, "first frame is not exactly one line"),
    ("forks", "f10-nodepth"): (SessionCorruptError, "lacks delegationDepth"),
    ("forks", "f13-extra-header-key"): (SessionCorruptError, "unknown key 'extra'"),
    ("forks", "f14-extra-event-key"): (SessionCorruptError, "seq 3: unknown key 'foo'"),
    ("forks", "f15-unknown-type"): (SessionUnsupportedError, "seq 59 is of the unknown type"),
    ("forks", "f19-no-time"): (SessionCorruptError, "seq 32: the row lacks 'time'"),
    ("forks", "f21-missing-streams"): (SessionCorruptError, "seq 14: assistant/message without"),
    ("prune", "pr"): (SessionCorruptError, "seq 24: tool/result outside a turn"),
}

SOUND_IDS = [(case, one) for case, ids in SOUND.items() for one in ids.split()]


def real(case: str) -> SessionStore:
    return SessionStore(homes() / case / "sessions", clock=Clock())


def test_every_real_store_is_in_the_table() -> None:
    assert {path.name for path in homes().iterdir()} == SOUND.keys()


@pytest.mark.parametrize("case", SOUND)
def test_a_real_store_lists_its_sound_sessions_and_reports_the_others(case: str) -> None:
    listing = real(case).list()
    refused = {one for of, one in REFUSED if of == case}
    assert {summary.session_id for summary in listing.sessions} == set(SOUND[case].split())
    assert {bad.path.parent.name for bad in listing.bad} == refused


@pytest.mark.parametrize(("case", "session_id"), REFUSED)
def test_a_refused_session_has_its_class_and_reason_and_keeps_its_bytes(
    case: str, session_id: str, tmp_path: Path
) -> None:
    error, reason = REFUSED[case, session_id]
    root = tmp_path / "sessions"
    shutil.copytree(homes() / case / "sessions", root)
    before = tree(root)
    store = SessionStore(root, clock=Clock())
    for attempt in (store.read, store.open):
        with pytest.raises(error, match=session_id) as caught:
            attempt(session_id)
        assert type(caught.value) is error
        assert reason in caught.value.details
    assert tree(root) == before


@pytest.mark.parametrize(("case", "session_id"), SOUND_IDS)
def test_a_sound_session_survives_a_round_trip_byte_for_byte(case: str, session_id: str) -> None:
    log = real(case).read(session_id)
    raw = decode(log.path.read_bytes(), log.encoding)
    assert dump_header(log.header) == raw.header_line + b"\n"
    assert dump_events(log.events).split(b"\n")[:-1] == raw.lines
    data = encode_batch(dump_header(log.header), log.encoding)
    if log.events:
        data += encode_batch(dump_events(log.events), log.encoding)
    assert decode(data, log.encoding).lines == raw.lines
    assert not log.torn


@pytest.mark.parametrize(("case", "session_id"), SOUND_IDS)
def test_the_strict_writer_accepts_every_row_that_the_runtime_wrote(
    case: str, session_id: str
) -> None:
    for event in real(case).read(session_id).events:
        if event.type in SHAPED_TYPES:
            check_draft(
                Draft(
                    event.type,
                    event.data,
                    event.surface_op,
                    event.source_event_seqs,
                    event.ignorable,
                )
            )


@pytest.mark.parametrize(("case", "session_id"), SOUND_IDS)
def test_a_sound_session_opens_for_writing_and_opens_again(
    case: str, session_id: str, tmp_path: Path
) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(homes() / case / "sessions", root)
    store = SessionStore(root, clock=Clock(), durable=False)
    before = store.read(session_id)
    writer = store.open(session_id)
    writer.close()
    after = store.read(session_id)
    assert after.events == writer.events
    assert after.events[: len(before.events)] == before.events
    assert [event.type for event in after.events[len(before.events) :]] == (
        [] if before.events[-1].type == "session/end-seed" else ["session/end-seed"]
    )
    store.open(session_id).close()
    assert store.read(session_id).events == after.events, "a second opening adds nothing"


def test_a_cut_off_turn_is_closed_as_the_runtime_closed_it(tmp_path: Path) -> None:
    log = real("forks").read("f11-opencut-noclosers")
    theirs = log.events[20:24]
    assert [event.type for event in theirs] == [
        "tool/result",
        "step/end",
        "turn/end",
        "session/end-seed",
    ]
    cut = encode_batch(dump_header(log.header), "zstd") + encode_batch(
        dump_events(log.events[:20]), "zstd"
    )
    path = tmp_path / log.path.relative_to(homes() / "forks" / "sessions")
    path.parent.mkdir(parents=True)
    path.write_bytes(cut)
    writer = SessionStore(tmp_path, clock=lambda: theirs[3].time_ms).open(log.header.session_id)
    writer.close()
    assert [dump_events([event]) for event in writer.events[20:]] == [
        dump_events([event]) for event in theirs
    ]


@pytest.mark.parametrize("session_id", ["c-eof", "c-int", "c-kill", "c-term"])
def test_a_killed_text_turn_is_closed_as_the_runtime_closed_it(
    session_id: str, tmp_path: Path
) -> None:
    log = real("cancel").read(session_id)
    theirs = log.events[23:26]
    path = tmp_path / log.path.relative_to(homes() / "cancel" / "sessions")
    path.parent.mkdir(parents=True)
    path.write_bytes(
        encode_batch(dump_header(log.header), "zstd")
        + encode_batch(dump_events(log.events[:23]), "zstd")
    )
    writer = SessionStore(tmp_path, clock=lambda: theirs[2].time_ms).open(session_id)
    writer.close()
    assert [row_from_event(event) for event in writer.events[23:]] == [
        row_from_event(event) for event in theirs
    ]


def test_a_compacted_session_shows_the_model_its_checkpoint_and_the_tail() -> None:
    view = model_view(real("compact_manual").read("cm").events)
    assert view.system.startswith("You are an AI agent")
    assert view.messages[0]["source"] == {
        "kind": "compact-checkpoint",
        "compactionId": "d20af01d-3a95-405f-9c20-100ea57e5056",
        "sourceCommandId": "cmd-f3fd47c7-1",
    }
    assert [message["role"] for message in view.messages] == [
        "user",
        "assistant",
        "user",
        "user",
        "assistant",
    ]


def test_an_offloaded_image_is_marked_in_the_view_and_not_in_the_log() -> None:
    events = real("image").read("im").events
    view = model_view(events)
    marks = [
        block.get("offloaded")
        for message in view.messages
        if isinstance(content := message["content"], list)
        for block in content
        if isinstance(block, dict) and block["type"] == "image"
    ]
    assert True in marks
    assert b"offloaded" not in dump_events(events)
