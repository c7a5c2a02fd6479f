"""A live session: an inbox of prompts, one turn at a time, cancel and close.

Prompts wait in memory and enter the log when their turn starts (sessions: "Writing"); after a kill
the other harness would otherwise run them by itself. Messages that it left in the log's inbox run
before ours.
"""

import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from acp_bridge.errors import FAULT, BridgeError
from acp_bridge.harness.choosing import choose, options_of
from acp_bridge.harness.commands import COMMANDS, run_command
from acp_bridge.harness.desk import Choices, Desk
from acp_bridge.harness.folder import move, settled
from acp_bridge.harness.memory import NOTICE_ROW
from acp_bridge.harness.turn import Turn
from acp_bridge.ports import CommandInfo, Consumer, Descendant, OptionName, SessionOptions
from acp_bridge.vocabulary import (
    Command,
    Event,
    JsonObject,
    JsonValue,
    Prompt,
    SessionId,
    TurnEnd,
)

logger = logging.getLogger(__name__)

CLOSE_WAIT_S = 5.0
"""How long a close waits for the running turn; what is left then has been told to stop."""


class WaitingPrompt:
    """A prompt in the inbox; implements `ports.PendingTurn`."""

    def __init__(self, prompt: Prompt | Command) -> None:
        self.prompt = prompt
        self.scope = anyio.CancelScope()
        self._end: TurnEnd | None = None
        self._done = anyio.Event()

    def settle(self, end: TurnEnd) -> None:
        """The prompt's turn is over."""
        self._end = end
        self._done.set()

    def withdraw(self) -> None:
        """End this prompt's turn, or never start it. The others stay."""
        self.scope.cancel()

    async def ended(self) -> TurnEnd:
        """Wait for the end of this prompt's turn."""
        await self._done.wait()
        assert self._end is not None
        return self._end


