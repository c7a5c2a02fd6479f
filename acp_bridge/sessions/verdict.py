"""What can be said of a stored log: one word, and a sentence for all but the sound ones."""

from typing import Final, Literal, TypeAlias

from acp_bridge.errors import (
    BridgeError,
    SessionMisplacedError,
    SessionUnsupportedError,
    StoreFailedError,
)

Status: TypeAlias = Literal[
    "sound", "repairable", "unsupported", "corrupt", "misplaced", "unreadable"
]
"""``repairable``: opening it cuts an incomplete tail or closes its last turn. ``unreadable``: the
disk refused, so nothing is known."""

BAD: Final[frozenset[Status]] = frozenset({"corrupt", "misplaced", "unsupported", "unreadable"})
"""What cannot be opened."""

GOOD: Final[frozenset[Status]] = frozenset({"sound", "repairable"})
"""What can."""


def status_of(error: BridgeError) -> Status:
    """The word for what a reader refuses."""
    match error:
        case SessionUnsupportedError():
            return "unsupported"
        case SessionMisplacedError():
            return "misplaced"
        case StoreFailedError():
            return "unreadable"
        case _:
            return "corrupt"


def verdict_on(*, torn: bool, is_open: bool) -> tuple[Status, str | None]:
    """Word and sentence for a log that can be opened, by its tail and its last turn."""
    if torn:
        return "repairable", "Its last row is incomplete; opening the session cuts it off."
    if is_open:
        return (
            "repairable",
            "Its last turn is open: it runs now, or was cut off; opening the session closes it.",
        )
    return "sound", None
