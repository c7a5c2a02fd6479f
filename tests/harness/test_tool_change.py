"""The write and edit tools and the disk they write to, on real files."""

import os
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_world import EditorFiles, World, meta_of

from acp_bridge.harness.tools import DiskFiles, disk
from acp_bridge.harness.tools.replacing import NotReplaced, replace_text
from acp_bridge.vocabulary import FileDiff

pytestmark = pytest.mark.anyio


async def edited(world: World, content: bytes, old: str, new: str, **more: Any) -> bytes:
    path = world.file("e.txt", content)
    arguments = {"file_path": "e.txt", "old_string": old, "new_string": new, **more}
    preview = await world.preview("edit", **arguments)
    result = await world.run("edit", **arguments)
    assert not result.is_error, result.text
    after = path.read_bytes()
    diff = FileDiff(str(path), content.decode(), after.decode())
    assert preview == (diff,)
    assert result.meta == {
        "path": str(path),
        "diffs": [{"path": str(path), "oldText": diff.old_text, "newText": diff.new_text}],
    }
    return after


# --- write ---


async def test_a_new_file_is_written_exactly_with_its_folders(world: World) -> None:
    path = world.cwd / "new" / "deep" / "a.txt"
    arguments = {"file_path": "new/deep/a.txt", "content": "a\r\nb"}
    assert await world.preview("write", **arguments) == (FileDiff(str(path), None, "a\r\nb"),)
    assert not path.parent.exists()
    result = await world.run("write", **arguments)
    assert path.read_bytes() == b"a\r\nb"
    assert result.text == (
        f"<path>{path}</path>\n<type>file</type>\n<content>\nCreated file\n</content>"
    )
    assert result.meta == {
        "operation": "create",
        "path": str(path),
        "diffs": [{"path": str(path), "oldText": None, "newText": "a\r\nb"}],
    }


async def test_an_existing_file_is_replaced(world: World) -> None:
    path = world.file("a.txt", "\ufeffold\r\n")
    result = await world.run("write", file_path="a.txt", content="new\n")
    assert path.read_bytes() == b"new\n"
    assert "\nUpdated file\n" in result.text
    assert meta_of(result)["operation"] == "update"
    assert meta_of(result)["diffs"] == [
        {"path": str(path), "oldText": "\ufeffold\r\n", "newText": "new\n"}
    ]


async def test_writing_what_is_there_is_fine_and_shows_no_change(world: World) -> None:
    """R102: a no-op has no diff."""
    world.file("a.txt", "same")
    result = await world.run("write", file_path="a.txt", content="same")
    assert not result.is_error
    assert meta_of(result)["diffs"] == []
    assert await world.preview("write", file_path="a.txt", content="same") == ()


async def test_an_empty_new_file_is_a_change(world: World) -> None:
    result = await world.run("write", file_path="a.txt", content="")
    assert meta_of(result)["diffs"] == [
        {"path": str(world.cwd / "a.txt"), "oldText": None, "newText": ""}
    ]
    assert (world.cwd / "a.txt").read_bytes() == b""


async def test_texts_too_big_for_the_log_are_left_out_and_it_says_so(world: World) -> None:
    world.file("a.txt", "x" * 600_000)
    arguments = {"file_path": "a.txt", "content": "y" * 600_000}
    assert await world.preview("write", **arguments) == ()
    result = await world.run("write", **arguments)
    assert meta_of(result)["diffs"] == []
    assert meta_of(result)["diffsOmitted"] is True
    result = await world.run(
        "edit", file_path="a.txt", old_string="y", new_string="z", replace_all=True
    )
    assert meta_of(result)["diffsOmitted"] is True
    assert (world.cwd / "a.txt").read_text() == "z" * 600_000


async def test_a_binary_file_can_be_replaced_but_not_shown(world: World) -> None:
    world.file("a.bin", b"\xff\0")
    result = await world.run("write", file_path="a.bin", content="text")
    assert (world.cwd / "a.bin").read_bytes() == b"text"
    assert meta_of(result)["diffsOmitted"] is True


async def test_a_folder_cannot_be_written(world: World) -> None:
    (world.cwd / "sub").mkdir()
    arguments = {"file_path": "sub", "content": "x"}
    assert await world.preview("write", **arguments) == ()
    result = await world.run("write", **arguments)
    assert result.text == f"Error: {world.cwd / 'sub'} is a folder. Name a file in it."
    assert result.meta is None


