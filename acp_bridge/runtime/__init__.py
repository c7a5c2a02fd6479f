"""Adapters that fill the `Runtime` port: the embedded harness, and DeepSeek Harness as a process.

Owns: which sessions are open, where their files lie, and what a list of sessions holds; in `dsh`
the processes of the real runtime; and in `sdk`, the other way round, the SDK's wire over such a
runtime.

Does not know: ACP, which editor asks, and outside `dsh` and `sdk` any JSON-RPC.

Invariants:
- A session is open at most once in a process; opening it again gives the same one.
- Closing the runtime closes every session, in bounded time.
"""
