"""acp_bridge: work with an agent harness from any editor that speaks ACP.

Where a prompt goes, class by class (README has the picture, each room's docstring the rules):

- `wire.endpoint.Endpoint` reads the message, `acp.agent_side.AgentFace` gives it its type, and
  `bridge.acp_agent.AcpAgent.prompt` admits it to a `ports.LiveSession`: our own
  `harness.session.HarnessSession`, or `runtime.dsh.session.DshSession` of DeepSeek Harness.
- `harness.turn.Turn` runs it: `harness.answer` asks a `ports.Model` (of `models`), `harness.calls`
  runs tools and asks the client where it must.
- Each row of the log goes through `harness.committer.Committer` to `sessions.writer.LogWriter`, and
  is told only then, to `bridge.open_session.OpenSession`, whose `bridge.projector` makes
  ``session/update`` of it.
- `cli.assemble` is where all of them are put together, by the flags and the settings.
"""

__version__ = "0.1.0"
