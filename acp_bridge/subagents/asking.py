"""A child's client: its root's, with the child's name on every question."""

from collections.abc import Sequence
from pathlib import Path

import attrs

from acp_bridge.ports import (
    Client,
    ClientCommand,
    CommandEnd,
    PermissionAsk,
    QuestionAnswer,
    QuestionsAsk,
)
from acp_bridge.vocabulary import Answer, SessionId


class ChildClient:
    """Implements `ports.Client` for a child at any depth; ``client`` is the root's own."""

    def __init__(self, client: Client, child_id: SessionId) -> None:
        self._client = client
        self._child_id = child_id

    @property
    def reads_text(self) -> bool:
        """As the root's."""
        return self._client.reads_text

    @property
    def writes_text(self) -> bool:
        """As the root's."""
        return self._client.writes_text

    @property
    def runs_commands(self) -> bool:
        """As the root's."""
        return self._client.runs_commands

    async def ask_permission(self, ask: PermissionAsk) -> Answer:
        """The user's answer to the child."""
        return await self._client.ask_permission(attrs.evolve(ask, child_id=self._child_id))

    @property
    def takes_questions(self) -> bool:
        """As the root's."""
        return self._client.takes_questions

    async def ask_questions(self, ask: QuestionsAsk) -> Sequence[QuestionAnswer] | None:
        """The user's answers to the child."""
        return await self._client.ask_questions(attrs.evolve(ask, child_id=self._child_id))

    async def read_text(self, path: Path) -> str:
        """As the root's."""
        return await self._client.read_text(path)

    async def write_text(self, path: Path, text: str) -> None:
        """As the root's."""
        await self._client.write_text(path, text)

    async def run_command(self, command: ClientCommand) -> CommandEnd:
        """As the root's."""
        return await self._client.run_command(command)

    async def flow(self) -> None:
        """As the root's."""
        await self._client.flow()
