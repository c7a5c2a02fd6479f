"""The client end of one connection: writes lines, keeps everything it reads, waits with a bound.

It has its own few lines of NDJSON on purpose: a fault in `wire/` must not hide itself here.
"""

import json
from collections.abc import Callable
from typing import Protocol, TypeVar

import anyio

from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import JsonObject

Found = TypeVar("Found")

WAIT_S = 30.0
"""The bound of every wait: far above what a turn with a scripted model takes on a busy machine."""

SHOWN_MAX = 30
"""How many of the last messages a failed wait prints."""

TEXT_SHOWN_MAX = 400
"""How much of each of them."""


class ScenarioError(AssertionError):
    """A scenario did not go as written; the text says where and what was seen."""


class Pipe(Protocol):
    """Bytes to and from the agent. ``receive`` gives b"" at the end."""

    async def send(self, data: bytes) -> None:
        """Give it bytes."""

    async def receive(self) -> bytes:
        """Its next bytes; b"" at the end."""


class ScriptedClient:
    """One connection: ``entries`` is the transcript that it shares with the runner.

    ``wait_s`` bounds every wait; None is `WAIT_S`.
    """

    def __init__(
        self, pipe: Pipe, run: int, entries: list[Entry], wait_s: float | None = None
    ) -> None:
        self._pipe = pipe
        self._run = run
        self._entries = entries
        self._changed = anyio.Event()
        self._wait_s = WAIT_S if wait_s is None else wait_s
        self.ended = False
        self.fault: str | None = None

    async def read(self) -> None:
        """Keep what the agent sends until it closes its end; a line that is no message ends it."""
        rest = b""
        try:
            while data := await self._pipe.receive():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._entries.append(Entry(self._run, "client", _message(line)))
                self._tell()
            if rest:
                self.fault = f"the agent ended in the middle of a line: {rest[:200]!r}"
        except ValueError as error:
            self.fault = str(error)
        finally:
            self.ended = True
            self._tell()

    async def send(self, message: JsonObject) -> None:
        """Send one message, compact, as one line."""
        whole: JsonObject = {"jsonrpc": "2.0", **message}
        self._entries.append(Entry(self._run, "agent", whole))
        line = json.dumps(whole, separators=(",", ":"), ensure_ascii=False) + "\n"
        try:
            await self._pipe.send(line.encode())
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ScenarioError(f"the agent no longer reads\n{self.seen()}") from None

    async def wait_for(self, find: Callable[[], Found | None], what: str) -> Found:
        """What ``find`` gives as soon as it is not None.

        Raises:
            ScenarioError: nothing within the bound, or the agent went away.
        """
        with anyio.move_on_after(self._wait_s):
            while True:
                changed = self._changed
                if (found := find()) is not None:
                    return found
                if self.ended:
                    why = self.fault or "the agent closed its output"
                    raise ScenarioError(f"{why}, before {what}\n{self.seen()}")
                await changed.wait()
        raise ScenarioError(f"no {what} within {self._wait_s:g} s\n{self.seen()}")

    async def wait_end(self) -> None:
        """Wait until the agent has closed its output.

        Raises:
            ScenarioError: it is open after the bound, or what came was no message.
        """
        with anyio.move_on_after(self._wait_s):
            while not self.ended:
                await self._changed.wait()
        if not self.ended:
            raise ScenarioError("the agent is gone, but something holds its output open")
        if self.fault:
            raise ScenarioError(self.fault)

    def seen(self) -> str:
        """The last messages both ways, for a failure's text."""
        shown = self._entries[-SHOWN_MAX:]
        head = (
            f"… {len(self._entries) - len(shown)} earlier\n"
            if len(shown) < len(self._entries)
            else ""
        )
        arrows = {"agent": "->", "client": "<-"}
        return head + "\n".join(
            f"{arrows[entry.to]} {json.dumps(entry.message, ensure_ascii=False)[:TEXT_SHOWN_MAX]}"
            for entry in shown
        )

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def _message(line: bytes) -> JsonObject:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"the agent wrote a line that is no message: {line[:200]!r}")  # noqa: TRY004
    return value
