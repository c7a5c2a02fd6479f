"""Instructions in AGENTS.md files: which count for a workspace, and how much of each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

FILE_NAME: Final = "AGENTS.md"

FILE_BYTES_MAX: Final = 32 * 1024
"""Of one file: some 8,000 tokens, in every request."""

ALL_BYTES_MAX: Final = 64 * 1024
"""Of all files together; the nearest ones come first to it."""


class Instructions(NamedTuple):
    """A file's instructions, cut or whole; ``size`` is that of the whole file, in bytes."""

    path: Path
    text: str
    size: int
    is_cut: bool = False


class Place(NamedTuple):
    """Where instructions may stand, and the folder that a link of it may not lead out of."""

    path: Path
    inside: Path | None


def places(home: Path | None, cwd: Path, folders: Sequence[Path]) -> list[Place]:
    """Where to look, in the order in which a model reads them: what counts most comes last.

    The user's file, then for each folder of the workspace those from the root of its repository
    down to it; the working folder's come last.
    """
    found = [] if home is None else [Place(home / FILE_NAME, None)]
    for folder in (*folders, cwd):
        root = repository_of(folder)
        inside = resolved(root)
        found += [Place(one / FILE_NAME, inside) for one in _down(root, folder)]
    return list({place.path: place for place in found}.values())


def repository_of(folder: Path) -> Path:
    """The nearest folder above, or this one, that holds ``.git``; without one, this one."""
    for one in (folder, *folder.parents):
        try:
            (one / ".git").lstat()
        except (OSError, ValueError):
            continue
        return one
    return folder


def resolved(folder: Path) -> Path:
    """The folder with no link left in its path, as far as it is there."""
    try:
        return folder.resolve()
    except (OSError, RuntimeError):
        return folder


def shares(sizes: Sequence[int]) -> list[int]:
    """How many bytes of each file are taken; the last files come first to what all may have."""
    left = ALL_BYTES_MAX
    taken = []
    for size in reversed(sizes):
        taken.append(min(size, FILE_BYTES_MAX, left))
        left -= taken[-1]
    return taken[::-1]


def cut_note(one: Instructions) -> str:
    """What the user is told of a file that is too long."""
    kept = len(one.text.encode())
    return f"{one.path} has {one.size:,} bytes: the model is given the first {kept:,}."


def _down(root: Path, folder: Path) -> list[Path]:
    above = [one for one in folder.parents if one.is_relative_to(root)]
    return [*reversed(above), folder]
