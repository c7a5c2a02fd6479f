"""Lists of a store's sessions, from sweeps that an index may remember."""

import os
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from acp_bridge.errors import BridgeError, StoreFailedError
from acp_bridge.sessions.finding import Finder
from acp_bridge.sessions.known import (
    Changes,
    Details,
    Entry,
    Key,
    Known,
    Relations,
    relations_of,
)
from acp_bridge.sessions.reading import paused_gc
from acp_bridge.sessions.shelf import all_as_they_were, first_of
from acp_bridge.sessions.sweep import (
    current_details,
    have_changed,
    look_at,
    sweep,
    sweep_headers,
)
from acp_bridge.sessions.verdict import BAD, GOOD, Status
from acp_bridge.vocabulary import BadSession, SessionSummary

if TYPE_CHECKING:
    from acp_bridge.sessions.index import Index

Order: TypeAlias = tuple[int, str]
"""A session's place in a list: newest activity first (its time negated), then the id."""


@attrs.frozen(slots=True)
class Listing:
    """Every stored session, the good and the bad ones; in no particular order."""

    sessions: list[SessionSummary]
    bad: list[BadSession]


@attrs.frozen(slots=True)
class Judged:
    """One log, or a folder whose logs cannot be told apart or read, and what is to be said of it.

    ``reason`` is a sentence for every status but "sound". ``entry`` is what is known besides; None
    for a project folder that cannot be read.
    """

    path: Path
    status: Status
    reason: str | None
    entry: Entry | None


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
_Judgements: TypeAlias = list[Judged]
_BadSessions: TypeAlias = list[BadSession]

_id_of: Final = attrgetter("session_id")
_updated_of: Final = attrgetter("updated_at_ms")


def _order(entry: Entry) -> Order:
    return -entry.updated_at_ms, entry.session_id or ""


