"""What people have written down for agents: which files count, how much of them, and when again."""

import os
from pathlib import Path

import anyio
import pytest
from fake_models import FakeModel
from harness_rig import rig
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.harness.commands import COMMAND_NAMES
from acp_bridge.harness.instructions import system_prompt
from acp_bridge.harness.project.commands import FileCommand, command_from_text, expanded
from acp_bridge.harness.project.instructions import (
    ALL_BYTES_MAX,
    FILE_BYTES_MAX,
    Instructions,
    shares,
)
from acp_bridge.harness.project.lookout import (
    PROJECT_COMMANDS,
    Found,
    Project,
    Reader,
    Sources,
)
from acp_bridge.harness.project.reading import Unusable, read_text
from acp_bridge.vocabulary import Command, CommandInfo, CommandsChanged, Prompt


class Folder:
    """A user's home, and a repository with a working folder two levels down."""

    def __init__(self, tmp: Path) -> None:
        self.home, self.root, self.other = tmp / "home", tmp / "repo", tmp / "other"
        self.cwd = self.root / "a" / "b"
        self.commands = self.cwd / PROJECT_COMMANDS
        for one in (self.home / "commands", self.root / ".git", self.commands, self.other):
            one.mkdir(parents=True)
        self.reader = Reader()

    def look(self, *folders: Path, reads_instructions: bool = True) -> Found:
        sources = Sources(self.home, self.cwd, folders, reads_instructions, COMMAND_NAMES)
        return self.reader.look(sources)

    def said(self, *folders: Path) -> list[str]:
        return [one.text for one in self.look(*folders).instructions]

    def why(self) -> dict[str, str]:
        return {bad.path.name: bad.reason for bad in self.look().bad}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


# --- instructions -------------------------------------------------------------------------------


def test_instructions_go_from_the_users_down_to_the_nearest(folder: Folder) -> None:
    for place in (folder.home, folder.root, folder.root / "a", folder.cwd, folder.other):
        (place / "AGENTS.md").write_text(place.name)
    (folder.root.parent / "AGENTS.md").write_text("above the repository")
    assert folder.said(folder.other) == ["home", "other", "repo", "a", "b"]
    assert folder.said(folder.root / "a") == ["home", "repo", "a", "b"]  # each once
    assert folder.look(reads_instructions=False).instructions == ()


def test_without_a_repository_the_working_folder_counts_alone(folder: Folder) -> None:
    (folder.root / ".git").rmdir()
    for place in (folder.root, folder.cwd):
        (place / "AGENTS.md").write_text(place.name)
    assert folder.said() == ["b"]


def test_a_change_counts_at_the_next_look_and_nothing_else_is_read_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = os.open

    def noted(path: Path, flags: int, *more: int) -> int:
        opened.append(Path(path).parent.name)
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", noted)
    for place in (folder.root, folder.cwd):
        (place / "AGENTS.md").write_text(place.name)
    assert folder.said() == folder.said() == ["repo", "b"]
    assert opened == ["repo", "b"]
    (folder.cwd / "AGENTS.md").write_text("other words")
    assert folder.said() == ["repo", "other words"]
    (folder.root / "AGENTS.md").unlink()
    assert folder.said() == ["other words"]
    assert opened == ["repo", "b", "b"]


def test_a_long_file_is_cut_and_the_nearest_come_first_to_what_there_is(folder: Folder) -> None:
    for place in (folder.home, folder.root, folder.root / "a", folder.cwd):
        (place / "AGENTS.md").write_text(place.name + "é" * FILE_BYTES_MAX)
    found = folder.look().instructions
    assert all(one.is_cut for one in found)
    kept = {one.path.parent.name: len(one.text.encode()) for one in found}
    whole = FILE_BYTES_MAX - 1  # half a character more would fit
    assert kept == {"home": 0, "repo": 0, "a": whole, "b": whole}
    text = system_prompt(folder.cwd, "ask", folder=folder.cwd, instructions=found)
    assert f"[cut here: {folder.cwd}/AGENTS.md has 65,537 bytes; `read` shows the rest]" in text


@given(st.lists(st.integers(0, 3 * FILE_BYTES_MAX), max_size=9))
def test_shares_keep_to_both_bounds_and_serve_the_last_first(sizes: list[int]) -> None:
    taken = shares(sizes)
    assert sum(taken) <= ALL_BYTES_MAX
    pairs = list(zip(taken, sizes, strict=True))
    assert all(0 <= one <= min(size, FILE_BYTES_MAX) for one, size in pairs)
    for at, one in enumerate(taken):
        if one < min(sizes[at], FILE_BYTES_MAX):
            assert sum(taken[at:]) == ALL_BYTES_MAX
            assert not any(taken[:at])


