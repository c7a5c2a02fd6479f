"""The read tool, on real files."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from tool_world import EditorFiles, World, meta_of

from acp_bridge.harness.tools import read

pytestmark = pytest.mark.anyio


def shown(path: Path, *lines: str) -> str:
    return "\n".join([f"<path>{path}</path>", "<type>file</type>", "<content>", *lines])


async def test_a_file_is_shown_with_line_numbers(world: World) -> None:
    path = world.file("a.txt", "line one\nline two\n")
    result = await world.run("read", file_path="a.txt")
    assert result.text == shown(
        path, "1: line one", "2: line two", "", "(End of file - total 2 lines)", "</content>"
    )
    assert not result.is_error
    assert result.meta == {
        "path": str(path),
        "offset": 1,
        "lines": [{"number": 1, "text": "line one"}, {"number": 2, "text": "line two"}],
        "totalLines": 2,
    }


async def test_a_window_says_how_to_go_on(world: World) -> None:
    path = world.file("a.txt", "".join(f"l{n}\n" for n in range(1, 11)))
    result = await world.run("read", file_path=str(path), offset=3, limit=2)
    assert result.text == shown(
        path, "3: l3", "4: l4", "", "(Lines 3-4 of 10 shown. Go on with offset=5.)", "</content>"
    )
    last = await world.run("read", file_path=str(path), offset=9, limit=2)
    assert "(End of file - total 10 lines)" in last.text


async def test_two_thousand_lines_are_shown_by_default(world: World) -> None:
    world.file("a.txt", "x\n" * 2001)
    result = await world.run("read", file_path="a.txt")
    assert "\n2000: x\n\n(Lines 1-2000 of 2001 shown. Go on with offset=2001.)" in result.text


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\r", ["a\rb\r"]),
        (b"a\r\r\nb", ["a\r", "b"]),
        (b"\xef\xbb\xbfa\nb", ["a", "b"]),
        (b"\xef\xbb\xbf", []),
        ("ü\n😀".encode(), ["ü", "😀"]),
        ("a\u2028b\x0cc\n".encode(), ["a\u2028b\x0cc"]),
    ],
)
async def test_lines_end_at_newlines_and_nowhere_else(
    world: World, content: bytes, lines: list[str]
) -> None:
    world.file("a.txt", content)
    result = await world.run("read", file_path="a.txt")
    stored: Any = meta_of(result)["lines"]
    assert [line["text"] for line in stored] == lines
    assert [line["number"] for line in stored] == list(range(1, len(lines) + 1))


async def test_the_second_line_of_a_file_with_a_bom_is_the_second(world: World) -> None:
    world.file("a.txt", b"\xef\xbb\xbfa\nb\n")
    result = await world.run("read", file_path="a.txt", offset=2)
    assert "\n2: b\n" in result.text


@pytest.mark.parametrize(("content", "total"), [("a\nb\n", 2), ("", 0), ("a", 1)])
async def test_an_offset_past_the_end_tells_the_line_count(
    world: World, content: str, total: int
) -> None:
    path = world.file("a.txt", content)
    result = await world.run("read", file_path="a.txt", offset=5)
    assert result.is_error
    assert result.text == (f"Error: offset 5 is past the end of {path}, which has {total} lines.")


async def test_offset_zero_is_the_first_line(world: World) -> None:
    world.file("a.txt", "a\n")
    assert "1: a" in (await world.run("read", file_path="a.txt", offset=0)).text


@pytest.mark.parametrize("window", [{"offset": -1}, {"offset": 1.5}, {"limit": 0}, {"limit": 2.5}])
async def test_a_senseless_window_is_refused(world: World, window: Any) -> None:
    world.file("a.txt", "a\n")
    result = await world.run("read", file_path="a.txt", **window)
    assert result.error_code == "INVALID_ARGS"


async def test_a_huge_offset_is_past_the_end_and_costs_nothing(world: World) -> None:
    world.file("a.txt", "a\n")
    result = await world.run("read", file_path="a.txt", offset=10**400)
    assert "is past the end" in result.text


@pytest.mark.parametrize(
    ("content", "at"),
    [(b"ab\0c", 2), (b"abc\xff", 3), (b"abc\xc3", 3), ("a".encode("utf-16"), 0), (b"\xff\0", 0)],
)
async def test_a_binary_file_is_refused_with_the_place(
    world: World, content: bytes, at: int
) -> None:
    world.file("a.bin", content)
    result = await world.run("read", file_path="a.bin")
    assert result.is_error
    assert f"is not a UTF-8 text file (byte {at} is no text)" in result.text


async def test_text_is_judged_right_across_the_scanner_s_pieces(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "_SCAN_BYTES", 3)
    world.file("good.txt", "😀ü€" * 5)
    world.file("bad.txt", "aa😀".encode() + b"\xe2\x82a")
    assert not (await world.run("read", file_path="good.txt")).is_error
    assert "byte 6 is no text" in (await world.run("read", file_path="bad.txt")).text


async def test_a_very_long_line_is_cut_and_its_length_told(world: World) -> None:
    world.file("a.js", "ü" * 3_000_000 + "\nb\n")
    result = await world.run("read", file_path="a.js")
    assert f"1: {'ü' * 2000}… (cut: the line has 6000000 bytes)\n2: b\n" in result.text
    assert len(result.text) < 3000


async def test_a_big_window_is_cut_by_bytes_and_says_how_to_go_on(world: World) -> None:
    world.file("a.txt", ("x" * 1000 + "\n") * 1000)
    result = await world.run("read", file_path="a.txt")
    assert len(result.text.encode()) <= read.OUTPUT_BYTES_MAX + 500
    assert "(Lines 1-260 of 1000 shown (cut at 256 KiB). Go on with offset=261.)" in result.text
    stored: Any = meta_of(result)["lines"]
    assert len(stored) == 260


async def test_a_folder_is_refused_and_glob_named(world: World) -> None:
    (world.cwd / "sub").mkdir()
    result = await world.run("read", file_path="sub")
    assert result.text == f"Error: {world.cwd / 'sub'} is a folder. List its files with glob."


async def test_a_missing_file_is_told(world: World) -> None:
    result = await world.run("read", file_path="no.txt")
    assert result.text == f"Error: cannot read {world.cwd / 'no.txt'}: there is no such file."


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
async def test_a_name_that_no_file_can_have_is_told(world: World, name: str) -> None:
    result = await world.run("read", file_path=name)
    assert result.is_error
    assert "no file or command can have" in result.text
    result.text.encode()
    world.tools["read"].access({"file_path": name}, world.cwd)


async def test_a_pipe_nobody_writes_to_is_refused_at_once(world: World) -> None:
    os.mkfifo(world.cwd / "pipe")
    with anyio.fail_after(60):
        result = await world.run("read", file_path="pipe")
    assert result.text.endswith("it is a device, pipe or socket, not a file.")
    assert (await world.run("read", file_path="/dev/zero")).is_error


async def test_a_file_above_the_limit_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.harness.tools.disk.FILE_BYTES_MAX", 10)
    world.file("ten.txt", "x" * 10)
    world.file("eleven.txt", "x" * 11)
    assert not (await world.run("read", file_path="ten.txt")).is_error
    assert (await world.run("read", file_path="eleven.txt")).text.endswith("the file is too big.")


async def test_unsaved_text_of_the_editor_is_what_is_read(tmp_path: Path) -> None:
    world = World(tmp_path)
    path = world.file("a.txt", "on disk\n")
    world.files = EditorFiles({path: "unsaved\n"})
    assert "1: unsaved\n" in (await world.run("read", file_path="a.txt")).text


def test_a_read_touches_where_links_lead(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (world.cwd / "link").symlink_to(outside)
    (world.cwd / "loop").symlink_to("loop")
    read_tool = world.tools["read"]

    def reads(path: str) -> tuple[Path, ...]:
        return read_tool.access({"file_path": path}, world.cwd).reads

    assert reads("link/new/x.txt") == (outside / "new" / "x.txt",)
    assert reads("link/../x.txt") == (world.cwd / "x.txt",)
    assert reads("../x.txt") == (tmp_path / "x.txt",)
    assert reads("//etc/passwd") == (Path("/etc/passwd"),)
    assert reads("~/x") == (Path.home().resolve() / "x",)
    assert reads("loop/x") == (world.cwd / "loop" / "x",)


async def test_what_access_judged_is_what_is_opened(world: World, tmp_path: Path) -> None:
    # The disk would resolve link/.. to the parent of the link's target.
    far = tmp_path / "far" / "deep"
    far.mkdir(parents=True)
    (far.parent / "x.txt").write_text("far\n")
    (world.cwd / "link").symlink_to(far)
    world.file("x.txt", "near\n")
    assert "1: near" in (await world.run("read", file_path="link/../x.txt")).text
