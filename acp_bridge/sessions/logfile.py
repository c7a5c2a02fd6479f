"""The one place that writes: lock, publish, append and roll back the file of one log.

Durability: with ``durable`` every batch is on the disk (``fsync``) before `append` returns, and a
new file's folders as well; without it the operating system writes when it likes. The lock is
``flock`` on ``session.lock``, held until `close` or the end of the process, and freed by the kernel
after a kill. The lock file is never removed: a waiter could hold the removed one.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from acp_bridge.errors import SessionConflictError, StoreFailedError
from acp_bridge.sessions.codec import encode_batch
from acp_bridge.sessions.paths import LOCK_NAME, PENDING_NAME, Encoding, log_name, parse_log_name

_REASONS: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file may not grow further",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is missing",
    errno.EPERM: "permission is missing",
    errno.ENOENT: "its folder is gone",
    errno.EIO: "the disk reports an error",
    errno.EMFILE: "too many files are open",
    errno.ENAMETOOLONG: "its path is too long",
}
_NO_LINK: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""What file systems without hard links answer."""

_NO_COPY: Final = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF}
)
"""What file systems answer between which the kernel does not copy."""

_COPY_BYTES: Final = 1 << 20

_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


def disk_reason(error: OSError) -> str:
    """Why the disk refused, in our words: a clause without a full stop."""
    code = error.errno or 0
    name = errno.errorcode.get(code, "an error without a name")
    return _REASONS.get(code, f"the system answers {name}")


def disk_error(session_id: str, what: str, error: OSError) -> StoreFailedError:
    """The sentence for a refusal of the disk. ``what`` is "read" or "written"."""
    safe = "" if what == "read" else " What was stored before is safe."
    return StoreFailedError(
        f"The log of session {session_id:.100} could not be {what}: {disk_reason(error)}.{safe}"
    )


def locked(session_id: str) -> SessionConflictError:
    """The sentence for a second writer."""
    return SessionConflictError(
        f"Session {session_id:.100} is already open for writing; close it there first."
    )


def take_lock(folder: Path, session_id: str, *, create: bool) -> int | None:
    """The held lock's descriptor; None if there is no lock file and none shall be made.

    Raises:
        SessionConflictError: somebody holds it, in this process or another.
        OSError: the file could not be opened.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        descriptor = os.open(folder / LOCK_NAME, flags, 0o600)
    except FileNotFoundError:
        if create:
            raise
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise locked(session_id) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class Copied(NamedTuple):
    """Bytes of another open file, from ``start`` to ``end``, as a piece of a new log."""

    descriptor: int
    start: int
    end: int


class LogFile:
    """A locked log file, open for appending whole batches.

    ``length`` is how many bytes are known to be good and durable.
    """

    def __init__(
        self,
        session_id: str,
        encoding: Encoding,
        descriptor: int,
        lock: int,
        length: int,
        *,
        durable: bool,
    ) -> None:
        self.length = length
        self._session_id = session_id
        self._encoding: Encoding = encoding
        self._descriptor = descriptor
        self._lock = lock
        self._durable = durable
        self._is_dirty = False
        self._is_closed = False

    @classmethod
    def create(
        cls,
        folder: Path,
        session_id: str,
        encoding: Encoding,
        pieces: Sequence["bytes | Copied"],
        *,
        durable: bool,
    ) -> "LogFile":
        """Publish a new log that holds these pieces of a file, or nothing at all.

        Raises:
            SessionConflictError: the session has a log already, or somebody else makes one.
            StoreFailedError: the disk refused.
        """
        lock = None
        try:
            new_folders = _make_folders(folder)
            lock = take_lock(folder, session_id, create=True)
            assert lock is not None
            _refuse_existing(folder, session_id)
            path = folder / log_name(encoding)
            descriptor, length = _publish(folder, path, pieces, durable=durable)
            if durable:
                for one in (folder, *new_folders):
                    _sync_folder(one)
        except BaseException as error:
            if lock is not None:
                os.close(lock)
            if isinstance(error, FileExistsError):
                raise SessionConflictError(f"Session {session_id:.100} exists already.") from None
            if isinstance(error, OSError):
                raise disk_error(session_id, "written", error) from error
            raise
        return cls(session_id, encoding, descriptor, lock, length, durable=durable)

    @classmethod
    def open(
        cls,
        path: Path,
        session_id: str,
        encoding: Encoding,
        lock: int,
        length: int,
        *,
        durable: bool,
    ) -> "LogFile":
        """An existing log under a lock that is held already; whatever follows ``length`` is cut.

        Raises:
            OSError: the file could not be opened or cut.
        """
        descriptor = os.open(path, _FLAGS)
        try:
            if os.fstat(descriptor).st_size != length:
                os.ftruncate(descriptor, length)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(session_id, encoding, descriptor, lock, length, durable=durable)

    def append(self, lines: bytes) -> None:
        """Write one batch of whole lines, all or nothing, and make it durable.

        Raises:
            StoreFailedError: the disk refused; the file is as it was before.
            SessionConflictError: another program wrote to the file although we hold the lock.
        """
        data = encode_batch(lines, self._encoding)
        try:
            self._require_ours()
            self._is_dirty = True
            _write_all(self._descriptor, data)
            if self._durable:
                os.fsync(self._descriptor)
        except OSError as error:
            self._roll_back()
            raise disk_error(self._session_id, "written", error) from error
        except BaseException:
            self._roll_back()
            raise
        self._is_dirty = False
        self.length += len(data)

    def _require_ours(self) -> None:
        """The file must still be there and end where we left it."""
        status = os.fstat(self._descriptor)
        if status.st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "deleted")
        if status.st_size != self.length:
            if not self._is_dirty:
                raise SessionConflictError(
                    f"The log of session {self._session_id:.100} was changed by another program;"
                    " open the session again."
                )
            os.ftruncate(self._descriptor, self.length)

    def _roll_back(self) -> None:
        if self._is_dirty:
            # If this fails too, the next append tries again before it writes.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.length)
                self._is_dirty = False

    def close(self) -> None:
        """Release the lock. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._descriptor)
            os.close(self._lock)


