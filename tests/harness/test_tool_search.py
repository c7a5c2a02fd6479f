"""The glob and grep tools, on real trees; grep with its own script and, where there is one, rg."""

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from tool_world import World, meta_of

from acp_bridge.harness.tools import search, tree

pytestmark = pytest.mark.anyio

RIPGREP = shutil.which("rg")


@pytest.fixture(params=["own", "ripgrep"])
def engine(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> str:
    """Each way of searching; CI installs ripgrep, elsewhere it may be missing."""
    tools = tmp_path / "tools"
    tools.mkdir()
    world.env["PATH"] = str(tools)
    if request.param == "ripgrep":
        if RIPGREP is None:
            assert os.environ.get("CI") != "true"
            pytest.skip("no rg on PATH")
        (tools / "rg").symlink_to(RIPGREP)
    return str(request.param)


async def listed(world: World, pattern: str, path: str | None = None) -> list[str]:
    result = await world.run("glob", pattern=pattern, path=path)
    assert not result.is_error, result.text
    lines = result.text.split("\n")
    return [line.removeprefix(f"{world.cwd}/") for line in lines if line != "No files found"]


async def found(world: World, pattern: str, **more: Any) -> list[str]:
    result = await world.run("grep", pattern=pattern, **more)
    assert not result.is_error, result.text
    lines = result.text.split("\n")
    return [line.removeprefix(f"{world.cwd}/") for line in lines if line != "No matches found"]


def some_tree(world: World) -> None:
    for name in (
        "a.py", "b.ts", ".hidden.py", "src/a.py", "src/b.tsx", "src/deep/c.py", "src-x/d.py",
        ".git/config.py", "src/.git/x.py", "node_modules/m/index.py", "src/__pycache__/a.py",
    ):  # fmt: skip
        world.file(name, f"import x  # {name}\n")


# --- glob ---


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", [".hidden.py", "a.py"]),
        ("**/*.py", [".hidden.py", "a.py", "src/a.py", "src/deep/c.py", "src-x/d.py"]),
        ("**/a.py", ["a.py", "src/a.py"]),
        ("src/*", ["src/a.py", "src/b.tsx", "src/deep/"]),
        ("src/**", ["src/a.py", "src/b.tsx", "src/deep/", "src/deep/c.py"]),
        ("s*/**/*.py", ["src/a.py", "src/deep/c.py", "src-x/d.py"]),
        ("**/deep/**", ["src/deep/", "src/deep/c.py"]),
        ("**/**/c.py", ["src/deep/c.py"]),
        ("*.{ts,tsx}", ["b.ts"]),
        ("{src/deep,src-x}/*.py", ["src/deep/c.py", "src-x/d.py"]),
        ("**/{a,c}.{py,ts}", ["a.py", "src/a.py", "src/deep/c.py"]),
        ("[ab].*", ["a.py", "b.ts"]),
        ("[!a].*", ["b.ts"]),
        ("?.py", ["a.py"]),
        ("./src/./a.py", ["src/a.py"]),
        ("src/../a.py", ["a.py"]),
        ("node_modules/**/*.py", ["node_modules/m/index.py"]),
        ("no*where", []),
        ("A.py", []),
    ],
)
async def test_paths_match_by_segment_and_come_sorted(
    world: World, pattern: str, names: list[str]
) -> None:
    some_tree(world)
    assert await listed(world, pattern) == names


async def test_an_absolute_pattern_and_a_path_are_where_the_search_starts(world: World) -> None:
    some_tree(world)
    assert await listed(world, f"{world.cwd}/src/*.py") == ["src/a.py"]
    assert await listed(world, "*.py", "src") == ["src/a.py"]
    assert await listed(world, f"{world.cwd}/a.py", "src") == ["a.py"]


async def test_nothing_found_is_said(world: World) -> None:
    result = await world.run("glob", pattern="*.rs")
    assert result.text == "No files found"
    assert result.meta == {"path": str(world.cwd), "count": 0}
    assert not result.is_error


