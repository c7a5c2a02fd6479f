"""The command line: one module a command, settings, wiring, exit codes.

Owns: which rooms are put together, what people type, and what they are told when it fails.

Does not know: anything that a room does by itself.

Invariants:
- Nothing but frames reaches stdout while serving; a fatal error is one sentence on stderr, last.
- ``initialize`` is answered before asyncio, attrs, cattrs, a model or the harness is imported.
- The clock, ids and randomness of a process come from here.
"""
