"""`acp-bridge record` as people type it."""

from pathlib import Path

import anyio
import pytest

from acp_bridge.__main__ import main
from acp_bridge.testing.check import played

SNAPSHOTS = Path(__file__).parents[2] / "snapshots"


def record(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["acp-bridge", "record", *words])
    return main()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return anyio.run(played, SNAPSHOTS / "text-turn", tmp_path / "place").place.home


def only_session(home: Path) -> str:
    (log,) = (home / "sessions").rglob("session.v*.jsonl*")
    return log.parent.name


def test_a_session_is_recorded_and_judged(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    into = tmp_path / "kept" / "mine"
    code = record(monkeypatch, only_session(home), "--into", str(into), "--home", str(home))
    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        f"Recorded: {into}",
        "A load of the scenario shows what one of the session does.",
        "It was played twice with the same end. Read it before you keep it.",
    ]
    names = {path.name for path in into.iterdir()}
    assert names == {"input.json", "model.jsonl", "expected"}


def test_a_session_of_the_other_runtime_is_found_where_that_keeps_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSH_HOME", str(home))
    into = str(tmp_path / "mine")
    assert record(monkeypatch, only_session(home), "--into", into, "--runtime", "dsh") == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 2, "name the session by its id, or a trace with --trace FILE."),
        (("one", "--trace", "wire.jsonl"), 2, "name the session by its id, or a trace"),
        (("no-such-session",), 1, "no-such-session"),
        (("--trace", "no-such-file"), 1, "cannot be read"),
    ],
    ids=["nothing", "both", "session", "trace"],
)
def test_what_cannot_be_recorded_is_one_sentence(
    words: tuple[str, ...],
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    home = str(tmp_path / "home")
    assert record(monkeypatch, *words, "--into", "mine", "--home", home) == code
    error = capsys.readouterr().err
    assert error.startswith("acp-bridge: ")
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "mine").exists()
