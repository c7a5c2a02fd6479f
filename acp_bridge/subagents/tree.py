"""All subagents below a session, for whoever replays it. Reads; blocking, as the query is."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from acp_bridge.errors import SessionQueryError
from acp_bridge.sessions import RecordFilter, SessionQuery, SessionRecord
from acp_bridge.subagents.descriptor import DESCRIPTOR_ROW, Descriptor, descriptor_from_data
from acp_bridge.vocabulary import Descendant, Event, SessionId

CATALOG_ROW: Final = "subagent/catalog"

UNNAMED: Final = "subagent"
"""What a child is called that no row names."""

_Found: TypeAlias = tuple[str, dict[str, str], SessionRecord]
"""A child to look at: its parent, what that calls its children, and its record."""


def descendants(query: SessionQuery, root_id: SessionId) -> Sequence[Descendant]:
    """Each after its parent, siblings oldest first; one that cannot be read is left out.

    Those below it are left out with it: nobody could say where they belong.

    Raises:
        SessionQueryError: the store itself cannot be read.
    """
    children: dict[str, list[SessionRecord]] = defaultdict(list)
    for record in query.records(RecordFilter(kind="subagent")):
        children[record.header.parent_session or ""].append(record)
    found: list[Descendant] = []
    seen = {str(root_id)}
    left: list[_Found] = []  # a stack of its own: programs may nest deeper than Python calls

    def add_below(parent_id: str, parent_events: Sequence[Event]) -> None:
        names = _names(parent_events)
        left.extend((parent_id, names, record) for record in reversed(children[parent_id]))

    if children[root_id]:
        add_below(root_id, query.list_events(root_id))
    while left:
        parent_id, names, record = left.pop()
        header = record.header
        if header.session_id in seen or header.cwd is None:
            continue
        seen.add(header.session_id)
        try:
            events = query.list_events(header.session_id)
        except SessionQueryError:
            continue
        found.append(
            Descendant(
                session_id=SessionId(header.session_id),
                parent_id=SessionId(parent_id),
                label=_label(events) or names.get(header.session_id) or UNNAMED,
                cwd=Path(header.cwd),
                is_running=record.is_live,
                events=events,
            )
        )
        add_below(header.session_id, events)
    return found


def _label(events: Sequence[Event]) -> str | None:
    label = None
    for event in events:
        if event.type == "session/end-seed" and event.data == {"inherited": True}:
            label = None  # what stands before it names another session
        elif event.type == DESCRIPTOR_ROW:
            found = descriptor_from_data(event.data)
            label = found.label if isinstance(found, Descriptor) else label
    return label


def _names(events: Sequence[Event]) -> dict[str, str]:
    """What a parent called its children: a one-shot one has no other name."""
    rows = (event.data for event in events if event.type == CATALOG_ROW)
    return {
        str(row.get("childId")): str(row["label"])
        for row in rows
        if isinstance(row, dict) and row.get("label")
    }
