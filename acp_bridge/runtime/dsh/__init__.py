"""The real runtime, DeepSeek Harness as a process, and the plugin that we put into it.

Owns: the process and its end, the SDK wire's client, which notification belongs to which session
tree, and what a session of the port means in requests of that wire.

Does not know: ACP, which editor asks, or how a log lies on the disk (`sessions` does).

Invariants:

* A notification is routed before the next one is read, so order is that of the wire.
* Nothing here writes a log that the runtime has open.
* However a process ends, nothing that it started is left running.
"""
