"""The event store: header, events, codec (plain, zstd), validation, repair, store with lock.

Owns: the log format v4 on disk, byte for byte as dsh writes it (``dsh.md`` section 3,
``dsh-events.md``); the rules that tell a sound log from a corrupt or a newer one; what the model
sees of a log; the repair of a turn that was cut off; folders, lock, durable appends, listing.

Does not know: the wire, ACP, models, tools, who asks, or what a session is for. Fork, the derived
index, queries and the writing of compactions come later and find their place beside these modules.

Invariants:

* Only `store`, `reading`, `survey` and `logfile` touch the disk, only `logfile` writes; the other
  modules are pure. Nothing reads a clock: time comes in as ``clock``.
* Reading and listing take no lock, write nothing and repair nothing. A log that is refused keeps
  every byte.
* One state machine, `LogState`, judges what is read and what is about to be written; `strict` adds
  the payload checks that the format's reader leaves out.
* A complete row is never rewritten or cut. Only an incomplete last line or frame is cut, under the
  lock, after the rows before it were found sound. (dsh also drops complete bad rows at the end of
  a plain log, silently; we report such a log as corrupt and keep it.)
* A row is told to nobody before it is durable: `LogWriter.append` returns after ``fsync``.
* The inner modules name the place of a damage ("seq 7: …"); `store` makes the sentence with the
  session id and path.

Decided here: a delivery row that names another session is legal in the inherited range only, with
or without ``parentSession`` (the newer rule of ``sessions.md``). A known event type that nobody
here has written down in `strict` may be read but not appended.
"""

from acp_bridge.sessions.header import Header
from acp_bridge.sessions.reading import StoredLog
from acp_bridge.sessions.store import Listing, SessionStore
from acp_bridge.sessions.surface import ModelView, model_view, request_header, title
from acp_bridge.sessions.validation import LogState
from acp_bridge.sessions.writer import LogWriter

__all__ = [
    "Header",
    "Listing",
    "LogState",
    "LogWriter",
    "ModelView",
    "SessionStore",
    "StoredLog",
    "model_view",
    "request_header",
    "title",
]
