"""The event service: the log of run events over HTTP, for homes and workers.

Owns: the addresses under ``/v1/agent``, who may call them, the bounds of what they send, how a
stream is written and ended, and the leases of workers.

Does not know: how the log keeps anything, sessions, consumers, or what a task or a row means.

Invariants:

* No request is taken without the token, unless the service is bound to loopback alone; a browser's
  are never taken without one.
* A body is read up to its bound and no further; a stream that nobody reads is cut.
* Whoever asks again, because an answer was lost, changes nothing and gets the same answer.
* One execution of a run has one settlement, whoever tells it: its worker, or its lapsed lease.

Starlette and uvicorn (extra ``events``) are imported by these modules alone.
"""
