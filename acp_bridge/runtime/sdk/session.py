"""A session that the connection has open: its prompts until they are heard of, and its quiet."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.abc

from acp_bridge.errors import BridgeError, RuntimeFailedError
from acp_bridge.ports import (
    ClientCommand,
    CommandEnd,
    LiveSession,
    PendingTurn,
    PermissionAsk,
    QuestionsAsk,
)
from acp_bridge.runtime.sdk.feed import Feed, Notice
from acp_bridge.vocabulary import Answer, Prompt, RuntimeEvent, TurnEnd

_UNTOLD_FAULTS: Final = frozenset({"STORE", "INTERNAL"})
"""Codes of failures that may leave no row behind, so that nobody would hear of them."""


class HostedSession(LiveSession, Protocol):
    """A live session whose tools can be moved to another folder."""

    async def working_folder(self) -> Path:
        """Where its tools work; if that folder is gone, they work in the session's own again.

        Raises:
            StoreFailedError: the disk refused.
        """

    async def move(self, path: str) -> Path:
        """Let its tools work in this folder; a relative path starts where they work now.

        Raises:
            InvalidParamsError: it is no folder.
            StoreFailedError: the disk refused.
        """


class SdkClient:
    """Implements `ports.Client` for a wire that never asks; ``flow`` is its back-pressure."""

    reads_text: Final = False
    writes_text: Final = False
    runs_commands: Final = False
    takes_questions: Final = False

    def __init__(self, flow: Callable[[], Awaitable[None]]) -> None:
        self._flow = flow

    async def ask_permission(self, _ask: PermissionAsk) -> Answer:
        """Nobody can be asked."""
        return Answer.UNAVAILABLE

    async def ask_questions(self, _ask: QuestionsAsk) -> None:
        """Nobody can be asked."""

    async def read_text(self, path: Path) -> str:
        """Not offered."""
        raise FileNotFoundError(path)

    async def write_text(self, path: Path, _text: str) -> None:
        """Not offered."""
        raise PermissionError(path)

    async def run_command(self, command: ClientCommand) -> CommandEnd:
        """Not offered."""
        raise PermissionError(command.shell)

    async def flow(self) -> None:
        """Wait while the client reads slower than we write."""
        await self._flow()


class Ticket:
    """A prompt on its way: from its request to the row that shows it, or to its failure."""

    def __init__(self, prompt: Prompt, message_id: str) -> None:
        self.prompt = prompt
        self.message_id = message_id
        self._answerable = anyio.Event()
        self._failure: BridgeError | None = None

    def settle(self, failure: BridgeError | None = None) -> None:
        """Its request can be answered. The first call counts."""
        if not self._answerable.is_set():
            self._failure = failure
            self._answerable.set()

    async def receipt(self) -> str:
        """The message's id, once the log has it or it waits behind others.

        Raises:
            BridgeError: it did not get there.
        """
        await self._answerable.wait()
        if self._failure is not None:
            raise self._failure
        return self.message_id


class SdkSession:
    """``tell`` sends a notification; ``tasks`` is where the ends of prompts are waited for."""

    def __init__(
        self, live: HostedSession, *, tell: Callable[[Notice], None], tasks: anyio.abc.TaskGroup
    ) -> None:
        self.live = live
        self._tell = tell
        self._tasks = tasks
        self._feed = Feed(live.session_id)
        self._tickets: dict[str, Ticket] = {}
        self._changed = anyio.Event()
        self._failure: str | None = None
        live.attach(self._hear)

    def admit(self, ticket: Ticket) -> None:
        """Take a prompt, synchronously, first in first out."""
        self._failure = None
        waits = self._feed.awaits_turn or bool(self._tickets)
        self._feed.expect(ticket.message_id)
        self._tickets[ticket.message_id] = ticket
        turn = self.live.admit(ticket.prompt)
        self._tasks.start_soon(self._follow, ticket, turn)
        if waits:
            ticket.settle()  # its row comes with its turn, and nobody waits for that

    async def wait(self) -> None:
        """Wait until the session is idle, its prompts are answered and its subagents settled.

        Raises:
            RuntimeFailedError: its last prompt failed without a word in the log.
        """
        while self._tickets or not self._feed.quiet:
            await self._changed.wait()
        if self._failure is not None:
            raise RuntimeFailedError(self._failure)

    async def _follow(self, ticket: Ticket, turn: PendingTurn) -> None:
        end = await turn.ended()
        had_row = self._feed.has(ticket.message_id)
        del self._tickets[ticket.message_id]
        if end.kind == "error" and end.code in _UNTOLD_FAULTS:
            self._failure = end.details or "The prompt failed."
        ticket.settle(None if had_row else RuntimeFailedError(_why_lost(end)))
        self._send(self._feed.drop(ticket.message_id))

    def _hear(self, event: RuntimeEvent) -> None:
        notices = self._feed.take(event)
        if not notices:
            return  # such as a piece of an answer: one a token
        for ticket in self._tickets.values():
            if self._feed.has(ticket.message_id):
                ticket.settle()
        self._send(notices)

    def _send(self, notices: list[Notice]) -> None:
        for notice in notices:
            self._tell(notice)
        self._changed.set()
        self._changed = anyio.Event()


def _why_lost(end: TurnEnd) -> str:
    return end.details or "The session was closed before the prompt had its turn."
