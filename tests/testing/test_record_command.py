"""`acp-bridge record` as people type it."""

import errno
import os
import shutil
from pathlib import Path

import anyio
import attrs
import pytest

from acp_bridge.__main__ import main
from acp_bridge.sessions import SessionStore
from acp_bridge.testing.check import played
from acp_bridge.vocabulary import Draft, SessionId

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


@pytest.mark.parametrize("was_there", [False, True])
def test_where_the_disk_refuses_nothing_is_left_half_made(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    was_there: bool,  # a parameter of the test
) -> None:
    into = tmp_path / "mine"
    if was_there:
        into.mkdir()
    real = shutil.copy2

    def full(source: str, target: str) -> object:
        if source.endswith("model.jsonl") and target.startswith(str(into)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
        return real(source, target)

    monkeypatch.setattr(shutil.copytree, "__defaults__", (False, None, full, False, False))
    code = record(monkeypatch, only_session(home), "--into", str(into), "--home", str(home))
    assert code == 1
    error = capsys.readouterr().err
    assert error.startswith(f"acp-bridge: --into {into} cannot be written: ")
    assert "No space left on device" in error
    assert error.count("\n") == 1
    assert into.exists() == was_there
    assert not was_there or not any(into.iterdir())


@pytest.mark.parametrize("trace", [b"[" * 100_000, b"{}\n[]\n", b"\xff"])
def test_a_trace_for_a_folder_that_cannot_be_is_one_sentence(
    trace: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "wire").write_bytes(trace)
    (tmp_path / "good").write_bytes(b"")
    (tmp_path / "file").write_bytes(b"")
    below = str(tmp_path / "file" / "x")
    assert record(monkeypatch, "--trace", str(tmp_path / "good"), "--into", below) == 1
    assert "cannot be written: Not a directory" in capsys.readouterr().err
    into = tmp_path / "new"
    assert record(monkeypatch, "--trace", str(tmp_path / "wire"), "--into", str(into)) == 1
    error = capsys.readouterr().err
    assert "is no trace of acp-bridge" in error
    assert error.count("\n") == 1
    assert not into.exists()


def test_a_session_without_a_turn_is_one_sentence(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = SessionStore(home / "sessions", clock=lambda: 0)
    header = store.read_header(SessionId(only_session(home)))
    writer = store.create(attrs.evolve(header, session_id=SessionId("bare")))
    writer.append(
        [Draft("session/title", {"title": "x", "messageSeqs": [], "source": {"kind": "user"}})]
    )
    writer.close()
    into = tmp_path / "mine"
    assert record(monkeypatch, "bare", "--into", str(into), "--home", str(home)) == 1
    error = "acp-bridge: Session bare has no completed turn: there is nothing to live through.\n"
    assert capsys.readouterr().err == error
    assert not into.exists()
