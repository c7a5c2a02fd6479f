"""A project folder's sessions in columns: what a page needs before it knows which it will show.

A new process that lists would spend most of its time on making ten thousand entries, of which it
shows a hundred. A **shelf** holds of each session how its log looked and where it stands in the
order, and exists only for a project folder in which every session can be opened and is settled. So
whatever is not as it was, or not that simple, is left to the sweep.
"""

import os
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from pathlib import Path
from typing import NamedTuple

from acp_bridge.sessions.known import Entry, Key, Project
from acp_bridge.sessions.verdict import GOOD


class Shelf(NamedTuple):
    """One project folder with its stamp, and its sessions column by column.

    ``ids`` has None for a session that is on no page: a subagent's, or one without a cwd.
    """

    project: str
    inode: int
    mtime_ns: int
    folders: Sequence[str]
    logs: Sequence[str]
    inodes: Sequence[int]
    sizes: Sequence[int]
    mtimes_ns: Sequence[int]
    ctimes_ns: Sequence[int]
    updated_ms: Sequence[int]
    ids: Sequence[str | None]


def shelf_of(name: str, project: Project, entries: Sequence[Entry | None]) -> Shelf | None:
    """The shelf of a project folder, from the entries of all its folders; None: it has none."""
    rows: list[tuple[str, str, int, int, int, int, int, str | None]] = []
    for one in entries:
        if one is None or one.log is None or not one.settled or one.status not in GOOD:
            return None
        shown = one.session_id if one.origin is None and one.cwd is not None else None
        rows.append((one.folder, one.log, *one.stamp, one.updated_at_ms, shown))
    if not project.settled:
        return None
    columns = map(list, zip(*rows, strict=True)) if rows else ([] for _ in Shelf._fields[3:])
    return Shelf(name, project.inode, project.mtime_ns, *columns)


def all_as_they_were(root: Path, shelves: Sequence[Shelf]) -> bool:
    """Whether nothing was added, removed or written since: one look at each log.

    A second log beside one that is as it was only shows in the time of its folder, and two folders
    of one name in the names: see `sweep` and `Catalog`.
    """
    names = {name for shelf in shelves for name in shelf.folders}
    if len(names) != sum(len(shelf.folders) for shelf in shelves):
        return False
    try:
        with os.scandir(root) as there:
            if {one.name for one in there if one.is_dir()} != {one.project for one in shelves}:
                return False
        return all(_is_as_it_was(f"{root}/{shelf.project}", shelf) for shelf in shelves)
    except OSError:
        return False


def _is_as_it_was(project: str, shelf: Shelf) -> bool:
    descriptor = os.open(project, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        now = os.fstat(descriptor)
        if (now.st_ino, now.st_mtime_ns) != (shelf.inode, shelf.mtime_ns):
            return False
        stat = os.stat
        for folder, log, inode, size, mtime_ns, ctime_ns in zip(*shelf[3:9], strict=True):
            now = stat(f"{folder}/{log}", dir_fd=descriptor)
            if (
                now.st_mtime_ns != mtime_ns
                or now.st_size != size
                or now.st_ino != inode
                or now.st_ctime_ns != ctime_ns
            ):
                return False
    finally:
        os.close(descriptor)
    return True


def first_of(
    shelves: Iterable[Shelf], after: tuple[int, str] | None, limit: int
) -> list[tuple[tuple[int, str], Key]]:
    """The first sessions in order behind ``after``, at most so many: their places and keys."""
    rows = (
        ((-updated_ms, session_id), (shelf.project, folder))
        for shelf in shelves
        for folder, updated_ms, session_id in zip(
            shelf.folders, shelf.updated_ms, shelf.ids, strict=True
        )
        if session_id is not None
    )
    return nsmallest(limit, rows if after is None else (row for row in rows if row[0] > after))
