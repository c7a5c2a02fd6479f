"""A live session: its inbox, one turn at a time, cancel and close.

Messages that the other harness left in the log's inbox run before ours.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from acp_bridge.errors import BridgeError
from acp_bridge.harness.choosing import choose, options_of
from acp_bridge.harness.commands import COMMANDS, run_command
from acp_bridge.harness.desk import Choices, Desk
from acp_bridge.harness.inbox import Inbox, WaitingPrompt
from acp_bridge.harness.memory import NOTICE_ROW
from acp_bridge.harness.turn import FAULT, Turn
from acp_bridge.ports import CommandInfo, Consumer, OptionName, SessionOptions
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


class HarnessSession:
    """Implements `ports.LiveSession`; ``serve`` must run in a task for as long as it is open."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._inbox = Inbox(desk.session_id, self._run)
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
        return self._inbox.closing

    @property
    def busy(self) -> bool:
        """Whether a turn runs or a prompt waits."""
        return self._inbox.busy

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

    async def choose(self, option: OptionName, value: str) -> None:
        """Choose a value: see `ports.LiveSession`."""
        await choose(self._desk, option, value)

    def admit(self, prompt: Prompt | Command) -> WaitingPrompt:
        """Take a prompt or a command, synchronously, first in first out."""
        return self._inbox.admit(prompt)

    def note(self, text: str) -> None:
        """Begin the next turn with a sentence to the user."""
        self._desk.notice = text

    def cancel(self) -> None:
        """End the running turn and the waiting prompts as cancelled; nothing running: no-op."""
        self._inbox.cancel()

    async def close(self) -> None:
        """Cancel, wait until quiet, release the log. Idempotent."""
        if not self._inbox.closing:
            self._desk.abort = "disposed"
        await self._inbox.close()

    async def serve(self) -> None:
        """Run turns until `close`, then release the log."""
        await self._inbox.serve(self._release)

    async def _release(self) -> None:
        await anyio.to_thread.run_sync(self._desk.committer.writer.close)

    async def _run(self, waiting: WaitingPrompt) -> TurnEnd:
        try:
            return await self._turns(waiting)
        except Exception:  # one session's fault must not end the others
            logger.exception("session %s: a prompt failed", self.session_id)
            return TurnEnd("error", FAULT, "INTERNAL")

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
            "id": self._desk.world.new_id(),
        }

    async def attachment(self, attachment_id: str) -> bytes | None:
        """The bytes of an image that the log names, or None if they are lost."""
        return await anyio.to_thread.run_sync(self._desk.world.find_attachment, attachment_id)

    def _remember(self, event: object) -> None:
        if isinstance(event, Event):
            self._desk.memory.apply(event)
            if event.type == NOTICE_ROW:
                self._desk.notice = None
