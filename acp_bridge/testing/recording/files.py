"""The files that a session found, out of what its tools told of them. Pure.

A diff holds a file whole, before and after; a read its lines, or some of them; a search names it. A
file that was
another one than the last tool left it was changed by somebody else, and is written again there.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import attrs

from acp_bridge.testing.recording.log import Result
from acp_bridge.testing.recording.paths import Placer
from acp_bridge.testing.transcript import arr, obj, text_or_none

Asked = tuple[str, int]
"""An answer of the model: the agent's place and the answer's number, from 0."""

_FOUND = {
    "glob": re.compile(r"^(?P<path>/.+)$", re.MULTILINE),
    "grep": re.compile(r"^(?P<path>/.+?):(?P<number>\d+):(?P<text>.*)$", re.MULTILINE),
}
"""What a search tells of files, by the tool."""

_CUT = "… (cut: the line has "


@attrs.define(slots=True)
class _File:
    """``start`` and ``now`` are whole texts, None for no file; ``is_exact``: line ends as well.

    While ``seen`` holds lines, no more than these of ``total`` are known.
    """

    start: str | None
    now: str | None
    is_exact: bool
    seen: dict[int, str] = attrs.field(factory=dict)
    total: int = 0


@attrs.define(slots=True)
class Workspace:
    """What the scenario finds, and what is written before an answer; ``notes`` say what lacks."""

    start: dict[str, str] = attrs.field(factory=dict)
    writes: dict[Asked, dict[str, str]] = attrs.field(factory=lambda: defaultdict(dict))
    notes: list[str] = attrs.field(factory=list)


def workspace_of(results: Iterable[Result], placer: Placer) -> Workspace:
    """Fold good tool results, in the order of time."""
    fold = _Fold(placer)
    for one in results:
        for diff in map(obj, arr(one.meta.get("diffs"))):
            if isinstance(diff.get("newText"), str):
                fold.diff(
                    one.asked,
                    placer.name(str(diff.get("path"))),
                    text_or_none(diff.get("oldText")),
                    str(diff["newText"]),
                )
        total = one.meta.get("totalLines")
        if isinstance(one.meta.get("lines"), list) and isinstance(total, int):
            shown = {
                int(str(line["number"])): str(line["text"])
                for line in map(obj, arr(one.meta["lines"]))
            }
            fold.read(one.asked, placer.name(str(one.meta["path"])), shown, total)
        if one.tool in _FOUND:
            for found in _FOUND[one.tool].finditer(one.text):
                fold.found(placer.name(found["path"]), found.groupdict())
    return fold.done()


class _Fold:
    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._files: dict[str, _File] = {}
        self._found: dict[str, dict[int, str]] = {}  # lines of what a search found first
        self._made = Workspace()

    def diff(self, asked: Asked, path: str, old: str | None, new: str) -> None:
        file = self._files.get(path)
        if file is None:
            self._files[path] = _File(old, new, is_exact=True)
            return
        if file.seen or (not file.is_exact and _same(file.now, old)):
            if file.start == file.now:
                file.start = old  # now it is known to the letter
            file.seen = {}
        elif file.now != old:
            self._changed(asked, path, old)
        file.now, file.is_exact = new, True

    def read(self, asked: Asked, path: str, shown: dict[int, str], total: int) -> None:
        if any(_CUT in line for line in shown.values()):
            self._made.notes.append(f"{path}: a line was cut when it was read, and ends there")
        file = self._files.get(path)
        is_whole = len(shown) == total
        text = "".join(f"{line}\n" for line in shown.values())
        if file is None and is_whole:
            self._files[path] = _File(text, text, is_exact=False)
        elif file is None:
            self._files[path] = _File(None, None, is_exact=False, seen=shown, total=total)
        elif file.seen:
            if is_whole:
                file.start = file.now = text
                file.seen = {}
            else:
                file.seen.update(shown)
        else:
            lines = _lines(file.now or "")
            if len(lines) == total and all(lines[n - 1] == shown[n] for n in shown):
                return
            if is_whole:
                self._changed(asked, path, text)
                file.now, file.is_exact = text, False
            else:
                self._made.notes.append(
                    f"{path} was changed by somebody else, and only some of its lines are known: "
                    "the scenario reads the old ones"
                )

    def found(self, path: str, shown: Mapping[str, str]) -> None:
        if path not in self._files:
            lines = self._found.setdefault(path, {})
            if "number" in shown:
                lines[int(shown["number"])] = shown["text"]

    def done(self) -> Workspace:
        found = {path: lines for path, lines in self._found.items() if path not in self._files}
        for path, shown in found.items():
            rows = [shown.get(number, "") for number in range(1, max(shown, default=0) + 1)]
            text = "".join(f"{row}\n" for row in rows)
            self._files[path] = _File(text, text, is_exact=False)
        if found:
            self._made.notes.append(
                "only a search found these, so no more than its lines are in them: "
                + ", ".join(sorted(found))
            )
        for path, file in self._files.items():
            if file.seen:
                known = ", ".join(_spans(file.seen))
                self._made.notes.append(
                    f"{path}: only lines {known} of {file.total} are known; the others are empty"
                )
                lines = [file.seen.get(n, "") for n in range(1, file.total + 1)]
                file.start = "".join(f"{line}\n" for line in lines)
            if file.start is not None:
                self._made.start[path] = self._placer.secretless(file.start)
        return self._made

    def _changed(self, asked: Asked, path: str, text: str | None) -> None:
        if text is None:
            self._made.notes.append(
                f"{path} was removed by somebody else: in the scenario it stays"
            )
        else:
            self._made.writes[asked][path] = self._placer.text(text)


def _same(text: str | None, other: str | None) -> bool:
    return text is not None and other is not None and _lines(text) == _lines(other)


def _lines(text: str) -> list[str]:
    """The lines as `read` shows them."""
    lines = text.removeprefix("\ufeff").split("\n")
    if lines[-1] == "":
        del lines[-1]
    return [line.removesuffix("\r") for line in lines]


def _spans(numbers: Iterable[int]) -> list[str]:
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return [str(a) if a == b else f"{a}-{b}" for a, b in spans]
