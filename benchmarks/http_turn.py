"""Turns over HTTP: a warm short turn, a streamed answer of 5,000 deltas, processor time a chunk.

A loopback provider in a process of its own speaks the Messages API as fast as the socket takes it:
once with an HTTP chunk for each event, as a server writes them, and once with chunks of about 4 KiB
("joined"), as a proxy in front of it passes them on. Most of the difference is h11's work a chunk.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import contest

ROUNDS = 15
DELTAS = 5_000
OF_BARE_MIN = 0.3
"""Target: at least this share of the bare responder's chunks a second."""

WARM_MS_MAX = 4.0
"""Target: a warm turn of one delta, its two durable batches and the HTTP call included."""

WARM_TURNS = 50
CPU_US_MAX = 25.0
"""Target: processor time of the bridge for one delta, from socket to pipe."""

PROVIDER = contest.PEERS / "loopback_provider.py"


def main() -> None:
    contest.heading(__doc__)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        provider = stack.enter_context(
            subprocess.Popen([sys.executable, str(PROVIDER)], stdout=subprocess.PIPE)
        )
        stack.callback(provider.kill)
        assert provider.stdout is not None
        os.environ["DEEPSEEK_API_KEY"] = "loopback"
        url = provider.stdout.readline().decode().strip()
        _stream(Path(folder), url)
        _warm(Path(folder), url)


def _bridge(make: Callable[..., list[str]], folder: Path, name: str) -> list[str]:
    return make("--home", str(folder / f"{name}-home"), "--model", "deepseek:deepseek-flash")


def _started(
    stack: ExitStack, argvs: Mapping[str, list[str]], folder: Path, url: str
) -> tuple[dict[str, contest.Agent], dict[str, str]]:
    """The agents, each with a session; "joined" ones call the provider's other address."""
    agents, sessions = {}, {}
    for name, argv in argvs.items():
        os.environ["DEEPSEEK_BASE_URL"] = f"{url}/joined" if "joined" in name else url
        agents[name] = stack.enter_context(contest.Agent(argv))
        agents[name].greet()
        sessions[name] = agents[name].new_session(str(folder))
    return agents, sessions


def _stream(folder: Path, url: str) -> None:
    argvs = {
        "bare responder": contest.bare(),
        "json": _bridge(contest.bridge_without_orjson, folder, "json"),
        "orjson": _bridge(contest.bridge, folder, "orjson"),
        "json, joined": _bridge(contest.bridge_without_orjson, folder, "json-joined"),
        "orjson, joined": _bridge(contest.bridge, folder, "orjson-joined"),
    }
    used: contest.Figures = {name: [] for name in argvs}
    with ExitStack() as stack:
        agents, sessions = _started(stack, argvs, folder, url)

        def streamed(name: str) -> Callable[[], float]:
            def measure() -> float:
                before_us, start = _processor_us(agents[name].pid), perf_counter()
                told = agents[name].prompt(sessions[name], f"updates {DELTAS}")
                took_s = perf_counter() - start
                assert told >= DELTAS, told
                used[name].append((_processor_us(agents[name].pid) - before_us) / DELTAS)
                return DELTAS / took_s

            return measure

        figures = contest.rounds({name: streamed(name) for name in agents}, count=ROUNDS)
    contest.show(f"a turn of {DELTAS:,} deltas over HTTP", figures, unit="/s", digits=0)
    for name in list(argvs)[1:]:
        share = contest.ratio(figures, name, "bare responder")
        met = share >= OF_BARE_MIN
        contest.judge(f"{name}, of bare", share, f">= {OF_BARE_MIN:g}", met=met)
    warm = {name: values[1:] for name, values in used.items()}
    medians = contest.show("processor time a delta", warm, unit="us")
    for name in list(argvs)[1:]:
        ours = medians[name]
        contest.judge(f"{name}, us", ours, f"<= {CPU_US_MAX:g} us", met=ours <= CPU_US_MAX)


def _warm(folder: Path, url: str) -> None:
    argvs = {
        "bare responder": contest.bare(),
        "acp-bridge, one delta": _bridge(contest.bridge, folder, "warm"),
    }
    with ExitStack() as stack:
        agents, sessions = _started(stack, argvs, folder, url)

        def turn(name: str) -> Callable[[], float]:
            def measure() -> float:
                start = perf_counter()
                agents[name].prompt(sessions[name], "updates 1")
                return (perf_counter() - start) * 1000

            return measure

        figures = contest.rounds({name: turn(name) for name in agents}, count=WARM_TURNS)
    medians = contest.show("a warm turn over HTTP", figures, unit="ms", digits=2)
    ours = medians["acp-bridge, one delta"]
    contest.judge("ms a turn", ours, f"<= {WARM_MS_MAX:g} ms", met=ours <= WARM_MS_MAX)


def _processor_us(pid: int) -> float:
    """Processor time that the threads of a process have used. Linux; elsewhere 0."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1000


main()