@pytest.mark.parametrize("pattern", ["*/../x", "{a,../b}/*", "{a,b}" * 10])
async def test_a_pattern_that_cannot_be_used_is_refused(world: World, pattern: str) -> None:
    result = await world.run("glob", pattern=pattern)
    assert result.error_code == "INVALID_ARGS"


async def test_a_missing_folder_is_told(world: World) -> None:
    result = await world.run("glob", pattern="*", path="no")
    assert result.text == f"Error: there is no folder {world.cwd / 'no'}."


async def test_links_are_listed_and_never_followed(world: World, tmp_path: Path) -> None:
    world.file("sub/a.txt", "x")
    (world.cwd / "sub" / "loop").symlink_to(world.cwd)
    (world.cwd / "out").symlink_to(tmp_path)
    with anyio.fail_after(60):
        assert await listed(world, "**/*") == ["out", "sub/", "sub/a.txt", "sub/loop"]


async def test_a_long_list_is_cut_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "PATHS_MAX", 3)
    for n in range(4):
        world.file(f"{n}.txt", "")
    result = await world.run("glob", pattern="*")
    assert result.text.endswith(
        "2.txt\n(Only the first 3 paths are shown. Use a narrower pattern.)"
    )
    assert result.meta == {"path": str(world.cwd), "count": 3, "truncated": True}


async def test_names_that_are_no_text_are_shown_in_a_form_that_is(world: World) -> None:
    (world.cwd / os.fsdecode(b"\xff.txt")).write_text("x")
    result = await world.run("glob", pattern="*")
    result.text.encode()
    assert result.text.endswith(".txt")


async def test_a_cancelled_glob_ends_its_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, ended = anyio.Event(), threading.Event()

    def endless(_start: Path, _pattern: object, _paths: object, stop: threading.Event) -> None:
        anyio.from_thread.run_sync(entered.set)
        assert stop.wait(60)
        ended.set()

    monkeypatch.setattr(search, "_list_paths", endless)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: world.run("glob", pattern="*"))
            await entered.wait()
            group.cancel_scope.cancel()
    assert ended.wait(60)


def test_a_walk_stops_when_told(world: World) -> None:
    some_tree(world)
    answers = iter([False, False, True])
    entries = tree.walk(str(world.cwd), tree.PathPattern("**"), lambda: next(answers))
    assert len(list(entries)) <= 2


def test_a_search_touches_the_place_where_it_starts(world: World, tmp_path: Path) -> None:
    (world.cwd / "link").symlink_to(tmp_path)

    def reads(name: str, **arguments: Any) -> Path:
        (path,) = world.tools[name].access(arguments, world.cwd).reads
        return path

    assert reads("glob", pattern="*.py") == world.cwd
    assert reads("glob", pattern="src/*.py") == world.cwd / "src"
    assert reads("glob", pattern="/etc/*") == Path("/etc")
    assert reads("glob", pattern="/*") == Path("/")
    assert reads("glob", pattern="../*") == tmp_path
    assert reads("glob", pattern="x/../../*.py") == tmp_path
    assert reads("glob", pattern="link/*") == tmp_path
    assert reads("glob", pattern="*", path="link") == tmp_path
    assert reads("glob", pattern="~/*") == Path.home().resolve()
    assert reads("grep", pattern="/etc") == world.cwd
    assert reads("grep", pattern="x", path="link/a") == tmp_path / "a"


# --- grep ---


@pytest.mark.usefixtures("engine")
async def test_lines_are_found_sorted_by_path(world: World) -> None:
    world.file("src/b.py", "x\nneedle one\nx\nNeedle\nneedle two")
    world.file("src.py", "needle")
    world.file(".hidden", "needle\n")
    world.file(".gitignore", "src.py\n")
    assert await found(world, "needle") == [
        ".hidden:1:needle",
        "src/b.py:2:needle one",
        "src/b.py:5:needle two",
        "src.py:1:needle",
    ]


