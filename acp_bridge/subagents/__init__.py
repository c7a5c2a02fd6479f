"""Delegation: child sessions, their durable descriptor and catalog, and the model's control tools.

Owns: what a subagent is (`descriptor`), which children a session has (`catalog`) and how a replay
finds them (`tree`); which children work now (`activation`), how they come to (`service`,
`delegation`, `providers`), where they stand (`places`) and what they may ask the user (`asking`);
who may start, message and interrupt them, and how many there may be (`refusals`); what parents and
children say to each other (`messages`); the tools `subagent`, `subagent_fork`, `list_agents`,
`send_message` and `interrupt_agent` (`tools`). Of children that other processes execute
(`elsewhere`): what home and worker tell each other (`remote_payloads`), the home's end of it
(`remote_home`, `remote_child`, `remote_family`, `remote_closing`, `remote_calls`, `remote_outbox`,
`remote_asks`), and what it keeps over restarts (`ledger`).

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
* The home alone writes the logs of a child that works elsewhere. `service` and `activation` know no
  difference but `elsewhere`, whose modules are loaded only if there is an events home.
* Nothing a client or a model says of itself gives authority: only the calling session's id does.

Decided here: the limit of live children counts all of one root's, at any depth, since they share
its client, its store and its provider's rate limit; with one limit for each parent, depth three
would allow thousands. A complete child is woken by its direct parent alone, for that is where its
notice goes; running ones may be messaged and interrupted by any ancestor.

Of remote children: a root's may begin elsewhere, a child's own begin beside it, so that the parent
that the event service knows is always a session that somebody opens. A session's end leaves them at
work; `ledger` says what is pending without asking the service, so that a load waits for no network
and nothing repairs a log whose turn is still open elsewhere. Rows get the home's times: a replay
compares them with those of the parent's rows. An end that the home makes up itself (the service is
away, or lost the run) never comes before one that the service could still tell. What a worker tells
that does not fit ends the child, after the service told its end, for only then no more can come.
"""
