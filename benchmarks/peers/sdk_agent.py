"""The same agent on the ACP Python SDK: "updates N" streams N chunks, all else is answered."""

import asyncio
from typing import Any

from acp import InitializeResponse, NewSessionResponse, PromptResponse, run_agent
from acp.interfaces import Client
from acp.schema import AgentMessageChunk, TextContentBlock


class EchoAgent:
    """As in the SDK's own example, with ids on its messages."""

    _client: Client

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:  # noqa: ANN401
        return InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:  # noqa: ANN401, ARG002
        return NewSessionResponse(session_id="1")

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:  # noqa: ANN401
        word, _space, count = prompt[0].text.partition(" ")
        for _number in range(int(count) if word == "updates" else 0):
            content = TextContentBlock(type="text", text="token ")
            update = AgentMessageChunk(
                session_update="agent_message_chunk", content=content, message_id="1.1.1.0"
            )
            await self._client.session_update(session_id, update)
        return PromptResponse(stop_reason="end_turn")


asyncio.run(run_agent(EchoAgent()))  # type: ignore[arg-type]  # it serves three methods
