"""A face's requests to runtime calls, and runtime events to the updates a client sees.

Owns: the projector (one fold for live and replay), prompts, permission requests, and the table
of what particular clients need.

Does not know: how a runtime works, how bytes travel, which model answers.

Invariants:
- `projector`, `prompts` and `tool_calls` are pure: no IO, no clock, no randomness.
- A client sees no update of a turn after that turn's response.
- Every tool call is announced before anything else is said of it, and closed before the response.
"""
