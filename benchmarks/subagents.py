"""Subagents: list fifty children among ten thousand sessions; two hundred that stream at once."""

import json
import os
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from time import perf_counter, process_time

import anyio
import contest
import stores

from acp_bridge.ports import (
    Chunk,
    ClientCommand,
    CommandEnd,
    Model,
    ModelInfo,
    ModelRequest,
    PermissionAsk,
    QuestionsAsk,
    StopChunk,
    TextChunk,
    Tool,
    ToolCallChunk,
)
from acp_bridge.runtime.embedded import EmbeddedRuntime, Outside
from acp_bridge.sessions import SessionQuery, SessionStore
from acp_bridge.subagents.catalog import list_children
from acp_bridge.subagents.limits import Limits
from acp_bridge.vocabulary import (
    Answer,
    ChildFinished,
    ChildSaid,
    Event,
    Prompt,
    RuntimeEvent,
    StreamDelta,
)

SESSIONS = 10_000
PROJECTS = 20
CHILDREN = 50
ROUNDS = 11
PARENT = "parent"

LIST_MS_MAX = 20.0
"""Target: `list_agents` with fifty children among ten thousand sessions, index warm.

What the system takes for the looks that this needs is told beside it, and what a look at each log
would take.
"""

GROWTH_MAX = 1.1
"""Target: the same when the logs are ten times longer, in times of the short ones."""

ONE_TURN, TEN_TURNS = 2_000, 230_000
"""Decoded bytes that a log has at least."""

LIVE = 200
DELTAS = 50


def main() -> None:
    contest.heading(__doc__)
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else SESSIONS
    _listing(sessions)
    anyio.run(_streaming)


def _listing(sessions: int) -> None:
    took = _listed(sessions, "of one turn", ONE_TURN)
    contest.judge("ms", took, f"<= {LIST_MS_MAX:g}", met=took <= LIST_MS_MAX, digits=1)
    # Of fewer sessions, since each log has to be written and read once.
    fewer = sessions // 10
    short, long = (
        _listed(fewer, "of one turn", ONE_TURN),
        _listed(fewer, "of ten turns", TEN_TURNS),
    )
    contest.judge(
        "times the short", long / short, f"<= {GROWTH_MAX:g}", met=long / short <= GROWTH_MAX
    )


def _listed(sessions: int, name: str, decoded_bytes: int) -> float:
    """The median for a store of this many sessions, in milliseconds."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        home = Path(folder)
        paths = _store_of(home, sessions, decoded_bytes)
        _wait_until_settled(paths[-1])
        warm = SessionStore(home / "sessions", clock=_clock, index=home / "index.sqlite3")
        warm.list()
        query = SessionQuery(warm)
        figures = contest.rounds(
            {
                "stat of each folder and log": _timed(lambda: _stats(paths)),
                "stat of projects and family": _timed(lambda: _family(home, paths)),
                "list_children": _timed(lambda: list_children(query, PARENT)),
                "in a new store": _timed(lambda: _anew(home)),
            },
            count=ROUNDS,
        )
        bare = SessionQuery(SessionStore(home / "sessions", clock=_clock))
        scan = {"naive scan": [_timed(lambda: list_children(bare, PARENT))()]}
        title = f"{CHILDREN} children, {sessions:,} sessions, logs {name} (processor time)"
        median = contest.show(title, figures | scan, unit="ms")["list_children"]
        looks = contest.ratio(figures, "list_children", "stat of each folder and log")
        print(f"  => times a look at every session: {looks:.2f}")
        return median


def _store_of(home: Path, sessions: int, decoded_bytes: int) -> list[Path]:
    """A store whose last sessions are the parent and its children; equal logs are made once."""
    root = home / "sessions"
    seed = stores.write_log(root, "seed", "/home/dev/seed", decoded_bytes=decoded_bytes)
    parts = seed.read_bytes()
    shutil.rmtree(seed.parent)
    paths = []
    for number in range(sessions - CHILDREN - 1):
        cwd = f"/home/dev/project{number % PROJECTS}"
        paths.append(stores.renamed_log(root, f"session-{number:08}", cwd, parts))
    paths += [
        stores.write_log(
            root,
            f"child-{number:03}",
            "/home/dev/project0",
            decoded_bytes=decoded_bytes,
            seed=number,
            parent=PARENT,
        )
        for number in range(CHILDREN)
    ]
    paths.append(stores.write_log(root, PARENT, "/home/dev/project0", decoded_bytes=decoded_bytes))
    return paths


def _timed(work: Callable[[], object]) -> Callable[[], float]:
    """Processor time: nothing here waits, and what else the machine does says nothing."""

    def measure() -> float:
        start = process_time()
        work()
        return (process_time() - start) * 1000

    return measure


def _stats(paths: list[Path]) -> None:
    """What any list has to ask the system that trusts no log's age."""
    for path in paths:
        folder = os.path.dirname(path)  # noqa: PTH120  # as quick as it gets
        os.stat(folder)  # noqa: PTH116
        os.stat(path)  # noqa: PTH116


