"""``acp-bridge sessions``: what people are told of their store; looking changes nothing."""

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from stored_sessions import conversation, family, put, snapshot

from acp_bridge.cli.main import main
from acp_bridge.cli.screen import Screen, plain, unfenced, unified_diff
from acp_bridge.errors import (
    BridgeError,
    SessionCorruptError,
    SessionMisplacedError,
    SessionUnsupportedError,
)
from acp_bridge.sessions import SessionStore, sweep
from acp_bridge.sessions.logfile import take_lock
from acp_bridge.sessions.survey import id_of_folder
from acp_bridge.vocabulary import Draft, JsonObject

REPO = Path(__file__).parents[2]


@attrs.frozen
class Told:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[JsonObject]:
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Told]


class Terminal(io.StringIO):
    """Text that somebody types, or reads."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run ``acp-bridge sessions``; ``typed`` comes from a terminal."""

    def run(*words: str, typed: str | None = None, home: Path = tmp_path) -> Told:
        stdin = io.StringIO() if typed is None else Terminal(typed)
        monkeypatch.setattr(sys, "stdin", stdin)
        code = main(["sessions", words[0], "--home", str(home), *words[1:]])
        captured = capsys.readouterr()
        return Told(code, captured.out, captured.err)

    return run


def not_found(session_id: str, home: Path) -> str:
    listing = f"`acp-bridge sessions list --home {home}`"
    return f"acp-bridge: Session not found: {session_id}. {listing} shows which there are.\n"


def real_homes() -> Path:
    shared = Path(os.environ.get("ACP_BRIDGE_SHARED", REPO.parent / "shared"))
    found = shared / "data" / "dsh-0.2.1rc2" / "homes"
    assert found.is_dir(), f"{found} is missing: set ACP_BRIDGE_SHARED to the shared folder"
    return found


# --- list ---------------------------------------------------------------------------------------


def test_a_list_shows_the_newest_first_and_says_what_each_is(
    tmp_path: Path, sessions: Command
) -> None:
    family(tmp_path)
    told = sessions("list")
    rows = [re.split(r" {2,}", line) for line in told.out.splitlines()]
    assert rows[0] == ["ID", "UPDATED", "FOLDER", "TITLE", "KIND"]
    assert [(row[0], row[-1]) for row in rows[1:]] == [
        ("fork", "fork"),
        ("root", "session"),
        ("old-fork", "fork"),
        ("child", "subagent"),
        ("grandchild", "subagent"),
    ]
    assert rows[1][2:4] == ["/work/shop", "Fix the parser"]
    assert (told.code, told.err) == (0, "")


def test_a_bad_log_stands_beneath_the_list_with_its_reason(
    tmp_path: Path, sessions: Command
) -> None:
    put(tmp_path, "good")
    put(tmp_path, "bad").write_bytes(b"\x00nonsense")
    told = sessions("list")
    assert told.code == 0
    assert told.out.index("good") < told.out.index("1 log cannot be opened:")
    assert "  bad  corrupt\n    Session bad cannot be opened because its log is damaged" in told.out


def test_a_list_for_machines_has_the_same_keys_on_every_line(
    tmp_path: Path, sessions: Command
) -> None:
    family(tmp_path)
    put(tmp_path, "bad").write_bytes(b"")
    rows = sessions("list", "--json").objects
    keys = ["session_id", "kind", "title", "cwd", "created_at", "updated_at", "parent_session"]
    assert {tuple(row) for row in rows} == {(*keys, "path", "status", "reason")}
    by_id = {row["session_id"]: row for row in rows}
    assert by_id["root"]["created_at"] == "2026-09-21T14:13:25.000Z"
    assert by_id["child"]["parent_session"] == "root"
    assert (by_id["bad"]["status"], by_id["bad"]["kind"]) == ("corrupt", None)


def test_a_list_fits_the_terminal(
    tmp_path: Path, sessions: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "s", conversation(title="A long title " * 9), cwd="/long/folder" * 9 + "/end")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    sessions("list")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    assert re.search(r"…\S*/end  A long title.*…  session$", lines[1])


