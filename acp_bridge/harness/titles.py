"""The short line that names a conversation, or a subagent, in a list. Pure."""

from typing import Final

TITLE_CHARS_MAX: Final = 60
"""A title is one line of a list."""

_UNSEEN: Final = {
    **dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], " "),
    **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)]),
}
"""Control characters, which a terminal obeys, and marks that turn around what follows them."""


def one_line(text: str) -> str:
    """The text as one line that changes nothing around it; empty if nothing can be seen."""
    return " ".join(text.translate(_UNSEEN).split())


def title_from_text(text: str) -> str:
    """The text as one line, cut with an ellipsis where it is longer than `TITLE_CHARS_MAX`."""
    line = one_line(text)
    if len(line) <= TITLE_CHARS_MAX:
        return line
    return line[: TITLE_CHARS_MAX - 1].rstrip() + "…"
