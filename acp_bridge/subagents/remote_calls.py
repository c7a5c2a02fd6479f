"""The calls to the event service that are about one run, as its home makes them.

Each may be made again: what it names stays the same. `EventServiceError` is the caller's.
"""

import hashlib
from collections.abc import Callable
from typing import Final

from acp_bridge.errors import EventServiceError
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.model import RunId
from acp_bridge.subagents.elsewhere import PendingRun
from acp_bridge.subagents.remote_payloads import (
    Cancel,
    GiveMode,
    Message,
    Steer,
    addressed,
    cancel_json,
    message_json,
)
from acp_bridge.vocabulary import JsonObject, Mode

NOT_FOUND: Final = 404


class RunCalls:
    """Calls about the run that ``run`` gives, as it is kept at that moment."""

    def __init__(self, client: EventClient, run: Callable[[], PendingRun]) -> None:
        self._client = client
        self._run = run

    async def register(self, task: JsonObject) -> None:
        """Register it with its task, behind its parent."""
        run = self._run()
        parent = RunId(run.parent_id)
        await self._client.register(parent)
        await self._client.register(
            RunId(run.child_id), parent_id=parent, task=task, task_id=run.task_id
        )

    async def is_known(self) -> bool:
        """Whether the service knows it."""
        try:
            await self._client.run(RunId(self._run().child_id))
        except EventServiceError as error:
            if error.status != NOT_FOUND:
                raise
            return False
        return True

    async def cancel(self, cancel: Cancel, event_id: str) -> None:
        """Tell whoever executes this task to end something."""
        run = self._run()
        payload = addressed(cancel_json(cancel), run.task_id)
        await self._client.cancel(
            RunId(run.child_id), event_id=event_id, payload=payload, task_id=run.task_id
        )

    async def steer(self, message: JsonObject) -> None:
        """Send a message of the log.

        Its id may be that of the event which brought it, so this event has one made of it.
        """
        digest = hashlib.sha256(str(message["id"]).encode()).hexdigest()
        await self._message(f"steer:{digest[:32]}", Steer(message))

    async def give_mode(self, mode: Mode, event_id: str) -> None:
        """Send a mode."""
        await self._message(event_id, GiveMode(mode))

    async def _message(self, event_id: str, message: Message) -> None:
        run = self._run()
        payload = addressed(message_json(message), run.task_id)
        sender = RunId(run.parent_id)
        await self._client.message(RunId(run.child_id), event_id, payload, sender=sender)

    async def answer(self, ask_id: str, answer: JsonObject) -> None:
        """Answer a question."""
        run_id = RunId(self._run().child_id)
        await self._client.answer(run_id, ask_id=ask_id, payload=answer)

    async def delivered(self, through: int) -> None:
        """All that it told until this settlement is durable here."""
        await self._client.delivered(RunId(self._run().child_id), through=through)