def test_an_empty_store_is_said_to_be_empty(tmp_path: Path, sessions: Command) -> None:
    told = sessions("list")
    assert told == Told(0, f"There are no sessions in {tmp_path / 'sessions'}.\n", "")
    assert sessions("list", "--json") == Told(0, "", "")


def test_a_title_cannot_move_the_cursor_or_forge_a_row(tmp_path: Path, sessions: Command) -> None:
    put(tmp_path, "s", conversation(title="\x1b[2Jgone\nfake  row\x9b31m\u202e"))
    out = sessions("list").out
    assert len(out.splitlines()) == 2
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out)


def test_a_list_is_the_same_with_without_and_with_a_broken_index(
    tmp_path: Path, sessions: Command
) -> None:
    put_one_of_each(tmp_path)
    index = tmp_path / "index.sqlite3"
    first = sessions("list", "--json")
    assert {row["session_id"]: row["status"] for row in first.objects} == {
        "sound": "sound",
        "torn": "repairable",
        "open": "repairable",
        "newer": "unsupported",
        "corrupt": "corrupt",
        "lost": "misplaced",
        "twice": "misplaced",
        "both": "corrupt",
        "future": "unsupported",
        "migrated": "sound",
    }
    assert all((row["reason"] is None) == (row["status"] == "sound") for row in first.objects)
    assert index.exists()
    assert sessions("list", "--json") == first
    index.write_bytes(b"no index")
    assert sessions("list", "--json") == first
    for path in tmp_path.glob("index.sqlite3*"):
        path.unlink()
    index.mkdir()
    assert sessions("list", "--json") == first


def test_a_list_says_of_each_log_what_a_check_says(tmp_path: Path, sessions: Command) -> None:
    put_one_of_each(tmp_path)
    checked = {
        (row["session_id"], row["path"]): (row["status"], row["reason"])
        for row in sessions("verify", "--json").objects
    }
    for row in sessions("list", "--json").objects:
        if row["session_id"] in {"both", "future", "twice"}:
            continue  # a list has one row for a folder, in the words of who opens the session
        told = (row["status"], row["reason"])
        assert checked[row["session_id"], row["path"]] == told


def test_a_list_opens_no_log_that_the_index_knows(
    tmp_path: Path, sessions: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    family(tmp_path)
    put(tmp_path, "bad").write_bytes(b"no log")
    monkeypatch.setattr(sweep, "UNSETTLED_NS", -(10**9))
    first = sessions("list")

    real = Path.open

    def guarded(path: Path, *words: Any, **more: Any) -> Any:
        assert not path.name.startswith("session.v4"), path
        return real(path, *words, **more)

    monkeypatch.setattr(Path, "open", guarded)
    assert sessions("list") == first


# --- show ---------------------------------------------------------------------------------------


def test_a_transcript_reads_like_the_conversation(tmp_path: Path, sessions: Command) -> None:
    put(tmp_path, "s")
    told = sessions("show", "s")
    wanted = [
        "Fix the parser",
        "session s",
        "in /work/shop",
        "you: Fix the parser",
        "I look first.",
        "◐ Find the bug",
        "● Edit `parser.py`",
        "--- /work/shop/parser.py",
        "+++ /work/shop/parser.py",
        "@@ -1,2 +1,2 @@",
        " a = 1",
        "-b = 2",
        "+b = 3",
        "● pytest -q",
        "2 passed",
        "Done: it was a comma.",
        "(context: 450 of 1000 tokens)",
    ]
    places = [told.out.index(piece) for piece in wanted]
    assert places == sorted(places)
    assert "\x1b" not in told.out
    assert told.code == 0


def test_colour_is_for_terminals_that_want_it(
    tmp_path: Path, sessions: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "s")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = []
    for no_color in ("", "1"):
        monkeypatch.setenv("NO_COLOR", no_color)
        monkeypatch.setattr(sys, "stdout", terminal := Terminal())
        assert sessions("show", "s").code == 0
        shown.append(terminal.getvalue())
    assert "\x1b[32m" in shown[0]
    assert "\x1b" not in shown[1]
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown[0]) == shown[1]


