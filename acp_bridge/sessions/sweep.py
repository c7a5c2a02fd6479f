"""Every session of a store, from what is known already and one look at what changed.

A **sweep** looks at each project folder once and at each session's log once, without opening them,
and reads only the logs whose looks differ from what is known. With nothing known it reads them all,
so there is one way to the result and knowledge only saves time.

A log that was sound and is as it was can only have become bad by another log beside it, and only
its folder's time tells of that. ``closely`` looks at each folder too; whoever shows some sessions
looks with `have_changed` at the folders of those.

Whoever asks for **relations** needs headers, and those never change: `sweep_headers` looks at the
project folders, and into one only if something was added there or removed since, or where a header
is not known. `look_at` then brings those sessions up to date that an answer is about. What that
leaves unnoticed stands in the room's docstring.

Times of files are coarse: what changed right before it was read may change again without a trace.
Such knowledge is marked as not `settled`, and the next sweep reads again.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

from acp_bridge.errors import BridgeError
from acp_bridge.sessions.digest import Digest, digest_of
from acp_bridge.sessions.finding import current_log, folders, header_of
from acp_bridge.sessions.growth import grown, guard_of
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.known import Changes, Details, Entry, Key, Known, Project
from acp_bridge.sessions.logfile import disk_error
from acp_bridge.sessions.reading import Stamp, load, stamp_of
from acp_bridge.sessions.verdict import BAD, Status, status_of, verdict_on
from acp_bridge.vocabulary import BadSession

UNSETTLED_NS: Final = 100_000_000
"""A tenth of a second: ten times the coarsest clock that kernels put on files."""

_Which: TypeAlias = Literal["logs", "folders", "both"]
"""What is looked at of sound sessions."""


def sweep(root: Path, known: Known, now_ns: int, *, closely: bool) -> Changes:
    """Bring ``known`` up to date with the disk.

    ``closely`` also looks at the folders of sound logs. ``now_ns`` is the time by the clock of the
    file system, before anything is looked at.

    Raises:
        OSError: ``root`` itself cannot be read.
    """
    return _swept(root, known, now_ns, partial(_look_into, closely=closely))


def sweep_headers(root: Path, known: Known, now_ns: int) -> Changes:
    """As `sweep`, but all that is up to date afterwards are the headers.

    Raises:
        OSError: ``root`` itself cannot be read.
    """
    return _swept(root, known, now_ns, _look_for_headers)


def look_at(root: Path, keys: Iterable[Key], known: Known, now_ns: int, changes: Changes) -> None:
    """Bring what is known of some sessions up to date, looking at their folders and logs."""
    by_project: dict[str, list[str]] = {}
    for project, folder in keys:
        by_project.setdefault(project, []).append(folder)
    for place, names in by_project.items():
        looks = known.settled(place, names)
        try:
            _look_at(root / place, names, looks, known, changes, now_ns, at="both")
        except (FileNotFoundError, NotADirectoryError):
            for name in names:
                _forget((place, name), known, changes)
        except OSError as error:
            changes.bad.append(_unreadable(root / place, error))


def _swept(
    root: Path,
    known: Known,
    now_ns: int,
    look_into: Callable[[Path, Project, Known, Changes, int], None],
) -> Changes:
    changes = Changes()
    there: dict[str, tuple[str, ...]] = {}
    for project in folders(root):
        try:
            now = _project_now(project, known, now_ns)
            look_into(project, now, known, changes, now_ns)
            # Not before: it says that all in this folder has been looked at.
            if now != known.projects.get(project.name):
                known.projects[project.name] = now
                changes.projects[project.name] = now
            there[project.name] = now.folders
        except (FileNotFoundError, NotADirectoryError):
            continue  # gone since
        except OSError as error:
            changes.bad.append(_unreadable(project, error))
    for name in known.projects.keys() - there.keys():
        del known.projects[name]
        changes.projects[name] = None
    if len(known.entries) > sum(map(len, there.values())) - changes.empty:
        names_in = {name: frozenset(names) for name, names in there.items()}
        nowhere: frozenset[str] = frozenset()
        for key in [key for key in known.entries if key[1] not in names_in.get(key[0], nowhere)]:
            _forget(key, known, changes)
    return changes


def _unreadable(project: Path, error: OSError) -> BadSession:
    return BadSession(project, disk_error(project.name, "read", error).details)


def _project_now(project: Path, known: Known, now_ns: int) -> Project:
    """The project folder as it is; what is known of it if that is still so."""
    status = project.stat()
    old = known.projects.get(project.name)
    if (
        old is not None
        and old.settled
        and ((old.inode, old.mtime_ns) == (status.st_ino, status.st_mtime_ns))
    ):
        return old
    names = tuple(folder.name for folder in folders(project))
    settled = status.st_mtime_ns + UNSETTLED_NS < now_ns
    known.outdate(project.name)  # what is kept is of other folders
    return Project(settled, status.st_ino, status.st_mtime_ns, names)


def _forget(key: Key, known: Known, changes: Changes) -> None:
    if known.entries.pop(key, None) is not None:
        known.outdate(key[0])
        known.revision += 1
        changes.entries[key] = None


def _look_into(
    project: Path, now: Project, known: Known, changes: Changes, now_ns: int, *, closely: bool
) -> None:
    looks = known.looks_in(project.name, now.folders)
    _look_at(project, now.folders, looks, known, changes, now_ns, at="both" if closely else "logs")


def _look_for_headers(
    project: Path, now: Project, known: Known, changes: Changes, now_ns: int
) -> None:
    place = project.name
    if now is not known.projects.get(place):
        # A folder of a known name may be another one; in the same one lies the same log.
        looks = known.looks_in(place, now.folders)
        _look_at(project, now.folders, looks, known, changes, now_ns, at="folders")
        return
    names = known.unnamed_in(place, now.folders)
    if names:
        looks = known.settled(place, names)
        _look_at(project, names, looks, known, changes, now_ns, at="both")


def _look_at(
    project: Path,
    names: Sequence[str],
    looks: Sequence[Entry],
    known: Known,
    changes: Changes,
    now_ns: int,
    *,
    at: _Which,
) -> None:
    """Look at the sessions of these names; ``looks`` are the settled entries that there are."""
    place = project.name
    descriptor = os.open(project, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        changed = _changed(looks, descriptor, at=at)
        if len(looks) < len(names):
            seen = {entry.folder for entry in looks}
            changed += [name for name in names if name not in seen]
        recalled = set()
        for name in changed:
            entry = known.recall((place, name))
            if entry is None or not entry.settled:
                continue
            if not _changed([entry], descriptor, at="both"):
                _learn(entry, known)
                recalled.add(name)
    finally:
        os.close(descriptor)
    for name in changed:
        if name in recalled:
            continue
        key = (place, name)
        entry, details = examine(project / name, known.entries.get(key), known, now_ns)
        if entry is None:
            changes.empty += 1
            _forget(key, known, changes)
        elif entry != known.entries.get(key):
            _learn(entry, known)
            changes.entries[key] = (entry, details)


def _learn(entry: Entry, known: Known) -> None:
    known.entries[entry.project, entry.folder] = entry
    known.outdate(entry.project)
    known.revision += 1


def _changed(entries: Iterable[Entry], project: int, *, at: _Which) -> list[str]:
    """The folders whose logs look otherwise now, or that do themselves: see `sweep`.

    Ten thousand looks make one list, so this loop is kept to what they cost.
    """
    changed: list[str] = []
    folders_too, logs_too = at != "logs", at != "folders"
    stat = os.stat
    for entry in entries:
        _, name, _, _, log, folder_inode, folder_mtime_ns, inode, size, mtime_ns, ctime_ns = entry[
            :11
        ]
        try:
            if folders_too or log is None or entry.status in BAD:
                now = stat(name, dir_fd=project)
                if now.st_mtime_ns != folder_mtime_ns or now.st_ino != folder_inode:
                    changed.append(name)
                    continue
            if logs_too and log is not None:
                now = stat(f"{name}/{log}", dir_fd=project)
                if (
                    now.st_mtime_ns != mtime_ns
                    or now.st_size != size
                    or now.st_ino != inode
                    or now.st_ctime_ns != ctime_ns
                ):
                    changed.append(name)
        except OSError:  # gone
            changed.append(name)
    return changed


def have_changed(root: Path, entries: Iterable[Entry]) -> bool:
    """Whether a folder of these sessions looks otherwise than when its entry was made.

    Those that are not settled were read by the sweep that gave them.
    """
    stat = os.stat
    for entry in entries:
        try:
            now = stat(f"{root}/{entry.project}/{entry.folder}")
        except OSError:
            return True
        is_old = (now.st_ino, now.st_mtime_ns) == (entry.folder_inode, entry.folder_mtime_ns)
        if entry.settled and not is_old:
            return True
    return False


def examine(
    folder: Path, old: Entry | None, known: Known, now_ns: int
) -> tuple[Entry | None, Details | None]:
    """One session folder, read: what is to be known of it, or None if it is gone."""
    place = _Place(folder, now_ns)
    try:
        status = folder.stat()
        place.folder_inode, place.folder_mtime_ns = status.st_ino, status.st_mtime_ns
        path = current_log(folder, folder.name)
    except FileNotFoundError:
        return None, None
    except BridgeError as error:
        return place.refused(error, has_logs=True), None
    except OSError as error:
        return place.refused(disk_error(folder.name, "read", error)), None
    if path is None:
        return place.entry(None), None
    place.log = path.name
    details = _grown_details(path, old, known, now_ns)
    try:
        if details is None:
            place.stamp = stamp_of(path.stat())  # what a reader refuses has no stamp of its own
            loaded = load(path, None)
            digest = digest_of(loaded.log.header, loaded.log.events, loaded.places)
            if known.keeps_details:
                details = _details_of(path, loaded.stamp, digest, now_ns)
            else:
                details = Details(False, loaded.stamp, None, digest)  # noqa: FBT003
    except BridgeError as error:
        return place.refused(error, header=_header(path)), None
    except OSError as error:
        return place.refused(disk_error(folder.name, "read", error)), None
    place.stamp = details.stamp
    digest = details.digest
    word, reason = verdict_on(torn=digest.torn, is_open=digest.is_open)
    return place.entry(word, reason=reason, header=digest.header, digest=digest), details


def _grown_details(path: Path, old: Entry | None, known: Known, now_ns: int) -> Details | None:
    """The details of a log that only grew since it was known; None: read it whole."""
    if old is None or old.status in BAD or old.log != path.name:
        return None
    before = known.details((old.project, old.folder))
    if before is None:
        return None
    found = grown(path, before.stamp, before.guard, before.digest)
    if found is None:
        return None
    stamp, digest = found
    return _details_of(path, stamp, digest, now_ns)


def current_details(path: Path, known: Details, now_ns: int) -> Details | None:
    """Details of a log as it is now, from what was known of it; None: read it whole."""
    try:
        stamp = stamp_of(path.stat())
    except OSError:
        return None
    if stamp == known.stamp:
        return known if known.settled else None
    found = grown(path, known.stamp, known.guard, known.digest)
    return None if found is None else _details_of(path, *found, now_ns)


def _details_of(path: Path, stamp: Stamp, digest: Digest, now_ns: int) -> Details:
    settled = max(stamp.mtime_ns, stamp.ctime_ns) + UNSETTLED_NS < now_ns
    return Details(settled, stamp, guard_of(path, digest, stamp), digest)


def _header(path: Path) -> Header | None:
    """The header of a log that cannot be opened, for those who only trace relations."""
    try:
        return header_of(path)
    except (BridgeError, OSError):
        return None


class _Place:
    """Stamps gathered on the way to an `Entry`."""

    def __init__(self, folder: Path, now_ns: int) -> None:
        self.project = folder.parent.name
        self.folder = folder.name
        self.now_ns = now_ns
        self.folder_inode = self.folder_mtime_ns = 0
        self.log: str | None = None
        self.stamp = Stamp(0, 0, 0, 0)

    def refused(
        self, error: BridgeError, *, has_logs: bool = False, header: Header | None = None
    ) -> Entry:
        """Of a log that cannot be opened, or a folder that cannot be read."""
        status = status_of(error)
        return self.entry(status, reason=error.details, has_logs=has_logs, header=header)

    def entry(
        self,
        status: Status | None,
        *,
        reason: str | None = None,
        has_logs: bool = False,
        header: Header | None = None,
        digest: Digest | None = None,
    ) -> Entry:
        newest = max(self.folder_mtime_ns, self.stamp.mtime_ns, self.stamp.ctime_ns)
        return Entry(
            project=self.project,
            folder=self.folder,
            settled=status != "unreadable" and newest + UNSETTLED_NS < self.now_ns,
            has_logs=has_logs or self.log is not None,
            log=self.log,
            folder_inode=self.folder_inode,
            folder_mtime_ns=self.folder_mtime_ns,
            inode=self.stamp.inode,
            size=self.stamp.size,
            mtime_ns=self.stamp.mtime_ns,
            ctime_ns=self.stamp.ctime_ns,
            session_id=None if header is None else header.session_id,
            created_at_ms=0 if header is None else header.created_at_ms,
            cwd=None if header is None else header.cwd,
            is_seeded=header is not None and header.is_seeded,
            depth=0 if header is None else header.delegation_depth,
            parent_session=None if header is None else header.parent_session,
            origin=None if header is None else header.origin,
            agent_preset=None if header is None else header.agent_preset,
            title=None if digest is None else digest.title,
            updated_at_ms=0 if digest is None else digest.updated_at_ms,
            event_count=0 if digest is None else digest.event_count,
            status=status,
            reason=reason,
            descriptors=None if digest is None else _descriptors(digest),
        )


def _descriptors(digest: Digest) -> list[int] | None:
    if digest.header.origin is None or digest.spans:
        return None
    places = ((one.seq, one.start, one.end, one.before) for one in digest.descriptors)
    return [number for place in places for number in place]
