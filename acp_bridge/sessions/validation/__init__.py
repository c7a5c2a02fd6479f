"""Is a log sound? The rules of format v4 as one incremental fold (``dsh-events`` sections 1, 2).

Owns: `LogState` and its rules by topic (`lifecycle`, `messages`, `folds`, `blocks`), and `strict`,
the payload checks of our own rows. Does not know: files, bytes, clocks. Invariant: a rule only
reads its row and the state before it, so folding one at a time equals folding all.
"""

from acp_bridge.sessions.validation.fold import LogState
from acp_bridge.sessions.validation.state import OpenCompaction, PendingCall

__all__ = ["LogState", "OpenCompaction", "PendingCall"]
