"""Turns end to end: a streamed answer of 5,000 deltas, and a warm short turn with its fsyncs."""

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import contest

ROUNDS = 15
DELTAS = 5_000
OF_BARE_MIN = 0.7
"""Target: with json alone, at least this share of the bare responder's chunks a second."""

WARM_MS_MAX = 2.5
"""Target: a warm turn of one delta, its two durable batches included."""

WARM_TURNS = 100
WARM_BATCH_BYTES = 700
"""What a warm turn appends per batch, nearly."""


def main() -> None:
    contest.heading(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        _stream(Path(folder))
        _warm(Path(folder))


def _flags(folder: Path, name: str, answer: str, count: int) -> tuple[str, ...]:
    script = folder / f"{name}.jsonl"
    script.write_text(answer * count)
    return ("--home", str(folder / f"{name}-home"), "--model", f"scripted:{script}")


def _stream(folder: Path) -> None:
    answer = f'{{"stream": [{{"text": "token ", "repeat": {DELTAS}}}]}}\n'
    argvs = {
        "bare responder": contest.bare(),
        "acp-bridge, json": contest.bridge_without_orjson(
            *_flags(folder, "json", answer, ROUNDS + 1)
        ),
        "acp-bridge, orjson": contest.bridge(*_flags(folder, "orjson", answer, ROUNDS + 1)),
    }
    with ExitStack() as stack:
        agents = {name: stack.enter_context(contest.Agent(argv)) for name, argv in argvs.items()}
        sessions = {}
        for name, agent in agents.items():
            agent.greet()
            sessions[name] = agent.new_session(str(folder))

        def streamed(name: str) -> Callable[[], float]:
            def measure() -> float:
                start = perf_counter()
                told = agents[name].prompt(sessions[name], f"updates {DELTAS}")
                assert told >= DELTAS, told
                return DELTAS / (perf_counter() - start)

            return measure

        figures = contest.rounds({name: streamed(name) for name in agents}, count=ROUNDS)
    contest.show(f"a turn of {DELTAS:,} deltas", figures, unit="/s", digits=0)
    for name in ("acp-bridge, json", "acp-bridge, orjson"):
        share = contest.ratio(figures, name, "bare responder")
        met = share >= OF_BARE_MIN
        contest.judge(f"{name}, of bare", share, f">= {OF_BARE_MIN:g}", met=met)


def _warm(folder: Path) -> None:
    argv = contest.bridge(
        *_flags(folder, "warm", '{"stream": [{"text": "token "}]}\n', WARM_TURNS + 1)
    )
    bare_log = folder / "bare.log"
    with contest.Agent(argv) as agent, bare_log.open("ab", buffering=0) as log:
        agent.greet()
        session = agent.new_session(str(folder))

        def turn() -> float:
            start = perf_counter()
            agent.prompt(session, "go on")
            return (perf_counter() - start) * 1000

        def bare_batches() -> float:
            start = perf_counter()
            for _ in range(2):
                log.write(b"x" * WARM_BATCH_BYTES)
                os.fsync(log.fileno())
            return (perf_counter() - start) * 1000

        figures = contest.rounds(
            {"acp-bridge, one delta": turn, "write + fsync, twice": bare_batches},
            count=WARM_TURNS,
        )
    medians = contest.show("a warm turn", figures, unit="ms", digits=2)
    ours = medians["acp-bridge, one delta"]
    pairs = zip(*figures.values(), strict=True)
    above = contest.quartiles([turn_ms - disk_ms for turn_ms, disk_ms in pairs])[1]
    print(f"  => above the bare loop of the same round: {above:.2f} ms")
    contest.judge("ms a turn", ours, f"<= {WARM_MS_MAX:g} ms", met=ours <= WARM_MS_MAX)


main()
