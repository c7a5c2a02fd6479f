"""A session's log and the process that has it: opened there, left, and read on afterwards.

The log is begun and reopened by us and continued by the runtime, which tells each row on the wire.
What it does not tell (a shutdown's last rows, a crash's repair) is read from the log afterwards, so
that every row is heard once, in order.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from acp_bridge.errors import (
    BridgeError,
    PeerError,
    PeerGoneError,
    RuntimeFailedError,
    SessionConflictError,
    SessionNotFoundError,
)
from acp_bridge.runtime.attachments import AttachmentStore
from acp_bridge.runtime.dsh.client import OnNotification, Session
from acp_bridge.runtime.dsh.control_types import ModelChoice, Opening
from acp_bridge.runtime.dsh.host import Host
from acp_bridge.runtime.dsh.hosts import Hosts
from acp_bridge.runtime.dsh.logs import begin_log, continue_log, first_difference
from acp_bridge.runtime.dsh.models import DshModels
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.store import SessionStore
from acp_bridge.vocabulary import Draft, Event, SessionId

logger = logging.getLogger(__name__)

LEAVE_WAIT_S: Final = 8.0
"""How long a process may take to close a session: a command that ignores SIGTERM is killed after
3 s."""

OPEN_WAIT_S: Final = 30.0
"""How long the runtime may take to open a session: 20 ms, and more for a log of many megabytes."""

_HELD: Final = ("already owned by an active write handle", "already open or opening")


@attrs.frozen(slots=True)
class Shop:
    """What the sessions of one runtime share.

    ``people_home`` holds what the user has written for all projects; ``reads_instructions``:
    AGENTS.md files count. ``fork`` stores a fork of a session's completed turns for a folder, None
    if there are none. ``detaches``: no prompt waits for subagents.
    """

    store: SessionStore
    hosts: Hosts
    models: DshModels
    attachments: AttachmentStore
    group: anyio.abc.TaskGroup
    new_id: Callable[[], str]
    people_home: Path
    reads_instructions: bool
    fork: Callable[[SessionId, Path], Awaitable[SessionId | None]]
    detaches: bool = False


@attrs.frozen(slots=True)
class Owner:
    """What a residence asks its session, and tells it.

    ``apply`` takes each row of the log once, in order; ``hear`` what the wire tells of the tree
    below the session; ``opened`` and ``settle`` are waited for when a process has opened it, and
    when one has let go of it. ``model`` is the one in force, ``first_rows`` are those that a new
    log begins with, in that process, and ``late_rows`` what that process makes worth saying in a
    log that there is; ``closing``: the session takes no more prompts.
    """

    apply: Callable[[Event], None]
    hear: OnNotification
    opened: Callable[[Host], Awaitable[None]]
    settle: Callable[[], Awaitable[None]]
    model: Callable[[], ModelChoice]
    first_rows: Callable[[Host], list[Draft]]
    late_rows: Callable[[Host], list[Draft]]
    closing: Callable[[], bool]


class Residence:
    """``events`` are the log so far; empty: nothing is stored before the first prompt.

    Whoever calls `leave`, `continue_log` or `lost`, or asks `host` for more than a look, holds
    ``lock``.
    """

    def __init__(
        self, shop: Shop, header: Header, owner: Owner, *, events: Sequence[Event] = ()
    ) -> None:
        self._shop = shop
        self._header = header
        self._owner = owner
        self.session_id = SessionId(header.session_id)
        self.events = list(events)
        """The log as it was told; `add` alone appends."""
        self.lock = anyio.Lock()
        self.host: Host | None = None
        """The process that has the log open."""
        self.unsaid: list[Draft] = []
        """Choices that the runtime could not be told: rows for the log's next opening by us."""
        self._heard = ExitStack()
        self._preparing: set[anyio.CancelScope] = set()

    def add(self, event: Event) -> None:
        """Take the log's next row."""
        if event.seq != len(self.events):
            logger.warning(
                "session %s: seq %d came after %d rows",
                self.session_id,
                event.seq,
                len(self.events),
            )
        self.events.append(event)
        self._owner.apply(event)

    # --- the way in ---------------------------------------------------------------------------

    def prepare(self) -> None:
        """Have a process start, and open the session there, so that the next prompt need not wait.

        What goes wrong is left for that prompt to find and tell.
        """
        self._shop.group.start_soon(self._prepare)

    async def _prepare(self) -> None:
        with anyio.CancelScope() as scope:
            self._preparing.add(scope)
            try:
                await self.opened(is_prompted=False)
            except BridgeError as failure:
                logger.warning("session %s: %s", self.session_id, failure.details)
            finally:
                self._preparing.discard(scope)

    async def opened(self, *, is_prompted: bool) -> Session | None:
        """The session as the wire has it, opened there if need be.

        None if nothing is stored yet and no prompt asks for it.
        """
        async with self.lock:
            host = self.host
            if host is not None and host.usable and not self.unsaid:
                return host.client.session(self.session_id)
            if self._owner.closing():
                raise RuntimeFailedError(f"Session {self.session_id} is being closed.")
            if host is not None:
                await self.leave()
                await self.continue_log()
            elif self.unsaid:
                await self.continue_log()
            if not self.events and not is_prompted:
                self._shop.hosts.prewarm()
                return None
            host = await self._shop.hosts.take(self.session_id)
            try:
                # Shielded: else the runtime might open it for nobody, and keep its lock.
                with anyio.fail_after(OPEN_WAIT_S, shield=True):
                    if not self.events:
                        await self._begin_log(host)
                    elif rows := self._owner.late_rows(host):
                        self.unsaid += rows
                        await self.continue_log()
                    return await self._open_in(host)
            except BaseException as failure:
                with anyio.CancelScope(shield=True):
                    if isinstance(failure, TimeoutError):
                        await host.end_if_hung()
                    await self._shop.hosts.release(host, self.session_id)
                if isinstance(failure, TimeoutError):
                    raise RuntimeFailedError(
                        f"DeepSeek Harness did not open session {self.session_id} within "
                        f"{OPEN_WAIT_S:.0f} s: try again."
                    ) from failure
                raise

    async def _open_in(self, host: Host) -> Session:
        session = host.client.session(self.session_id)
        model, cwd = self._owner.model(), self._header.cwd or "/"
        try:
            if host.control is not None:
                await host.control.resume_session(Opening(self.session_id, cwd, model=model))
            else:
                await host.set_up(cwd, model)
                await session.resume()
        except PeerError as refusal:
            raise self._refusal(refusal) from refusal
        self._heard.enter_context(host.client.subscribe(self.session_id, self._owner.hear))
        self.host = host
        await self._owner.opened(host)
        return session

    def _refusal(self, refusal: PeerError) -> BridgeError:
        if any(words in refusal.details for words in _HELD):
            return SessionConflictError(
                f"Session {self.session_id} is open in another program: close it there, then send "
                "the prompt again."
            )
        return RuntimeFailedError(refusal.details)

    # --- the log ------------------------------------------------------------------------------

    async def _begin_log(self, host: Host) -> None:
        drafts = self._owner.first_rows(host)
        write = partial(begin_log, self._shop.store, self._header, drafts)
        self._take(await anyio.to_thread.run_sync(write))

    async def append(self, row: Draft) -> None:
        """Append a row of ours to a log that is begun: by the process, or between two of them.

        Takes the lock. No turn may run where there is no control plugin.

        Raises:
            BridgeError: it was not written, or will be at the log's next opening.
        """
        async with self.lock:
            host = self.host
            if host is not None and host.usable and host.control is not None:
                append = host.control.record if row.ignorable else host.control.log_command
                await append(self.session_id, row)
                return
            self.unsaid.append(row)
            await self.leave()
            await self.continue_log()

    async def continue_log(self) -> None:
        """Hear from the log what the wire did not tell, and write what the runtime was not told."""
        drafts, self.unsaid = self.unsaid, []
        write = partial(continue_log, self._shop.store, self.session_id, drafts)
        try:
            _, stored = await anyio.to_thread.run_sync(write)
        except SessionNotFoundError:
            self.events.clear()  # it ended before anything was stored
            return
        except BaseException:
            self.unsaid = drafts
            raise
        self._take(stored)

    def _take(self, stored: Sequence[Event]) -> None:
        at = first_difference(self.events, stored)
        if at < len(self.events):
            logger.warning("session %s: rows from seq %d were lost", self.session_id, at)
            del self.events[at:]
        for event in stored[at:]:
            self.add(event)

    # --- the way out --------------------------------------------------------------------------

    async def leave(self) -> None:
        """Let go of the process, which has closed the log when this returns."""
        host, self.host = self.host, None
        if host is None:
            return
        self._heard.close()
        if host.usable and host.control is not None:
            try:
                with anyio.fail_after(LEAVE_WAIT_S):
                    await host.control.close(self.session_id)
            except (PeerError, PeerGoneError, TimeoutError):
                logger.exception("session %s was not closed", self.session_id)
                await host.end_if_hung()
        if host.usable:
            host.client.forget(self.session_id)
        await self._shop.hosts.release(host, self.session_id)
        if not host.usable:
            await host.wait_ended()
        await self._owner.settle()

    async def lost(self) -> str:
        """The process is gone: leave it, and hear what the log says since. Why it is gone."""
        host = self.host
        details = "DeepSeek Harness is gone: send the prompt again."
        await self.leave()
        if host is not None:
            try:
                await host.ready()
            except RuntimeFailedError as failure:
                details = f"{failure.details} The session goes on with the next prompt."
        await self.continue_log()
        return details

    async def release(self) -> None:
        """Let go for good; its owner is closing."""
        for scope in self._preparing:
            scope.cancel()
        async with self.lock:
            await self.leave()
            if self.unsaid:
                try:
                    await self.continue_log()
                except BridgeError as failure:
                    logger.warning("session %s: %s", self.session_id, failure.details)
