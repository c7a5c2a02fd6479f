"""Judging only the end of a log that grew: a state as it was after a completed turn.

The whole state of a log is as large as the log. After a completed turn with an empty inbox most
later rows need only a little of it; the others (what replaces, counts on or cites rows of long ago)
are not judged here: `NeedsWholeLogError` says that the whole log must be read.
"""

from typing import Final

import attrs

from acp_bridge.sessions.header import Header
from acp_bridge.sessions.validation.fold import LogState
from acp_bridge.vocabulary import Event, JsonObject, JsonValue

_WHOLE_LOG: Final = frozenset(
    {
        "system/message",
        "developer/message",
        "llm/retry",
        "llm/retry-started",
        "tool/ptc-dispatch-start",
        "tool/ptc-dispatch",
        "compaction/start",
        "compaction/summary",
        "compaction/end",
        "compaction/prune",
        "command/run",
        "command/done",
        "image/offload",
    }
)
"""Types whose rules look at rows before the bookmark."""


class NeedsWholeLogError(Exception):
    """A row cannot be judged from a bookmark. Not a fault; never leaves the room."""


@attrs.frozen(slots=True)
class Bookmark:
    """A place after a completed turn with nothing queued and no compaction open.

    ``seq`` and ``time_ms`` are those of the turn's last row and ``offset`` the end of its frame in
    the file. The others are what the log amounts to there: the newest title, the first delivery
    row, the messages of the user, the cataloged children of the own range.
    """

    seq: int
    time_ms: int
    offset: int
    turn: int
    title: str | None
    delivery_seq: int | None
    provider: str | None
    inherited_count: int | None
    human_seqs: tuple[int, ...]
    child_ids: tuple[str, ...]


class ResumedState(LogState):
    """`LogState` from a bookmark on. Its surface is a stub: nothing but `apply` may be asked."""

    def __init__(self, header: Header, bookmark: Bookmark) -> None:
        super().__init__(header)
        self.next_seq = bookmark.seq + 1
        self.last_turn = bookmark.turn
        self.provider = bookmark.provider
        self.has_marker = bookmark.inherited_count is not None
        self.inherited_count = bookmark.inherited_count or 0
        self.human_seqs = set(bookmark.human_seqs)
        self.child_ids = set(bookmark.child_ids)

    def apply(self, event: Event) -> None:
        """As `LogState.apply`.

        Raises:
            NeedsWholeLogError: the row's verdict depends on more than the bookmark holds.
        """
        if event.type in _WHOLE_LOG or isinstance(event.surface_op, tuple):
            raise NeedsWholeLogError
        if event.type == "session/end-seed" and event.data != {}:
            raise NeedsWholeLogError
        super().apply(event)


def human_message(data: JsonValue) -> bool:
    """Whether a sound ``user/message`` comes from a person."""
    assert isinstance(data, dict)
    source = data["source"]
    assert isinstance(source, dict)
    return source["kind"] == "user"


def provider_of(data: JsonObject) -> str | None:
    """The provider that a sound ``request/header`` names."""
    header = data["header"]
    assert isinstance(header, dict)
    config = header["config"]
    assert isinstance(config, dict)
    provider = config.get("provider")
    return provider if isinstance(provider, str) else None
