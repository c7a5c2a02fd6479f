"""What is worth knowing of a log without reading it again: a fold that an index may keep.

Pure. A digest is only ever made from a sound log, and is good for as long as the file is as it was.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from acp_bridge.sessions.header import Header, count
from acp_bridge.sessions.reading import Places
from acp_bridge.sessions.validation.resume import Bookmark, human_message, provider_of
from acp_bridge.sessions.validation.state import is_number, nonempty
from acp_bridge.vocabulary import Event, JsonObject

DELIVERY: Final = "session-log-deepseek/delivery-accepted"

_PLUGIN: Final = "plugin:acp-bridge/"
_NOT_INHERITED: Final = frozenset({_PLUGIN + "grant", _PLUGIN + "place"})
_INHERITED: Final = frozenset(
    {
        "permission/preset",
        "sandbox/mode",
        "approval/policy",
        "plan/mode",
        "model/selection",
        "agent-preset/selected",
        "working-directory/change",
        "image/offload",
        "compaction/end",
        "command/done",
    }
)
"""What a user may set after the last turn, and what a fork then has too."""


@attrs.frozen(slots=True)
class Boundary:
    """A row after which a fork may be cut, and where it lies.

    ``queued`` counts the messages left in the inbox (next turn, next step); ``moved`` says that a
    row so far names another working folder than the header. The row ends in the frame from
    ``start`` to ``end``, in which ``before`` rows of the log had ended already; ``whole`` says that
    the frame ends with it.
    """

    seq: int
    time_ms: int
    queued: tuple[int, int]
    moved: bool
    start: int
    end: int
    before: int
    whole: bool


@attrs.frozen(slots=True)
class Located:
    """A row, start and end of the frame that holds its end, and the rows that ended before."""

    seq: int
    start: int
    end: int
    before: int
    data: JsonObject


@attrs.frozen(slots=True)
class Digest:
    """A sound log in short.

    ``header_end`` is where the rows begin in the file. ``turn_ends`` are the completed turns;
    ``default`` is where a fork is cut if nobody says where (None: nothing to copy).
    ``descriptors`` and ``children`` (the ``subagent/catalog`` rows) are those of the own range.
    ``delivery_seq`` is the first delivery row. ``spans`` says that some row spans frames, ``torn``
    that an incomplete tail was left out, ``is_open`` that the last turn has no end.
    """

    header: Header
    spans: bool
    header_end: int
    title: str | None
    updated_at_ms: int
    event_count: int
    turn_ends: tuple[Boundary, ...] = ()
    default: Boundary | None = None
    descriptors: tuple[Located, ...] = ()
    children: tuple[Located, ...] = ()
    delivery_seq: int | None = None
    bookmark: Bookmark | None = None
    torn: bool = False
    is_open: bool = False


def digest_of(header: Header, events: Iterable[Event], places: Places) -> Digest:
    """The digest of a sound log, all of whose rows are given."""
    empty = Digest(header, places.spans, places.ends[0], None, header.created_at_ms, 0)
    return _Fold(empty, places).folded(events)


def extended(digest: Digest, events: Sequence[Event], places: Places) -> Digest:
    """The digest of a log that grew: ``events`` are the rows after the digest's bookmark."""
    assert digest.bookmark is not None
    return _Fold(digest, places).folded(events)


