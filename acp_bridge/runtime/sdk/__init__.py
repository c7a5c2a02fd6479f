"""Serves sessions of this process over the SDK's wire, as a runtime that its clients start.

Owns: the wire's methods, its notifications and its form of errors (dsh section 2), and which
sessions this connection has opened.

Does not know: how a turn runs, the command line, where models and their keys come from.

Invariants:
- A client sees log rows as they are in the log, never one that is not durable.
- Nothing but a delegation makes a subagent: no fork is ever announced as one.
- Prompts of one session are admitted in the order in which they came, also while it is opened.
- Nobody is asked for permission, since the wire has no way to ask: such a call is refused.
"""