@pytest.mark.parametrize(
    ("reason", "note"),
    [
        ({"kind": "completed"}, None),
        ({"kind": "aborted", "reason": {"kind": "user"}}, "(cancelled)"),
        ({"kind": "aborted", "reason": {"kind": "disposed"}}, "(cancelled (disposed))"),
        ({"kind": "error", "error": {"message": "No more.", "code": "X"}}, "(failed: No more.)"),
        ({"kind": "interrupted"}, "(interrupted: the program ended in the middle of it)"),
        ({"kind": "max-tokens"}, "(max-tokens)"),
    ],
)
def test_a_turn_that_did_not_complete_says_how_it_ended(
    reason: JsonObject, note: str | None, tmp_path: Path, sessions: Command
) -> None:
    put(tmp_path, "s", conversation(reason=reason))
    out = sessions("show", "s").out
    assert (note in out) if note else not re.search(r"\((cancelled|failed|interrupted|max)", out)


def test_what_was_typed_between_turns_stands_apart(tmp_path: Path, sessions: Command) -> None:
    command: JsonObject = {"commandId": "k1", "name": "help", "source": {"kind": "user"}}
    done: JsonObject = {"commandId": "k1", "kind": "success", "text": "Type this."}
    typed = [Draft("command/run", command), Draft("command/done", done)]
    for name, before in (("s", conversation()), ("alone", [])):
        put(tmp_path, name, [*before, *typed])
        assert "\n\nyou: /help\n  Type this.\n" in sessions("show", name).out


def test_a_call_that_never_ended_is_shown_as_running(tmp_path: Path, sessions: Command) -> None:
    put(tmp_path, "s", conversation()[:9])
    out = sessions("show", "s").out
    assert "◐ Edit `parser.py`" in out
    assert "◐ pytest -q" in out


def test_a_message_that_comes_in_pieces_is_one_and_its_last_newline_no_row() -> None:
    screen = Screen(out := io.StringIO())
    for message_id, said in [("1", "a\n"), ("1", "\nb\n\n"), ("2", "c"), ("2", "d\n")]:
        content: JsonObject = {"type": "text", "text": said}
        kind = "agent_message_chunk"
        screen.show({"sessionUpdate": kind, "messageId": message_id, "content": content})
    screen.line("end")
    assert out.getvalue() == "  a\n  \n  b\n  cd\nend\n"


def test_long_output_is_shortened_unless_all_is_wanted(tmp_path: Path, sessions: Command) -> None:
    put(tmp_path, "s", conversation(output="\n".join(f"line {n}" for n in range(50))))
    out = sessions("show", "s").out
    assert "line 19" in out
    assert "line 20" not in out
    assert "… 30 more lines" in out
    assert "line 49" in sessions("show", "s", "--full").out


def test_updates_for_machines_are_those_that_an_editor_loads(
    tmp_path: Path, sessions: Command
) -> None:
    put(tmp_path, "s")
    updates = sessions("show", "s", "--json").objects
    kinds = [update["sessionUpdate"] for update in updates]
    assert kinds[0] == "user_message_chunk"
    assert kinds[-1] == "usage_update"
    assert kinds.count("tool_call") == 2


def test_whoever_stops_reading_gets_no_error() -> None:
    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

        def fileno(self) -> int:
            return os.open(os.devnull, os.O_WRONLY)

    screen = Screen(Closed())
    screen.line("lost")
    assert screen.closed


# --- verify -------------------------------------------------------------------------------------


def put_one_of_each(home: Path) -> None:
    put(home, "sound")
    put(home, "torn", tail=b"\x28\xb5\x2f")
    put(home, "open", conversation()[:9])
    put(home, "newer", [Draft("brand/new", {})])
    put(home, "corrupt").write_bytes(b"no log")
    lost = put(home, "lost")
    elsewhere = home / "sessions" / "--elsewhere--"
    elsewhere.mkdir()
    lost.parent.rename(elsewhere / "lost")
    twice = put(home, "twice")
    shutil.copytree(twice.parent, elsewhere / "twice")
    both = put(home, "both")
    shutil.copy(both, both.with_name("session.v4.jsonl"))
    future = put(home, "future")
    future.rename(future.with_name("session.v5.jsonl.zstd"))
    migrated = put(home, "migrated")
    migrated.with_name("session.v3.jsonl").write_bytes(b"its older form")


