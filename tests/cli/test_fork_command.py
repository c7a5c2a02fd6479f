"""``acp-bridge sessions fork``: a new session, the old one untouched."""

import json
from pathlib import Path

import pytest
from stored_sessions import family, snapshot

from acp_bridge.cli.main import main
from acp_bridge.sessions.store import SessionStore


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
