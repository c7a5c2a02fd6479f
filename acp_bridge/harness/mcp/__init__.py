"""MCP servers of a session: connect beside it, offer their tools, end with it.

Owns: what tools of servers are called, how their results read, when a server counts as failed and
how that is told, which servers a session has (the client's and the user's, by name), their
processes and connections.

Does not know: the log, the turn, who decides on permission (a tool only says that it is foreign),
ACP.

Invariants: only `connection` and `process` import the library, and nothing imports these two before
a session has a server. No text that a person, a model or a log gets holds an argument of a server's
command, a variable of its environment, its address or its headers. A server runs only while its
session is open, and all that it started ends with it. Nothing waits for a server without a bound.
"""
