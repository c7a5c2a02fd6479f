"""The `glob` and `grep` tools: files by name, and lines by regular expression."""

import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import anyio
import attrs
from anyio import to_thread

from acp_bridge.harness.tools import tree
from acp_bridge.harness.tools.arguments import (
    invalid_arguments,
    optional_text,
    required_text,
)
from acp_bridge.harness.tools.paths import absolute_path, resolved_path, shown_path
from acp_bridge.harness.tools.processes import Child, spawn
from acp_bridge.harness.tools.results import NoPreview, failure, io_failure
from acp_bridge.ports import Access, ToolContext, ToolResult
from acp_bridge.vocabulary import JsonObject

PATHS_MAX = 1000
"""Paths that one glob lists: more is a pattern too wide to be read."""

MATCHES_MAX = 500
"""Lines that one grep lists."""

LINE_CHARS_MAX = 500
"""Of a found line, what is shown."""

OUTPUT_CHARS_MAX = 60_000
"""All lines of one grep together."""

SEARCH_S_MAX = 60
"""A search that takes longer ends with what it found."""

_SKIPPED = ", ".join(sorted(tree.SKIPPED_FOLDERS))

_NO_MATCH_EXIT = 1

_LINE_BYTES_MAX = 16 * 1024
"""More than a path, a number and the part of a line that is shown can take."""


class GlobTool(NoPreview):
    """List files whose path matches a pattern."""

    name: ClassVar[str] = "glob"
    description: ClassVar[str] = (
        "List files and folders whose path matches a pattern, as absolute paths sorted by path; "
        "folders end in `/`. `*`, `?` and `[abc]` match within a name, `**` over any number of "
        "folders, `{a,b}` gives alternatives: `src/**/*.{ts,tsx}`. Hidden files count; links are "
        f"not followed; not entered are {_SKIPPED}, unless `path` or the start of the pattern "
        f"leads into them. Lists at most {PATHS_MAX} paths."
    )
    parameters: ClassVar[JsonObject] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "Relative to `path`, or absolute."},
            "path": {
                "type": "string",
                "description": "Folder to search in. Default: the working folder.",
            },
        },
        "required": ["pattern"],
    }

    def access(self, arguments: JsonObject, cwd: Path) -> Access:
        """The folder where the search starts."""
        return Access(reads=(resolved_path(_glob_start(arguments, cwd)[0]),))

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """``meta``: path, count, and truncated where the list was cut."""
        start, rest = _glob_start(arguments, context.cwd)
        try:
            pattern = tree.PathPattern(rest)
        except ValueError as error:
            return invalid_arguments(f'property "pattern": {error}')
        stop = threading.Event()
        try:
            with anyio.move_on_after(SEARCH_S_MAX) as limit:
                if not await to_thread.run_sync(start.is_dir):
                    return failure(f"there is no folder {shown_path(start)}.")
                paths: list[str] = []
                await to_thread.run_sync(
                    _list_paths, start, pattern, paths, stop, abandon_on_cancel=True
                )
        except (OSError, ValueError) as error:
            return io_failure("search", start, error)
        finally:
            stop.set()
        found = paths[:PATHS_MAX]
        cut = len(paths) > PATHS_MAX
        meta: JsonObject = {"path": shown_path(start), "count": len(found)}
        notes = []
        if cut:
            notes.append(f"(Only the first {PATHS_MAX} paths are shown. Use a narrower pattern.)")
        if limit.cancelled_caught:
            notes.append(f"(The search was ended after {SEARCH_S_MAX} s. Use a narrower path.)")
        if notes:
            meta["truncated"] = True
        return ToolResult(text="\n".join([*(found or ["No files found"]), *notes]), meta=meta)


