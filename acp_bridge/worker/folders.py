"""Where the logs of executions are while they last: a folder of this process, removed with it.

A process that was killed leaves its folder behind. It holds what people said, so the next worker of
the same home removes it: the lock beside it is free then. Blocking.
"""

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from acp_bridge.errors import ConfigError


@contextmanager
def own_folder(home: Path) -> Iterator[Path]:
    """A folder for this process under ``home``, removed at the end.

    Raises:
        ConfigError: it cannot be made.
    """
    root = home / "worker"
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_left(root)
        folder = root / uuid.uuid4().hex
        lock = _locked(_lock_of(folder))
        assert lock is not None, "nobody else knows the name"
        folder.mkdir(mode=0o700)
    except OSError as fault:
        why = (fault.strerror or type(fault).__name__).lower()
        raise ConfigError(
            f"The folder {root} cannot be used: {why}. Choose another one with --home."
        ) from fault
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def _remove_left(root: Path) -> None:
    for path in root.glob("*.lock"):
        with contextlib.suppress(OSError):  # another worker removes it just now
            lock = _locked(path)
            if lock is not None:
                _remove(path.with_suffix(""))
                os.close(lock)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _lock_of(folder).unlink(missing_ok=True)


def _lock_of(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def _locked(path: Path) -> int | None:
    """The lock's descriptor; None: a live process has it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock
