"""Files on the local disk, read and replaced in worker threads."""

import errno
import os
import shutil
import stat
from pathlib import Path

from anyio import to_thread

from acp_bridge.harness.tools.paths import resolved_path

FILE_BYTES_MAX = 256 * 1024 * 1024
"""A file above this is not loaded: memory is shared by every session of the process."""


class DiskFiles:
    """`ToolFiles` on the local disk."""

    async def read_bytes(self, path: Path) -> bytes:
        """The file's bytes; OSError also for what is no regular file and above the limit."""
        return await to_thread.run_sync(_read, path)

    async def write_bytes(self, path: Path, data: bytes) -> None:
        """Replace the file in one step, keeping its mode and links; missing folders are made."""
        await to_thread.run_sync(_write, path, data)


def _read(path: Path) -> bytes:
    # Not blocking: opening a named pipe that nobody writes to would hold the thread for good.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(number, "rb") as file:
        _require_regular(os.fstat(number), path)
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data


def _write(path: Path, data: bytes) -> None:
    target = resolved_path(path)
    try:
        before = target.stat()
    except FileNotFoundError:
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, data, None)
        return
    _require_regular(before, target)
    if not os.access(target, os.W_OK):
        # A rename would go round the file's own protection.
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    if _is_shared(before):
        _write_in_place(target, data)
        return
    try:
        _replace(target, data, before)
    except PermissionError:  # of the folder: the file itself can be written
        _write_in_place(target, data)


def _require_regular(found: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is a device, pipe or socket, not a file", str(path))


def _is_shared(found: os.stat_result) -> bool:
    """Whether a replaced file would lose something: other names (hard links), or its owner."""
    return found.st_nlink > 1 or found.st_uid != os.geteuid()


def _replace(target: Path, data: bytes, before: os.stat_result | None) -> None:
    beside = target.with_name(f".{target.name[:40]}.{os.urandom(4).hex()}.tmp")
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(number, "wb") as file:
            if before is not None:
                if os.fstat(number).st_gid != before.st_gid:
                    os.fchown(number, -1, before.st_gid)
                shutil.copystat(target, beside)
            file.write(data)
            file.flush()
            os.fsync(number)
            os.utime(number)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _write_in_place(target: Path, data: bytes) -> None:
    number = os.open(target, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    with os.fdopen(number, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(number)