class Catalog:
    """What `SessionStore` lists. Any thread may ask; ``index`` and ``wall_ns`` are as there."""

    def __init__(self, finder: Finder, *, index: Path | None, wall_ns: Callable[[], int]) -> None:
        self._finder = finder
        self._index_path = index
        self._index: Index | None = None
        self._lock = threading.Lock()
        self._wall_ns = wall_ns
        self._ranked: tuple[int | None, _Entries, _BadSessions] | None = None
        self._relations: tuple[int, Relations] | None = None

    def list(self) -> Listing:
        """A summary of every session, subagents included, and the logs that cannot be shown.

        Every log has been validated, now or when the index last saw it change; a bad one never
        fails the list.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        judged = self.judged()
        good = [one.entry for one in judged if one.entry is not None and one.status not in BAD]
        bad = [BadSession(one.path, one.reason or "") for one in judged if one.status in BAD]
        return Listing([entry.summary() for entry in good], bad)

    def judged(self) -> _Judgements:
        """What is to be said of every log, as `list` finds them.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        entries, unread, _ = self._swept(closely=True)
        found = [Judged(one.path, "unreadable", one.reason, None) for one in unread]
        good, bad = self._sorted_out(entries)
        found += [Judged(self._path(one), one.status or "sound", one.reason, one) for one in good]
        return found + bad

    def summaries(
        self, *, cwd: Path | None = None, after: Order | None = None, limit: int = 100
    ) -> Page:
        """Roots and forks in order, a page at a time; subagents and sessions without a cwd never.

        ``cwd`` asks for one working folder. ``after`` is what the page before gave: what is new
        since then neither repeats nor skips a session that stayed where it was. A session that was
        sound and got a second log is told as bad when its page comes.

        Raises:
            StoreFailedError: the root itself cannot be read.
        """
        assert limit > 0
        with paused_gc():
            glanced = None if cwd is not None else self._glanced(after, limit)
            if glanced is not None:
                return glanced
            ranked, bad = self._pages_from(closely=False)
            page, last = self._cut(ranked, cwd, after, limit)
            if have_changed(self._finder.root, page):
                ranked, bad = self._pages_from(closely=True)
                page, last = self._cut(ranked, cwd, after, limit)
        return Page([entry.summary() for entry in page], bad, last)

    def entries(self) -> Sequence[Entry]:
        """What is known of every session folder, sound or not: headers first of all.

        Raises:
            StoreFailedError: the root or a folder in it cannot be read, so some are not known.
        """
        entries, bad, _ = self._swept(closely=True)
        if bad:
            raise StoreFailedError(bad[0].reason)
        return entries

    def relations(self, at_hand: Callable[[Relations], Iterable[Entry]]) -> Relations:
        """All headers; and of the sessions ``at_hand`` among them, all that their logs say now.

        Of the others no folder and no log is looked at: see `sweep`.

        Raises:
            StoreFailedError: the root or a folder in it cannot be read, so some are not known.
        """

        def bring(known: Known, now_ns: int) -> Changes:
            changes = sweep_headers(self._finder.root, known, now_ns)
            looked = {*changes.entries}
            # What is found out may bring others to hand.
            while keys := {_key(one) for one in at_hand(self._related(known))} - looked:
                look_at(self._finder.root, keys, known, now_ns, changes)
                looked |= keys
            return changes

        with self._lock, paused_gc():
            known, changes = self._brought(bring)
            if changes.bad:
                raise StoreFailedError(changes.bad[0].reason)
            return self._related(known)

    def _related(self, known: Known) -> Relations:
        """The relations of all that is known; made once a revision."""
        if known is not self._index:
            return relations_of(known.entries.values())
        if self._relations is None or self._relations[0] != known.revision:
            self._relations = (known.revision, relations_of(known.entries.values()))
        return self._relations[1]

    def details(self, path: Path) -> Details | None:
        """What the index knows of a log as it lies there now; None: only a whole reading can tell.

        A log that only grew is looked at from its last completed turn on.
        """
        with self._lock:
            index = self._open_index()
            details = None if index is None else index.details(_key_of(path))
        return None if details is None else current_details(path, details, self._wall_ns())

    def remembered(self, path: Path) -> Entry | None:
        """The entry of a log that was sound when it was last looked at, if it is in memory.

        Whether the log is as it was then is for the caller to see, by its stamp.
        """
        with self._lock:
            entry = None if self._index is None else self._index.entries.get(_key_of(path))
        if entry is None or not entry.settled or entry.log != path.name:
            return None
        return entry if entry.status in GOOD else None

    def _glanced(self, after: Order | None, limit: int) -> Page | None:
        """A page without taking over all that the index knows; None: it is not that simple."""
        with self._lock:
            index = self._open_index()
            if index is None or index.is_loaded:
                return None
            shelves = index.shelves()
            if not shelves or not all_as_they_were(self._finder.root, shelves):
                return None
            found = first_of(shelves, after, limit + 1)
            shown = found[:limit]
            entries = index.entries_of([key for _, key in shown])
        known = [(_order(entry), _key(entry)) for entry in entries]
        if known != shown or have_changed(self._finder.root, entries):
            return None
        sessions = [entry.summary() for entry in entries]
        return Page(sessions, [], shown[-1][0] if len(found) > limit else None)

    def _cut(
        self, ranked: _Entries, cwd: Path | None, after: Order | None, limit: int
    ) -> tuple[_Entries, Order | None]:
        """One page, and the place of its last session unless it is the last page."""
        if cwd is not None:
            # Few working folders have many sessions: look at each of them once.
            wanted = _real(str(cwd))
            here = {one for one in {each.cwd for each in ranked} if _is_same(one, wanted)}
            ranked = [one for one in ranked if one.cwd in here]
        first = 0 if after is None else bisect_right(ranked, after, key=_order)
        page = ranked[first : first + limit]
        return page, None if first + limit >= len(ranked) else _order(page[-1])

    def _pages_from(self, *, closely: bool) -> tuple[_Entries, _BadSessions]:
        """What pages are cut from, in order, and the bad sessions; made once a revision."""
        entries, unread, revision = self._swept(closely=closely)
        if revision is None or self._ranked is None or self._ranked[0] != revision:
            good, bad = self._sorted_out(entries)
            ranked = [one for one in good if one.origin is None and one.cwd is not None]
            ranked.sort(key=_id_of)
            ranked.sort(key=_updated_of, reverse=True)  # keeps the ids' order, being stable
            told = [BadSession(one.path, one.reason or "") for one in bad]
            self._ranked = (revision, ranked, told)
        return self._ranked[1], [*unread, *self._ranked[2]]

    def _sorted_out(self, entries: _Entries) -> tuple[_Entries, _Judgements]:
        """The sound sessions, and what is to be said of the others."""
        bad: _Judgements = []
        names = [entry.folder for entry in entries if entry.has_logs]
        twice = {name for name, count in Counter(names).items() if count > 1}
        good = [one for one in entries if one.status in GOOD and one.folder not in twice]
        others = [one for one in entries if one.status in BAD or one.folder in twice]
        for entry in others:
            reason = self._why_misplaced(entry.folder) if entry.folder in twice else None
            if reason is not None and entry.log is not None:
                bad.append(Judged(self._path(entry), "misplaced", reason, entry))
            elif entry.status in GOOD:
                good.append(entry)
            elif entry.status is not None:
                bad.append(Judged(self._path(entry), entry.status, entry.reason, entry))
        return good, bad

    def _path(self, entry: Entry) -> Path:
        # One path for each of ten thousand: joined as text, which is a third of the work.
        return Path(f"{self._finder.root}/{entry.project}/{entry.folder}/{entry.log or ''}")

    def _why_misplaced(self, name: str) -> str | None:
        try:
            self._finder.find_by_folder(name)
        except BridgeError as error:
            return error.details
        except OSError:
            pass
        return None

    def _swept(self, *, closely: bool) -> tuple[_Entries, _BadSessions, int | None]:
        """All entries, the unreadable project folders, and the revision of what is remembered.

        ``closely`` is as in `sweep`.
        """
        with self._lock, paused_gc():
            known, changes = self._brought(partial(sweep, self._finder.root, closely=closely))
            revision = known.revision if known is self._index else None
            return [*known.entries.values()], changes.bad, revision

    def _brought(self, bring: Callable[[Known, int], Changes]) -> tuple[Known, Changes]:
        """What is known after ``bring`` brought it up to date, and what differed.

        For whoever holds the lock.
        """
        index = self._open_index()
        known: Known = Known() if index is None else index
        now_ns = self._wall_ns()
        if index is not None:
            index.refresh()
        try:
            changes = bring(known, now_ns)
        except BaseException as error:
            if index is not None:
                index.close()  # else `keep` does
            if isinstance(error, OSError):
                raise self._finder.root_error(error) from error
            raise
        if index is not None:
            index.keep(changes)
        return known, changes

    def _open_index(self) -> "Index | None":
        if self._index is None and self._index_path is not None:
            from acp_bridge.sessions.index import Index

            self._index = Index(self._index_path)
        return self._index


def _key(entry: Entry) -> Key:
    return entry.project, entry.folder


def _key_of(path: Path) -> Key:
    project, folder, _ = path.parts[-3:]
    return project, folder


def _is_same(cwd: str | None, wanted: str) -> bool:
    return cwd is not None and _real(cwd) == wanted


def _real(path: str) -> str:
    """The folder without links: one workspace may be reached by several paths."""
    try:
        return os.path.realpath(path)
    except ValueError:  # no system call takes it, so it is no folder of anybody
        return path
