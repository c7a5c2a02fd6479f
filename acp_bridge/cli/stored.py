"""The store of a home folder as the command line sees it: its sessions as rows, good and bad."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from acp_bridge.errors import InvalidParamsError, SessionNotFoundError
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.listing import Judged
from acp_bridge.sessions.paths import INDEX_NAME
from acp_bridge.sessions.reading import Stamp, StoredLog, reread
from acp_bridge.sessions.store import SessionStore
from acp_bridge.sessions.survey import (
    FoundLog,
    Verdict,
    examine,
    find_ids,
    find_logs,
    id_of_folder,
    read_header,
)
from acp_bridge.sessions.verdict import BAD

PREFIX_CHARS_MIN: Final = 4
"""Of an id that is not typed whole: one that is meant to be complete is seldom shorter."""

MATCHES_MAX: Final = 10
"""Sessions that an error lists; more are not read, they are told by their number."""


def list_command(home: str | None) -> str:
    """What to type to see which sessions are in ``home``, None being the settings' own."""
    return "acp-bridge sessions list" + ("" if home is None else f" --home {shlex.quote(home)}")


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

    def id_of(self, typed: str) -> str:
        """The id of the session that somebody means: ``typed`` is an id, or how just one begins.

        Raises:
            SessionNotFoundError: no id begins so.
            InvalidParamsError: several do, and the text lists them; or it is too short to tell.
            StoreFailedError: the root itself cannot be read.
        """
        found = find_ids(self.root, typed) or sorted(
            {one.session_id for one in self.headers() if one.session_id.startswith(typed)}
        )
        if typed in found:
            return typed
        if not found:
            raise SessionNotFoundError(typed)
        if len(typed) < PREFIX_CHARS_MIN:
            raise InvalidParamsError(
                f"{typed!r} is too short for a session's id: type at least {PREFIX_CHARS_MIN}"
                " characters of it.",
                field="id",
            )
        if len(found) > 1:
            raise InvalidParamsError(self._all_that_begin(typed, found), field="id")
        return found[0]

    def _all_that_begin(self, typed: str, ids: Sequence[str]) -> str:
        """A sentence, and the ids with their titles beneath, newest first."""
        good, bad = self.rows()
        rows = [row for row in [*good, *bad] if row.verdict.session_id in ids]
        lines = [
            f"  {row.verdict.session_id}  {' '.join((row.title or '-').split())}"
            for row in rows[:MATCHES_MAX]
        ]
        if len(rows) > MATCHES_MAX:
            lines.append(f"  and {len(rows) - MATCHES_MAX:,} more")
        head = f"{len(ids)} sessions have an id that begins with {typed}; type more of it:"
        return "\n".join([head, *lines])

    def headers(self) -> list[Header]:
        """Every header that can be read; decodes nothing else."""
        found = [read_header(one.path) for one in find_logs(self.root)]
        return [header for header in found if header is not None]
