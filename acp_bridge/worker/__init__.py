"""The worker: delegated children of other processes run here, and their homes are told of it.

Owns: waiting for runs and claiming them, the temporary log of a child and what works on it, the
order and the repetition of what is told (`forwarding`), questions that go through the home, the
lease, and how a run settles in every case.

Does not know: ACP, editors, what the home does with what it is told, the event log.

Invariants:

* An execution tells its rows in the order of their logs, and settles once, after all of them were
  accepted. Whoever lost the run tells nothing more of it.
* What is sent again is the same batch under the same event id: the service takes it once.
* Work goes on only while the lease holds by our own clock, so that a worker that is cut off has
  stopped when its home goes on elsewhere.
* Nothing of a child stays on this machine but what its tools did: the log here is a copy, removed
  at the end of the execution, or by the next worker of this home after a kill.
* Every queue and wait is bounded: what is told by bytes, with back-pressure on the model's stream;
  ends by time.
* Ids reach the logs, never tasks, rows or questions.

Decided here: a worker waits for runs by one request that the service holds until there is one, so
an idle worker costs three small requests a minute and begins at once; a stream would need a run of
its own that every home must know. A child here has no files of its home's editor.
"""
