"""The sessions that a runtime has open: each at most once, and one move of it at a time."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

import anyio

from acp_bridge.errors import SessionConflictError
from acp_bridge.vocabulary import SessionId


class Closable(Protocol):
    """What is open here."""

    @property
    def closing(self) -> bool:
        """Whether it takes no more prompts."""

    async def close(self) -> None:
        """End it; bounded."""


S = TypeVar("S", bound=Closable)


class OpenSessions(Generic[S]):
    """Sessions by id, from `add` to `remove`."""

    def __init__(self) -> None:
        self._open: dict[SessionId, S] = {}
        self._moving: dict[SessionId, anyio.Event] = {}
        """Sessions that are being opened or deleted: whoever else wants one waits."""

    def get(self, session_id: SessionId) -> S | None:
        """The session, if it is open."""
        return self._open.get(session_id)

    def all(self) -> list[S]:
        """Every open session; a copy, for threads as well."""
        return list(self._open.values())

    def is_taken(self, session_id: SessionId) -> bool:
        """Whether it is open, or being opened or deleted."""
        return session_id in self._open or session_id in self._moving

    def add(self, session_id: SessionId, session: S) -> None:
        """It is open now."""
        self._open[session_id] = session

    def remove(self, session_id: SessionId) -> None:
        """It is closed now."""
        self._open.pop(session_id, None)

    async def opened(self, session_id: SessionId, open_it: Callable[[], Awaitable[S]]) -> S:
        """The open session, or the one that ``open_it`` opens (and adds), alone at that.

        Raises:
            SessionConflictError: it is open and does not end.
            Whatever ``open_it`` raises.
        """
        while True:
            live = self._open.get(session_id)
            if (moving := self._moving.get(session_id)) is not None:
                await moving.wait()
            elif live is None or not live.closing:
                break
            else:
                await live.close()
                if self._open.get(session_id) is live:
                    raise SessionConflictError(
                        f"Session {session_id} is still being closed: try again."
                    )
        if live is not None:
            return live
        async with self.moving(session_id):
            return await open_it()

    @asynccontextmanager
    async def moving(self, session_id: SessionId) -> AsyncIterator[None]:
        """Nobody else opens, deletes or moves it meanwhile."""
        while (moving := self._moving.get(session_id)) is not None:
            await moving.wait()
        self._moving[session_id] = anyio.Event()
        try:
            yield
        finally:
            self._moving.pop(session_id).set()

    async def close_all(self) -> None:
        """Close every session, side by side."""
        async with anyio.create_task_group() as group:
            for session in self.all():
                group.start_soon(session.close)
