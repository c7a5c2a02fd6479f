"""A face's requests to runtime calls, and runtime events to the updates a client sees.

Owns: the projector of one session and the view of a root with its subagents (one fold each for
live and replay), prompts, permission requests, and the table of what particular clients need.

Does not know: how a runtime works, how bytes travel, which model answers.

Invariants:
- `projector`, `subagent_*`, `log_rows`, `prompts` and `tool_calls` are pure: no IO, no clock, no
  randomness.
- A client sees no update of a turn after that turn's response; what a subagent does is its own.
- Every tool call is announced before anything else is said of it, and closed before the response,
  but for one that shows a subagent, which ends with it.
- Nothing bears a subagent's id, but ``_meta``, for a client that was not told of it.
"""
