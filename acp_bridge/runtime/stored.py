"""What every runtime says of stored sessions: which a client may open, and pages of their list."""

import base64
import binascii
import os
from functools import partial
from pathlib import Path

import anyio.to_thread

from acp_bridge.errors import InvalidParamsError
from acp_bridge.ports import SessionPage
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.listing import Order
from acp_bridge.sessions.store import SessionStore

PAGE_SIZE = 100
"""Sessions on one page of a list: several clients read only the first one."""


async def list_page(store: SessionStore, cwd: Path | None, page_token: str | None) -> SessionPage:
    """One page of a store's list: see `ports.Runtime.list_sessions`."""
    after = None if page_token is None else _order_from_token(page_token)
    ask = partial(store.summaries, cwd=cwd, after=after, limit=PAGE_SIZE)
    page = await anyio.to_thread.run_sync(ask)
    token = None if page.after is None else _token_from_order(page.after)
    return SessionPage(page.sessions, page.bad, token)


def refuse_child(header: Header) -> None:
    """Refuse to delete a subagent's session alone."""
    if header.origin == "subagent":
        raise deleted_with_parent(header.session_id)


def deleted_with_parent(session_id: str) -> InvalidParamsError:
    """What is said to whoever wants to delete a subagent's session."""
    return InvalidParamsError(
        f"Session {session_id} belongs to a subagent: it is deleted with its parent.",
        field="sessionId",
    )


def check_header(header: Header, cwd: Path | None) -> None:
    """Refuse what a client may not open, before a byte of it is changed.

    ``cwd`` None: any folder will do.
    """
    refuse_subagent(header)
    if header.cwd is None:
        raise InvalidParamsError(
            f"Session {header.session_id} was made without a working folder: it cannot be "
            "continued here.",
            field="sessionId",
        )
    if cwd is not None:
        check_cwd(Path(header.cwd), cwd)


def refuse_subagent(header: Header) -> None:
    """Refuse to open or fork a subagent's session."""
    if header.origin == "subagent":
        raise belongs_to_subagent(header.session_id)


def belongs_to_subagent(session_id: str) -> InvalidParamsError:
    """What is said to whoever wants to open or fork a subagent's session."""
    return InvalidParamsError(
        f"Session {session_id} belongs to a subagent: its parent reopens it.",
        field="sessionId",
    )


def check_cwd(recorded: Path, given: Path) -> None:
    """Refuse a working folder that is not the session's own."""
    if _normal(recorded) != _normal(given):
        raise InvalidParamsError(
            f"The session was made in {recorded}, not in {given}: open it with its own folder.",
            field="cwd",
        )


def _normal(path: Path) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # no system call takes it, so it is no folder of anybody
        return str(path)


def _token_from_order(order: Order) -> str:
    return base64.urlsafe_b64encode(f"{order[0]} {order[1]}".encode()).decode()


def _order_from_token(token: str) -> Order:
    try:
        time_text, _, session_id = base64.urlsafe_b64decode(token).decode().partition(" ")
        order = (int(time_text), session_id)
        if _token_from_order(order) == token:
            return order
    except (ValueError, binascii.Error):
        pass
    raise InvalidParamsError(
        "The cursor is not one that session/list gave: ask again without it.", field="cursor"
    )
