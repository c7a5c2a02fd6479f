"""The wire: 20,000 updates out, and 2,000 request ping-pongs, with and without orjson."""

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter

import contest

ROUNDS = 5
UPDATES = 20_000
PINGS = 2_000


def main() -> None:
    contest.heading(__doc__)
    ours = [sys.executable, str(contest.PEERS / "bridge_agent.py")]
    argvs = {
        "bare responder": contest.bare(),
        "acp_bridge, json": [*ours, "--json"],
        "acp_bridge, orjson": ours,
        "ACP Python SDK": contest.sdk(),
    }
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        agents = {name: stack.enter_context(contest.Agent(argv)) for name, argv in argvs.items()}
        sessions = {}
        for name, agent in agents.items():
            agent.greet()
            sessions[name] = agent.new_session(folder)

        def updates(name: str) -> Callable[[], float]:
            def measure() -> float:
                start = perf_counter()
                told = agents[name].prompt(sessions[name], f"updates {UPDATES}")
                assert told == UPDATES, told
                return (perf_counter() - start) / UPDATES * 1e6

            return measure

        def pings(name: str) -> Callable[[], float]:
            def measure() -> float:
                start = perf_counter()
                for _ in range(PINGS):
                    agents[name].prompt(sessions[name], "ping")
                return (perf_counter() - start) / PINGS * 1e6

            return measure

        out = contest.rounds({name: updates(name) for name in agents}, count=ROUNDS)
        back = contest.rounds({name: pings(name) for name in agents}, count=ROUNDS)
    _compare(f"{UPDATES:,} session/update out, each", out)
    _compare(f"{PINGS:,} session/prompt ping-pongs, each", back)


def _compare(title: str, figures: contest.Figures) -> None:
    contest.show(title, figures, unit="us")
    for name in ("acp_bridge, json", "acp_bridge, orjson"):
        of_bare = contest.ratio(figures, name, "bare responder")
        of_sdk = contest.ratio(figures, "ACP Python SDK", name)
        print(f"  => {name}: {of_bare:.2f} times bare, {of_sdk:.1f} times faster than the SDK")


main()
