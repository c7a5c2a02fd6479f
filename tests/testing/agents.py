"""Agents of others, written as their authors would: files for a project outside of this one."""

SDK_AGENT = '''
"""An agent on the official Python SDK: asks before it says anything, and keeps no log."""
import asyncio
from uuid import uuid4

import acp
from acp.schema import PermissionOption, ToolCallUpdate


class Echo(acp.Agent):
    def on_connect(self, conn):
        self.conn = conn

    async def initialize(self, protocol_version, client_capabilities=None, client_info=None, **_):
        return acp.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd, mcp_servers=None, **_):
        return acp.NewSessionResponse(session_id=uuid4().hex)

    async def prompt(self, prompt, session_id, message_id=None, **_):
        options = [
            PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
            PermissionOption(option_id="no", name="No", kind="reject_once"),
        ]
        call = ToolCallUpdate(tool_call_id="call_" + uuid4().hex[:8], title="Echo it")
        answer = await self.conn.request_permission(
            options=options, session_id=session_id, tool_call=call
        )
        said = prompt[0].text if answer.outcome.outcome == "selected" else "nothing"
        await self.conn.session_update(session_id, acp.update_agent_message_text("You: " + said))
        return acp.PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id, **_):
        pass


asyncio.run(acp.run_agent(Echo()))
'''

TYPESCRIPT_AGENT = """
import { Readable, Writable } from "node:stream";
import { randomUUID } from "node:crypto";
import * as acp from SDK;

acp
  .agent()
  .onRequest("initialize", () => ({ protocolVersion: acp.PROTOCOL_VERSION }))
  .onRequest("session/new", () => ({ sessionId: randomUUID() }))
  .onRequest("session/prompt", async ({ params: { sessionId, prompt }, client }) => {
    console.error("a word on stderr");
    await client.notify("session/update", {
      sessionId,
      update: {
        sessionUpdate: "agent_message_chunk",
        content: { type: "text", text: "You: " + prompt[0].text },
      },
    });
    return { stopReason: "end_turn" };
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
"""