class HarnessSession:
    """Implements `ports.LiveSession`; ``serve`` must run in a task for as long as it is open."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._inbox: deque[WaitingPrompt] = deque()
        self._wake = anyio.Event()
        self._running: WaitingPrompt | None = None
        self._closing = False
        self._served = anyio.Event()
        desk.committer.attach(self._remember)

    @property
    def session_id(self) -> SessionId:
        """The id that the client knows."""
        return self._desk.session_id

    @property
    def cwd(self) -> Path:
        """The working folder, absolute."""
        return self._desk.cwd

    @property
    def events(self) -> Sequence[Event]:
        """The log as consumers were told it."""
        return self._desk.committer.told

    @property
    def closing(self) -> bool:
        """Whether it takes no more prompts."""
        return self._closing

    @property
    def busy(self) -> bool:
        """Whether a turn runs or a prompt waits."""
        return self._running is not None or bool(self._inbox)

    def attach(self, consumer: Consumer) -> None:
        """Tell ``consumer`` everything from now on."""
        self._desk.committer.attach(consumer)

    @property
    def commands(self) -> Sequence[CommandInfo]:
        """The slash commands that `admit` takes."""
        return COMMANDS

    @property
    def choices(self) -> Choices:
        """What is chosen, for a fork that begins with it."""
        return attrs.evolve(self._desk.choices)

    def options(self) -> SessionOptions:
        """What can be chosen, and what is chosen."""
        return options_of(self._desk)

    async def working_folder(self) -> Path:
        """Where its tools work; if that folder is gone, they work in the session's own again."""
        return await settled(self._desk)

    async def move(self, path: str) -> Path:
        """Let its tools work in this folder: see `harness.folder`."""
        return await move(self._desk, path)

    async def choose(self, option: OptionName, value: str) -> None:
        """Choose a value: see `ports.LiveSession`."""
        await choose(self._desk, option, value)

    def admit(self, prompt: Prompt | Command) -> WaitingPrompt:
        """Take a prompt or a command, synchronously, first in first out."""
        waiting = WaitingPrompt(prompt)
        if self._closing:
            waiting.settle(TurnEnd("aborted"))
        else:
            self._inbox.append(waiting)
            self._wake.set()
        return waiting

    def note(self, text: str) -> None:
        """Begin the next turn with a sentence to the user."""
        self._desk.notice = text

    def cancel(self) -> None:
        """End the running turn and the waiting prompts as cancelled; nothing running: no-op."""
        for waiting in self._inbox:
            waiting.withdraw()
        if self._running is not None:
            self._running.withdraw()

    async def descendants(self) -> Sequence[Descendant]:
        """None yet: this harness does not delegate."""
        return ()

    def cancel_child(self, child_id: SessionId) -> None:
        """Nothing: there are no subagents."""

    async def close(self) -> None:
        """Cancel, wait until quiet, release the log. Idempotent."""
        if not self._closing:
            self._closing = True
            self._desk.abort = "disposed"
            self.cancel()
            self._wake.set()
        with anyio.move_on_after(CLOSE_WAIT_S, shield=True) as bound:
            await self._served.wait()
        if bound.cancelled_caught:
            logger.warning("session %s: its turn did not end in time", self.session_id)

    async def serve(self) -> None:
        """Run turns until `close`, then release the log."""
        try:
            while not self._closing or self._inbox:
                if self._inbox:
                    await self._run(self._inbox.popleft())
                else:
                    await self._wake.wait()
                    self._wake = anyio.Event()
        finally:
            self._closing = True
            for waiting in self._inbox:
                waiting.settle(TurnEnd("aborted"))
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._desk.committer.writer.close)
            self._served.set()

    async def _run(self, waiting: WaitingPrompt) -> None:
        end = TurnEnd("aborted")
        self._running = waiting
        try:
            if not waiting.scope.cancel_called:
                end = await self._turns(waiting)
        except Exception:  # one session's fault must not end the others
            logger.exception("session %s: a prompt failed", self.session_id)
            end = TurnEnd("error", FAULT, "INTERNAL")
        finally:
            self._running = None
            waiting.settle(end)

    async def _turns(self, waiting: WaitingPrompt) -> TurnEnd:
        """The prompt's turn, after the turns of messages that the log's inbox still holds."""
        with waiting.scope:
            try:
                await self._desk.committer.repair()
                prompt = waiting.prompt
                if isinstance(prompt, Command):
                    await run_command(self._desk, prompt)
                    return TurnEnd("completed")
                for left in list(self._desk.committer.writer.state.inbox["next-turn"]):
                    end = await Turn(self._desk, left, title="", pending=True).run()
                    if end.code == "STORE":
                        return end
                await self._keep_attachments(prompt)
                await settled(self._desk)
            except BridgeError as failure:
                return TurnEnd("error", failure.details, "STORE")
            message = self._user_message(prompt)
            turn = Turn(self._desk, message, title=prompt.title, pending=False)
            end = await turn.run()
            # A failure that the user's cancel met half-way is no news to them (R035).
            if end.kind != "error" or not waiting.scope.cancel_called:
                return end
        return TurnEnd("aborted")

    async def _keep_attachments(self, prompt: Prompt) -> None:
        for name, data in prompt.attachments.items():
            await anyio.to_thread.run_sync(self._desk.world.keep_attachment, name, data)

    def _user_message(self, prompt: Prompt) -> JsonObject:
        content: list[JsonValue] = list(prompt.content)
        return {
            "content": content,
            "source": {"kind": "user"},
            "role": "user",
            "id": prompt.message_id or self._desk.world.new_id(),
        }

    async def attachment(self, attachment_id: str) -> bytes | None:
        """The bytes of an image that the log names, or None if they are lost."""
        return await anyio.to_thread.run_sync(self._desk.world.find_attachment, attachment_id)

    def _remember(self, event: object) -> None:
        if isinstance(event, Event):
            self._desk.memory.apply(event)
            if event.type == NOTICE_ROW:
                self._desk.notice = None
