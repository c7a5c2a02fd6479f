"""Run events: publish, deliver, latency at 500 a second, memory of idle subscriptions.

The service on SQLite and on Redis, beside a bare Starlette endpoint that keeps a list in memory.
"""

import asyncio
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Self
from urllib.parse import urlsplit

import contest

ROUNDS = 3
PUBLISHERS = 10
SINGLES = 500
BATCH = 50
BATCHES = 40
BACKLOG = 5_000
RATE = 500
RATE_S = 3.0
TICK_S = 0.02
IDLE = (100, 1_000)
OF_BARE_MIN = 0.3
"""Target: at least this share of the bare endpoint's rate, though ours answers after an fsync."""

OF_BARE_BATCHED_MIN = 0.15
"""The same for events sent together: the bare endpoint checks nothing of them and keeps a list."""

DELIVERED_MIN = 20_000.0
"""Target: events a second of a backlog. The bare endpoint's are bytes in memory, no measure."""

P99_MS_MAX = 50.0
"""Target: from publishing to arrival, at 500 events a second, on SQLite with an fsync."""

IDLE_KIB_MAX = 64.0
"""Target: what a thousand idle subscriptions take, each."""

NOW = "2026-11-30T12:00:00Z"
Server = tuple[str, int]
"""Its address and its process id."""

Measure = Callable[[str], Coroutine[Any, Any, float]]
"""A figure of the server at an address."""


def main() -> None:
    contest.heading(__doc__)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {
            "bare Starlette": stack.enter_context(_started(_bare())),
            "SQLite": stack.enter_context(_started(_ours(f"sqlite:{folder / 'events.sqlite'}"))),
        }
        if shutil.which("redis-server"):
            url = stack.enter_context(_redis(folder))
            servers["Redis"] = stack.enter_context(_started(_ours(url)))
        else:
            print("no redis-server here: without Redis")
        title = "publish, one event a request"
        _publish_rate(title, servers, _publish_singles, of_bare_min=OF_BARE_MIN)
        title = f"publish, {BATCH} events a request"
        _publish_rate(title, servers, _publish_batches, of_bare_min=OF_BARE_BATCHED_MIN)
        _deliver_rate(servers)
        _latency(servers)
        _memory(servers)


def _publish_rate(
    title: str, servers: Mapping[str, Server], measure: Measure, *, of_bare_min: float
) -> None:
    figures = _rates(servers, measure)
    contest.show(title, figures, unit="/s", digits=0)
    for name in list(servers)[1:]:
        share = contest.ratio(figures, name, "bare Starlette")
        contest.judge(f"{name}, of bare", share, f">= {of_bare_min:g}", met=share >= of_bare_min)


def _deliver_rate(servers: Mapping[str, Server]) -> None:
    figures = _rates(servers, _deliver)
    medians = contest.show("deliver a backlog", figures, unit="/s", digits=0)
    for name in list(servers)[1:]:
        rate = medians[name]
        target = f">= {DELIVERED_MIN:,.0f}"
        contest.judge(f"{name}, events a second", rate, target, met=rate >= DELIVERED_MIN, digits=0)
        print(f"  => {name}, of bare: {contest.ratio(figures, name, 'bare Starlette'):.2f}")


def _rates(servers: Mapping[str, Server], measure: Measure) -> contest.Figures:
    def measured(url: str) -> Callable[[], float]:
        return lambda: asyncio.run(measure(url))

    return contest.rounds({name: measured(url) for name, (url, _) in servers.items()}, count=ROUNDS)


def _latency(servers: Mapping[str, Server]) -> None:
    middle: contest.Figures = {name: [] for name in servers}
    worst: contest.Figures = {name: [] for name in servers}
    for _ in range(ROUNDS):
        for name, (url, _pid) in servers.items():
            found = sorted(asyncio.run(_latencies(url)))
            middle[name].append(statistics.median(found))
            worst[name].append(found[int(len(found) * 0.99)])
    contest.show(f"p50 at {RATE} events a second", middle, unit="ms")
    medians = contest.show(f"p99 at {RATE} events a second", worst, unit="ms")
    for name in list(servers)[1:]:
        ours = medians[name]
        contest.judge(f"{name}, p99", ours, f"<= {P99_MS_MAX:g} ms", met=ours <= P99_MS_MAX)


def _memory(servers: Mapping[str, Server]) -> None:
    for count in IDLE:
        figures: contest.Figures = {
            name: [asyncio.run(_idle_kib(url, pid, count))] for name, (url, pid) in servers.items()
        }
        title = f"memory of each of {count:,} idle subscriptions"
        for name, kib in contest.show(title, figures, unit="KiB").items():
            if name != "bare Starlette" and count == IDLE[-1]:
                target = f"<= {IDLE_KIB_MAX:g} KiB"
                contest.judge(f"{name}, KiB", kib, target, met=kib <= IDLE_KIB_MAX)


# --- what is measured --------------------------------------------------------------------------


