"""What a session was subscribed to before this process started: from the store and the service."""

import logging

from acp_bridge.errors import EventServiceError
from acp_bridge.runevents.backoff import Backoff
from acp_bridge.runevents.delivery import StoredCursors
from acp_bridge.runevents.driver import Home
from acp_bridge.vocabulary import SessionId

logger = logging.getLogger(__name__)

NOT_REGISTERED = 404


async def restore(home: Home, session_id: SessionId) -> None:
    """Merge cursors, own run and children into the session, all by max.

    Cursors count at once; children when the service answers, and widen an open stream. Tried again
    as streams are, and given up for a session that was removed meanwhile.
    """
    core = home.core
    stored = await _load(home, session_id)
    if home.epoch is None:
        home.epoch = stored.epoch
    cursors = stored.cursors
    if home.epoch != stored.epoch:
        cursors = dict.fromkeys(cursors, 0)  # of a log that is no more
    home.apply(core.restored(session_id, cursors=cursors, run_id=stored.run_id))
    backoff = Backoff(home.outside.chance)
    while core.knows(session_id):
        run_id = core.run_of(session_id)
        if run_id is None:
            return
        try:
            children = await home.source.children(run_id)
        except EventServiceError as error:
            if error.status == NOT_REGISTERED:
                return  # nobody can have registered a child with it
            wait_s = backoff.failed(error.status)
            logger.warning("children of %s not found: %s", session_id, error.details)
            if wait_s is None:
                return
            await home.outside.sleep(wait_s)
        else:
            home.apply(core.restored(session_id, cursors={}, children=children))
            return


async def _load(home: Home, session_id: SessionId) -> StoredCursors:
    try:
        return await home.store.load(session_id)
    except Exception:
        # Everything comes again, and is recognised.
        logger.exception("cursors of %s not read", session_id)
        return StoredCursors()
