"""What the benchmarks share: agents as processes, and figures measured side by side.

Every benchmark runs its contestants in turn, round by round, in one go, so that a busy machine
hits all of them alike; it prints medians, and ratios taken round by round. Nothing here is a
test: a slow machine must not fail a build.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

PEERS = Path(__file__).parent / "peers"
"""The agents that we are measured against, and ours without its harness."""

READ_BYTES = 1 << 20


def real_python() -> str:
    """This interpreter itself: no virtual environment's link and no version manager's shim."""
    return os.path.realpath(sys.executable)


def bare() -> list[str]:
    """The bare responder: json and nothing else, not even ``site``."""
    return [real_python(), "-S", "-E", str(PEERS / "bare_responder.py")]


def sdk() -> list[str]:
    """An echo agent on the ACP Python SDK."""
    return [sys.executable, str(PEERS / "sdk_agent.py")]


def bridge(*flags: str) -> list[str]:
    """The installed ``acp-bridge`` beside this interpreter."""
    command = Path(sys.executable).parent / "acp-bridge"
    if not command.exists():
        sys.exit(f"{command} is missing: run `pip install '.[dev]'` with {sys.executable} first.")
    return [str(command), *flags]


def bridge_without_orjson(*flags: str) -> list[str]:
    """The same program on an interpreter that finds no orjson."""
    return [sys.executable, str(PEERS / "bridge_without_orjson.py"), *flags]


class Agent:
    """A started agent; a context manager that ends it. Blocking and thin: the client costs little.

    Lines are bytes without their newline.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._argv = argv
        # Own pipes without buffers: a reader thread or a buffer would be part of the figure.
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**_env(), **(env or {})},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._write_fd = self._process.stdin.fileno()
        self._read_fd = self._process.stdout.fileno()
        self._rest = b""
        self._next_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def call(self, method: str, params: object) -> dict[str, Any]:
        """Send a request and read up to its response: that message's result."""
        return self.count(method, params)[1]

    def count(
        self, method: str, params: object, heard: Callable[[bytes], None] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """As `call`; first, how many lines came before the response. ``heard`` is told each."""
        self._next_id += 1
        message = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        _write_all(self._write_fd, json.dumps(message, separators=(",", ":")).encode() + b"\n")
        before = 0
        while True:
            data = os.read(self._read_fd, READ_BYTES)
            if not data:
                sys.exit(f"{self._argv} closed its output before it answered {method}.")
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                # Only a response can hold this and not a method; looking at bytes is cheap.
                if b'"method"' in line:
                    before += 1
                    if heard is not None:
                        heard(line)
                    continue
                answer = json.loads(line)
                if "error" in answer:
                    sys.exit(f"{method} failed: {answer['error']}")
                return before, answer["result"]

    def greet(self) -> None:
        """``initialize``."""
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})

    def new_session(self, cwd: str) -> str:
        """``session/new``: the session's id."""
        answer = self.call("session/new", {"cwd": cwd, "mcpServers": []})
        return str(answer["sessionId"])

    def prompt(
        self, session_id: str, text: str, heard: Callable[[bytes], None] | None = None
    ) -> int:
        """``session/prompt`` to its end: how many updates came."""
        block = {"type": "text", "text": text}
        return self.count("session/prompt", {"sessionId": session_id, "prompt": [block]}, heard)[0]


def _env() -> dict[str, str]:
    """The environment without what would change how an agent runs: an editor has none of it.

    PYTHONDONTWRITEBYTECODE above all would have sources compiled at every start.
    """
    ours = ("ACP_BRIDGE", "PYTHON", "COVERAGE")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


Figures = dict[str, list[float]]
"""Measured values by contestant, one a round."""


def rounds(contestants: Mapping[str, Callable[[], float]], *, count: int) -> Figures:
    """Measure each contestant once a round; the first round warms caches and does not count."""
    figures: Figures = {name: [] for name in contestants}
    for number in range(count + 1):
        for name, measure in contestants.items():
            value = measure()
            if number:
                figures[name].append(value)
    return figures


def show(title: str, figures: Figures, *, unit: str, digits: int = 1) -> dict[str, float]:
    """Print a table of medians with the spread between quartiles; the medians."""
    print(f"\n{title}")
    width = max(map(len, figures))
    medians = {}
    for name, values in figures.items():
        low, middle, high = quartiles(values)
        medians[name] = middle
        spread = f"{low:,.{digits}f} to {high:,.{digits}f}"
        print(f"  {name:{width}}  {middle:10,.{digits}f} {unit:4}  (middle half {spread})")
    return medians


def ratio(figures: Figures, top: str, bottom: str) -> float:
    """The median of the ratios of one round: a machine that turns busy changes both sides."""
    pairs = zip(figures[top], figures[bottom], strict=True)
    return statistics.median(above / below for above, below in pairs)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def judge(what: str, value: float, target: str, *, met: bool, digits: int = 2) -> None:
    """Print a figure against its target."""
    print(f"  => {what}: {value:.{digits}f} (target {target}) {'met' if met else 'MISSED'}")


def heading(charter: str | None) -> None:
    """Print what a script measures and on what."""
    print((charter or "").splitlines()[0])
    version = ".".join(map(str, sys.version_info[:3]))
    load = os.getloadavg()[0]
    print(f"Python {version}, {os.cpu_count()} processors, load {load:.1f}")