@pytest.mark.usefixtures("engine")
async def test_what_no_search_enters_is_skipped_unless_it_starts_there(world: World) -> None:
    some_tree(world)
    lines = await found(world, "import")
    names = [line.partition(":")[0] for line in lines]
    assert names == [
        ".hidden.py", "a.py", "b.ts", "src/a.py", "src/b.tsx", "src/deep/c.py", "src-x/d.py",
    ]  # fmt: skip
    inside = await found(world, "import", path="node_modules")
    assert [line.partition(":")[0] for line in inside] == ["node_modules/m/index.py"]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("include", "names"),
    [
        ("*.py", [".hidden.py", "a.py", "src/a.py", "src/deep/c.py", "src-x/d.py"]),
        ("*.{ts,tsx}", ["b.ts", "src/b.tsx"]),
        ("src/*.py", ["src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/deep/c.py"]),
        ("**/deep/*", ["src/deep/c.py"]),
        ("/a.py", ["a.py"]),
        ("[a]*", ["a.py", "src/a.py"]),
        ("*.rs", []),
    ],
)
async def test_the_files_searched_can_be_chosen(
    world: World, include: str, names: list[str]
) -> None:
    some_tree(world)
    lines = await found(world, "import", include=include)
    assert [line.partition(":")[0] for line in lines] == names


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("^two$", [2]),
        ("o$", [2, 5]),
        (r"\bt\w+", [2, 3]),
        ("(?i)TWO", [2]),
        ("one|three", [1, 3]),
        (r"\d{2,}", [4]),
        ("-v", [5]),
        (r"x\(y\)", [4]),
        ("[[:alpha:]]x", []),
        ("ü", [6]),
        ("^.$", [6]),
        ("^$", [7]),
        (r"(.)\1o", []),
        (r"(?<=thr)ee", [3]),
        ("one\ntwo", []),
    ],
)
async def test_both_ways_of_searching_read_a_pattern_alike(
    world: World, pattern: str, numbers: list[int]
) -> None:
    world.file("a.txt", "one\r\ntwo\r\nthree\r\nx(y) 42\nx -v foo\nü\n\n")
    lines = await found(world, pattern)
    assert [int(line.split(":")[1]) for line in lines] == numbers
    assert not any("\r" in line for line in lines)


@pytest.mark.usefixtures("engine")
async def test_a_single_file_can_be_searched_whatever_its_name(world: World) -> None:
    world.file("-x:1:y.txt", "needle")
    world.file("b.txt", "needle")
    assert await found(world, "needle", path="-x:1:y.txt", include="*.py") == [
        "-x:1:y.txt:1:needle"
    ]


@pytest.mark.usefixtures("engine")
async def test_binary_files_links_and_pipes_are_skipped(world: World, tmp_path: Path) -> None:
    (tmp_path / "far.txt").write_text("needle")
    (world.cwd / "link.txt").symlink_to(tmp_path / "far.txt")
    (world.cwd / "folder").symlink_to(tmp_path)
    os.mkfifo(world.cwd / "pipe")
    world.file("a.txt", "needle")
    world.file("b.bin", b"needle\nxx\0needle\n")
    world.file("c.bin", b"needle\n" + b"x\n" * 100_000 + b"\0")
    world.file("d.txt", "needle")
    with anyio.fail_after(60):
        assert await found(world, "needle") == ["a.txt:1:needle", "d.txt:1:needle"]


@pytest.mark.usefixtures("engine")
async def test_a_bom_is_no_part_of_the_text_and_utf_16_is_read(world: World) -> None:
    world.file("a.txt", b"\xef\xbb\xbfneedle\n")
    world.file("b.txt", "needle ü\r\n".encode("utf-16"))
    world.file("c.txt", b"needle \xff\n")
    assert await found(world, "^needle") == [
        "a.txt:1:needle", "b.txt:1:needle ü", "c.txt:1:needle \ufffd",
    ]  # fmt: skip