class _Fold:
    """A digest in the making. Starts at the digest's bookmark, or at row 0 without one."""

    def __init__(self, start: Digest, places: Places) -> None:
        self.start = start
        self.places = places
        mark = start.bookmark
        self.mark = mark
        last = -1 if mark is None else mark.seq
        self.title = None if mark is None else mark.title
        self.updated_at_ms = start.header.created_at_ms if mark is None else mark.time_ms
        self.count = last + 1
        self.turn_ends = [one for one in start.turn_ends if one.seq <= last]
        self.default = self.turn_ends[-1] if self.turn_ends else None
        self.descriptors = [one for one in start.descriptors if one.seq <= last]
        self.children = [one for one in start.children if one.seq <= last]
        self.delivery_seq = None if mark is None else mark.delivery_seq
        self.queued = {"next-turn": 0, "next-step": 0}
        self.moved = self.default is not None and self.default.moved
        self.is_open = False
        self.compacts = False
        self.turn = 0 if mark is None else mark.turn
        self.provider = None if mark is None else mark.provider
        self.inherited_count = None if mark is None else mark.inherited_count
        self.human_seqs = [] if mark is None else list(mark.human_seqs)

    def folded(self, events: Iterable[Event]) -> Digest:
        for event in events:
            rule = _RULES.get(event.type)
            if rule is _descriptor and not isinstance(event.data, dict):
                rule(self, event, {})  # it is there, whatever it says
            elif rule is not None and isinstance(event.data, dict):
                rule(self, event, event.data)
            self.count += 1
            self.updated_at_ms = event.time_ms
            if event.type in _INHERITED or (
                event.type.startswith(_PLUGIN) and event.type not in _NOT_INHERITED
            ):
                self._settle(event)
        return Digest(
            header=self.start.header,
            spans=self.start.spans or self.places.spans,
            header_end=self.start.header_end,
            title=self.title,
            updated_at_ms=self.updated_at_ms,
            event_count=self.count,
            turn_ends=tuple(self.turn_ends),
            default=self.default,
            descriptors=tuple(self.descriptors),
            children=tuple(self.children),
            delivery_seq=self.delivery_seq,
            bookmark=self.mark,
            torn=self.places.torn,
            is_open=self.is_open,
        )

    def _settle(self, event: Event) -> None:
        """What was set after a completed turn belongs to it."""
        if self.turn_ends and not self.is_open and not self.compacts:
            self.default = self.boundary(event)

    def boundary(self, event: Event) -> Boundary:
        start, end, before = self.places.frame_of(event.seq)
        whole = self.places.ends_frame(event.seq)
        queued = (self.queued["next-turn"], self.queued["next-step"])
        return Boundary(event.seq, event.time_ms, queued, self.moved, start, end, before, whole)

    def located(self, event: Event, data: JsonObject) -> Located:
        return Located(event.seq, *self.places.frame_of(event.seq), data)


def _turn_start(fold: _Fold, _event: Event, _data: JsonObject) -> None:
    fold.is_open = True
    fold.turn += 1


def _turn_end(fold: _Fold, event: Event, _data: JsonObject) -> None:
    fold.is_open = False
    end = fold.boundary(event)
    fold.turn_ends.append(end)
    fold.default = end
    if end.whole and end.queued == (0, 0) and not fold.compacts:
        fold.mark = Bookmark(
            seq=event.seq,
            time_ms=event.time_ms,
            offset=end.end,
            turn=fold.turn,
            title=fold.title,
            delivery_seq=fold.delivery_seq,
            provider=fold.provider,
            inherited_count=fold.inherited_count,
            human_seqs=tuple(fold.human_seqs),
            child_ids=tuple(str(one.data.get("childId")) for one in fold.children),
        )


def _end_seed(fold: _Fold, event: Event, data: JsonObject) -> None:
    fold.compacts = False
    if data.get("inherited") is True:
        fold.inherited_count = event.seq
        fold.descriptors.clear()
        fold.children.clear()


def _spliced(fold: _Fold, _event: Event, data: JsonObject) -> None:
    target, inserted = data.get("target"), data.get("inserted")
    assert isinstance(target, str)
    assert isinstance(inserted, list)
    fold.queued[target] += len(inserted) - (count(data.get("removedCount", 0)) or 0)


def _user_message(fold: _Fold, event: Event, data: JsonObject) -> None:
    if human_message(data):
        fold.human_seqs.append(event.seq)


def _request_header(fold: _Fold, _event: Event, data: JsonObject) -> None:
    fold.provider = provider_of(data)


def _title(fold: _Fold, _event: Event, data: JsonObject) -> None:
    title = data.get("title")
    fold.title = title if isinstance(title, str) else None


def _delivery(fold: _Fold, event: Event, data: JsonObject) -> None:
    if is_number(data.get("sessionFormatVersion", 0), 4) and nonempty(data.get("sessionId")):
        fold.delivery_seq = event.seq if fold.delivery_seq is None else fold.delivery_seq


def _descriptor(fold: _Fold, event: Event, data: JsonObject) -> None:
    fold.descriptors.append(fold.located(event, data))


def _catalog(fold: _Fold, event: Event, data: JsonObject) -> None:
    fold.children.append(fold.located(event, data))


def _compaction_start(fold: _Fold, _event: Event, _data: JsonObject) -> None:
    fold.compacts = True


def _compaction_end(fold: _Fold, _event: Event, _data: JsonObject) -> None:
    fold.compacts = False


def _moved(fold: _Fold, _event: Event, _data: JsonObject) -> None:
    fold.moved = True


_RULES: Final = {
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    "session/end-seed": _end_seed,
    "agent/inbox/spliced": _spliced,
    "user/message": _user_message,
    "request/header": _request_header,
    "session/title": _title,
    DELIVERY: _delivery,
    "subagent/descriptor": _descriptor,
    "subagent/catalog": _catalog,
    "compaction/start": _compaction_start,
    "compaction/end": _compaction_end,
    "working-directory/change": _moved,
}
