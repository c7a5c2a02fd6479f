"""Files that other people may have put there, read with care: what is read, how much, and how."""

import codecs
import os
import stat
from pathlib import Path
from typing import NamedTuple, TypeAlias

Stamp: TypeAlias = tuple[int, int, int, int]
"""Whether a file is still what it was: device, inode, size in bytes, time in nanoseconds."""


class Unusable(Exception):  # noqa: N818  # never leaves the room
    """A file is not used; the text says why, to go behind "path: "."""


class FileText(NamedTuple):
    """A file's text, or the beginning of it; ``size`` is that of the whole file, in bytes."""

    text: str
    size: int
    is_cut: bool


class BadFile(NamedTuple):
    """A file that is not used, and why."""

    path: Path
    reason: str


def stamp_of(path: Path) -> Stamp | None:
    """What the file is now, links followed; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def read_text(path: Path, *, inside: Path | None, bytes_max: int) -> FileText:
    """A text file, up to so many bytes. Blocking, but never for a pipe.

    ``inside`` is the resolved folder that a link may not lead out of: what lies outside is not the
    project's to show to a model (a key, say). None: it may lead anywhere.

    Raises:
        Unusable: it leads out, is no regular file, is not UTF-8, or cannot be read.
    """
    try:
        real = path.resolve(strict=True)
        if inside is not None and not real.is_relative_to(inside):
            raise Unusable(f"it is a link that leads out of {inside}")
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:  # `open` would refuse a folder's descriptor and leave it open
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise Unusable("it is no file")
            with open(descriptor, "rb", closefd=False) as file:  # a descriptor
                data = file.read(bytes_max + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError, RuntimeError) as fault:
        why = getattr(fault, "strerror", None) or type(fault).__name__
        raise Unusable(f"it cannot be read: {why.lower()}") from fault
    is_cut = len(data) > bytes_max
    return FileText(
        _decoded(data[:bytes_max], is_cut=is_cut), max(found.st_size, len(data)), is_cut
    )


def _decoded(data: bytes, *, is_cut: bool) -> str:
    data = data.removeprefix(codecs.BOM_UTF8)  # faults are counted from behind it
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        # A character that the bound cuts in two is no fault of the file.
        if not is_cut or fault.start < len(data) - 3:
            raise Unusable("it is not UTF-8 text") from fault
        text = data[: fault.start].decode()
    if "\0" in text:
        raise Unusable("it is not text")
    return text.replace("\r\n", "\n")