def test_what_cannot_be_used_is_named_and_hides_nothing(folder: Folder) -> None:
    secret = folder.other / "key"
    secret.write_text("a key")
    (folder.root / "AGENTS.md").symlink_to(secret)
    (folder.root / "a" / "AGENTS.md").write_bytes(b"\xff\xfe")
    (folder.cwd / "AGENTS.md").write_text("fine")
    assert folder.said() == ["fine"]
    assert [bad.reason for bad in folder.look().bad] == [
        f"it is a link that leads out of {folder.root}",
        "it is not UTF-8 text",
    ]
    (folder.root / "AGENTS.md").unlink()
    (folder.root / "NOTES.md").write_text("inside")
    (folder.root / "AGENTS.md").symlink_to("NOTES.md")
    assert folder.said() == ["inside", "fine"]
    (folder.home / "AGENTS.md").symlink_to(secret)  # the user's own may lie anywhere
    assert folder.said() == ["a key", "inside", "fine"]


def test_a_pipe_is_not_waited_for_and_a_folder_is_no_file(folder: Folder) -> None:
    os.mkfifo(folder.cwd / "AGENTS.md")
    (folder.commands / "dir.md").mkdir()
    assert folder.look() == Found(bad=folder.look().bad)
    assert folder.why() == {
        "AGENTS.md": "it is no file",
        "dir.md": "it is no file",
    }


def test_a_bound_that_cuts_a_character_in_two_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes("aé".encode())
    assert read_text(path, inside=None, bytes_max=2).text == "a"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb")
    assert read_text(path, inside=None, bytes_max=9).text == "a\nb"
    path.write_bytes("\ufeffaé".encode())
    assert read_text(path, inside=None, bytes_max=5).text == "a"
    path.write_bytes(b"a\0")
    with pytest.raises(Unusable, match="it is not text"):
        read_text(path, inside=None, bytes_max=9)


def test_a_folder_in_a_files_place_leaves_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    before = os.open(tmp_path, os.O_RDONLY)
    os.close(before)
    with pytest.raises(Unusable):
        read_text(tmp_path / "x", inside=None, bytes_max=9)
    after = os.open(tmp_path, os.O_RDONLY)
    os.close(after)
    assert after == before  # the lowest that is free


def test_what_cannot_be_used_takes_nothing_from_what_all_may_have(folder: Folder) -> None:
    (folder.home / "AGENTS.md").write_text("the user's")
    for place in (folder.root, folder.root / "a"):
        with (place / "AGENTS.md").open("wb") as file:
            file.truncate(1 << 30)  # zeros, no text
    (folder.cwd / "AGENTS.md").write_text("nearest")
    assert folder.said() == ["the user's", "nearest"]
    assert [bad.reason for bad in folder.look().bad] == ["it is not text"] * 2


def test_instructions_change_nothing_else_in_the_prompt() -> None:
    cwd = Path("/w")
    plain = system_prompt(cwd, "plan", folder=cwd)
    files = [Instructions(cwd / "AGENTS.md", "Be kind.", 8)]
    full = system_prompt(cwd, "plan", folder=cwd, instructions=files, given="In verse.")
    assert full.startswith(plain)
    assert full.index("Be kind.") < full.index("In verse.")


# --- commands -----------------------------------------------------------------------------------


def made(text: str, name: str = "go") -> FileCommand:
    return command_from_text(Path(f"/c/{name}.md"), text)


@pytest.mark.parametrize(
    ("text", "description", "hint"),
    [
        ("---\ndescription: Do it\nargument-hint: [file] [what]\n---\nx", "Do it", "[file] [what]"),
        ('---\ndescription: "Do: it"\n---\nx', "Do: it", None),
        ("---\ndescription: >\n  Do\n  it\nmodel: opus\n---\nx", "Do it", None),
        ("---\n---\n## Look here\n\nmore", "Look here", None),
        ("Just do it.\nNow.", "Just do it.", None),
        ("x" * 300, "x" * 199 + "…", None),
        ("---\nargument-hint: \x1b[31m\u202eA\n---\nDo\x07 it", "Do it", "[31mA"),
    ],
)
def test_what_clients_are_told_of_a_command(text: str, description: str, hint: str | None) -> None:
    assert made(text).info == CommandInfo("go", description, hint, is_prompt=True)


@pytest.mark.parametrize(
    ("template", "argument", "prompt"),
    [
        ("Fix $1 in $2.", "bug 'a b.py' more", "Fix bug in a b.py."),
        ("Fix $1, $2.", "bug", "Fix bug, ."),
        ("All: $ARGUMENTS.", " it's  $1 ".strip(), "All: it's  $1."),
        ("First: $1", "it's me", "First: it's"),
        ("Costs $10, ${1}, $ARGUMENTSX", "x", "Costs $10, ${1}, $ARGUMENTSX\n\nx"),
        ("Do it.", "", "Do it."),
        ("Do it.", "now\nplease", "Do it.\n\nnow\nplease"),
    ],
)
def test_what_a_command_comes_to(template: str, argument: str, prompt: str) -> None:
    assert expanded(made(template), argument) == prompt