async def test_a_file_below_a_file_cannot_be_written(world: World) -> None:
    world.file("a", "x")
    result = await world.run("write", file_path="a/b/c", content="x")
    assert result.text.endswith("a part of the path is a file, not a folder.")


@pytest.mark.parametrize("name", ["write", "edit"])
async def test_half_a_character_cannot_be_written(world: World, name: str) -> None:
    path = world.file("a.txt", "old")
    given: Any = {"file_path": "a.txt"}
    given |= {"content": "\ud800"} if name == "write" else {}
    given |= {"old_string": "old", "new_string": "\ud800"} if name == "edit" else {}
    result = await world.run(name, **given)
    assert result.error_code == "INVALID_ARGS"
    assert path.read_text() == "old"


async def test_a_write_goes_through_the_editor(tmp_path: Path) -> None:
    world = World(tmp_path)
    path = world.file("a.txt", "on disk\n")
    editor = EditorFiles({path: "unsaved\r\ntext\r\n"})
    world.files = editor
    result = await world.run(
        "edit", file_path="a.txt", old_string="unsaved\ntext", new_string="changed\ntext"
    )
    assert editor.texts == {path: "changed\r\ntext\r\n"}
    assert path.read_text() == "on disk\n"
    diffs: Any = meta_of(result)["diffs"]
    assert diffs[0]["oldText"] == "unsaved\r\ntext\r\n"


def test_a_change_touches_where_links_lead(world: World, tmp_path: Path) -> None:
    (world.cwd / "link").symlink_to(tmp_path / "outside.txt")
    for name in ("write", "edit"):
        access = world.tools[name].access({"file_path": "link"}, world.cwd)
        assert access.writes == (tmp_path / "outside.txt",)
        assert access.reads == ()
        assert access.command is None


# --- edit ---

CRLF = b"one\r\ntwo\r\nthree\r\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (CRLF, b"one\r\nTWO\r\nthree\r\n"),
        (b"one\r\ntwo\nthree\r\n", b"one\r\nTWO\nthree\r\n"),
        (b"one\rtwo\rthree\r", b"one\rTWO\rthree\r"),
        (b"one\r\r\ntwo\rx\n", b"one\r\r\nTWO\rx\n"),
        (b"one\ntwo", b"one\nTWO"),
        (b"one\r\ntwo", b"one\r\nTWO"),
        (b"\xef\xbb\xbftwo\r\n", b"\xef\xbb\xbfTWO\r\n"),
        (b"\n\ntwo\n\n", b"\n\nTWO\n\n"),
    ],
    ids=["crlf", "mixed", "cr only", "bare cr", "no end", "crlf no end", "bom", "blank lines"],
)
async def test_editing_one_word_keeps_every_other_byte(
    world: World, content: bytes, expected: bytes
) -> None:
    """R100: the files of the report."""
    assert await edited(world, content, "two", "TWO") == expected


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n"])
async def test_a_word_is_not_found_in_a_file_without_one(world: World, content: bytes) -> None:
    """R100: empty, and only a newline."""
    path = world.file("e.txt", content)
    result = await world.run("edit", file_path="e.txt", old_string="two", new_string="TWO")
    assert result.text.startswith(f"Error: old_string was not found in {path}.")
    assert result.meta is None
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "old", "new", "expected"),
    [
        (CRLF, "one\ntwo", "one\nnew\ntwo", b"one\r\nnew\r\ntwo\r\nthree\r\n"),
        (CRLF, "two\n", "", b"one\r\nthree\r\n"),
        (CRLF, "\ntwo", "", b"one\r\nthree\r\n"),
        (CRLF, "\n", " ", None),
        (CRLF, "two", "a\nb", b"one\r\na\r\nb\r\nthree\r\n"),
        (CRLF, "two\r\n", "2\r\n", b"one\r\n2\r\nthree\r\n"),
        (CRLF, "two\r\nthree", "2\nthree", b"one\r\n2\nthree\r\n"),
        (b"one\ntwo\n", "one\r\ntwo", "1\r\n2", b"1\n2\n"),
        (b"one\ntwo\r\nthree\r\n", "one\ntwo", "1\n2\n3", b"1\n2\n3\r\nthree\r\n"),
        (b"a\r\nb\nc", "a\nb\nc", "a\nB\nc", b"a\r\nB\nc"),
        (b"a\r\nb", "b", "b\nc\n", b"a\r\nb\r\nc\r\n"),
        (b"a\nb\r\nc\n", "c", "c\nd", b"a\nb\r\nc\nd\n"),
        (b"a", "a", "a\nb", b"a\nb"),
        (b"a\rb\nc", "b\nc", "B\nC", b"a\rB\nC"),
        (b"\xef\xbb\xbfa\r\nb\r\n", "a\nb", "A\nb", b"\xef\xbb\xbfA\r\nb\r\n"),
    ],
)
async def test_line_ends_take_the_style_of_the_place(
    world: World, content: bytes, old: str, new: str, expected: bytes | None
) -> None:
    """R100: the model's text has LF, whatever the file has."""
    if expected is not None:
        assert await edited(world, content, old, new) == expected
        return
    path = world.file("e.txt", content)
    result = await world.run("edit", file_path="e.txt", old_string=old, new_string=new)
    assert "occurs 3 times" in result.text
    assert path.read_bytes() == content


