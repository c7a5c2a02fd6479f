"""Adapters that fill the `Runtime` port: the embedded harness now, the dsh process later.

Owns: which sessions are open, where their files lie, and what a list of sessions holds; and in
`sdk`, the other way round, the SDK's wire over such a runtime.

Does not know: ACP, which editor asks, and outside `sdk` any JSON-RPC.

Invariants:
- A session is open at most once in a process; opening it again gives the same one.
- Closing the runtime closes every session, in bounded time.
"""
