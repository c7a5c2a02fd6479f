"""Run events: lifecycle and messages of children in other processes and on other machines.

Owns: the event and its log (SQLite, Redis Streams), the service that serves it over HTTP with its
client, and the streamer that decides which sessions here are subscribed to which runs, hands their
events over, and keeps their cursors.

Does not know: ACP, the session log's format, what a model or an editor is, or which kind of
consumer wants a session's events. What takes an event here fills the Protocols of `delivery`.

Invariants:

* Nothing here is imported unless an events home is configured: local children never pass through.
* One predicate, `Streamer._eligible`, says who is connected. Every operation ends in it, in any
  order, any number of times.
* `model`, `runs`, `streamer` and `backoff` are pure: no IO, no clock, no chance, no logging.
* A cursor is per run and never falls, but for a log that was reset. It moves after the row of its
  event is durable.
* Commit order is sequence order: a log gives out sequences in the one place that commits them.
* Ids reach the logs, never payloads or tokens. Every body, queue, buffer and wait has a bound.

Decided here, beyond the design: an event carries its publisher's ``event_id`` on the stream too,
since the inbox is keyed by it; it is unique over all runs, so that one inbox can hold the events
of several. Killed and removed runs share one bounded set of tombstones: what is gone does not come
back with a late event or a slow restore. Only a new `Streamer.run_assigned` of its id lifts one.
Sequences grow but may have gaps: after a crash of Redis the log goes on far above whatever it may
have lost, so that no cursor can hide a new event. A run's home says when all of it is durable there
(`delivered`), and the log then keeps the settlement alone: a home that lost its cursors recognises
that by its id, and has the rest in its logs. An answer to an ask is an event as well, so that
a server that dies between question and answer loses neither.

This file imports nothing, so that importing one module of the room loads that one only.
"""
