"""From a session that happened to a scenario that needs no key: out of its log, or out of a trace.

Owns: what of a log is model, user, client and workspace; a client that answers as the user did;
the steps of a transcript; and saying what could not be carried over.

Does not know: how the bridge works inside. A recorded session is played like any scenario.

Invariants: no command of a session ever runs again, and no file outside of the scenario's workspace
is read or written: commands are answered by the client's terminal, paths are moved below it.
"""