@given(st.text())
def test_what_was_typed_is_put_in_as_it_is(argument: str) -> None:
    assert expanded(made("a $ARGUMENTS b $ARGUMENTS"), argument) == f"a {argument} b {argument}"


def test_what_was_typed_is_not_put_in_without_end() -> None:
    typed = "x" * 600_000
    text = expanded(made("$ARGUMENTS " * 6_000), typed)
    assert text.count(typed) == 2
    assert text.endswith(" $ARGUMENTS")
    assert expanded(made("$1"), "'a b' c") == "a b"
    # Splitting at quotes takes the square of this.
    assert expanded(made("$1|$2"), f"{typed * 9} 'a b'") == f"{typed * 9}|'a"


def test_ours_come_before_the_projects_before_the_users(folder: Folder) -> None:
    (folder.home / "commands" / "mine.md").write_text("mine")
    (folder.home / "commands" / "both.md").write_text("the user's")
    (folder.commands / "both.md").write_text("the project's")
    (folder.commands / "fork.md").write_text("not ours")
    (folder.commands / ".hidden.md").write_text("hidden")
    (folder.commands / "README.txt").write_text("no command")
    found = folder.look()
    assert [(one.name, one.text) for one in found.commands] == [
        ("both", "the project's"),
        ("mine", "mine"),
    ]
    assert folder.why() == {
        "fork.md": "/fork is a command of acp-bridge",
        "both.md": f"/both is {folder.commands / 'both.md'} here",
    }


def test_a_bad_command_is_named_and_hides_nothing(folder: Folder) -> None:
    (folder.other / "out.md").write_text("out")
    (folder.root / "shared").mkdir()
    (folder.root / "shared" / "in.md").write_text("in")
    (folder.commands / "in.md").symlink_to(folder.root / "shared" / "in.md")
    (folder.commands / "out.md").symlink_to(folder.other / "out.md")
    (folder.commands / "gone.md").symlink_to(folder.root / "nowhere")
    (folder.commands / "empty.md").write_text("---\ndescription: x\n---\n")
    (folder.commands / "open.md").write_text("---\ndescription: x\n")
    (folder.commands / "Big.md").write_text("x")
    (folder.commands / "long.md").write_text("x" * 70_000)
    assert [one.name for one in folder.look().commands] == ["in"]
    assert folder.why() == {
        "out.md": f"it is a link that leads out of {folder.root}",
        "gone.md": "it is a link to nothing, or cannot be read",
        "empty.md": "it says nothing",
        "open.md": "the head that begins with --- has no end",
        "Big.md": "its name is no command's: use a-z, 0-9, - and _ alone, 64 at most",
        "long.md": "it has more than 65,536 bytes",
    }


def test_so_many_commands_and_no_more(folder: Folder) -> None:
    for number in range(101):
        (folder.commands / f"c{number:03}.md").write_text("x")
    assert len(folder.look().commands) == 100
    assert folder.why() == {"commands": "it holds 101 commands: 100 are used"}


# --- in a session -------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_command_that_comes_while_a_session_is_open_is_told_and_taken(
    folder: Folder, tmp_path: Path
) -> None:
    project = Project(lambda: Sources(None, folder.cwd))
    async with rig(tmp_path, FakeModel("plain"), project=project, compacts=False) as r:
        await r.prompt()
        assert CommandsChanged() not in r.told
        (folder.commands / "go.md").write_text("Go to $1.")
        typed = Prompt([{"type": "text", "text": "/go home"}], command=Command("go", "home"))
        with anyio.fail_after(60):
            await r.session.admit(typed).ended()
        assert r.told.count(CommandsChanged()) == 1
        said = [row.data for row in r.rows if row.type == "user/message"][-1]
        assert isinstance(said, dict)
        assert said["content"] == [
            {
                "type": "text",
                "text": "Go to home.",
                "_meta": {"acp": {"type": "text", "text": "/go home"}},
            }
        ]


@pytest.mark.anyio
async def test_a_file_that_is_cut_is_told_once(folder: Folder, tmp_path: Path) -> None:
    (folder.cwd / "AGENTS.md").write_text("x" * 40_000)
    project = Project(lambda: Sources(None, folder.cwd))
    async with rig(tmp_path, FakeModel("plain"), project=project, compacts=False) as r:
        await r.prompt()
        await r.prompt()
        notes = [row.data for row in r.rows if row.type == "plugin:acp-bridge/notice"]
        path = folder.cwd / "AGENTS.md"
        text = f"{path} has 40,000 bytes: the model is given the first 32,768."
        assert notes == [{"text": text}]
