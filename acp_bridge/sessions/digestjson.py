"""The details of a log as JSON and back, for the index: lists by position, short and quick."""

from collections.abc import Sequence
from typing import cast

from acp_bridge.sessions.digest import Boundary, Digest, Located
from acp_bridge.sessions.growth import Guard
from acp_bridge.sessions.header import dump_header, parse_header
from acp_bridge.sessions.reading import Stamp
from acp_bridge.sessions.sweep import Details
from acp_bridge.sessions.validation.resume import Bookmark
from acp_bridge.vocabulary import JsonObject, JsonValue

_List = list[JsonValue]


def json_from_details(details: Details) -> JsonValue:
    """A list that `details_from_json` takes."""
    digest, mark = details.digest, details.digest.bookmark
    return [
        details.settled,
        list(details.stamp),
        None if details.guard is None else list(details.guard),
        dump_header(digest.header).decode(),
        [digest.header_end, digest.title, digest.updated_at_ms, digest.event_count],
        [_json_from_boundary(one) for one in digest.turn_ends],
        None if digest.default is None else _json_from_boundary(digest.default),
        [[one.seq, one.offset, one.data] for one in digest.descriptors],
        [[one.seq, one.offset, one.data] for one in digest.children],
        digest.delivery_seq,
        None if mark is None else _json_from_bookmark(mark),
    ]


def details_from_json(value: JsonValue) -> Details:
    """Trusts the value: its checksum says that `json_from_details` made it."""
    settled, stamp, guard, header, short, ends, default, descriptors, children, delivery, mark = (
        cast(
            "tuple[bool, _List, _List | None, str, tuple[int, str | None, int, int], list[_List],"
            " _List | None, list[_List], list[_List], int | None, _List | None]",
            value,
        )
    )
    header_end, title, updated_at_ms, event_count = short
    digest = Digest(
        header=parse_header(header.encode()),
        header_end=header_end,
        title=title,
        updated_at_ms=updated_at_ms,
        event_count=event_count,
        turn_ends=tuple(_boundary_from_json(one) for one in ends),
        default=None if default is None else _boundary_from_json(default),
        descriptors=_located_from_json(descriptors),
        children=_located_from_json(children),
        delivery_seq=delivery,
        bookmark=None if mark is None else _bookmark_from_json(mark),
    )
    proof = None if guard is None else Guard._make(guard)
    return Details(settled, Stamp._make(stamp), proof, digest)


def _json_from_boundary(one: Boundary) -> JsonValue:
    return [one.seq, one.time_ms, *one.queued, one.moved, one.start, one.end, one.before, one.whole]


def _boundary_from_json(value: Sequence[JsonValue]) -> Boundary:
    seq, time_ms, turns, steps, moved, start, end, before, whole = cast("Sequence[int]", value)
    queued = (turns, steps)
    return Boundary(seq, time_ms, queued, bool(moved), start, end, before, bool(whole))


def _located_from_json(value: list[_List]) -> tuple[Located, ...]:
    rows = cast("list[tuple[int, int, JsonObject]]", value)
    return tuple(Located(seq, offset, data) for seq, offset, data in rows)


def _json_from_bookmark(mark: Bookmark) -> JsonValue:
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


def _bookmark_from_json(value: Sequence[JsonValue]) -> Bookmark:
    *plain, human_seqs, child_ids = value
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
