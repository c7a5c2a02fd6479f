"""What the user allowed "always", to a session and to each of its subagents: rows of their logs.

They are the rows of the embedded harness, so either runtime holds what was allowed in the other,
and a fork, which counts them from its cut on, begins without.
"""

import logging
from collections.abc import Collection
from functools import partial

import anyio.to_thread

from acp_bridge.errors import BridgeError
from acp_bridge.harness.memory import GRANT_ROW, SessionMemory
from acp_bridge.runtime.dsh.host import Host
from acp_bridge.sessions.store import SessionStore
from acp_bridge.vocabulary import Draft, SessionId

logger = logging.getLogger(__name__)


class Grants:
    """``own`` are those of the root's log."""

    def __init__(self, root_id: SessionId, own: Collection[str], store: SessionStore) -> None:
        self._by_session = {root_id: set(own)}
        self._store = store

    async def of(self, session_id: SessionId) -> Collection[str]:
        """What was allowed to a session of this tree."""
        if session_id not in self._by_session:
            read = partial(_stored, self._store, session_id)
            stored = await anyio.to_thread.run_sync(read)
            self._by_session.setdefault(session_id, stored)
        return self._by_session[session_id]

    async def add(self, session_id: SessionId, grant: str, host: Host | None) -> None:
        """Allow it from now on; in the log as well, if its process can write it there."""
        await self.of(session_id)
        self._by_session[session_id].add(grant)
        if host is None or host.control is None or not host.can("record"):
            return
        try:
            await host.control.record(session_id, Draft(GRANT_ROW, {"grant": grant}))
        except BridgeError:
            logger.exception("session %s: a grant holds until it is closed", session_id)


def _stored(store: SessionStore, session_id: SessionId) -> set[str]:
    try:
        return set(SessionMemory(store.read(session_id).events).grants)
    except BridgeError as failure:
        logger.warning("session %s: its grants are not known: %s", session_id, failure.details)
        return set()
