"""Delegation: child sessions, their durable descriptor and catalog, and the model's control tools.

Owns: what a subagent is (`descriptor`), which children a session has (`catalog`) and how a replay
finds them (`tree`); which children work now (`activation`), how they come to (`service`,
`delegation`, `providers`) and what they may ask the user (`asking`); who may start, message and
interrupt them, and how many there may be (`refusals`); what parents and children say to each other
(`messages`); the tools `subagent`, `subagent_fork`, `list_agents`, `send_message` and
`interrupt_agent` (`tools`).

Does not know: how a turn runs, how a log is written, ACP, which client asks, how a runtime opens
sessions (it is a `Host`).

Invariants:

* A session has at most one activation, and nobody but this room gives a child one.
* A child's header and its one descriptor are the only authority on it. ``subagent/catalog`` rows
  are written for the other harness; nothing here reads them but for the name of a one-shot child.
* Listing activates, appends and stores nothing.
* What was accepted is durable before the caller hears of it, and no cancel of the caller's wait
  undoes it.
* Every `ChildStarted` is followed by one `ChildFinished`, after those of its own children.
* A child's fault ends that child, never its siblings or its parent.
* Nothing a client or a model says of itself gives authority: only the calling session's id does.

Decided here: the limit of live children counts all of one root's, at any depth, since they share
its client, its store and its provider's rate limit; with one limit for each parent, depth three
would allow thousands. A complete child is woken by its direct parent alone, for that is where its
notice goes; running ones may be messaged and interrupted by any ancestor.
"""
