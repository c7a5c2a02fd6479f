r"""Replacing a piece of text in a file's text, line ends kept: values in, values out.

A model sees a file's lines without their line ends and writes ``\n`` for all of them. So where the
file has CRLF, its ``\n`` stands for either line end, and what it inserts takes the style of the
place. A CR that no LF follows is a character like any other.
"""

import re
from bisect import bisect_left
from itertools import takewhile

import attrs

_COUNT_MAX = 1000

_LINE_END = re.compile(r"\r?\n")


@attrs.frozen(slots=True)
class NotReplaced:
    """Why nothing was replaced. ``count`` is how often the old text occurs (at most 1000)."""

    count: int
    hint: str = ""


def replace_text(text: str, old: str, new: str, *, everywhere: bool) -> str | NotReplaced:
    """``text`` with ``old`` replaced by ``new``, once or ``everywhere``; ``old`` is not empty.

    All that is outside the matches stays identical, and within a match what ``old`` and ``new``
    have in common at their ends.
    """
    loose = "\n" in old and "\r" not in old and "\r\n" in text
    if not loose and "\r\n" in old and old not in text:
        loose, old = True, old.replace("\r\n", "\n")
    view = _View(text, loose=loose)
    if loose:
        new = new.replace("\r\n", "\n")
    starts = _starts(view.text, old)
    if not starts:
        return NotReplaced(0, _hint(text, old))
    if not everywhere and view.text.find(old, starts[0] + 1) >= 0:
        # Counted with overlaps: of "aa" in "aaa" nobody can say which one is meant.
        return NotReplaced(max(2, min(len(starts), _COUNT_MAX)))
    verbatim = "\r" in old and not loose
    head = _common_head(old, new)
    tail = _common_head(old[head:][::-1], new[head:][::-1])
    middle = new[head : len(new) - tail]
    pieces: list[str] = []
    done = 0
    for start in starts if everywhere else starts[:1]:
        first, last = view.place(start + head), view.place(start + len(old) - tail)
        style = None if verbatim else _style(text, view.place(start), view.place(start + len(old)))
        pieces += [text[done:first], _with_line_ends(middle, style)]
        done = last
    return "".join([*pieces, text[done:]])


class _View:
    """A text with its CRLF seen as LF, if ``loose``, and the way back to its own positions."""

    def __init__(self, text: str, *, loose: bool) -> None:
        self.text = text.replace("\r\n", "\n") if loose else text
        pairs = re.finditer("\r\n", text) if loose else ()
        self._shortened = [match.start() - before for before, match in enumerate(pairs)]

    def place(self, position: int) -> int:
        return position + bisect_left(self._shortened, position)


def _starts(text: str, old: str) -> list[int]:
    starts = []
    at = text.find(old)
    while at >= 0:
        starts.append(at)
        at = text.find(old, at + len(old))
    return starts


def _common_head(one: str, two: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


def _style(text: str, start: int, end: int) -> str | None:
    """The line end in use at a match: its own first one, else the next one, else the one before."""
    found = _LINE_END.search(text, start, end) or _LINE_END.search(text, end)
    if found is not None:
        return found[0]
    before = text.rfind("\n", 0, start)
    if before < 0:
        return None
    return "\r\n" if text[max(before - 1, 0)] == "\r" else "\n"


def _with_line_ends(piece: str, style: str | None) -> str:
    return re.sub(r"(?<!\r)\n", "\r\n", piece) if style == "\r\n" else piece


def _hint(text: str, old: str) -> str:
    lines = old.splitlines()
    if lines and all(re.match(r"\d+: ", line) for line in lines):
        return "Leave out the line numbers that read puts before each line."
    if " ".join(old.split()) in " ".join(text.split()):
        return "There is a match but for white space: copy indentation and line breaks exactly."
    return "Read the file again and copy the text exactly."
