"""Adapters of the model port: Messages and chat completions APIs, scripts, and the demo.

Owns: how a request is spelled in a provider's API and its answer becomes `ports.Chunk` values,
which failures are worth a retry, which models there are, and where keys come from.

Does not know: sessions, logs, tools, ACP. A model gets a request and streams chunks.

Invariants:
- An adapter never raises for a failed call; it yields a `FailureChunk`.
- No HTTP client, and no vendor's library ever, is imported before a provider is first called.
- A key is in the environment, in its 0600 file and in the header of a request; nowhere else.
- Nothing here reads a session log: a scripted model's position comes with the request.
"""
