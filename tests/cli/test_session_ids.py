"""Ids as people type them: whole, or as far as no other session's begins so."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from stored_sessions import conversation, put, snapshot

from acp_bridge.__main__ import main as command
from acp_bridge.cli.main import main
from acp_bridge.cli.stored import MATCHES_MAX, Stored
from acp_bridge.errors import InvalidParamsError, SessionNotFoundError

PARSER = "3f0c1a52-0000-4000-8000-000000000001"
OTHER = "3f0c9999-0000-4000-8000-000000000002"


@pytest.fixture
def store(tmp_path: Path) -> Stored:
    put(tmp_path, PARSER, conversation(title="Fix the\nparser"))
    put(tmp_path, OTHER, conversation(title="Draw a map"), later_ms=5_000)
    put(tmp_path, "s")
    return Stored(tmp_path)


@pytest.mark.parametrize("typed", [PARSER, PARSER[:5], PARSER[:-1]])
def test_an_id_is_whole_or_begins_like_no_other(store: Stored, typed: str) -> None:
    assert store.id_of(typed) == PARSER


def test_a_whole_id_counts_however_short_and_whatever_begins_so(tmp_path: Path) -> None:
    put(tmp_path, "s")
    put(tmp_path, "s-and-more")
    assert Stored(tmp_path).id_of("s") == "s"


def test_several_are_listed_with_their_titles_the_newest_first(store: Stored) -> None:
    with pytest.raises(InvalidParamsError) as caught:
        store.id_of("3f0c")
    assert caught.value.details.splitlines() == [
        "2 sessions have an id that begins with 3f0c; type more of it:",
        f"  {OTHER}  Draw a map",
        f"  {PARSER}  Fix the parser",
    ]


def test_a_list_of_matches_ends_somewhere(tmp_path: Path) -> None:
    for number in range(MATCHES_MAX + 2):
        put(tmp_path, f"same-{number:02}")
    with pytest.raises(InvalidParamsError) as caught:
        Stored(tmp_path).id_of("same")
    lines = caught.value.details.splitlines()
    assert (len(lines), lines[-1]) == (1 + MATCHES_MAX + 1, "  and 2 more")


@pytest.mark.parametrize("typed", ["", "3f0"])
def test_too_few_characters_mean_nothing(store: Stored, typed: str) -> None:
    with pytest.raises(InvalidParamsError, match=r"too short .*at least 4 characters"):
        store.id_of(typed)


@pytest.mark.parametrize("typed", ["3f0d", "../3f0c", PARSER + "0", "x"])
def test_what_no_id_begins_with_is_not_found(store: Stored, typed: str) -> None:
    with pytest.raises(SessionNotFoundError):
        store.id_of(typed)


def test_an_empty_folder_is_no_session(store: Stored) -> None:
    (store.root / "project" / "3f0c1aaa").mkdir(parents=True)
    (store.root / "project" / "7777").mkdir()
    assert store.id_of("3f0c1") == PARSER
    with pytest.raises(SessionNotFoundError):
        store.id_of("7777")


def test_a_damaged_log_is_found_too(tmp_path: Path) -> None:
    put(tmp_path, PARSER).write_bytes(b"no log")
    assert Stored(tmp_path).id_of("3f0c") == PARSER


def test_a_log_in_the_wrong_folder_is_found_by_its_header(tmp_path: Path) -> None:
    folder = put(tmp_path, PARSER).parent
    folder.rename(folder.with_name("elsewhere"))
    assert Stored(tmp_path).id_of("3f0c") == PARSER


@pytest.mark.parametrize(
    ("action", "flags", "told"),
    [
        ("show", [], PARSER),
        ("verify", [], PARSER),
        ("fork", [], PARSER),
        ("export", ["--html", "page.html"], "1 session."),
        ("delete", ["--yes"], PARSER),
    ],
)
def test_every_command_takes_the_beginning_of_an_id(
    action: str,
    flags: list[str],
    told: str,
    store: Stored,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    home = ["--home", str(store.home)]
    before = snapshot(store.root)
    assert main(["sessions", action, "3f0", *flags, *home]) == 1
    assert "too short" in capsys.readouterr().err
    assert snapshot(store.root) == before
    assert main(["sessions", action, "3f0c1", *flags, *home]) == 0
    assert told in capsys.readouterr().out


def test_a_fork_says_the_whole_id_of_its_source(
    store: Stored, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sessions", "fork", "3f0c1", "--json", "--home", str(store.home)]) == 0
    assert json.loads(capsys.readouterr().out)["source_id"] == PARSER


@pytest.mark.parametrize("runtime", ["embedded", "dsh"])
def test_a_recording_takes_the_beginning_of_an_id(
    runtime: str,
    store: Stored,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DSH_HOME", str(store.home))
    place = ["--runtime", "dsh"] if runtime == "dsh" else ["--home", str(store.home)]
    asked: list[str] = []

    def record(_store: object, _home: Path, session_id: str, _into: Path) -> None:
        asked.append(session_id)
        raise SessionNotFoundError(session_id)

    monkeypatch.setattr("acp_bridge.testing.recording.command.record_session", record)
    words = ["acp-bridge", "record", "3f0c1", "--into", str(tmp_path / "into"), *place]
    monkeypatch.setattr("sys.argv", words)
    assert command() == 1
    assert asked == [PARSER]
    assert f"`acp-bridge sessions list --home {store.home}`" in capsys.readouterr().err


def test_a_tail_knows_the_sessions_here_and_leaves_other_runs_as_they_are(
    store: Stored, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    async def tail(options: Mapping[str, Any]) -> None:
        asked.extend(options["runs"])

    monkeypatch.setattr("acp_bridge.cli.events._tail", tail)
    home = ["--home", str(store.home)]
    assert main(["events", "tail", "3f0c1", "s", "run-1", *home]) == 0
    assert asked == [PARSER, "s", "run-1"]
    assert main(["events", "tail", "3f0c", *home]) == 1
    assert "Draw a map" in capsys.readouterr().err
