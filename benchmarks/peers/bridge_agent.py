"""The same agent on the bridge's own wire and types, without its harness.

``--json`` keeps orjson out, as in an install without the ``fast`` extra.
"""

import sys
from typing import Any

if "--json" in sys.argv:
    sys.modules["orjson"] = None  # type: ignore[assignment]  # importing it fails from now on

import anyio
import anyio.lowlevel

from acp_bridge.acp import types
from acp_bridge.acp.agent_side import AgentFace
from acp_bridge.acp.client_side import ClientCalls
from acp_bridge.acp.hello import answer_initialize
from acp_bridge.wire.endpoint import Endpoint
from acp_bridge.wire.stdio import claim

UPDATES_PER_FLOW = 64
"""As the harness does it: back-pressure is asked for now and then, not per update."""


class EchoAgent:
    """Serves what the benchmark calls."""

    calls: ClientCalls

    def initialize(self, params: Any) -> Any:  # noqa: ANN401
        return answer_initialize(params, version="0", setup_command=["acp-bridge", "setup"])

    async def new_session(self, _params: types.NewSessionRequest) -> types.NewSessionResponse:
        return types.NewSessionResponse(session_id="1")

    async def prompt(self, params: types.PromptRequest) -> types.PromptResponse:
        block = params.prompt[0]
        assert isinstance(block, types.TextContent)
        word, _, count = block.text.partition(" ")
        for number in range(int(count) if word == "updates" else 0):
            content = types.TextContent(text="token ")
            update = types.AgentMessageChunk(content=content, message_id="1.1.1.0")
            self.calls.session_update("1", update)
            if number % UPDATES_PER_FLOW == 0:
                await anyio.lowlevel.checkpoint()
                await self.calls.flow()
        return types.PromptResponse(stop_reason="end_turn")


async def main() -> None:
    agent = EchoAgent()
    face = AgentFace(agent)  # type: ignore[arg-type]  # it serves three methods
    endpoint = Endpoint(claim().stream(), face.admit)
    agent.calls = ClientCalls(endpoint)
    await endpoint.run()


anyio.run(main)
