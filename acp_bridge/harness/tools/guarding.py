"""Our end of `guard`: the process that ends our commands if we are killed."""

import contextlib
import logging
import os
import subprocess
import sys

from acp_bridge.harness.tools import guard

logger = logging.getLogger(__name__)

_KEPT = ("LD_LIBRARY_PATH",)
"""What Python itself may need of our environment; the rest, keys too, is none of its business."""


class Guard:
    """Starts with the first command, on Linux alone; whatever fails here stops no command."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._watched: dict[str, str] = {}

    def watch(self, mark: str, *, talks: bool) -> None:
        """End the command with this mark if we are killed; ``talks``: let it leave first."""
        if sys.platform != "linux":
            return
        self._watched[mark] = "~" if talks else "+"
        if self._process is None or self._process.poll() is not None:
            self._start()
            for one, sign in self._watched.items():
                self._tell(sign, one)
        else:
            self._tell(self._watched[mark], mark)

    def forget(self, mark: str) -> None:
        """The command ended."""
        if self._watched.pop(mark, None) is not None:
            self._tell("-", mark)

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-I", "-S", guard.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={name: os.environ[name] for name in _KEPT if name in os.environ},
                start_new_session=True,
            )
        except OSError as error:
            self._process = None
            logger.warning("nobody ends commands if this process is killed: %s", error)
            return
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    def _tell(self, change: str, mark: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it died: the next command starts another
                self._process.stdin.write(f"{change}{mark}\n".encode())