@pytest.mark.usefixtures("engine")
async def test_a_bad_pattern_is_told(world: World) -> None:
    world.file("a.txt", "x")
    result = await world.run("grep", pattern="(")
    assert result.error_code == "INVALID_ARGS"
    assert result.text.startswith(
        'Error: invalid arguments: property "pattern": not a regular expression: '
    )
    assert "\n" not in result.text


@pytest.mark.usefixtures("engine")
async def test_nothing_found_is_said_by_grep(world: World) -> None:
    result = await world.run("grep", pattern="x")
    assert result.text == "No matches found"
    assert result.meta == {"path": str(world.cwd), "count": 0}


@pytest.mark.usefixtures("engine")
async def test_many_matches_are_cut_and_it_says_so(world: World) -> None:
    world.file("a.txt", "needle\n" * 50_000)
    with anyio.fail_after(60):
        result = await world.run("grep", pattern="needle")
    lines = result.text.split("\n")
    assert len(lines) == search.MATCHES_MAX + 1
    assert lines[-1] == "(Only the first 500 lines are shown. Use a narrower pattern or path.)"
    assert meta_of(result)["truncated"] is True
    assert meta_of(result)["count"] == 500


@pytest.mark.usefixtures("engine")
async def test_exactly_as_many_matches_as_are_shown_are_not_called_cut(world: World) -> None:
    world.file("a.txt", "needle\n" * search.MATCHES_MAX)
    result = await world.run("grep", pattern="needle")
    assert meta_of(result) == {"path": str(world.cwd), "count": search.MATCHES_MAX}


@pytest.mark.usefixtures("engine")
async def test_long_lines_are_cut_and_all_of_them_together_too(world: World) -> None:
    world.file("a.txt", "needle" + "ü" * 2_000_000 + "\nneedle\n")
    lines = await found(world, "needle")
    assert lines == [f"a.txt:1:needle{'ü' * 494}…", "a.txt:2:needle"]
    world.file("b.txt", ("needle" + "x" * 494 + "\n") * 200)
    result = await world.run("grep", pattern="needle")
    assert len(result.text) < search.OUTPUT_CHARS_MAX + 200
    assert "Only the first 60000 characters are shown." in result.text


async def test_a_pattern_that_never_ends_stops_neither_the_loop_nor_the_cancel(
    world: World,
) -> None:
    world.env["PATH"] = ""
    world.file("a.txt", "a" * 40 + "b\n")
    with anyio.move_on_after(0.3) as limit, anyio.fail_after(60):
        await world.run("grep", pattern="(a+)+$")
    assert limit.cancelled_caught


async def test_a_search_that_takes_too_long_ends_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.env["PATH"] = ""
    world.file("a.txt", "ab\n" + "a" * 40 + "b\n")
    with anyio.fail_after(60):
        result = await world.run("grep", pattern="(a+)+b?$")
        assert not result.is_error
        monkeypatch.setattr(search, "SEARCH_S_MAX", 0.3)
        result = await world.run("grep", pattern="(a+)+$")
    assert result.text == (
        "No matches found\n(The search was ended after 0.3 s. Use a narrower pattern or path.)"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"path": "no"}, "there is no file or folder"),
        ({"include": "!*.py"}, "must not start with !"),
        ({"include": "../*"}, "must not lead upwards"),
        ({"path": "a\0b"}, "no file or folder"),
    ],
)
async def test_a_search_that_cannot_be_made_is_told(
    world: World, arguments: Any, text: str
) -> None:
    result = await world.run("grep", pattern="x", **arguments)
    assert result.is_error
    assert text in result.text


async def test_a_pattern_no_command_can_carry_is_told(world: World) -> None:
    result = await world.run("grep", pattern="a\0b")
    assert result.is_error
    result = await world.run("grep", pattern="x" * 200_000)
    assert result.text.endswith("the command is too long.")
