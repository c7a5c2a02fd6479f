"""The short line that names a conversation in a list. Pure."""

from typing import Final

TITLE_CHARS_MAX: Final = 60
"""A title is one line of a list."""


def title_from_text(text: str) -> str:
    """The text as one line, cut with an ellipsis where it is longer than `TITLE_CHARS_MAX`."""
    line = " ".join(text.split())
    if len(line) <= TITLE_CHARS_MAX:
        return line
    return line[: TITLE_CHARS_MAX - 1].rstrip() + "…"