async def test_lines_that_look_the_same_are_ambiguous_whatever_their_ends(world: World) -> None:
    path = world.file("e.txt", b"a\nb\n--\na\r\nb\r\n")
    result = await world.run("edit", file_path="e.txt", old_string="a\nb", new_string="x")
    assert f"old_string occurs 2 times in {path}" in result.text
    assert result.is_error


async def test_every_occurrence_is_replaced_in_its_own_style(world: World) -> None:
    after = await edited(world, b"a\nb\n--\na\r\nb\r\n", "a\nb", "x\ny\nz", replace_all=True)
    assert after == b"x\ny\nz\n--\nx\r\ny\r\nz\r\n"


async def test_overlapping_matches_are_ambiguous(world: World) -> None:
    world.file("e.txt", "aaa")
    result = await world.run("edit", file_path="e.txt", old_string="aa", new_string="b")
    assert "occurs 2 times" in result.text
    assert await edited(world, b"aaa", "aa", "b", replace_all=True) == b"ba"


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("1: def f():\n2:     pass", "Leave out the line numbers"),
        ("def f():\n  pass", "There is a match but for white space"),
        ("class F", "Read the file again"),
    ],
)
async def test_a_miss_hints_at_what_went_wrong(world: World, old: str, hint: str) -> None:
    world.file("e.txt", "def f():\n    pass\n")
    result = await world.run("edit", file_path="e.txt", old_string=old, new_string="x")
    assert result.is_error
    assert hint in result.text


async def test_an_edit_that_changes_nothing_is_an_error(world: World) -> None:
    world.file("e.txt", CRLF)
    same = await world.run("edit", file_path="e.txt", old_string="two", new_string="two")
    assert "are the same" in same.text
    ends = await world.run(
        "edit", file_path="e.txt", old_string="one\ntwo", new_string="one\r\ntwo"
    )
    assert "leaves the file as it is" in ends.text
    empty = await world.run("edit", file_path="e.txt", old_string="", new_string="two")
    assert empty.error_code == "INVALID_ARGS"


@pytest.mark.parametrize("content", [b"two\0", b"two\xff", "two".encode("utf-16")])
async def test_a_file_that_is_no_text_is_not_edited(world: World, content: bytes) -> None:
    path = world.file("e.bin", content)
    result = await world.run("edit", file_path="e.bin", old_string="two", new_string="2")
    assert result.text == f"Error: {path} is not a UTF-8 text file and cannot be edited."
    assert await world.preview("edit", file_path="e.bin", old_string="two", new_string="2") == ()


async def test_a_missing_file_or_a_folder_is_not_edited(world: World) -> None:
    result = await world.run("edit", file_path="no.txt", old_string="a", new_string="b")
    assert "Make a new file with write." in result.text
    result = await world.run("edit", file_path=".", old_string="a", new_string="b")
    assert "is a folder" in result.text


async def test_parallel_edits_of_one_file_do_not_undo_each_other(world: World) -> None:
    path = world.file("e.txt", "".join(f"<{n}>\n" for n in range(20)))
    (world.cwd / "link.txt").symlink_to("e.txt")
    results: list[bool] = []

    async def edit(n: int) -> None:
        name = "link.txt" if n % 2 else "e.txt"
        result = await world.run("edit", file_path=name, old_string=f"<{n}>", new_string=f"[{n}]")
        results.append(result.is_error)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for n in range(20):
                group.start_soon(edit, n)
    assert results == [False] * 20
    assert path.read_text() == "".join(f"[{n}]\n" for n in range(20))


PIECES = st.text(alphabet="ab\r\n", max_size=30)