def test_a_check_tells_the_state_of_every_log_and_changes_nothing(
    tmp_path: Path, sessions: Command
) -> None:
    put_one_of_each(tmp_path)
    before = snapshot(tmp_path)
    told = sessions("verify", "--json")
    assert snapshot(tmp_path) == before
    assert told.code == 1
    assert all(list(row) == ["path", "session_id", "status", "reason"] for row in told.objects)
    statuses: dict[str, list[str]] = {}
    for row in told.objects:
        assert Path(str(row["path"])).is_file()
        assert (row["reason"] is None) == (row["status"] == "sound")
        statuses.setdefault(str(row["session_id"]), []).append(str(row["status"]))
    assert statuses == {
        "sound": ["sound"],
        "torn": ["repairable"],
        "open": ["repairable"],
        "newer": ["unsupported"],
        "corrupt": ["corrupt"],
        "lost": ["misplaced"],
        "twice": ["misplaced", "misplaced"],
        "both": ["corrupt", "corrupt"],
        "future": ["unsupported"],
        "migrated": ["sound"],
    }


def test_a_check_of_good_logs_succeeds_even_while_one_is_written(
    tmp_path: Path, sessions: Command
) -> None:
    put(tmp_path, "torn", tail=b"\x28")
    lock = take_lock(put(tmp_path, "busy", conversation()[:9]).parent, "busy", create=True)
    assert lock is not None
    try:
        told = sessions("verify")
    finally:
        os.close(lock)
    assert told.code == 0
    assert told.out.endswith("2 logs: 2 repairable\n")


def test_only_the_sessions_that_are_named_are_checked(tmp_path: Path, sessions: Command) -> None:
    put_one_of_each(tmp_path)
    told = sessions("verify", "sound", "torn", "--json")
    assert (told.code, {row["session_id"] for row in told.objects}) == (0, {"sound", "torn"})
    assert sessions("verify", "none") == Told(1, "", not_found("none", tmp_path))


def test_an_unreadable_folder_is_told_beside_the_others(
    tmp_path: Path, sessions: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "good")
    put(tmp_path, "closed", cwd="/elsewhere")
    real = os.scandir

    def scandir(path: Path) -> object:
        if Path(path).name == "--elsewhere--":
            raise PermissionError(13, "no")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    told = sessions("verify", "--json")
    assert told.code == 1
    assert [row["status"] for row in told.objects] == ["unreadable", "sound"]


@pytest.mark.parametrize("case", sorted(path.name for path in real_homes().iterdir()))
def test_a_check_says_of_real_logs_what_opening_them_says(case: str, sessions: Command) -> None:
    home = real_homes() / case
    store = SessionStore(home / "sessions", clock=lambda: 0)
    classes: dict[str, type[BridgeError]] = {
        "corrupt": SessionCorruptError,
        "misplaced": SessionMisplacedError,
        "unsupported": SessionUnsupportedError,
    }
    rows = sessions("verify", "--json", home=home).objects
    assert rows
    for row in rows:
        status, session_id = str(row["status"]), str(row["session_id"])
        if status in {"sound", "repairable"}:
            assert str(store.read(session_id).path) == row["path"]
        else:
            with pytest.raises(classes[status]):
                store.read(session_id)


