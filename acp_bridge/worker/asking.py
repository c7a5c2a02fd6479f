"""A child's client on a worker: nobody is here, so questions go through the home to its user."""

import logging
from collections.abc import Callable
from pathlib import Path

import anyio
import attrs

from acp_bridge.errors import EventServiceError, InvalidParamsError
from acp_bridge.ports import ClientCommand, CommandEnd, PermissionAsk, QuestionsAsk
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.model import RunId
from acp_bridge.subagents.remote_payloads import (
    AskPayload,
    AskWithdrawnItem,
    answer_from_json,
    ask_json,
)
from acp_bridge.vocabulary import Answer, JsonObject, SessionId
from acp_bridge.worker.line import Line, may_pass, wait_after

logger = logging.getLogger(__name__)


class HomeClient:
    """Implements `ports.Client` for a child and all below it.

    ``put`` sends an item behind the others and never raises. ``new_id`` makes ids.
    """

    reads_text = False
    writes_text = False
    runs_commands = False
    takes_questions = False

    def __init__(
        self,
        client: EventClient,
        line: Line,
        *,
        run_id: RunId,
        execution_id: str,
        put: Callable[[AskWithdrawnItem], None],
        new_id: Callable[[], str],
    ) -> None:
        self._client = client
        self._line = line
        self._run_id = run_id
        self._execution_id = execution_id
        self._put = put
        self._new_id = new_id

    async def ask_permission(self, ask: PermissionAsk) -> Answer:
        """The answer of the home's user; waits as long as the lease holds."""
        asker = ask.child_id or SessionId(self._run_id)
        payload = ask_json(AskPayload(attrs.evolve(ask, child_id=asker)))
        ask_id = f"ask:{self._new_id()}"
        # The home shows a question at its call, whose rows it must have by then.
        await self._line.flushed()
        logger.info("run %s: %s asks: %s", self._run_id, asker, ask_id)
        try:
            answer = await self._answer(ask_id, payload)
        except anyio.get_cancelled_exc_class():
            self._put(AskWithdrawnItem(ask_id))
            raise
        logger.info("run %s: answered: %s", self._run_id, ask_id)
        return answer

    async def _answer(self, ask_id: str, payload: JsonObject) -> Answer:
        failures = 0
        while True:
            try:
                found = await self._client.ask(
                    self._run_id,
                    execution_id=self._execution_id,
                    event_id=ask_id,
                    payload=payload,
                )
            except EventServiceError as error:
                if not may_pass(error):
                    logger.warning("run %s: %s: %s", self._run_id, ask_id, error.details)
                    return Answer.UNAVAILABLE
                failures += 1
                await wait_after(failures)
                continue
            failures = 0
            if found is not None:
                return self._answer_from(ask_id, found)

    def _answer_from(self, ask_id: str, found: JsonObject) -> Answer:
        try:
            return answer_from_json(found)
        except InvalidParamsError as fault:
            logger.warning("run %s: %s: %s", self._run_id, ask_id, fault.details)
            return Answer.UNAVAILABLE

    async def ask_questions(self, _ask: QuestionsAsk) -> None:
        """Nobody's: no tool of ours asks them, and the home is asked for permission alone."""

    async def flow(self) -> None:
        """Wait while the line to the home is slower than the child."""
        await self._line.flow()

    async def read_text(self, path: Path) -> str:
        """Never: files are read from the disk here."""
        raise OSError(f"no editor has {path} here")

    async def write_text(self, path: Path, text: str) -> None:  # noqa: ARG002
        """Never: files are written to the disk here."""
        raise OSError(f"no editor takes {path} here")

    async def run_command(self, command: ClientCommand) -> CommandEnd:  # noqa: ARG002
        """Never: commands run in this process."""
        raise OSError("no client runs commands here")
