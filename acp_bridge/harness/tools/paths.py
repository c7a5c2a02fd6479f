"""Paths as a model writes them, to absolute ones: as shown, and as the disk resolves them."""

import os
from pathlib import Path


def absolute_path(text: str, cwd: Path) -> Path:
    """The path that a call works with and shows: ``~`` expanded, under ``cwd``, no ``.`` or ``..``.

    Links are left alone, since the editor knows its files by the names that the user sees. ``..``
    is taken away by name, here and so everywhere: what `resolved_path` judges is what is opened.
    """
    expanded = str(Path(text).expanduser()) if text == "~" or text.startswith("~/") else text
    normal = os.path.normpath(cwd / expanded)
    return Path("/" + normal.lstrip("/")) if normal.startswith("//") else Path(normal)


def resolved_path(path: Path) -> Path:
    """Where ``path`` leads once links are followed; parts that do not exist stay as they are."""
    try:
        # Path.resolve raises on a loop of links before Python 3.13.
        return Path(os.path.realpath(path))
    except ValueError:  # a NUL or a lone surrogate: no system call takes it, so none will follow it
        return path


def shown_path(path: Path) -> str:
    """``path`` as text that any encoder takes: bytes that are no UTF-8 become U+FFFD."""
    return str(path).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
