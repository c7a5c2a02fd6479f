"""Which continuable children a session has, and what one is, by headers and descriptors alone.

The trace decides who is a candidate; when it cannot be built there is no trustworthy set, and the
call fails. After that a failure concerns one child, whose entry says so, and costs no further read.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs

from acp_bridge.errors import (
    BridgeError,
    SessionCorruptError,
    SessionQueryError,
    SessionUnsupportedError,
)
from acp_bridge.sessions import SessionQuery, SessionRecord, SessionStore
from acp_bridge.sessions.query import (
    EVENT_NOT_FOUND,
    HEADER_CONFLICT,
    PERSISTENCE_FAILED,
    SESSION_NOT_FOUND,
)
from acp_bridge.subagents import refusals
from acp_bridge.subagents.descriptor import DESCRIPTOR_ROW, Descriptor, descriptor_from_data
from acp_bridge.vocabulary import SessionId

Reason: TypeAlias = Literal["corrupt", "unsupported", "unavailable"]


@attrs.frozen(slots=True)
class Child:
    """A continuable child.

    ``running``: it is live. ``complete``: it is in the store only, whatever became of its last
    turn, and a message may wake it.
    """

    session_id: SessionId
    label: str
    status: Literal["running", "complete"]


@attrs.frozen(slots=True)
class Diagnostic:
    """A session that says it is a child, and why no more can be said of it."""

    session_id: SessionId
    reason: Reason


def list_children(query: SessionQuery, parent_id: str) -> Sequence[Child | Diagnostic]:
    """The direct continuable children by creation time, then id. Blocking, as the query is.

    Raises:
        SessionQueryError: the trace cannot be built, or a failure is not about one child.
        Whatever else reading raises: it is not understood here.
    """
    entries = (_entry(query, parent_id, one) for one in query.trace(parent_id).children)
    return [entry for entry in entries if entry is not None]


def descriptor_of(
    query: SessionQuery, parent_id: str, record: SessionRecord
) -> Descriptor | Reason | None:
    """What a traced child is, read from its log; None: no continuable child.

    Raises:
        SessionQueryError: as `list_children`.
    """
    session_id = record.header.session_id
    try:
        seqs = query.descriptor_seqs(session_id, at=record.path)
        if len(seqs) != 1:
            return "corrupt" if seqs else None
        header, event = query.read_event(session_id, seqs[0], at=record.path)
    except SessionQueryError as error:
        reason = _reason(error)
        if reason is None:
            raise
        return reason
    is_same = header == record.header and header.parent_session == parent_id
    if not is_same or event.seq != seqs[0] or event.type != DESCRIPTOR_ROW:
        return "corrupt"
    return descriptor_from_data(event.data)


def complete_child(store: SessionStore, parent_id: SessionId, child_id: SessionId) -> Descriptor:
    """What a complete child is, by its log alone. Blocking.

    Raises:
        SubagentRefusedError: it is no continuable child of this parent, or cannot be read.
    """
    try:
        header = store.read_header(child_id)
    except BridgeError as error:
        raise refusals.not_found(child_id, error.details) from error
    if header.origin != "subagent" or header.parent_session != parent_id:
        raise refusals.not_yours(child_id)
    record = SessionRecord(header=header, is_live=False)
    match descriptor_of(SessionQuery(store), parent_id, record):
        case Descriptor() as found:
            return found
        case None:
            raise refusals.not_continuable(child_id)
        case reason:
            raise refusals.unreadable(child_id, reason)


def _entry(query: SessionQuery, parent_id: str, record: SessionRecord) -> Child | Diagnostic | None:
    session_id = SessionId(record.header.session_id)
    found = descriptor_of(query, parent_id, record)
    match found:
        case None:
            return None
        case Descriptor():
            return Child(session_id, found.label, "running" if record.is_live else "complete")
        case reason:
            return Diagnostic(session_id, reason)


def _reason(error: SessionQueryError) -> Reason | None:
    """What a failed read says of the child; None: it is not about this child alone."""
    match error.query_code:
        case code if code == HEADER_CONFLICT:
            return "corrupt"
        case code if code in {SESSION_NOT_FOUND, EVENT_NOT_FOUND}:
            return "unavailable"
        case code if code == PERSISTENCE_FAILED:
            if isinstance(error.__cause__, SessionCorruptError):
                return "corrupt"
            if isinstance(error.__cause__, SessionUnsupportedError):
                return "unsupported"
            return "unavailable"
        case _:
            return None
