"""`acp-bridge events serve` as a process, and a proxy that cuts what goes through it."""

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.abc
from ports import kept_port

WAIT_S = 60.0


class ServerProcess:
    """The service as a program on one port; it can be killed and started again.

    ``before`` is a command that runs another one, which is given behind it.
    """

    def __init__(
        self,
        log_url: str,
        *,
        token: str | None = None,
        host: str = "127.0.0.1",
        before: Sequence[str] = (),
    ) -> None:
        self.port = kept_port()
        self.host = host
        self.before = before
        self.log_url = log_url
        self._token = token
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Start it; returns when it serves. The port stays the same."""
        token = [] if self._token is None else ["--token", self._token]
        self._process = subprocess.Popen(
            [*self.before, sys.executable, "-m", "acp_bridge", "events", "serve", "--host",
             self.host, "--port", str(self.port), "--log", self.log_url, *token],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("Serving run events on http://"), line

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._reap()

    def terminate(self) -> int:
        """SIGTERM; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._reap()

    def stop(self) -> None:
        if self._process is not None:
            self.kill()

    def _reap(self) -> int:
        assert self._process is not None
        code = self._process.wait(WAIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return code


class CuttingProxy:
    """Passes bytes on, and cuts a connection once so many events came through it."""

    def __init__(self, target: ServerProcess, *, events_max: int) -> None:
        self.cuts = 0
        self.port = kept_port()
        self._target = target
        self._events_max = events_max

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator["CuttingProxy"]:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            self.port = listener.extra(anyio.abc.SocketAttribute.local_port)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, self._pass_on)
                yield self
                tasks.cancel_scope.cancel()

    async def _pass_on(self, near: anyio.abc.SocketStream) -> None:
        async with near:
            try:
                far = await anyio.connect_tcp("127.0.0.1", self._target.port)
            except OSError:
                return
            async with far, anyio.create_task_group() as tasks:
                tasks.start_soon(self._pump, near, far, tasks.cancel_scope, None)
                tasks.start_soon(self._pump, far, near, tasks.cancel_scope, self._events_max)

    async def _pump(
        self,
        source: anyio.abc.SocketStream,
        target: anyio.abc.SocketStream,
        scope: anyio.CancelScope,
        events_left: int | None,
    ) -> None:
        try:
            async for data in source:
                await target.send(data)
                if events_left is not None:
                    events_left -= data.count(b"\ndata: ")
                    if events_left <= 0:
                        self.cuts += 1
                        break
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            pass  # one side is gone: so is the connection
        scope.cancel()
