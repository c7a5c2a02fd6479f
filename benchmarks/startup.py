"""Start-up: from spawn to the answers to ``initialize`` and ``session/new``."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import contest

ROUNDS = 15
OF_BARE_MAX = 6.0
"""Target: within this many times the bare responder's time."""

OF_SDK_MIN = 5.0
"""Target: this many times faster than the SDK's agent."""


def main() -> None:
    contest.heading(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.jsonl"
        script.write_text('{"stream": [{"text": "hello"}]}\n')
        flags = ("--home", f"{folder}/home", "--model", f"scripted:{script}")
        agents = {
            "bare responder": contest.bare(),
            "acp-bridge": contest.bridge(*flags),
            "python -m acp_bridge": [sys.executable, "-m", "acp_bridge", *flags],
            "ACP Python SDK": contest.sdk(),
        }
        to_session: contest.Figures = {name: [] for name in agents}

        def timed(name: str) -> Callable[[], float]:
            def measure() -> float:
                start = perf_counter()
                with contest.Agent(agents[name]) as agent:
                    agent.greet()
                    greeted = perf_counter()
                    agent.new_session(folder)
                    to_session[name].append((perf_counter() - start) * 1000)
                    return (greeted - start) * 1000

            return measure

        to_hello = contest.rounds({name: timed(name) for name in agents}, count=ROUNDS)
    contest.show("spawn to initialize answered", to_hello, unit="ms")
    of_bare = contest.ratio(to_hello, "acp-bridge", "bare responder")
    of_sdk = contest.ratio(to_hello, "ACP Python SDK", "acp-bridge")
    contest.judge("times bare", of_bare, f"<= {OF_BARE_MAX:g}", met=of_bare <= OF_BARE_MAX)
    contest.judge("times faster than SDK", of_sdk, f">= {OF_SDK_MIN:g}", met=of_sdk >= OF_SDK_MIN)
    counted = {name: values[1:] for name, values in to_session.items()}
    contest.show("spawn to session/new answered", counted, unit="ms")
    of_sdk = contest.ratio(counted, "ACP Python SDK", "acp-bridge")
    print(f"  => times faster than SDK: {of_sdk:.1f}")


main()
