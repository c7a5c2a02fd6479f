"""One runtime process as a byte stream: its start, the last it said on stderr, its whole end."""

import logging
from collections import deque
from typing import Final

import anyio

from acp_bridge.errors import RuntimeFailedError
from acp_bridge.harness.tools.processes import READ_BYTES_MAX, Child, spawn
from acp_bridge.runtime.dsh.launch import Launch
from acp_bridge.wire.trace import Redactor

logger = logging.getLogger(__name__)

EXIT_WAIT_S: Final = 3.0
"""How long it may take to leave by itself once its stdin is closed: 0.1 s idle, more when busy."""

LAST_LINES: Final = 12
LINE_CHARS_MAX: Final = 300

_QUIET_WAIT_S: Final = 0.5
"""How long after the end of all of them the last words may take to come through the pipe."""


class DshProcess:
    """A running ``dsh``; a `wire.endpoint.ByteStream`. Made by `start`."""

    def __init__(self, child: Child, redactor: Redactor) -> None:
        self._child = child
        self._redactor = redactor
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._begun = b""
        self._hearing: anyio.CancelScope | None = None
        self._heard = anyio.Event()
        self._closed = False
        self.exit_wait_s = EXIT_WAIT_S
        """How long `aclose` lets it leave by itself; 0 for one that has nothing to save."""

    @classmethod
    async def start(cls, launch: Launch) -> "DshProcess":
        """Start it, with its home as working folder.

        Raises:
            RuntimeFailedError: it cannot be started.
        """
        environment = launch.environment
        try:
            launch.home.mkdir(parents=True, exist_ok=True)
            child = await spawn(launch.words, cwd=launch.home, env=environment, talks=True)
        except (OSError, ValueError) as fault:
            why = fault.strerror if isinstance(fault, OSError) else None
            raise RuntimeFailedError(
                f"DeepSeek Harness cannot be started: {launch.command}: "
                f"{(why or type(fault).__name__).lower()}."
            ) from fault
        return cls(child, Redactor(environment))

    async def receive(self) -> bytes:
        """What it says; b"" at its end."""
        try:
            return await self._child.stdout.receive(READ_BYTES_MAX)
        except anyio.EndOfStream:
            return b""

    async def send(self, data: bytes) -> None:
        """Tell it something."""
        await self._child.stdin.send(data)

    async def hear_errors(self) -> None:
        """Keep its last words; run this beside the stream, until the end."""
        if self._closed:
            return
        try:
            with anyio.CancelScope() as self._hearing:
                while data := await self._child.read():
                    self._keep(data)
        finally:
            self._heard.set()

    def note(self, line: bytes) -> None:
        """Keep a line that it said where only messages belong."""
        self._keep(line + b"\n")

    def _keep(self, data: bytes) -> None:
        *lines, self._begun = (self._begun + data).split(b"\n")
        self._begun = self._begun[:LINE_CHARS_MAX]
        for line in lines:
            text = str(self._redactor.clean(line.decode("utf-8", errors="replace")))
            if text.strip():
                self._lines.append(text.rstrip()[:LINE_CHARS_MAX])
                logger.info("dsh: %s", self._lines[-1])

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._child.exit_code

    @property
    def last_words(self) -> str:
        """The last lines on its stderr, without secrets, in one line; "" if it said nothing."""
        return " / ".join(self._lines)

    async def aclose(self) -> None:
        """Let it leave, then end what is left of it and of all that it started. Bounded."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            await self._child.stdin.aclose()
            with anyio.move_on_after(self.exit_wait_s):
                await self._child.wait()
            await self._child.end("tree")
            await self._child.stdout.aclose()
            if self._hearing is not None:
                with anyio.move_on_after(_QUIET_WAIT_S):
                    await self._heard.wait()
                self._hearing.cancel()
                await self._heard.wait()
            self._keep(b"\n")
            self._child.close()
