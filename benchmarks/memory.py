"""Memory: what a process keeps resident while it idles, before and after its first turn."""

import subprocess
import tempfile
import time
from pathlib import Path

import contest

ROUNDS = 3
IDLE_MIB_MAX = 36.0
"""Target: idle after ``initialize``, ``session/new`` and one turn."""

SETTLE_S = 0.3
"""Time for what a process does by itself after it has answered."""


def main() -> None:
    contest.heading(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.jsonl"
        script.write_text('{"stream": [{"text": "hello"}]}\n')
        flags = ("--home", f"{folder}/home", "--model", f"scripted:{script}")
        argvs = {
            "bare responder": contest.bare(),
            "acp-bridge": contest.bridge(*flags),
            "acp-bridge, json": contest.bridge_without_orjson(*flags),
            "ACP Python SDK": contest.sdk(),
        }
        fresh: contest.Figures = {name: [] for name in argvs}
        warm: contest.Figures = {name: [] for name in argvs}
        for _ in range(ROUNDS):
            for name, argv in argvs.items():
                with contest.Agent(argv) as agent:
                    agent.greet()
                    session = agent.new_session(folder)
                    fresh[name].append(_resident_mib(agent.pid))
                    agent.prompt(session, "updates 1")
                    warm[name].append(_resident_mib(agent.pid))
    contest.show("after session/new", fresh, unit="MiB")
    medians = contest.show("after one turn", warm, unit="MiB")
    ours = medians["acp-bridge"]
    contest.judge("MiB idle", ours, f"<= {IDLE_MIB_MAX:g}", met=ours <= IDLE_MIB_MAX, digits=1)
    print(f"  => of the SDK's: {contest.ratio(warm, 'acp-bridge', 'ACP Python SDK'):.2f}")


def _resident_mib(pid: int) -> float:
    time.sleep(SETTLE_S)
    told = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], check=True, capture_output=True, text=True
    )
    return int(told.stdout) / 1024


main()
