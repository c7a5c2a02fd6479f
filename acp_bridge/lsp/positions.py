r"""Lines, positions and text edits, in the units that a client counts in. Pure.

LSP ends a line with ``\n``, ``\r\n`` or ``\r`` and nothing else (LSP 3.17, Text Documents);
Python's ``splitlines`` knows more ends, which would shift every line below a form feed.
"""

import re
from typing import Final

from lsprotocol.types import Position, PositionEncodingKind, Range, TextEdit

_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)")

Encoding = PositionEncodingKind | str
"""How a client counts characters: ``utf-8``, ``utf-16`` (LSP's own) or ``utf-32``."""


def split_lines(text: str) -> list[str]:
    """Every line with its end; the last one has none, and is empty after a final line end."""
    lines = _LINE.findall(text)
    return [*lines, text[sum(map(len, lines)) :]]


def units(text: str, encoding: Encoding) -> int:
    """The length of a text as the client counts it."""
    match encoding:
        case "utf-8":
            return len(text.encode(errors="surrogatepass"))
        case "utf-32":
            return len(text)
        case _:
            return len(text) + sum(character > "\uffff" for character in text)


def edit_between(old: str, new: str, encoding: Encoding) -> TextEdit | None:
    """The one edit of whole lines that makes ``new`` of ``old``; None where they are equal.

    As small as whole lines allow, so that cursor, folds and marks around it stay.
    """
    if old == new:
        return None
    before, after = split_lines(old), split_lines(new)
    shorter = min(len(before), len(after))
    head = 0
    while head < shorter and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < shorter - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    if tail:
        end = Position(len(before) - tail, 0)
    else:
        end = Position(len(before) - 1, units(before[-1], encoding))
    text = "".join(after[head : len(after) - tail])
    return TextEdit(Range(Position(head, 0), end), text)
