"""The store of a home folder as the command line sees it: its sessions as rows, good and bad."""

import time
from pathlib import Path

import attrs

from acp_bridge.sessions.header import Header
from acp_bridge.sessions.listing import Judged
from acp_bridge.sessions.paths import INDEX_NAME
from acp_bridge.sessions.reading import Stamp, StoredLog, reread
from acp_bridge.sessions.store import SessionStore
from acp_bridge.sessions.survey import (
    FoundLog,
    Verdict,
    examine,
    find_logs,
    id_of_folder,
    read_header,
)
from acp_bridge.sessions.verdict import BAD


@attrs.frozen
class Row:
    """A log as a list shows it, without its events.

    ``stamp`` tells whether the log is still the one that was found sound; None if nothing can.
    """

    verdict: Verdict
    title: str | None
    updated_ms: int | None
    stamp: Stamp | None = None

    @classmethod
    def of(cls, judged: Judged) -> "Row":
        """Of what the index, or a sweep without one, knows of a log."""
        entry = judged.entry
        header = None if entry is None else entry.header
        folder = judged.path.name if entry is None else entry.folder
        session_id = id_of_folder(folder) if header is None else header.session_id
        verdict = Verdict(judged.path, session_id, judged.status, judged.reason, header)
        if entry is None or judged.status in BAD:
            return cls(verdict, None, None)
        stamp = entry.stamp if entry.settled else None
        return cls(verdict, entry.title, entry.updated_at_ms, stamp)

    def read(self) -> StoredLog | None:
        """The whole log as it is now, judged again only if it changed; None if it went bad."""
        path = self.verdict.path
        log = None if self.stamp is None else reread(path, self.stamp)
        return examine(FoundLog(path)).log if log is None else log


@attrs.frozen
class Stored:
    """The store of a home folder."""

    home: Path

    @property
    def root(self) -> Path:
        """Where the logs are."""
        return self.home / "sessions"

    def open(self) -> SessionStore:
        """The store itself; its index is not made where there is no store."""
        index = self.home / INDEX_NAME if self.root.is_dir() else None
        return SessionStore(self.root, clock=lambda: time.time_ns() // 1_000_000, index=index)

    def rows(self) -> tuple[list[Row], list[Row]]:
        """The good sessions, newest first, and the bad ones by path. Reads what changed.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        rows = [Row.of(judged) for judged in self.open().judged()]
        good = [row for row in rows if row.verdict.status not in BAD]
        good.sort(key=lambda row: (-(row.updated_ms or 0), row.verdict.session_id))
        bad = [row for row in rows if row.verdict.status in BAD]
        return good, sorted(bad, key=lambda row: row.verdict.path)

    def headers(self) -> list[Header]:
        """Every header that can be read; decodes nothing else."""
        found = [read_header(one.path) for one in find_logs(self.root)]
        return [header for header in found if header is not None]
