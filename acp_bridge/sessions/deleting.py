"""Removing a session and the subagents' sessions below it: all of them are locked first."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from acp_bridge.errors import SessionNotFoundError
from acp_bridge.sessions.finding import Finder
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.logfile import disk_error, take_lock


def delete(finder: Finder, session_id: str, check: Callable[[Header], None]) -> None:
    """Remove a session; see `SessionStore.delete`."""
    try:
        path = finder.find(session_id)
    except SessionNotFoundError:
        return
    headers = list(finder.headers())
    for header, _ in headers:
        if header.session_id == session_id:
            check(header)
    children = [(h.session_id, p) for h, p in _below(session_id, headers)]
    locks: list[int] = []
    try:
        for one, log in [(session_id, path), *children]:
            lock = take_lock(log.parent, one, create=True)
            assert lock is not None
            locks.append(lock)
        # The parent last: what a crash leaves can still be found and deleted by its id.
        for _, log in [*children, (session_id, path)]:
            log.unlink(missing_ok=True)  # from here on it is gone; what follows tidies up
            shutil.rmtree(log.parent)
    except FileNotFoundError:
        pass  # somebody else deleted it
    except OSError as error:
        raise disk_error(session_id, "deleted", error) from error
    finally:
        for lock in locks:
            os.close(lock)


def _below(session_id: str, headers: Sequence[tuple[Header, Path]]) -> list[tuple[Header, Path]]:
    """The subagents' sessions below a session, children of children included, each once."""
    found: dict[str, tuple[Header, Path]] = {}
    parents = [session_id]
    while parents:
        parent = parents.pop()
        for header, path in headers:
            is_child = header.origin == "subagent" and header.parent_session == parent
            if is_child and header.session_id not in {session_id, *found}:
                found[header.session_id] = (header, path)
                parents.append(header.session_id)
    return list(found.values())
