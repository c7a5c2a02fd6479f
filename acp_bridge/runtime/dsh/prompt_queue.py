"""The prompts of one session: first in first out, one at a time, cancelled and closed as a whole.

Prompts wait in memory and enter the log when their turn starts (sessions: "Writing"); after a kill
the other harness would otherwise run them by itself.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable

import anyio

from acp_bridge.harness.waiting import WaitingPrompt
from acp_bridge.vocabulary import Command, Prompt, SessionId, TurnEnd

logger = logging.getLogger(__name__)

CLOSE_WAIT_S = 5.0
"""How long a close waits for the running turn; what is left then has been told to stop."""


class PromptQueue:
    """``run`` takes a prompt through its turn, within ``waiting.scope``; it must not raise.

    `serve` must run in a task for as long as the session is open. ``close_wait_s`` is for sessions
    whose turns take longer to end than `CLOSE_WAIT_S`.
    """

    def __init__(
        self,
        session_id: SessionId,
        run: Callable[[WaitingPrompt], Awaitable[TurnEnd]],
        *,
        close_wait_s: float | None = None,
    ) -> None:
        self._session_id = session_id
        self._run = run
        self._close_wait_s = close_wait_s
        self._waiting: deque[WaitingPrompt] = deque()
        self._wake = anyio.Event()
        self._running: WaitingPrompt | None = None
        self._beside: WaitingPrompt | None = None
        self._served = anyio.Event()
        self.closing = False
        """Whether it takes no more prompts."""

    @property
    def busy(self) -> bool:
        """Whether a turn runs or a prompt waits."""
        return self._running is not None or bool(self._waiting)

    @property
    def withdrawn(self) -> bool:
        """Whether what runs is being ended."""
        return self._running is not None and self._running.scope.cancel_called

    @property
    def has_waiting(self) -> bool:
        """Whether a prompt waits for the running one."""
        return bool(self._waiting)

    def admit(self, prompt: Prompt | Command) -> WaitingPrompt:
        """Take a prompt or a command, synchronously."""
        waiting = WaitingPrompt(prompt)
        if self.closing:
            waiting.settle(TurnEnd("aborted"))
        else:
            self._waiting.append(waiting)
            self._wake.set()
        return waiting

    def take_command(self) -> WaitingPrompt | None:
        """The next that waits, if it is a command; it is the caller's to end, and beside the turn.

        `cancel` ends it too.
        """
        if self._waiting and isinstance(self._waiting[0].prompt, Command):
            self._beside = self._waiting.popleft()
            self._beside.begin()
            return self._beside
        return None

    @property
    def is_beside(self) -> bool:
        """Whether what `take_command` gave still runs."""
        return self._beside is not None and self._beside.runs

    def cancel(self) -> None:
        """End the running turn and the waiting prompts as cancelled; nothing running: no-op."""
        for waiting in self._waiting:
            waiting.withdraw()
        if self._beside is not None and self._beside.runs:
            self._beside.withdraw()
        if self._running is not None:
            self._running.withdraw()

    async def close(self) -> None:
        """Cancel, and wait until `serve` has ended. Idempotent."""
        if not self.closing:
            self.closing = True
            self.cancel()
            self._wake.set()
        bound_s = CLOSE_WAIT_S if self._close_wait_s is None else self._close_wait_s
        with anyio.move_on_after(bound_s, shield=True) as bound:
            await self._served.wait()
        if bound.cancelled_caught:
            logger.warning("session %s: its turn did not end in time", self._session_id)

    async def serve(self, release: Callable[[], Awaitable[None]]) -> None:
        """Run prompts until `close`, then ``release`` what the session holds."""
        try:
            while not self.closing or self._waiting:
                if self._waiting:
                    await self._take(self._waiting.popleft())
                else:
                    await self._wake.wait()
                    self._wake = anyio.Event()
        finally:
            self.closing = True
            for waiting in self._waiting:
                waiting.settle(TurnEnd("aborted"))
            with anyio.CancelScope(shield=True):
                await release()
            self._served.set()

    async def _take(self, waiting: WaitingPrompt) -> None:
        end = TurnEnd("aborted")
        waiting.begin()
        self._running = waiting
        try:
            if not waiting.scope.cancel_called:
                end = await self._run(waiting)
        finally:
            self._running = None
            waiting.settle(end)
