"""Where a session's tools work: its own folder, or one that it was moved to since.

The log says it (``working-directory/change``), so a restart and the other harness find it again.
Moving changes neither the session's own folder nor what may be touched without asking.
"""

from functools import partial
from pathlib import Path

import anyio.to_thread

from acp_bridge.errors import InvalidParamsError
from acp_bridge.harness.desk import Desk
from acp_bridge.harness.standing import birth_rows
from acp_bridge.vocabulary import Draft


async def move(desk: Desk, path: str) -> Path:
    """Work in this folder from the next tool call on; a relative path starts where it works now.

    Raises:
        InvalidParamsError: there is no such folder; nothing changed.
        StoreFailedError: the disk refused; nothing changed.
    """
    if not path.strip():
        raise InvalidParamsError("The path is empty: name a folder.", field="path")
    start = await settled(desk)
    found = await anyio.to_thread.run_sync(_folder_at, start / path)
    if found is None:
        raise InvalidParamsError(
            f"{path!r:.200} is no folder (looked for from {start}).", field="path"
        )
    if found == await anyio.to_thread.run_sync(_folder_at, desk.cwd):
        found = desk.cwd  # however it is called, it is home
    await desk.committer.commit(partial(_rows, desk, found))
    return desk.folder


async def settled(desk: Desk) -> Path:
    """Where the tools work now; if that folder is gone, they are moved back home first.

    Raises:
        StoreFailedError: the disk refused.
    """
    folder = desk.folder
    if folder != desk.cwd and await anyio.to_thread.run_sync(_folder_at, folder) is None:
        await desk.committer.commit(partial(_rows, desk, desk.cwd))
    return desk.folder


def _folder_at(path: Path) -> Path | None:
    """The folder with no link left in its path, None if there is none."""
    try:
        found = path.resolve()
        return found if found.is_dir() else None
    except (OSError, ValueError, RuntimeError):  # no path at all, or links in a ring
        return None


def _rows(desk: Desk, folder: Path, _first_seq: int) -> list[Draft]:
    if folder == desk.folder:
        return []
    return [*birth_rows(desk), Draft("working-directory/change", {"cwd": str(folder)})]
