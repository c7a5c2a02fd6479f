"""Walking a folder tree: path patterns, and searching lines where there is no ripgrep.

Run as a script it is a small ripgrep, ``tree.py ROOT FILE PATTERN INCLUDE`` (FILE or INCLUDE may be
empty), with output in the form of ``rg --null``: relative path, NUL, line number, colon, line. It
is a process of its own because Python's regular expressions hold the interpreter: a pattern that
never ends would stop every session, and a thread cannot be killed.

Invariants: imports the standard library only, since the script runs without site packages; no link
is ever followed.
"""

import fnmatch
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", ".jj", "node_modules", "__pycache__", ".venv"})
"""Folders that no search enters unless it starts inside: history, dependencies, caches."""

BAD_PATTERN_EXIT = 3
"""The script's exit code for a regular expression that does not compile; its output says why."""

LINE_CHARS_MAX = 2000
"""A found line is cut here; what is shown is shorter still."""

_ALTERNATIVES_MAX = 200

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Entry(NamedTuple):
    """Something in the tree: its path relative to the root, with ``/``, and what it is."""

    path: str
    kind: Literal["folder", "file", "link", "other"]


class PathPattern:
    """A path pattern: ``*``, ``?`` and ``[…]`` within a name, ``**`` over folders, ``{a,b}``.

    Raises:
        ValueError: ``..`` in the pattern, or too many alternatives.
    """

    def __init__(self, pattern: str) -> None:
        self._rows: list[list[Callable[[str], object] | None]] = []
        for plain in _alternatives(pattern):
            names = [name for name in plain.split("/") if name not in {"", "."}]
            if ".." in names:
                raise ValueError("a pattern must not lead upwards with ..")
            self._rows.append([_name_matcher(name) for name in names])

    def start(self) -> frozenset[tuple[int, int]]:
        """Where matching stands at the root: (alternative, names matched)."""
        return self._with_empty_stars((row, 0) for row in range(len(self._rows)))

    def enter(self, places: frozenset[tuple[int, int]], name: str) -> frozenset[tuple[int, int]]:
        """Where matching stands after ``name``."""
        after = []
        for row, at in places:
            if at == len(self._rows[row]):
                continue
            matcher = self._rows[row][at]
            if matcher is None:
                after.append((row, at))
            elif matcher(name):
                after.append((row, at + 1))
        return self._with_empty_stars(after)

    def accepts(self, places: frozenset[tuple[int, int]]) -> bool:
        """Whether what was entered so far matches as a whole."""
        return any(at == len(self._rows[row]) for row, at in places)

    def matches(self, path: str) -> bool:
        """Whether a relative path matches."""
        places = self.start()
        for name in path.split("/"):
            places = self.enter(places, name)
        return self.accepts(places)

    def _with_empty_stars(
        self, places: Sequence[tuple[int, int]] | Iterator[tuple[int, int]]
    ) -> frozenset[tuple[int, int]]:
        found = set()
        for row, first in places:
            at = first
            found.add((row, at))
            while at < len(self._rows[row]) and self._rows[row][at] is None:
                at += 1
                found.add((row, at))
        return frozenset(found)


def walk(root: str, pattern: PathPattern, stopped: Callable[[], bool]) -> Iterator[Entry]:
    """What matches below ``root``, sorted by path; folders that nobody may read count as empty."""
    todo = [(pattern.start(), iter(_listed(root)), "")]
    while todo and not stopped():
        places, entries, prefix = todo[-1]
        entry = next(entries, None)
        if entry is None:
            todo.pop()
            continue
        kind = _kind(entry)
        if kind == "folder" and entry.name in SKIPPED_FOLDERS:
            continue
        inside = pattern.enter(places, entry.name)
        path = prefix + entry.name
        if pattern.accepts(inside):
            yield Entry(path, kind)
        if kind == "folder" and inside:
            todo.append((inside, iter(_listed(entry.path)), f"{path}/"))


def included(include: str) -> PathPattern:
    """The pattern of a file filter: without a slash it is about the name alone, at any depth."""
    return PathPattern(include if "/" in include else f"**/{include}")


def _listed(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: os.fsencode(entry.name))
    except OSError:  # not readable, or gone since it was listed
        return []


def _kind(entry: os.DirEntry[str]) -> Literal["folder", "file", "link", "other"]:
    try:
        if entry.is_symlink():
            return "link"
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        return "file" if entry.is_file(follow_symlinks=False) else "other"
    except OSError:
        return "other"


def _name_matcher(name: str) -> Callable[[str], object] | None:
    """None for ``**``."""
    return None if name == "**" else re.compile(fnmatch.translate(name)).match


def _alternatives(pattern: str) -> list[str]:
    """``a{b,c}d`` as ``abd``, ``acd``; braces that do not pair are plain characters."""
    plain: list[str] = []
    todo = [pattern]
    while todo:
        if len(plain) + len(todo) > _ALTERNATIVES_MAX:
            raise ValueError(f"a pattern may have {_ALTERNATIVES_MAX} alternatives at most")
        one = todo.pop()
        inner = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if inner is None:
            plain.append(one)
            continue
        todo += [
            one[: inner.start()] + choice + one[inner.end() :] for choice in inner[1].split(",")
        ]
    return plain


def _main(root: str, file: str, pattern: str, include: str) -> int:
    try:
        wanted = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        sys.stdout.write(f"{error}\n")
        return BAD_PATTERN_EXIT
    for path in [file] if file else _files(root, include):
        _search(root, path, wanted)
    return 0


def _files(root: str, include: str) -> Iterator[str]:
    only = included(include) if include else None
    for entry in walk(root, PathPattern("**"), lambda: False):
        if entry.kind == "file" and (only is None or only.matches(entry.path)):
            yield entry.path


def _search(root: str, path: str, wanted: re.Pattern[str]) -> None:
    text = _text(f"{root}/{path}")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    start = os.fsencode(path) + b"\0"
    for number, line in enumerate(lines, 1):
        shown = line.removesuffix("\r")
        if wanted.search(shown):
            sys.stdout.buffer.write(start + f"{number}:{shown[:LINE_CHARS_MAX]}\n".encode())
    sys.stdout.buffer.flush()


def _text(path: str) -> str:
    """The file's text; "" for what is binary or cannot be read."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(number, "rb") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                return ""
            data = file.read()
    except OSError:
        return ""
    if data.startswith(_UTF16_MARKS):
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        return ""
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
