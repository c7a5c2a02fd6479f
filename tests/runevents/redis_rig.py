"""A real redis-server of a test's own: on a free port, in a folder, ended with the test."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ports import kept_port

START_S = 60.0


class RedisServer:
    """A redis-server that can be killed and started again on the same port and files."""

    def __init__(self, folder: Path, *options: str) -> None:
        program = shutil.which("redis-server")
        assert program, "redis-server is missing: apt-get install redis-server"
        self.port = kept_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._argv = [
            program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder),
            "--save", "", "--appendonly", "yes", *options,
        ]  # fmt: skip
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        self._process = subprocess.Popen(self._argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "Ready to accept connections" in line:
                return
        raise AssertionError("redis-server did not start")

    def kill(self) -> None:
        """SIGKILL, as a machine that goes down."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(START_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process is not None:
            self.kill()


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    server = RedisServer(folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
