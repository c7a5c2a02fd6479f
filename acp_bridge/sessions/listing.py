"""Lists of a store's sessions, from sweeps that an index may remember."""

import os
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from acp_bridge.errors import BridgeError, StoreFailedError
from acp_bridge.sessions.finding import Finder
from acp_bridge.sessions.known import Details, Entry, Key, Known
from acp_bridge.sessions.reading import paused_gc
from acp_bridge.sessions.sweep import current_details, sweep
from acp_bridge.vocabulary import BadSession, SessionSummary

if TYPE_CHECKING:
    from acp_bridge.sessions.index import Index

DETAILS_KEPT: Final = 128
"""Logs whose details stay in memory: more than a session has subagents."""

Order: TypeAlias = tuple[int, str]
"""A session's place in a list: newest activity first (its time negated), then the id."""


@attrs.frozen(slots=True)
class Listing:
    """Every stored session, the good and the bad ones; in no particular order."""

    sessions: list[SessionSummary]
    bad: list[BadSession]


@attrs.frozen(slots=True)
class Page:
    """Some sessions in order, every bad one, and the place after which the next page begins.

    ``after`` is None on the last page.
    """

    sessions: list[SessionSummary]
    bad: list[BadSession]
    after: Order | None


# Inside the class, ``list`` is its method.
_Entries: TypeAlias = list[Entry]
_Ranked: TypeAlias = list[tuple[Order, Entry]]
_BadSessions: TypeAlias = list[BadSession]


class Catalog:
    """What `SessionStore` lists. Any thread may ask; ``index`` and ``wall_ns`` are as there."""

    def __init__(self, finder: Finder, *, index: Path | None, wall_ns: Callable[[], int]) -> None:
        self._finder = finder
        self._index_path = index
        self._index: Index | None = None
        self._lock = threading.Lock()
        self._wall_ns = wall_ns
        self._details: dict[Key, Details] = {}
        """What was asked for last: opening the index takes longer than the look at one log."""
        self._ranked: tuple[int | None, _Ranked, _BadSessions] | None = None

    def list(self) -> Listing:
        """A summary of every session, subagents included, and the logs that cannot be shown.

        Every log has been validated, now or when the index last saw it change; a bad one never
        fails the list.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        entries, bad, _ = self._swept()
        good, more = self._sorted_out(entries)
        return Listing([entry.summary() for entry in good], [*bad, *more])

    def summaries(
        self, *, cwd: Path | None = None, after: Order | None = None, limit: int = 100
    ) -> Page:
        """Roots and forks in order, a page at a time; subagents and sessions without a cwd never.

        ``cwd`` asks for one working folder. ``after`` is what the page before gave: what is new
        since then neither repeats nor skips a session that stayed where it was.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        assert limit > 0
        ranked, bad = self._judged()
        if cwd is not None:
            # Few working folders have many sessions: look at each of them once.
            wanted = _real(str(cwd))
            here = {one for one in {each.cwd for _, each in ranked} if _is_same(one, wanted)}
            ranked = [one for one in ranked if one[1].cwd in here]
        first = 0 if after is None else bisect_right(ranked, after, key=lambda one: one[0])
        page = ranked[first : first + limit]
        is_last = first + limit >= len(ranked)
        return Page([entry.summary() for _, entry in page], bad, None if is_last else page[-1][0])

    def entries(self) -> Sequence[Entry]:
        """What is known of every session folder, sound or not: headers first of all.

        Raises:
            StoreFailedError: the root or a folder in it cannot be read, so some are not known.
        """
        entries, bad, _ = self._swept()
        if bad:
            raise StoreFailedError(bad[0].reason)
        return entries

    def details(self, path: Path) -> Details | None:
        """What the index knows of a log as it lies there now; None: only a whole reading can tell.

        A log that only grew is looked at from its last completed turn on.
        """
        key = (path.parent.parent.name, path.parent.name)
        with self._lock:
            index = self._open_index()
            details = None
            if index is not None:
                details = self._details.pop(key, None) or index.details(key)
        current = None if details is None else current_details(path, details, self._wall_ns())
        if current is not None and current.settled:
            with self._lock:
                self._details[key] = current  # the newest last
                if len(self._details) > DETAILS_KEPT:
                    del self._details[next(iter(self._details))]
        return current

    def _judged(self) -> tuple[_Ranked, _BadSessions]:
        """What pages are cut from, in order, and the bad sessions; made once a revision."""
        entries, bad, revision = self._swept()
        if revision is None or self._ranked is None or self._ranked[0] != revision:
            good, more = self._sorted_out(entries)
            ranked = [
                ((-entry.updated_at_ms, entry.session_id or ""), entry)
                for entry in good
                if entry.origin is None and entry.cwd is not None
            ]
            ranked.sort()
            self._ranked = (revision, ranked, more)
        return self._ranked[1], [*bad, *self._ranked[2]]

    def _sorted_out(self, entries: _Entries) -> tuple[_Entries, _BadSessions]:
        """The sound sessions, and why the others are none."""
        bad: _BadSessions = []
        copies = Counter(entry.folder for entry in entries if entry.has_logs)
        good: _Entries = []
        for entry in entries:
            reason = entry.reason
            if entry.log is not None and copies[entry.folder] > 1:
                reason = self._why_misplaced(entry.folder) or reason
            if reason is not None:
                where = self._finder.root / entry.project / entry.folder / (entry.log or "")
                bad.append(BadSession(where, reason))
            elif entry.log is not None:
                good.append(entry)
        return good, bad

    def _why_misplaced(self, name: str) -> str | None:
        try:
            self._finder.find_by_folder(name)
        except BridgeError as error:
            return error.details
        except OSError:
            pass
        return None

    def _swept(self) -> tuple[_Entries, _BadSessions, int | None]:
        """All entries, the unreadable project folders, and the revision of what is remembered."""
        with self._lock, paused_gc():
            index = self._open_index()
            known: Known = Known() if index is None else index
            now_ns = self._wall_ns()
            if index is not None:
                index.refresh()
            try:
                changes = sweep(self._finder.root, known, now_ns)
            except BaseException as error:
                if index is not None:
                    index.close()  # else `keep` does
                if isinstance(error, OSError):
                    raise self._finder.root_error(error) from error
                raise
            if index is not None:
                index.keep(changes)
            revision = None if index is None else known.revision
            return [*known.entries.values()], changes.bad, revision

    def _open_index(self) -> "Index | None":
        if self._index is None and self._index_path is not None:
            from acp_bridge.sessions.index import Index

            self._index = Index(self._index_path)
        return self._index


def _is_same(cwd: str | None, wanted: str) -> bool:
    return cwd is not None and _real(cwd) == wanted


def _real(path: str) -> str:
    """The folder without links: one workspace may be reached by several paths."""
    try:
        return os.path.realpath(path)
    except ValueError:  # no system call takes it, so it is no folder of anybody
        return path