def _write_all(descriptor: int, data: bytes) -> None:
    """One write, normally; the rest after a short one, which is how a full disk may begin."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _make_folders(folder: Path) -> list[Path]:
    """Make the folder and its parents, for their owner only; the folders whose entries changed."""
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    return [one.parent for one in missing]


def _refuse_existing(folder: Path, session_id: str) -> None:
    for path in folder.iterdir():
        if parse_log_name(path.name) is not None:
            raise SessionConflictError(f"Session {session_id:.100} exists already.")


def _publish(
    folder: Path, path: Path, pieces: Sequence[bytes | Copied], *, durable: bool
) -> tuple[int, int]:
    """Write a temporary file and give it its name; descriptor and length. The lock is held."""
    pending = folder / PENDING_NAME
    pending.unlink(missing_ok=True)  # what a crash left behind
    descriptor = os.open(pending, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for piece in pieces:
            if isinstance(piece, Copied):
                _copy(piece, descriptor)
            else:
                _write_all(descriptor, piece)
        length = os.lseek(descriptor, 0, os.SEEK_CUR)
        # Only now: the kernel copies nothing into a file that is open for appending.
        fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
        if durable:
            os.fsync(descriptor)
        try:
            os.link(pending, path)  # unlike a rename it never overwrites
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            pending.rename(path)
        pending.unlink(missing_ok=True)
    except BaseException:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            pending.unlink(missing_ok=True)
        raise
    return descriptor, length


def _copy(piece: Copied, target: int) -> None:
    """Let the kernel copy, or do it here where it cannot (another file system, another system)."""
    at = piece.start
    copy = getattr(os, "copy_file_range", None)
    while at < piece.end and copy is not None:
        try:
            done = copy(piece.descriptor, target, piece.end - at, at)
        except OSError as error:
            if error.errno not in _NO_COPY:
                raise
            break
        if not done:
            break
        at += done
    while at < piece.end:
        data = os.pread(piece.descriptor, min(piece.end - at, _COPY_BYTES), at)
        if not data:
            raise OSError(errno.EIO, "the source became shorter")
        _write_all(target, data)
        at += len(data)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