@given(before=PIECES, after=PIECES, new=st.text(alphabet="xy\n", max_size=6), old=PIECES)
def test_nothing_outside_a_unique_match_changes(
    before: str, after: str, new: str, old: str
) -> None:
    old = old.replace("\r", "") + "#"
    text = f"{before}{old}{after}"
    edited_text = replace_text(text, old, new, everywhere=False)
    assert isinstance(edited_text, str)
    assert edited_text.startswith(before.removesuffix("\r"))
    assert edited_text.endswith(after)
    assert edited_text.replace("\r", "") == (before + new + after).replace("\r", "")


@given(text=PIECES, old=st.text(alphabet="ab\n", min_size=1, max_size=3))
def test_replacing_everywhere_equals_replacing_in_the_text_with_plain_line_ends(
    text: str, old: str
) -> None:
    seen = text.replace("\r\n", "\n") if "\n" in old else text
    after = replace_text(text, old, "#", everywhere=True)
    if old not in seen:
        assert isinstance(after, NotReplaced)
        return
    assert isinstance(after, str)
    plain = after.replace("\r\n", "\n") if "\n" in old else after
    assert plain == seen.replace(old, "#")


# --- the disk ---


async def test_a_file_is_replaced_in_one_step_and_keeps_its_mode(world: World) -> None:
    path = world.file("run.sh", "old")
    path.chmod(0o751)
    before = path.stat()
    await DiskFiles().write_bytes(path, b"new")
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == 0o751
    assert after.st_ino != before.st_ino
    assert after.st_mtime_ns >= before.st_mtime_ns
    assert sorted(entry.name for entry in world.cwd.iterdir()) == ["run.sh"]


async def test_a_new_file_has_the_mode_that_the_umask_gives(world: World) -> None:
    before = os.umask(0o027)
    try:
        await DiskFiles().write_bytes(world.cwd / "new.txt", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((world.cwd / "new.txt").stat().st_mode) == 0o640


async def test_a_link_stays_and_its_target_is_written(world: World, tmp_path: Path) -> None:
    target = tmp_path / "target.txt"
    target.write_text("old")
    (world.cwd / "link").symlink_to(target)
    (world.cwd / "dangling").symlink_to(tmp_path / "later" / "new.txt")
    await DiskFiles().write_bytes(world.cwd / "link", b"new")
    await DiskFiles().write_bytes(world.cwd / "dangling", b"new")
    assert (world.cwd / "link").is_symlink()
    assert target.read_text() == "new"
    assert (tmp_path / "later" / "new.txt").read_text() == "new"


async def test_other_names_of_a_file_stay_the_same_file(world: World) -> None:
    path = world.file("a.txt", "old")
    (world.cwd / "b.txt").hardlink_to(path)
    await DiskFiles().write_bytes(path, b"new")
    assert (world.cwd / "b.txt").read_text() == "new"


async def test_a_file_in_a_folder_that_takes_no_new_files_is_written_in_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.file("a.txt", "old")
    before = path.stat().st_ino

    def refuse(*_: object) -> None:
        raise PermissionError(13, "refused")

    monkeypatch.setattr(disk, "_replace", refuse)
    await DiskFiles().write_bytes(path, b"new")
    assert path.read_text() == "new"
    assert path.stat().st_ino == before
    with pytest.raises(PermissionError):
        await DiskFiles().write_bytes(world.cwd / "other.txt", b"new")


async def test_a_protected_file_is_not_gone_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.file("a.txt", "old")
    monkeypatch.setattr("os.access", lambda *_: False)
    result = await world.run("write", file_path="a.txt", content="new")
    assert result.text == f"Error: cannot write {path}: permission denied."
    assert path.read_text() == "old"


async def test_a_failed_write_leaves_the_old_file_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.file("a.txt", "old")

    def full(_: int) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr("os.fsync", full)
    result = await world.run("write", file_path="a.txt", content="new")
    assert result.text == f"Error: cannot write {path}: the disk is full."
    assert path.read_text() == "old"
    assert sorted(entry.name for entry in world.cwd.iterdir()) == ["a.txt"]


async def test_a_pipe_is_not_written(world: World) -> None:
    os.mkfifo(world.cwd / "pipe")
    with anyio.fail_after(60):
        result = await world.run("write", file_path="pipe", content="x")
    assert result.is_error
    with pytest.raises(OSError, match="not a file"):
        await DiskFiles().write_bytes(world.cwd / "pipe", b"x")
