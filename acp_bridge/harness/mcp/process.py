"""An MCP server as a process of ours: its stdin and stdout as the library's streams of messages.

Not the library's own: that one leaves behind what a server started outside its process group, and
knows nothing of the processes that must not outlive us.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from acp_bridge.errors import McpServerError
from acp_bridge.harness.mcp.naming import shown
from acp_bridge.harness.mcp.servers import Surroundings
from acp_bridge.harness.tools.processes import READ_BYTES_MAX, Child, spawn
from acp_bridge.models.known import PROVIDERS
from acp_bridge.vocabulary import StdioServer
from acp_bridge.wire.framing import NEED_DATA, LineBuffer, Oversize

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

EXIT_WAIT_S: Final = 1.0
"""How long it may take to leave by itself once its stdin is closed, before it is told to."""

_CODE_WAIT_S: Final = 0.5
"""Between the end of what it says and its exit code."""

Incoming: TypeAlias = SessionMessage | Exception


class ServerProcess:
    """A running server; ``incoming`` and ``outgoing`` are the library's ends."""

    def __init__(self, child: Child, ended: Callable[[], None]) -> None:
        self._child = child
        self._ended = ended
        self.is_over = False
        self._heard: MemoryObjectSendStream[Incoming]
        self._heard, self.incoming = anyio.create_memory_object_stream[Incoming](0)
        self._said: MemoryObjectReceiveStream[SessionMessage]
        self.outgoing, self._said = anyio.create_memory_object_stream[SessionMessage](0)

    async def why_over(self) -> str:
        """How it ended, to go on from its name."""
        with anyio.move_on_after(_CODE_WAIT_S):
            await self._child.wait()
        code = self._child.exit_code
        if code is None:
            return "closed its output"
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    async def hear(self) -> None:
        """Give the library what it says, until it says nothing more."""
        lines = LineBuffer()
        try:
            async with self._heard:
                while data := await self._receive():
                    lines.receive(data)
                    while (line := lines.next_line()) is not NEED_DATA:
                        if isinstance(line, Oversize):
                            return
                        if (message := _message(line)) is not None:
                            await self._heard.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the library listens no more: this is the end
        finally:
            self.is_over = True
            self._ended()

    async def _receive(self) -> bytes:
        try:
            return await self._child.stdout.receive(READ_BYTES_MAX)
        except anyio.EndOfStream:
            return b""

    async def tell(self) -> None:
        """Send it what the library says; one that does not listen any more ends by itself."""
        try:
            async with self._said:
                async for one in self._said:
                    text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await self._child.stdin.send(text.encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return  # what waits for an answer is told when it has ended

    async def drain(self) -> None:
        """Throw away what it says on stderr: it may hold secrets, and must not block it."""
        while await self._child.read():
            pass

    async def end(self) -> None:
        """Let it leave, then end what is left of it and of all that it started. Bounded."""
        with anyio.CancelScope(shield=True):
            await self._child.stdin.aclose()
            with anyio.move_on_after(EXIT_WAIT_S):
                await self._child.wait()
            await self._child.end("tree")

    async def close(self) -> None:
        """Give everything back, after all tasks have ended."""
        with anyio.CancelScope(shield=True):
            await self._child.stdout.aclose()
        for stream in (self._heard, self.incoming, self._said, self.outgoing):
            stream.close()
        self._child.close()


@asynccontextmanager
async def server_process(
    server: StdioServer, surroundings: Surroundings, ended: Callable[[], None]
) -> AsyncIterator[ServerProcess]:
    """Start a server, and end it with all that it started.

    Raises:
        McpServerError: it cannot be started.
    """
    try:
        child = await spawn(
            [server.command, *server.args],
            cwd=surroundings.cwd,
            env=environment(server, surroundings.env),
            talks=True,
        )
    except (OSError, ValueError) as fault:
        raise McpServerError(_why_not(server, fault)) from None
    process = ServerProcess(child, ended)
    try:
        async with anyio.create_task_group() as group:
            for work in (process.hear, process.tell, process.drain):
                group.start_soon(work)
            try:
                yield process
            finally:
                await process.end()
                group.cancel_scope.cancel()
    finally:
        await process.close()


def environment(server: StdioServer, base: Mapping[str, str]) -> dict[str, str]:
    """What the server sees: ours without the keys of models, and exactly what it was given."""
    keys = {provider.key_variable for provider in PROVIDERS.values()}
    return {**{name: value for name, value in base.items() if name not in keys}, **server.env}


def _why_not(server: StdioServer, fault: OSError | ValueError) -> str:
    match fault:
        case FileNotFoundError():
            return f"cannot be started: there is no command {shown(server.command)}"
        case PermissionError():
            return f"cannot be started: {shown(server.command)} may not be run"
        case OSError(strerror=str(why)):
            return f"cannot be started: {why.lower()}"
        case _:
            return "cannot be started: its command, arguments or variables hold a null character"


def _message(line: bytes) -> SessionMessage | None:
    """The message of a line; None for one that is none: many programs print more than messages."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None
