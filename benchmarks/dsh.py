"""DeepSeek Harness behind our bridge and with its own ACP: start, first text, turns, list, memory.

Both talk to a model on loopback. A start is timed to the answer to ``initialize``; ours does not
wait for the runtime, which is ready a moment later. What our plugin costs it is timed apart, on its
own wire. Memory is that of all processes of an agent, shared pages counted by share.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter

import contest
import stores

from acp_bridge.runtime.dsh.control import PATCH_FILE

PROVIDER_NAME = "deepseek-official"
PROVIDER = contest.PEERS / "loopback_provider.py"

STARTS = 5
DELTAS = 50
PACED_ROUNDS = 3
TURNS = 30
SESSIONS = 2_000
PROJECTS = 20
LISTS = 3
PLUGIN_STARTS = 8
MEMORY_ROUNDS = 3
MEMORY_SESSIONS = (1, 10)

OURS, THEIRS = "acp-bridge --runtime dsh", "dsh --profile acp"
BARE, PLUGGED = "dsh --profile sdk", "the same with our plugin"

ABOVE_MS_MAX = 3.0
"""Target: a turn of one delta, above theirs."""

SETTLE_S = 0.3
"""Time for what a process does by itself after it has answered."""


def main() -> None:
    contest.heading(__doc__)
    command = os.environ.get("ACP_BRIDGE_DSH") or shutil.which("dsh")
    if command is None:
        print("  dsh is not installed: set ACP_BRIDGE_DSH to measure it")
        return
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        provider = stack.enter_context(
            subprocess.Popen([sys.executable, str(PROVIDER)], stdout=subprocess.PIPE)
        )
        stack.callback(provider.kill)
        assert provider.stdout is not None
        url = provider.stdout.readline().decode().strip()
        _starting(command, url, root)
        _plugging(command, url, root)
        _remembering(command, url, root)
        _turning(command, url, root)
        _listing(command, url, root)


@contextmanager
def _agent(name: str, command: str, url: str, root: Path) -> Iterator[contest.Agent]:
    """A contestant with a home of its own."""
    home = root / name.split(maxsplit=1)[0]
    (root / "work").mkdir(exist_ok=True)
    env = _env(home, url, root)
    argv = [command, "--profile", "acp"]
    if name == OURS:
        argv = contest.bridge("--home", str(root / "bridge"), "--runtime", "dsh", "--dsh", command)
    with contest.Agent(argv, env) as agent:
        yield agent


def _env(home: Path, url: str, root: Path) -> dict[str, str]:
    return {
        "HOME": str(root),
        "DSH_HOME": str(home),
        "DSH_TELEMETRY_MODE": "DISABLED",
        "DEEPSEEK_API_KEY": "loopback",
        "DEEPSEEK_BASE_URL": url,
    }


def _starting(command: str, url: str, root: Path) -> None:
    def started(name: str) -> Callable[[], float]:
        def measure() -> float:
            start = perf_counter()
            with _agent(name, command, url, root) as agent:
                agent.greet()
                return (perf_counter() - start) * 1000

        return measure

    figures = contest.rounds({name: started(name) for name in (OURS, THEIRS)}, count=STARTS)
    contest.show("spawn to initialize answered", figures, unit="ms")
    print(f"  => times faster: {contest.ratio(figures, THEIRS, OURS):.1f}")


def _plugging(command: str, url: str, root: Path) -> None:
    """The runtime alone, spawn to ``initialize``: it answers when all its plugins have started."""
    patches = {BARE: [], PLUGGED: ["--patch", str(PATCH_FILE)]}

    def started(name: str) -> Callable[[], float]:
        argv = [command, "--profile", "sdk", *patches[name]]
        env = _env(root / "sdk", url, root)
        params = {"cwd": str(root), "provider": PROVIDER_NAME, "model": "deepseek-flash"}

        def measure() -> float:
            start = perf_counter()
            with contest.Agent(argv, env) as agent:
                agent.call("initialize", params)
                return (perf_counter() - start) * 1000

        return measure

    figures = contest.rounds({name: started(name) for name in patches}, count=PLUGIN_STARTS)
    contest.show("the runtime alone: spawn to initialize answered", figures, unit="ms")
    print(f"  => with the plugin, of without: {contest.ratio(figures, PLUGGED, BARE):.2f}")


def _remembering(command: str, url: str, root: Path) -> None:
    for count in MEMORY_SESSIONS:

        def resident(name: str, count: int = count) -> Callable[[], float]:
            def measure() -> float:
                with _agent(name, command, url, root) as agent:
                    agent.greet()
                    for _ in range(count):
                        agent.prompt(agent.new_session(str(root / "work")), "updates 1")
                    time.sleep(SETTLE_S)
                    return _tree_mib(agent.pid)

            return measure

        names = {name: resident(name) for name in (OURS, THEIRS)}
        figures = contest.rounds(names, count=MEMORY_ROUNDS)
        what = "one session" if count == 1 else f"{count} sessions"
        contest.show(f"memory of all processes, {what} after a turn each", figures, unit="MiB")
        print(f"  => of theirs: {contest.ratio(figures, OURS, THEIRS):.2f}")


def _turning(command: str, url: str, root: Path) -> None:
    with ExitStack() as stack:
        agents = {
            name: stack.enter_context(_agent(name, command, url, root)) for name in (OURS, THEIRS)
        }
        sessions = {}
        for name, agent in agents.items():
            agent.greet()
            sessions[name] = agent.new_session(str(root / "work"))
            agent.prompt(sessions[name], "updates 1")

        def first_text(name: str) -> Callable[[], float]:
            def measure() -> float:
                start = perf_counter()
                came: list[float] = []

                def heard(line: bytes) -> None:
                    if b"agent_message_chunk" in line and not came:
                        came.append((perf_counter() - start) * 1000)

                agents[name].prompt(sessions[name], f"updates {DELTAS} paced", heard)
                return came[0]

            return measure

        def turn(name: str) -> Callable[[], float]:
            def measure() -> float:
                start = perf_counter()
                agents[name].prompt(sessions[name], "updates 1")
                return (perf_counter() - start) * 1000

            return measure

        figures = contest.rounds({name: first_text(name) for name in agents}, count=PACED_ROUNDS)
        title = f"prompt to the first text of {DELTAS} deltas, one every 20 ms"
        contest.show(title, figures, unit="ms")
        figures = contest.rounds({name: turn(name) for name in agents}, count=TURNS)
        contest.show("prompt to the end of a one-delta answer", figures, unit="ms")
        pairs = zip(figures[OURS], figures[THEIRS], strict=True)
        _, above, _ = contest.quartiles([ours - theirs for ours, theirs in pairs])
        met = above <= ABOVE_MS_MAX
        contest.judge("ms above theirs", above, f"<= {ABOVE_MS_MAX:g}", met=met, digits=1)
        time.sleep(SETTLE_S)
        resident = _resident_mib(agents[OURS].pid)
    print(f"\nthe bridge alone, after {TURNS} turns: {resident:.1f} MiB resident")


def _listing(command: str, url: str, root: Path) -> None:
    """Each has a store of its own, of the same logs: a home is not for two programs at once."""
    written = stores.write_log(root / "one", "one", "/home/dev/ws", decoded_bytes=4_000)
    data = written.read_bytes()
    with ExitStack() as stack:
        agents = {}
        for name in (OURS, THEIRS):
            home = root / name.split(maxsplit=1)[0]
            shutil.rmtree(home)
            for number in range(SESSIONS):
                cwd = f"/home/dev/ws{number % PROJECTS}"
                stores.renamed_log(home / "sessions", f"s{number}", cwd, data)
            agents[name] = stack.enter_context(_agent(name, command, url, root))
            agents[name].greet()

        def asked(name: str) -> Callable[[], float]:
            def measure() -> float:
                start = perf_counter()
                page = agents[name].call("session/list", {})["sessions"]
                assert page
                return (perf_counter() - start) * 1000

            return measure

        figures = contest.rounds({name: asked(name) for name in agents}, count=LISTS)
    contest.show(f"session/list, first page of {SESSIONS:,} sessions", figures, unit="ms")
    print(f"  => times faster: {contest.ratio(figures, THEIRS, OURS):.0f}")


def _tree_mib(root: int) -> float:
    """Of a process and all below it; a page that several share counts for each by its share."""
    told = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid="], check=True, capture_output=True, text=True
    )
    parents = [tuple(map(int, line.split())) for line in told.stdout.splitlines()]
    tree = [root]
    for pid in tree:
        tree += [one for one, parent in parents if parent == pid]
    kib = 0
    for pid in tree:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        kib += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


def _resident_mib(pid: int) -> float:
    told = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], check=True, capture_output=True, text=True
    )
    return int(told.stdout) / 1024


main()
