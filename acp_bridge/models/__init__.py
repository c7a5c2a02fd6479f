"""Adapters of the model port: scripted answers and the demo, both without a key.

Owns: how a model's answer becomes `ports.Chunk` values, and which failures are worth a retry.

Does not know: sessions, logs, tools, ACP. A model gets a request and streams chunks.

Invariants:
- An adapter never raises for a failed call; it yields a `FailureChunk`.
- Nothing here reads a session log: a scripted model's position comes with the request.
"""
