"""Bytes to JSON-RPC messages and back: framing, messages, endpoint, stdio.

Owns: newline-delimited framing, the JSON codec, the shapes of JSON-RPC 2.0, both sides' pending
calls with their cancel scopes, the process' fds 0 and 1, and the signs that the process must end.

Does not know: any method name but ``$/cancel_request``, ACP's types, sessions, or who is served.

Invariants:

* `framing`, `codec` and `messages` do no IO and import neither asyncio nor anyio, and nothing here
  imports attrs or cattrs: ``initialize`` is answered before those are loaded. So the values of
  this room are ``NamedTuple``s where every other room has attrs classes.
* One request, one reply; one connection, one writer. No two tasks write to the same stream.
* No foreign text crosses: an exception that is not a `BridgeError` is answered with one fixed
  sentence, and its own text goes to the log alone.
* Every queue, buffer and wait has a stated bound.
* Nothing but `trace` reads the wall clock, and nothing writes to ``sys.stdout``.

This file imports nothing, so that importing one module of the room loads that one only.
"""
