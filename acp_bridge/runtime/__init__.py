"""Adapters that fill the `Runtime` port: the embedded harness, and DeepSeek Harness as a process.

Owns: which sessions are open, where their files lie, what a list of sessions holds, and (`dsh/`)
the processes of the real runtime.

Does not know: ACP, which editor asks.

Invariants:
- A session is open at most once in a process; opening it again gives the same one.
- Closing the runtime closes every session, in bounded time.
"""
