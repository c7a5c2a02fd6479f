"""The scenario runner: scripted clients, schema and rule checks, a pytest plugin others can use.

Owns: reading `snapshots/<scenario>/`, playing its steps against an agent in memory or as a
process, checking every message against the official ACP schema and the `rules` that are safe for
all clients, and turning what happened into files that can be pinned; `recording/` turns sessions
that happened elsewhere into scenarios.

Does not know: how the bridge works inside. It sees bytes on the wire, log files on disk (and where
they lie), and the recorded model requests; any ACP agent can be played, with or without those
files.

Invariants: nothing outside this room imports it, but `__main__` for ``acp-bridge record``; pytest,
pytest-snapshot and jsonschema are imported only when a test asks for them; no wait is without a
bound, and no step sleeps.
"""