class GrepTool(NoPreview):
    """Find lines that match a regular expression."""

    name: ClassVar[str] = "grep"
    description: ClassVar[str] = (
        "Find lines that match a regular expression, as `path:line:text` with absolute paths, "
        "sorted by path. Matching is case-sensitive and line by line; `(?i)` ignores case; escape "
        "`.([{*+?\\` to mean themselves. `include` limits the search to files: a name pattern "
        "(`*.py`, `*.{ts,tsx}`) or a path pattern below `path` (`src/**/*.py`). Skipped are binary "
        f"files, links, and {_SKIPPED}. Shows at most {MATCHES_MAX} lines, each cut at "
        f"{LINE_CHARS_MAX} characters. Searched is what is saved on disk: changes that the user "
        "has not saved yet are seen by read alone."
    )
    parameters: ClassVar[JsonObject] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "The regular expression."},
            "path": {
                "type": "string",
                "description": "File or folder to search in. Default: the working folder.",
            },
            "include": {"type": "string", "description": "Pattern of the files to search."},
        },
        "required": ["pattern"],
    }

    def access(self, arguments: JsonObject, cwd: Path) -> Access:
        """The file or folder to search."""
        return Access(reads=(resolved_path(_grep_path(arguments, cwd)),))

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """``meta``: path, count, and truncated where the list was cut."""
        path = _grep_path(arguments, context.cwd)
        include = optional_text(arguments, "include")
        try:
            if include is not None:
                if include.startswith("!"):
                    return invalid_arguments('property "include" must not start with !')
                tree.included(include)
            is_folder = await to_thread.run_sync(path.is_dir)
            if not is_folder and not await to_thread.run_sync(path.exists):
                return failure(f"there is no file or folder {shown_path(path)}.")
        except ValueError as error:
            return invalid_arguments(f'property "include": {error}')
        except OSError as error:
            return io_failure("search", path, error)
        search = Search(
            root=path if is_folder else path.parent,
            file=None if is_folder else path.name,
            pattern=required_text(arguments, "pattern"),
            include=include if is_folder else None,
        )
        try:
            found = await search.run(context.env)
        except (OSError, ValueError) as error:
            return io_failure("search", path, error)
        if found.problem is not None:
            return invalid_arguments(
                f'property "pattern": not a regular expression: {found.problem}'
            )
        meta: JsonObject = {"path": shown_path(path), "count": len(found.lines)}
        if found.cut is not None:
            meta["truncated"] = True
        notes = [] if found.cut is None else [f"({found.cut} Use a narrower pattern or path.)"]
        return ToolResult(
            text="\n".join([*(found.lines or ["No matches found"]), *notes]), meta=meta
        )


@attrs.define(slots=True)
class Found:
    """Lines as shown; why there are not all of them; what is wrong with the pattern."""

    lines: list[str] = attrs.Factory(list)
    cut: str | None = None
    problem: str | None = None


@attrs.frozen(slots=True)
class Search:
    """One search, below a folder ``root`` or in one ``file`` of it."""

    root: Path
    file: str | None
    pattern: str
    include: str | None

    async def run(self, env: Mapping[str, str]) -> Found:
        """Search with ripgrep; with our own script if there is none or it refuses the pattern.

        Raises:
            OSError, ValueError: the search cannot be started.
        """
        ripgrep = shutil.which("rg", path=env.get("PATH"))
        if ripgrep is not None:
            found, exit_code = await self._run(self.ripgrep_command(ripgrep), env)
            if found.lines or found.cut or exit_code in {0, _NO_MATCH_EXIT}:
                return found
        found, _ = await self._run(self.own_command(), env)
        return found

    def ripgrep_command(self, ripgrep: str) -> list[str]:
        """Everything that a configuration, an ignore file or a folder could change is set."""
        only = ["--glob", self.include] if self.include is not None else []
        return [
            ripgrep,
            *("--no-config", "--no-ignore", "--hidden", "--no-messages", "--sort=path", "--crlf"),
            *("--no-heading", "--with-filename", "--line-number", "--null", "--color=never"),
            *only,
            *(f"--glob=!**/{name}/" for name in sorted(tree.SKIPPED_FOLDERS)),
            f"--regexp={self.pattern}",
            "--",
            f"./{self.file or ''}",
        ]

    def own_command(self) -> list[str]:
        """The script, without site packages: it starts in 20 ms."""
        return [
            *(sys.executable, "-I", "-S", "-X", "utf8", tree.__file__),
            *(str(self.root), self.file or "", self.pattern, self.include or ""),
        ]

    async def _run(
        self, command: Sequence[str], env: Mapping[str, str]
    ) -> tuple[Found, int | None]:
        child = await spawn(command, cwd=self.root, env=env)
        lines = _FoundLines(self.root)
        try:
            with anyio.move_on_after(SEARCH_S_MAX) as limit:
                await _take(child, lines)
        finally:
            await child.end("group")
            child.close()
        if limit.cancelled_caught:
            lines.found.cut = f"The search was ended after {SEARCH_S_MAX} s."
        if child.exit_code == tree.BAD_PATTERN_EXIT:
            return Found(problem=lines.note.strip()), child.exit_code
        return lines.found, child.exit_code