async def _publish_singles(url: str) -> float:
    run = await _registered(url)

    async def some() -> None:
        async with Connection(url) as connection:
            for _ in range(SINGLES // PUBLISHERS):
                await connection.post(f"events/{run}", {"events": [_event()]})

    start = perf_counter()
    await asyncio.gather(*(some() for _ in range(PUBLISHERS)))
    return SINGLES / (perf_counter() - start)


async def _publish_batches(url: str) -> float:
    run = await _registered(url)
    async with Connection(url) as connection:
        start = perf_counter()
        for _ in range(BATCHES):
            await connection.post(f"events/{run}", {"events": [_event() for _ in range(BATCH)]})
        return BATCHES * BATCH / (perf_counter() - start)


async def _deliver(url: str) -> float:
    run = await _registered(url)
    async with Connection(url) as connection:
        for _ in range(BACKLOG // BATCH):
            await connection.post(f"events/{run}", {"events": [_event() for _ in range(BATCH)]})
    async with Connection(url) as connection:
        start = perf_counter()
        await connection.open_stream(run)
        came = 0
        while came < BACKLOG:
            came += (await connection.read()).count(b"\ndata: ")
        return came / (perf_counter() - start)


async def _latencies(url: str) -> list[float]:
    run = await _registered(url)
    total = int(RATE * RATE_S)
    each = int(RATE * TICK_S)
    found: list[float] = []

    async def listen(reader: "Connection") -> None:
        rest = b""
        while len(found) < total:
            *lines, rest = (rest + await reader.read()).split(b"\n")
            now = perf_counter()
            for line in lines:
                if line.startswith(b"data: "):
                    sent = json.loads(line[6:])["payload"]["at"]
                    found.append((now - sent) * 1000)

    async with Connection(url) as reader, Connection(url) as writer:
        await reader.open_stream(run)
        listening = asyncio.create_task(listen(reader))
        start = perf_counter()
        for number in range(total // each):
            await asyncio.sleep(start + number * TICK_S - perf_counter())
            events = [_event(at=perf_counter()) for _ in range(each)]
            await writer.post(f"events/{run}", {"events": events})
        await listening
    return found


async def _idle_kib(url: str, pid: int, count: int) -> float:
    run = await _registered(url)
    await asyncio.sleep(1.5)  # for the memory of earlier rounds to come to rest
    before_kib = _resident_kib(pid)
    connections = [Connection(url) for _ in range(count)]
    for connection in connections:
        await connection.__aenter__()
        await connection.open_stream(run)
    await asyncio.sleep(0.5)
    taken_kib = _resident_kib(pid) - before_kib
    for connection in connections:
        await connection.__aexit__()
    return taken_kib / count


def _resident_kib(pid: int) -> float:
    told = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], check=True, capture_output=True, text=True
    )
    return float(told.stdout)


async def _registered(url: str) -> str:
    run = uuid.uuid4().hex
    async with Connection(url) as connection:
        await connection.post("runs", {"run_id": run})
    return run


def _event(at: float = 0.0) -> dict[str, object]:
    return {
        "event_type": "run_in_progress",
        "event_id": uuid.uuid4().hex,
        "occurred_at": NOW,
        "payload": {"text": "x" * 100, "at": at},
    }


class Connection:
    """One HTTP connection, as thin as can be: the client must not be what is measured."""

    def __init__(self, url: str) -> None:
        self._port = urlsplit(url).port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def post(self, path: str, body: object) -> None:
        """Post and read the whole answer."""
        data = json.dumps(body).encode()
        head = f"POST /v1/agent/{path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        self._writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        status, headers = await self._head()
        answer = await self._reader.readexactly(int(headers[b"content-length"]))
        if status != 200:
            sys.exit(f"{path} failed: {answer!r}")

    async def open_stream(self, run: str) -> None:
        """Open a stream of one run from its first event, up to its first bytes."""
        path = f"/v1/agent/events/stream?run_ids[]={run}"
        self._writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        await self._head()
        await self._reader.readuntil(b": open\n\n\r\n")

    async def read(self) -> bytes:
        """What has come: events, with the marks of HTTP's chunks between them."""
        data = await self._reader.read(1 << 20)
        if not data:
            sys.exit("a stream ended too early")
        return data

    async def _head(self) -> tuple[int, dict[bytes, bytes]]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        pairs = (line.partition(b": ") for line in lines if line)
        return int(status.split()[1]), {name.lower(): value for name, _, value in pairs}


# --- the servers -------------------------------------------------------------------------------


def _bare() -> list[str]:
    return [sys.executable, str(contest.PEERS / "bare_events.py")]


def _ours(log: str) -> list[str]:
    return contest.bridge("events", "serve", "--port", "0", "--log", log)


@contextmanager
def _started(argv: list[str]) -> Iterator[Server]:
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1], process.pid
        process.kill()


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    argv = ["redis-server", "--port", str(port), "--dir", str(folder), "--appendonly", "yes"]
    with subprocess.Popen([*argv, "--save", ""], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ready to accept" in line:
                break
        yield f"redis://127.0.0.1:{port}/0"
        process.kill()


main()
