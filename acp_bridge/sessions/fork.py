"""An ordinary fork: its header, its title, the rows of its own, and the bytes of the copied part.

Pure. A fork copies rows 0..B of its source as they are and ends them with an inherited end-seed
at B+1, with the time of row B. Nothing in it names the source. What the copied rows would make the
fork do that only the source was asked to do, the first rows of the own range undo: messages still
queued are cancelled, so that no reader ever runs them, and a working folder that was changed gives
way to the one that the fork was given.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

import attrs

from acp_bridge.errors import InvalidParamsError
from acp_bridge.sessions.digest import DELIVERY, Boundary
from acp_bridge.sessions.events import dump_events, event_from_row
from acp_bridge.sessions.header import Header, count
from acp_bridge.sessions.jsontext import loads
from acp_bridge.sessions.validation import LogState
from acp_bridge.sessions.validation.state import is_number
from acp_bridge.sessions.validation.strict import check_draft
from acp_bridge.vocabulary import Draft, Event, JsonObject

Shape: TypeAlias = Literal["current", "dsh-0.2.1"]
"""``current`` copies every row as it is. dsh 0.2.1rc2 takes no delivery row of another session in a
fork that names no parent, so ``dsh-0.2.1`` gives those rows the fork's own id."""

_NUMBERED: Final = re.compile(r"(.+) \(([1-9][0-9]{0,2})\)", re.DOTALL)
"""Three digits at most: "Report (2026)" is no 2026th fork."""

_TARGETS: Final = ("next-turn", "next-step")


@attrs.frozen(slots=True)
class Fork:
    """A fork that was made.

    ``inherited_count`` rows were copied. With 0 nothing is stored yet (``is_stored`` False): the
    fork is a new session like any other, begun with `SessionStore.create`.
    """

    header: Header
    inherited_count: int
    title: str | None

    @property
    def is_stored(self) -> bool:
        """Whether the session can be opened."""
        return self.inherited_count > 0


def forked_header(
    source: Header,
    *,
    new_id: str,
    created_at_ms: int,
    cwd: str | None,
    is_seeded: bool,
    as_child: bool = False,
) -> Header:
    """The header of a fork: a session without a parent, also if the source is a subagent's.

    ``as_child``: that of a subagent whose parent is the source.
    """
    header = Header(
        session_id=new_id,
        created_at_ms=created_at_ms,
        cwd=source.cwd if cwd is None else cwd,
        is_seeded=is_seeded,
        agent_preset=source.agent_preset,
    )
    if not as_child:
        return header
    return attrs.evolve(
        header,
        delegation_depth=source.delegation_depth + 1,
        parent_session=source.session_id,
        origin="subagent",
    )


def next_title(title: str) -> str:
    """The title of a fork: "Fix parser", "Fix parser (2)", "Fix parser (3)"."""
    match = _NUMBERED.fullmatch(title)
    if match is None:
        return f"{title} (2)"
    return f"{match[1]} ({int(match[2]) + 1})"


def boundary_in(header: Header, events: Iterable[Event], at_seq: int) -> LogState:
    """The state right after row ``at_seq`` of a sound log, where a fork may be cut.

    Raises:
        InvalidParamsError: there is no such row, or a turn is open there.
    """
    state = LogState(header)
    for event in events:
        if event.seq > at_seq:
            break
        state.apply(event)
    if at_seq < 0 or state.next_seq != at_seq + 1:
        raise InvalidParamsError(
            f"Session {header.session_id:.100} cannot be forked at seq {at_seq}: its last row is"
            f" seq {state.next_seq - 1}.",
            field="at_seq",
        )
    if state.turn is not None:
        raise InvalidParamsError(
            f"Session {header.session_id:.100} cannot be forked at seq {at_seq}, inside turn"
            f" {state.turn}: choose the last row of a completed turn.",
            field="at_seq",
        )
    return state


def own_rows(
    boundary: Boundary, *, created_at_ms: int, title: str | None, cwd: str | None
) -> list[Event]:
    """The rows of a fork after the copied ones: the inherited marker, then what is its own.

    The title is given as by the user: that row needs no message to rest on (the cut may lie before
    the one that named the source), and no title that is generated later takes it away. ``cwd`` is
    the folder that the fork was given, None if it stays where the source was.
    """
    drafts = [
        Draft(
            "agent/inbox/spliced",
            {
                "target": target,
                "start": 0,
                "removedCount": queued,
                "inserted": [],
                "outcome": "canceled",
            },
        )
        for target, queued in zip(_TARGETS, boundary.queued, strict=True)
        if queued
    ]
    if cwd is not None and boundary.moved:
        drafts.append(Draft("working-directory/change", {"cwd": cwd}))
    if title is not None:
        drafts.append(
            Draft("session/title", {"title": title, "messageSeqs": [], "source": {"kind": "user"}})
        )
    for draft in drafts:
        check_draft(draft)
    first = boundary.seq + 1
    marker = Event(first, boundary.time_ms, "session/end-seed", {"inherited": True})
    own = [
        Event(first + place, created_at_ms, draft.type, draft.data)
        for place, draft in enumerate(drafts, start=1)
    ]
    return [marker, *own]


def leading_lines(text: bytes, wanted: int) -> bytes:
    """The first lines of a frame's content, up to and with the newline of the last wanted one."""
    at = 0
    for _ in range(wanted):
        at = text.index(b"\n", at) + 1
    return text[:at]


@attrs.frozen(slots=True)
class Span:
    """Bytes of the source's file that are copied as they lie there."""

    start: int
    end: int


def renamed_parts(
    frames: Iterable[tuple[int, int, bytes]], new_id: str, last_seq: int
) -> Iterator[Span | bytes]:
    """The rows up to ``last_seq``, delivery rows under another id: frames as they are, and lines.

    ``frames`` gives each frame's start, end and content, in order from row 0 on. A frame without
    such a row is kept as it is.
    """
    seq = 0
    begun = b""
    for start, end, text in frames:
        whole = begun + text
        lines = whole.count(b"\n")
        fits = not begun and whole.endswith(b"\n") and seq + lines <= last_seq + 1
        if fits and DELIVERY.encode() not in whole:
            yield Span(start, end)
            seq += lines
            continue
        kept = leading_lines(whole, min(lines, last_seq + 1 - seq))
        begun = whole[len(kept) :]
        if kept:
            rows = kept[:-1].split(b"\n")
            yield b"".join(_renamed(row, seq + place, new_id) for place, row in enumerate(rows))
            seq += len(rows)
        if seq > last_seq:
            return


def _renamed(row: bytes, seq: int, new_id: str) -> bytes:
    if DELIVERY.encode() not in row:
        return row + b"\n"
    event = event_from_row(loads(row), seq)
    data = event.data
    if (
        event.type != DELIVERY
        or not isinstance(data, dict)
        or not is_number(data.get("sessionFormatVersion", 0), 4)
        or count(data.get("throughSeq")) is None
    ):
        return row + b"\n"
    named: JsonObject = {**data, "sessionId": new_id}
    return dump_events([attrs.evolve(event, data=named)])
