"""The event store: header, events, codec, validation, repair, fork, store with lock, query, index.

Owns: the log format v4 on disk, byte for byte as dsh writes it (``dsh.md`` section 3,
``dsh-events.md``); the rules that tell a sound log from a corrupt or a newer one; what the model
sees of a log; the repair of a turn that was cut off; ordinary forks; folders, lock, durable
appends, listing; questions about many sessions; the index that makes them quick.

Does not know: the wire, ACP, models, tools, who asks, or what a session is for.

Invariants:

* Only `logfile` writes logs, and only `index` writes anything else, outside the store's root.
  `store`, `finding`, `listing`, `reading`, `survey`, `sweep`, `shelf`, `growth`, `seeking`,
  `query` and `forking` read, `deleting` removes; the other modules are pure. Nothing reads a
  clock: time comes in as ``clock``, and as ``wall_ns`` the one that files get their times from.
* Reading, listing and asking take no lock, write nothing and repair nothing. A log that is refused
  keeps every byte, and so does the source of a fork.
* One state machine, `LogState`, judges what is read and what is about to be written; `strict` adds
  the payload checks that the format's reader leaves out.
* A complete row is never rewritten or cut. Only an incomplete last line or frame is cut, under the
  lock, after the rows before it were found sound. (dsh also drops complete bad rows at the end of
  a plain log, silently; we report such a log as corrupt and keep it.)
* A row is told to nobody before it is durable: `LogWriter.append` returns after ``fsync``.
* The index is no authority. With it, without it and with a broken one every answer is the same.
* A header is written once. So relations come from headers that are known already, and of the
  sessions that an answer is not about neither folder nor log is looked at: what was added or
  removed shows in its project's folder. One thing is then not noticed: another header in the place
  of a log, in the same folder, of a session at no answer's hand. Nothing that keeps the format
  writes one, and whoever acts upon a relation reads header and descriptor from the log.
* No header but a subagent's names another session, and nothing but ``origin`` makes a subagent.
* The inner modules name the place of a damage ("seq 7: …"); the outer ones make the sentence with
  the session id and path.

Decided here: a delivery row that names another session is legal in the inherited range only, with
or without ``parentSession`` (the newer rule of ``sessions.md``). A known event type that nobody
here has written down in `strict` may be read but not appended. A fork is cut after the last
completed turn and what was set since then (`digest`), and its title counts as given by the user
(`fork`).
"""

from typing import TYPE_CHECKING

from acp_bridge.sessions.fork import Fork
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.listing import Listing, Page
from acp_bridge.sessions.reading import StoredLog
from acp_bridge.sessions.store import SessionStore
from acp_bridge.sessions.surface import ModelView, model_view, request_header, title
from acp_bridge.sessions.validation import LogState
from acp_bridge.sessions.writer import LogWriter

if TYPE_CHECKING:
    from acp_bridge.sessions.query import RecordFilter, SessionQuery, SessionRecord, Trace

__all__ = [
    "Fork",
    "Header",
    "Listing",
    "LogState",
    "LogWriter",
    "ModelView",
    "Page",
    "RecordFilter",
    "SessionQuery",
    "SessionRecord",
    "SessionStore",
    "StoredLog",
    "Trace",
    "model_view",
    "request_header",
    "title",
]


def __getattr__(name: str) -> object:
    """Relations between sessions are asked for late: a session opens without them."""
    if name in {"RecordFilter", "SessionQuery", "SessionRecord", "Trace"}:
        from acp_bridge.sessions import query

        return getattr(query, name)
    raise AttributeError(name)
