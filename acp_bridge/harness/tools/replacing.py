r"""Replacing a piece of text in a file's text, line ends kept: values in, values out.

A model sees a file's lines without their line ends and writes ``\n`` for all of them. So where the
file has CRLF, its ``\n`` stands for either line end, and what it inserts takes the style of the
place. A CR that no LF follows is a character like any other.
"""

import re
from bisect import bisect_left
from itertools import takewhile

import attrs


@attrs.frozen(slots=True)
class NotReplaced:
    """Why nothing was replaced. ``count`` is how often the old text occurs."""

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
        return NotReplaced(max(2, len(starts)))
    head = _common_head(old, new)
    tail = _common_head(old[head:][::-1], new[head:][::-1])
    middle = new[head : len(new) - tail]
    # Text without line ends, or from a model that sees the file's own ones, goes in as it is.
    styles = None if "\n" not in middle or ("\r" in old and not loose) else _Styles(text)
    pieces: list[str] = []
    done = 0
    for start in starts if everywhere else starts[:1]:
        pieces.append(text[done : view.place(start + head)])
        pieces.append(middle if styles is None else styles.applied(middle, view.place(start)))
        done = view.place(start + len(old) - tail)
    return "".join([*pieces, text[done:]])


class _View:
    """A text with its CRLF seen as LF, if ``loose``, and the way back to its own positions."""

    def __init__(self, text: str, *, loose: bool) -> None:
        self.text = text.replace("\r\n", "\n") if loose else text
        pairs = re.finditer("\r\n", text) if loose else ()
        self._shortened = [match.start() - before for before, match in enumerate(pairs)]

    def place(self, position: int) -> int:
        return position + bisect_left(self._shortened, position)


class _Styles:
    """The line ends of a text, by place."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ends = [match.start() for match in re.finditer(r"\r?\n", text)]

    def applied(self, piece: str, place: int) -> str:
        """``piece`` with the line end that comes next after ``place``, or else last before it."""
        if not self._ends:
            return piece
        nearest = self._ends[min(bisect_left(self._ends, place), len(self._ends) - 1)]
        return re.sub(r"(?<!\r)\n", "\r\n", piece) if self._text[nearest] == "\r" else piece


def _starts(text: str, old: str) -> list[int]:
    starts = []
    at = text.find(old)
    while at >= 0:
        starts.append(at)
        at = text.find(old, at + len(old))
    return starts


def _common_head(one: str, two: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


def _hint(text: str, old: str) -> str:
    lines = old.splitlines()
    if lines and all(re.match(r"\d+: ", line) for line in lines):
        return "Leave out the line numbers that read puts before each line."
    if " ".join(old.split()) in " ".join(text.split()):
        return "There is a match but for white space: copy indentation and line breaks exactly."
    return "Read the file again and copy the text exactly."
