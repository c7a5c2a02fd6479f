"""The details of a log as JSON and back, for the index: lists by position, short and quick."""

from collections.abc import Sequence
from typing import TypedDict, cast

from acp_bridge.sessions.digest import Boundary, Digest, Located
from acp_bridge.sessions.header import dump_header, parse_header
from acp_bridge.sessions.known import Details
from acp_bridge.sessions.reading import Stamp
from acp_bridge.sessions.validation.resume import Bookmark
from acp_bridge.vocabulary import JsonObject, JsonValue


class _Flat(TypedDict):
    settled: bool
    stamp: list[int]
    guard: int | None
    header: str
    spans: bool
    headerEnd: int
    title: str | None
    updatedAt: int
    count: int
    turnEnds: list[list[int]]
    default: list[int] | None
    descriptors: list[tuple[int, int, int, int, JsonObject]]
    children: list[tuple[int, int, int, int, JsonObject]]
    deliverySeq: int | None
    bookmark: list[JsonValue] | None
    torn: bool
    isOpen: bool


def json_from_details(details: Details) -> JsonValue:
    """An object that `details_from_json` takes."""
    digest, mark = details.digest, details.digest.bookmark
    flat: _Flat = {
        "settled": details.settled,
        "stamp": list(details.stamp),
        "guard": details.guard,
        "header": dump_header(digest.header).decode(),
        "spans": digest.spans,
        "headerEnd": digest.header_end,
        "title": digest.title,
        "updatedAt": digest.updated_at_ms,
        "count": digest.event_count,
        "turnEnds": [_flat_boundary(one) for one in digest.turn_ends],
        "default": None if digest.default is None else _flat_boundary(digest.default),
        "descriptors": [_flat_located(one) for one in digest.descriptors],
        "children": [_flat_located(one) for one in digest.children],
        "deliverySeq": digest.delivery_seq,
        "bookmark": None if mark is None else _flat_bookmark(mark),
        "torn": digest.torn,
        "isOpen": digest.is_open,
    }
    return cast("JsonObject", flat)


def details_from_json(value: JsonValue) -> Details:
    """Trusts the value: its checksum says that `json_from_details` made it."""
    flat = cast("_Flat", value)
    default, mark = flat["default"], flat["bookmark"]
    digest = Digest(
        header=parse_header(flat["header"].encode()),
        spans=flat["spans"],
        header_end=flat["headerEnd"],
        title=flat["title"],
        updated_at_ms=flat["updatedAt"],
        event_count=flat["count"],
        turn_ends=tuple(_boundary(one) for one in flat["turnEnds"]),
        default=None if default is None else _boundary(default),
        descriptors=tuple(Located(*row) for row in flat["descriptors"]),
        children=tuple(Located(*row) for row in flat["children"]),
        delivery_seq=flat["deliverySeq"],
        bookmark=None if mark is None else _bookmark(mark),
        torn=flat["torn"],
        is_open=flat["isOpen"],
    )
    return Details(
        settled=flat["settled"],
        stamp=Stamp._make(flat["stamp"]),
        guard=flat["guard"],
        digest=digest,
    )


def _flat_located(one: Located) -> tuple[int, int, int, int, JsonObject]:
    return one.seq, one.start, one.end, one.before, one.data


def _flat_boundary(one: Boundary) -> list[int]:
    return [one.seq, one.time_ms, *one.queued, one.moved, one.start, one.end, one.before, one.whole]


def _boundary(flat: Sequence[int]) -> Boundary:
    seq, time_ms, turns, steps, moved, start, end, before, whole = flat
    return Boundary(seq, time_ms, (turns, steps), bool(moved), start, end, before, bool(whole))


def _flat_bookmark(mark: Bookmark) -> list[JsonValue]:
    return [
        mark.seq,
        mark.time_ms,
        mark.offset,
        mark.turn,
        mark.title,
        mark.delivery_seq,
        mark.provider,
        mark.inherited_count,
        list(mark.human_seqs),
        list(mark.child_ids),
    ]


def _bookmark(flat: Sequence[JsonValue]) -> Bookmark:
    *plain, human_seqs, child_ids = flat
    seq, time_ms, offset, turn, title, delivery_seq, provider, inherited_count = cast(
        "tuple[int, int, int, int, str | None, int | None, str | None, int | None]", tuple(plain)
    )
    return Bookmark(
        seq=seq,
        time_ms=time_ms,
        offset=offset,
        turn=turn,
        title=title,
        delivery_seq=delivery_seq,
        provider=provider,
        inherited_count=inherited_count,
        human_seqs=tuple(cast("list[int]", human_seqs)),
        child_ids=tuple(cast("list[str]", child_ids)),
    )