async def _take(child: Child, lines: "_FoundLines") -> None:
    while lines.found.cut is None:
        data = await child.read()
        lines.add(data)
        if not data:
            await child.wait()
            return


class _FoundLines:
    """Output of ``rg --null`` to lines as shown. ``note`` is the last line of another form."""

    def __init__(self, root: Path) -> None:
        self.found = Found()
        self.note = ""
        self._root = root
        self._buffer = b""
        self._path = b""
        self._path_from = 0
        self._room = OUTPUT_CHARS_MAX

    def add(self, data: bytes) -> None:
        """Take output as it was read; b"" at its end."""
        *lines, rest = (self._buffer + data).split(b"\n")
        for line in lines:
            if self.found.cut is None:
                self._line(line)
        # A line may be as long as a file: of one that has not ended its start is enough.
        self._buffer = rest[:_LINE_BYTES_MAX]

    def _line(self, line: bytes) -> None:
        path, nul, rest = line.partition(b"\0")
        number, colon, text = rest.partition(b":")
        if not nul or not colon or not number.isdigit():
            # Ripgrep says so when a file turns out to be binary after a match; we skip those.
            self.note = line.decode("utf-8", "replace")
            del self.found.lines[self._path_from :]
            return
        if path != self._path:
            self._path, self._path_from = path, len(self.found.lines)
        if len(self.found.lines) >= MATCHES_MAX:
            self.found.cut = f"Only the first {MATCHES_MAX} lines are shown."
            return
        shown = text.decode("utf-8", "replace").removesuffix("\r")
        if len(shown) > LINE_CHARS_MAX:
            shown = f"{shown[:LINE_CHARS_MAX]}…"
        name = path.removeprefix(b"./").decode("utf-8", "replace")
        shown = f"{shown_path(self._root / name)}:{number.decode()}:{shown}"
        self._room -= len(shown) + 1
        if self._room < 0:
            self.found.cut = f"Only the first {OUTPUT_CHARS_MAX} characters are shown."
            return
        self.found.lines.append(shown)


def _glob_start(arguments: JsonObject, cwd: Path) -> tuple[Path, str]:
    """Where the search begins, and the pattern below it: leading plain names count as the place."""
    pattern = required_text(arguments, "pattern")
    base = absolute_path(optional_text(arguments, "path") or ".", cwd)
    names = pattern.split("/")
    plain = 0
    while plain < len(names) - 1 and not any(mark in names[plain] for mark in "*?[{"):
        plain += 1
    fixed = "/".join(names[:plain])
    if pattern.startswith("/"):
        fixed = fixed or "/"
    return (absolute_path(fixed, base) if fixed else base), "/".join(names[plain:])


def _grep_path(arguments: JsonObject, cwd: Path) -> Path:
    return absolute_path(optional_text(arguments, "path") or ".", cwd)


def _list_paths(
    start: Path, pattern: tree.PathPattern, paths: list[str], stop: threading.Event
) -> None:
    for entry in tree.walk(str(start), pattern, stop.is_set):
        paths.append(shown_path(start / entry.path) + ("/" if entry.kind == "folder" else ""))
        if len(paths) > PATHS_MAX:
            return
