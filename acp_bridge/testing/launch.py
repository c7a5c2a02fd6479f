"""Ways to start an agent for a scenario: the assembled bridge in memory, or any command.

A launcher is a function; what it starts is an `Agent`. Nothing here knows a scenario's steps.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import anyio
import anyio.abc
import attrs

EXIT_S = 30.0
"""How long an agent may take to leave after its input ended; the bridge promises 2 s (5 s),
but a machine that does other things keeps no promise."""

RECEIVE_BYTES = 65536
"""Read size; any will do."""


@attrs.frozen(slots=True)
class Place:
    """Where one scenario runs: all absolute, resolved, and its own."""

    cwd: Path
    home: Path
    model: Path
    model_requests: Path
    stderr: Path


class Agent(Protocol):
    """A started agent."""

    async def send(self, data: bytes) -> None:
        """Give it bytes."""

    async def receive(self) -> bytes:
        """Its next bytes; b"" when it closed its output."""

    async def end_input(self) -> None:
        """Close its input."""

    async def wait_exit(self) -> int:
        """Wait until it is gone; its exit code (0 in memory)."""

    async def kill(self) -> None:
        """End it without a warning."""

    async def aclose(self) -> None:
        """Let go of its pipes; it is gone, and all it said has been read."""


Wire: TypeAlias = Literal["acp", "sdk"]

Launcher: TypeAlias = Callable[[Place, Sequence[str], anyio.abc.TaskGroup], Awaitable[Agent]]
"""Start an agent at a place, with extra flags; a task group for what has to run beside it."""


class ByteStream(Protocol):
    """What `serve` gets, as `wire` defines it."""

    async def receive(self) -> bytes:
        """The next bytes; b"" at the end."""

    async def send(self, data: bytes) -> None:
        """Send bytes."""

    async def aclose(self) -> None:
        """Close the sending half."""


class _Pipe:
    """One direction of bytes in memory, with an end; holds a few sends, then makes them wait."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[bytes](64)

    async def send(self, data: bytes) -> None:
        await self._send.send(bytes(data))

    async def receive(self) -> bytes:
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            return b""

    def end(self) -> None:
        self._send.close()

    def close(self) -> None:
        self._send.close()
        self._receive.close()


class _AgentEnd:
    """The agent's end of two pipes."""

    def __init__(self, to_agent: _Pipe, to_client: _Pipe) -> None:
        self._to_agent = to_agent
        self._to_client = to_client

    async def receive(self) -> bytes:
        return await self._to_agent.receive()

    async def send(self, data: bytes) -> None:
        await self._to_client.send(data)

    async def aclose(self) -> None:
        self._to_client.end()


class InMemory:
    """An agent as a coroutine in this process."""

    def __init__(self) -> None:
        self._to_agent = _Pipe()
        self._to_client = _Pipe()
        self._scope = anyio.CancelScope()
        self._gone = anyio.Event()

    def start(
        self, serve: Callable[[ByteStream], Awaitable[None]], tasks: anyio.abc.TaskGroup
    ) -> None:
        """Run ``serve`` until its input ends."""
        tasks.start_soon(self._run, serve)

    async def send(self, data: bytes) -> None:
        """Give it bytes."""
        await self._to_agent.send(data)

    async def receive(self) -> bytes:
        """Its next bytes; b"" at the end."""
        return await self._to_client.receive()

    async def end_input(self) -> None:
        """Close its input."""
        self._to_agent.end()

    async def wait_exit(self) -> int:
        """Wait until ``serve`` has returned."""
        with anyio.fail_after(EXIT_S):
            await self._gone.wait()
        return 0

    async def aclose(self) -> None:
        """Let go of both pipes."""
        self._to_agent.close()
        self._to_client.close()

    async def kill(self) -> None:
        """Cancel it where it stands: the closest thing to SIGKILL that a coroutine has."""
        self._scope.cancel()
        await self.wait_exit()

    async def _run(self, serve: Callable[[ByteStream], Awaitable[None]]) -> None:
        try:
            with self._scope:
                await serve(_AgentEnd(self._to_agent, self._to_client))
        finally:
            self._to_client.end()
            self._gone.set()


class InProcess:
    """An agent as a child process."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = process.stdout

    async def send(self, data: bytes) -> None:
        """Write to its stdin."""
        await self._stdin.send(data)

    async def receive(self) -> bytes:
        """Read from its stdout."""
        try:
            return await self._stdout.receive(RECEIVE_BYTES)
        except anyio.EndOfStream:
            return b""

    async def end_input(self) -> None:
        """Close its stdin."""
        await self._stdin.aclose()

    async def wait_exit(self) -> int:
        """Wait for its exit; one that does not leave is killed and counts as a failure."""
        try:
            with anyio.fail_after(EXIT_S):
                return await self._process.wait()
        finally:
            if self._process.returncode is None:
                self._process.kill()

    async def aclose(self) -> None:
        """Let go of its pipes."""
        with anyio.CancelScope(shield=True):
            await self._process.aclose()

    async def kill(self) -> None:
        """SIGKILL."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        await self.wait_exit()


def bridge_in_memory(wire: Wire = "acp") -> Launcher:
    """The assembled bridge as a coroutine, with this wire."""

    async def launch(place: Place, flags: Sequence[str], tasks: anyio.abc.TaskGroup) -> Agent:
        from acp_bridge.cli.assemble import serve
        from acp_bridge.cli.runtime import serve_sdk
        from acp_bridge.config import Settings

        if flags:
            raise ValueError('flags need a process: say "process": true in input.json')
        settings = Settings(
            home=place.home,
            model=f"scripted:{place.model}",
            record_model_requests=place.model_requests,
        )
        agent = InMemory()
        face = serve if wire == "acp" else serve_sdk
        agent.start(lambda stream: face(stream, settings), tasks)
        return agent

    return launch


def bridge_process(wire: Wire = "acp") -> Launcher:
    """The assembled bridge as its own process, with this interpreter."""
    commands = [] if wire == "acp" else ["runtime"]
    return command([sys.executable, "-m", "acp_bridge", *commands], home_flags=True)


def command(argv: Sequence[str], *, home_flags: bool = False) -> Launcher:
    """Any ACP agent as a process; ``home_flags`` adds ``--home`` and ``--model`` as the bridge has.

    It gets a home of its own, and its stderr goes to a file of the place. In ``argv``,
    ``{home}``, ``{model}`` and ``{cwd}`` become the home, `model.jsonl` and the workspace.
    """

    async def launch(place: Place, flags: Sequence[str], _tasks: anyio.abc.TaskGroup) -> Agent:
        own = (
            ["--home", str(place.home), "--model", f"scripted:{place.model}"] if home_flags else []
        )
        env = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith("ACP_BRIDGE")
            },
            "HOME": str(place.home.parent),
            "ACP_BRIDGE_RECORD_MODEL_REQUESTS": str(place.model_requests),
        }
        with place.stderr.open("ab") as stderr:
            process = await anyio.open_process(
                [*(_placed(part, place) for part in argv), *own, *flags],
                stderr=stderr,
                env=env,
                cwd=place.cwd.parent,
            )
        return InProcess(process)

    return launch


def _placed(part: str, place: Place) -> str:
    for name in ("home", "model", "cwd"):
        part = part.replace("{" + name + "}", str(getattr(place, name)))
    return part
