"""Which process a session runs in: one for all with the control plugin, else one for each."""

import logging
from collections.abc import Callable

import anyio
import anyio.abc

from acp_bridge.errors import RuntimeFailedError
from acp_bridge.runtime.dsh.host import Host
from acp_bridge.vocabulary import SessionId

logger = logging.getLogger(__name__)


class Hosts:
    """Runtime processes.

    ``make`` gives one that is not started; ``is_fresh`` tells whether one that was started before
    still fits (its key may have been replaced since). A process takes hundreds of megabytes and a
    second to start, so the first one is started ahead (`prewarm`).
    """

    def __init__(
        self,
        group: anyio.abc.TaskGroup,
        make: Callable[[], Host],
        is_fresh: Callable[[Host], bool],
    ) -> None:
        self._group = group
        self._make = make
        self._is_fresh = is_fresh
        self._lock = anyio.Lock()
        self._idle: Host | None = None
        self._users: dict[Host, set[SessionId]] = {}
        """Every process that was not seen to end, with the sessions in it."""

    def prewarm(self) -> None:
        """Begin to start a process, if none stands ready.

        Raises:
            RuntimeFailedError: there is none to start; says why.
        """
        is_ready = self._idle is not None and self._idle.usable
        if not is_ready and self._shared() is None:
            self._idle = self._start()

    async def take(self, session_id: SessionId) -> Host:
        """A process that is ready, for this session.

        Raises:
            RuntimeFailedError: none can be started; says why.
        """
        async with self._lock:
            host = self._shared() or await self._fresh_idle() or self._start()
            try:
                await host.ready()
            except RuntimeFailedError:
                self._users.pop(host, None)
                raise
            except BaseException:  # whoever waited is gone; the next one takes it
                self._idle = host
                raise
            self._users[host].add(session_id)
            return host

    async def release(self, host: Host, session_id: SessionId) -> None:
        """The session is closed there. A process that it had alone ends."""
        users = self._users.get(host, set())
        users.discard(session_id)
        is_shared = host.control is not None and host.usable and self._is_fresh(host)
        if not users and not is_shared:
            await host.shut_down()
            self._users.pop(host, None)

    async def close(self) -> None:
        """End every process, side by side."""
        async with anyio.create_task_group() as group:
            for host in self._users:
                group.start_soon(host.shut_down)

    def _start(self) -> Host:
        host = self._make()
        self._users[host] = set()
        self._group.start_soon(self._serve, host)
        return host

    async def _serve(self, host: Host) -> None:
        await host.serve()
        if not self._users.get(host):
            self._users.pop(host, None)

    def _shared(self) -> Host | None:
        return next(
            (
                host
                for host in self._users
                if host.control is not None and host.usable and self._is_fresh(host)
            ),
            None,
        )

    async def _fresh_idle(self) -> Host | None:
        host, self._idle = self._idle, None
        if host is None or not host.usable:
            return None
        if self._is_fresh(host):
            return host
        await host.shut_down()
        return None