def test_long_work_shows_a_bar_on_a_terminal_only(
    tmp_path: Path, sessions: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.cli.sessions._BAR_AFTER_S", 0)
    put(tmp_path, "one")
    put(tmp_path, "two")
    assert sessions("verify").err == ""
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    told = sessions("verify")
    assert "1 of 2 logs" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert "of 2 logs" not in told.out


# --- delete -------------------------------------------------------------------------------------


def test_a_deletion_says_what_went(tmp_path: Path, sessions: Command) -> None:
    family(tmp_path)
    told = sessions("delete", "root", "--yes")
    assert told.code == 0
    assert told.out == (
        "Deleted session root and 2 sessions of its subagents.\n  child\n  grandchild\n"
    )
    left = {row["session_id"] for row in sessions("list", "--json").objects}
    assert left == {"fork", "old-fork"}


def test_a_deletion_for_machines_names_each_session_that_went(
    tmp_path: Path, sessions: Command
) -> None:
    family(tmp_path)
    rows = sessions("delete", "root", "--yes", "--json").objects
    assert rows == [{"session_id": one, "deleted": True} for one in ("root", "child", "grandchild")]


@pytest.mark.parametrize(
    ("typed", "gone"), [("y\n", True), ("YES\n", True), ("\n", False), ("", False)]
)
def test_whoever_deletes_at_a_terminal_is_asked(
    typed: str, gone: bool, tmp_path: Path, sessions: Command
) -> None:
    path = put(tmp_path, "s")
    told = sessions("delete", "s", typed=typed)
    assert path.exists() != gone
    assert told.code == (0 if gone else 1)
    assert ("Deleted session s.\n" if gone else "Nothing was deleted.\n") in told.out


def test_where_nobody_can_be_asked_a_deletion_must_be_sure(
    tmp_path: Path, sessions: Command
) -> None:
    path = put(tmp_path, "s")
    told = sessions("delete", "s")
    assert told.code == 2
    assert told.err == "acp-bridge: Nobody can be asked here: say --yes to delete session s.\n"
    assert path.exists()


def test_a_session_in_use_is_not_deleted(tmp_path: Path, sessions: Command) -> None:
    path = put(tmp_path, "s")
    lock = take_lock(path.parent, "s", create=True)
    assert lock is not None
    try:
        told = sessions("delete", "s", "--yes")
    finally:
        os.close(lock)
    assert told.code == 1
    assert told.err.startswith("acp-bridge: Session s is already open for writing")
    assert path.exists()


def test_a_damaged_session_can_be_deleted(tmp_path: Path, sessions: Command) -> None:
    path = put(tmp_path, "s")
    path.write_bytes(b"no log")
    assert sessions("delete", "s", "--yes").code == 0
    assert not path.exists()


def test_a_subagents_session_goes_with_its_parent_or_alone_without_one(
    tmp_path: Path, sessions: Command
) -> None:
    family(tmp_path)
    orphan = put(tmp_path, "orphan", parent_session="gone", origin="subagent")
    told = sessions("delete", "child", "--yes")
    assert told.code == 1
    assert "it is deleted with its parent, root" in told.err
    assert sessions("delete", "orphan", "--yes").code == 0
    assert not orphan.exists()


# --- what all share -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("show", "x"), ("delete", "x", "--yes"), ("export", "x", "--html", "page.html")]
)
def test_a_session_that_is_not_there_is_one_sentence(
    words: tuple[str, ...], sessions: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sessions(*words) == Told(1, "", not_found("x", tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_session_is_one_sentence(tmp_path: Path, sessions: Command) -> None:
    put(tmp_path, "s").write_bytes(b"no log")
    for words in (("show", "s"), ("export", "s", "--html", str(tmp_path / "page.html"))):
        told = sessions(*words)
        assert told.code == 1
        assert re.fullmatch(r"acp-bridge: Session s cannot be opened because .*\n", told.err)


def test_the_home_may_stand_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "s")
    home = ["--home", str(tmp_path)]
    for words in (
        [*home, "sessions", "list"],
        ["sessions", *home, "list"],
        ["sessions", "list", *home],
    ):
        assert main(words) == 0
        assert "Fix the parser" in capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("show",), ("export", "x"), ("list", "x"), ("nonsense",)])
def test_a_wrong_command_line_is_a_usage_error(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sessions", *words])
    assert ended.value.code == 2


def test_the_id_of_a_folder_is_the_one_that_made_its_name() -> None:
    assert id_of_folder("~002E~002E~002Fevil-~D83D~DE00") == "../evil-😀"


def test_texts_are_made_harmless_and_readable() -> None:
    assert plain("a\r\nb\tc\x1b\x07\x85\ud800") == "a\nb\tc␛␇��"
    assert unfenced("```py\nx\ny\n```\n") == "x\ny"
    assert unfenced("````\n```\n````") == "```"
    assert unfenced("no `fence`\n") == "no `fence`"
    assert unified_diff("f", None, "x") == ["--- /dev/null", "+++ f", "@@ -0,0 +1 @@", "+x"]
    assert unified_diff("f", "x\n", "x") == ["(no line of f differs)"]
    assert "too long" in unified_diff("f", "x\n" * 20_000, "y")[0]
