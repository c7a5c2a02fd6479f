"""``acp-bridge sessions fork``: a new session, the old one untouched."""

import json
from pathlib import Path
from typing import Any

import pytest
from stored_sessions import conversation, family, put, snapshot

from acp_bridge.cli.main import main
from acp_bridge.sessions.store import SessionStore
from acp_bridge.vocabulary import Draft, JsonObject


def test_a_fork_is_made_and_its_source_untouched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family(tmp_path)
    before = snapshot(tmp_path / "sessions")
    assert main(["sessions", "fork", "root", "--home", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["source_id"], told["inherited_count"] > 0) == ("root", True)
    store = SessionStore(tmp_path / "sessions", clock=lambda: 0)
    source, made = store.read("root"), store.read(told["session_id"])
    count = told["inherited_count"]
    assert made.events[:count] == source.events[:count]
    assert made.header.parent_session is None
    assert made.events[count].data == {"inherited": True}
    after = snapshot(tmp_path / "sessions")
    assert {path: after[path][0] for path in before} == {p: one[0] for p, one in before.items()}


def test_a_person_is_told_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    family(tmp_path)
    assert main(["sessions", "fork", "root", "--for", "dsh", "--home", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("Forked root into ")
    assert "rows copied" in told.out
    assert told.err == ""


def delivered(session_id: str, through: int) -> Draft:
    data: JsonObject = {"sessionId": session_id, "sessionFormatVersion": 4, "throughSeq": through}
    return Draft("session-log-deepseek/delivery-accepted", data)


def two_turns() -> list[Draft]:
    """The runtime's habit: a delivery row in each turn, which names its own session."""
    first = conversation()
    last = len(first) - 1
    turns = [Draft("turn/start", {"turn": 2}), Draft("turn/end", {"turn": 2, "reason": DONE})]
    return [*first[:last], delivered("s", 3), first[last], *turns, delivered("s", 9)]


DONE: JsonObject = {"kind": "completed"}


@pytest.mark.parametrize(("words", "names"), [((), "s"), (("--for", "dsh"), "the fork")])
def test_a_fork_for_dsh_has_no_delivery_row_of_another_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], names: str
) -> None:
    path = put(tmp_path, "s", two_turns())
    before = path.read_bytes()
    home = ["--home", str(tmp_path), "--json"]
    assert main(["sessions", "fork", "s", *home, *words]) == 0
    new_id = json.loads(capsys.readouterr().out)["session_id"]
    events = SessionStore(tmp_path / "sessions", clock=lambda: 0).read(new_id).events
    rows: list[Any] = [event.data for event in events if "delivery" in event.type]
    assert {row["sessionId"] for row in rows} == {new_id if names == "the fork" else "s"}
    assert path.read_bytes() == before


def test_a_fork_at_a_seq_ends_there_and_inside_a_turn_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "s", two_turns())
    end = len(conversation())  # with the delivery row before it
    home = ["--home", str(tmp_path), "--json"]
    assert main(["sessions", "fork", "s", "--at", str(end), *home]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["inherited_count"] == end + 1
    assert main(["sessions", "fork", "s", "--at", str(end + 1), *home]) == 1
    assert "inside turn 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nope"], "Session not found: nope"),
        (["root", "--at", "99999"], "99999"),
        (["root", "--at", "-1"], "nothing would be forked"),
    ],
)
def test_what_cannot_be_forked_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    family(tmp_path)
    before = snapshot(tmp_path / "sessions")
    assert main(["sessions", "fork", *words, "--home", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert why in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert snapshot(tmp_path / "sessions") == before
