"""Where a child's log begins: empty (``spawn``), or with its parent's completed turns (``fork``).

Blocking; call them from threads. A provider gives an open writer of a log that holds nothing of the
child's own yet.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from acp_bridge.sessions import Header, LogWriter, SessionStore
from acp_bridge.vocabulary import SessionId


@attrs.frozen(slots=True)
class Birth:
    """A child to come: its id, its parent's header, its creation time, and its working folder.

    ``cwd`` None: the parent's.
    """

    child_id: SessionId
    parent: Header
    created_at_ms: int
    cwd: Path | None


Provider: TypeAlias = Callable[[SessionStore, Birth], LogWriter]


def spawn(store: SessionStore, birth: Birth) -> LogWriter:
    """An empty log; nothing is stored before its first rows."""
    parent = birth.parent
    header = Header(
        session_id=birth.child_id,
        created_at_ms=birth.created_at_ms,
        cwd=parent.cwd if birth.cwd is None else str(birth.cwd),
        delegation_depth=parent.delegation_depth + 1,
        parent_session=parent.session_id,
        origin="subagent",
    )
    return store.create(header)


def fork(store: SessionStore, birth: Birth) -> LogWriter:
    """A log that begins with the parent's completed turns; without any it is empty.

    Raises:
        BridgeError: as `SessionStore.fork` and `SessionStore.open`.
    """
    made = store.fork(
        birth.parent.session_id,
        new_id=birth.child_id,
        created_at_ms=birth.created_at_ms,
        cwd=None if birth.cwd is None else str(birth.cwd),
        title_increment=False,
        as_child=True,
    )
    return store.open(birth.child_id) if made.is_stored else store.create(made.header)


PROVIDERS: Final[Mapping[str, Provider]] = {"spawn": spawn, "fork": fork}
"""Every way in which a log begins, by the name that descriptors give a child that works here."""

REMOTE: Final = "remote"
"""The provider that descriptors name of a child that another process executes. Its log begins as
that of a local one does, by ``spawn`` or ``fork``."""
