"""The embedded harness: turns and steps, inbox, approvals, retry, compaction, built-in tools.

Owns: the order of a session's rows (design: sessions, dsh-events), when the user is asked, how a
failed model call is tried again, and how a turn ends in every way it can end.

Does not know: ACP, the wire, which model or client stands behind the ports, where files lie.

Invariants:
- Nothing is told to a consumer before it is durable, but for the live events of `vocabulary`.
- Between "durable" and "told" there is no await.
- Every turn that starts ends with a ``turn/end`` row, unless the disk refuses.
- A message of a subagent or a parent is in the log's inbox before its sender hears that it was
  delivered; no cancel starts a turn for one.
- Nothing here reads a clock or makes an id: both come in as functions.
"""
