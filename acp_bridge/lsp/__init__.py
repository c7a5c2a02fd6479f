"""The LSP face: an editor that knows no ACP works through code actions and commands.

Owns: positions and text edits in the client's units, the code actions that are offered, what a
client can do by its capabilities, and pygls inside our own task group.

Does not know: sessions, ACP, the runtime. It calls a `server.Agent` and is asked by it.

Invariants:
- No handler waits for an agent: editors block on commands, or drop them.
- No change of a document is applied that the editor did not take as a whole.
- Nothing here reads standard input, writes standard output or ends the process.
- Nothing but ``acp-bridge lsp`` imports this room: pygls takes a quarter of a second.
"""