def _family(home: Path, paths: list[Path]) -> None:
    """What a list of children has to ask the system: the projects, then parent and children."""
    with os.scandir(home / "sessions") as projects:
        for project in projects:
            os.stat(project.path)  # noqa: PTH116  # as above
    _stats(paths[-CHILDREN - 1 :])


def _anew(home: Path) -> None:
    """As a new process does, which takes over what the index knows."""
    store = SessionStore(home / "sessions", clock=_clock, index=home / "index.sqlite3")
    list_children(SessionQuery(store), PARENT)


def _clock() -> int:
    return time.time_ns() // 10**6


def _wait_until_settled(path: Path) -> None:
    while time.time_ns() < path.stat().st_ctime_ns + 200_000_000:
        time.sleep(0.05)


class _Crowd:
    """A model whose root starts `LIVE` children, all of which stream at the same time."""

    provider, name, context_window = "crowd", "crowd", 100_000
    info = ModelInfo("crowd:crowd", "Crowd", 100_000)

    def __init__(self) -> None:
        self._begun = 0
        self._all = anyio.Event()
        self._asked = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        if "/" in request.agent:
            self._begun += 1
            if self._begun == LIVE:
                self._all.set()
            await self._all.wait()
            for number in range(DELTAS):
                await anyio.lowlevel.checkpoint()
                yield TextChunk(0, f"{number} ")
        elif not self._asked:
            self._asked += 1
            for number in range(LIVE):
                arguments = json.dumps({"description": f"task {number}", "prompt": "Do it."})
                yield ToolCallChunk(number, f"c{number}", "subagent", "")
                yield ToolCallChunk(number, f"c{number}", None, arguments)
            yield StopChunk("tool_calls")
            return
        else:
            yield TextChunk(0, "noted")
        yield StopChunk("end_turn")


class _Catalog:
    def __init__(self, model: Model) -> None:
        self._model = model

    def available(self) -> list[ModelInfo]:
        return []

    def forget(self) -> None:
        """There is no key."""

    def open(self, _model_id: str | None) -> Model:
        return self._model


class _Nobody:
    reads_text = writes_text = takes_questions = runs_commands = False

    async def ask_permission(self, _ask: PermissionAsk) -> Answer:
        return Answer.REJECT

    async def ask_questions(self, ask: QuestionsAsk) -> None:
        raise AssertionError(ask)

    async def read_text(self, path: Path) -> str:
        raise OSError(path)

    async def write_text(self, path: Path, _text: str) -> None:
        raise OSError(path)

    async def run_command(self, command: ClientCommand) -> CommandEnd:
        raise OSError(command.line)

    async def flow(self) -> None:
        return


async def _streaming() -> None:
    ids = iter(range(1_000_000))
    outside = Outside(lambda: time.time_ns() // 10**6, lambda: f"id-{next(ids)}", lambda: 0.5, {})

    def no_tools() -> Iterable[Tool]:
        return ()

    told: list[RuntimeEvent] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        async with EmbeddedRuntime(
            home=Path(folder) / "home",
            catalog=_Catalog(_Crowd()),
            mode="ask",
            tools=no_tools,
            outside=outside,
            limits=Limits(live_max=LIVE),
        ) as runtime:
            root = await runtime.new_session(Path(folder), _Nobody())
            root.attach(told.append)
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            peak = 0

            def look(event: RuntimeEvent) -> None:
                nonlocal peak
                if isinstance(event, ChildSaid) and isinstance(event.event, StreamDelta):
                    peak = max(peak, tracemalloc.get_traced_memory()[0])

            root.attach(look)
            start = perf_counter()
            await root.admit(Prompt([{"type": "text", "text": "go"}])).ended()
            took = perf_counter() - start
            tracemalloc.stop()
    finished = sum(isinstance(event, ChildFinished) for event in told)
    print(f"\n{LIVE} children at once, {DELTAS} deltas each: {took:.1f} s, {finished} finished")
    contest.judge(
        "children in order", float(_in_order(told)), f"== {LIVE}", met=_in_order(told) == LIVE
    )
    print(f"  => memory for each child that streams: {(peak - before) / LIVE / 1024:.0f} KiB")


def _in_order(told: list[RuntimeEvent]) -> int:
    """Children whose deltas came in order, and whose rows came by seq without a gap."""
    deltas: dict[str, list[str]] = {}
    seqs: dict[str, list[int]] = {}
    for event in told:
        if isinstance(event, ChildSaid):
            if isinstance(event.event, StreamDelta):
                deltas.setdefault(event.child_id, []).append(event.event.text)
            elif isinstance(event.event, Event):
                seqs.setdefault(event.child_id, []).append(event.event.seq)
    wanted = [f"{number} " for number in range(DELTAS)]
    return sum(
        said == wanted and seqs[child_id] == list(range(len(seqs[child_id])))
        for child_id, said in deltas.items()
    )


main()
