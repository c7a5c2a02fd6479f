"""The real runtime goes on with a session of ours that ends, or is forked, inside a compaction."""

import anyio
import attrs
import pytest
from acp_rig import Bench
from dsh_rig import Round, dsh, dsh_command, have_a_turn, loopback_model
from our_sessions import CASES, LONG, Case, bench_in
from session_rows import folder_of

from acp_bridge.sessions import SessionStore
from acp_bridge.sessions.codec import encode_batch
from acp_bridge.sessions.events import dump_events
from acp_bridge.sessions.header import dump_header
from acp_bridge.sessions.paths import log_name
from acp_bridge.sessions.surface import model_view
from acp_bridge.vocabulary import Event, SessionId

pytestmark = [pytest.mark.dsh, pytest.mark.process]

COMPACTED = [case for case in CASES if case.name.startswith("compacted")]
SUMMARIES = ("They spoke of größer.", "First summary.", "Second summary.")


@attrs.frozen
class Cut:
    """A session that holds the first rows of another one."""

    session_id: str
    rows: list[Event]


def is_cut_here(rows: list[Event], cut: int) -> bool:
    """Around a compaction: from two rows before its start to two after its end."""
    near = {
        event.seq + more
        for event in rows
        if event.type.startswith("compaction/")
        for more in range(-2, 3)
    }
    return cut - 1 in near


def kill_after_each_row(bench: Bench, session_id: str, name: str) -> list[Cut]:
    """What a kill would have left, as sessions of their own."""
    sessions = SessionStore(bench.home / "sessions", clock=lambda: 0)
    log = sessions.read(session_id)
    rows = list(log.events)
    made = []
    for cut in (cut for cut in range(1, len(rows) + 1) if is_cut_here(rows, cut)):
        header = attrs.evolve(log.header, session_id=SessionId(f"{name}-killed-{cut}"))
        folder = folder_of(bench.home / "sessions", header.session_id, str(bench.cwd))
        folder.mkdir()
        data = encode_batch(dump_header(header), "zstd")
        data += encode_batch(dump_events(rows[:cut]), "zstd")
        (folder / log_name("zstd")).write_bytes(data)
        made.append(Cut(header.session_id, rows[:cut]))
    return made


def fork_after_each_row(bench: Bench, session_id: str, name: str) -> list[Cut]:
    """Forks by us, wherever no turn is open."""
    sessions = SessionStore(bench.home / "sessions", clock=lambda: 0)
    rows = list(sessions.read(session_id).events)
    made = []
    for cut in (cut for cut in range(1, len(rows) + 1) if is_cut_here(rows, cut)):
        kinds = [event.type for event in rows[:cut]]
        if kinds.count("turn/start") == kinds.count("turn/end"):
            fork_id = f"{name}-fork-{cut}"
            sessions.fork(session_id, new_id=fork_id, created_at_ms=1, at_seq=cut - 1)
            made.append(Cut(fork_id, rows[:cut]))
    return made


async def write(bench: Bench, case: Case) -> str:
    async with bench.editor() as editor:
        return await case.play(editor, bench, "1")


@pytest.mark.parametrize("case", COMPACTED, ids=lambda case: case.name)
def test_the_runtime_goes_on_from_every_row_around_a_compaction(
    case: Case, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dsh_command()
    bench = bench_in(tmp_path_factory.mktemp("cuts") / "bench")
    session_id = anyio.run(write, bench, case)
    name = case.name.replace(" ", "-")
    cuts = kill_after_each_row(bench, session_id, name)
    cuts += fork_after_each_row(bench, session_id, name)
    with loopback_model() as model, dsh(bench.home, bench.cwd, model) as runtime:
        rounds = {one.session_id: have_a_turn(runtime, model, one.session_id, "go") for one in cuts}
    wrong = [problem for one in cuts for problem in problems(one, rounds[one.session_id])]
    assert wrong == []
    assert len(cuts) > 10


def problems(cut: Cut, got: Round) -> list[str]:
    """Where the runtime refused, or its model got another view than ours would have."""
    if got.outcome != "completed":
        return [f"{cut.session_id}: {got.outcome}"]
    ours = str(model_view(cut.rows).messages)
    return [
        f"{cut.session_id} after {cut.rows[-1].type}: {piece[:30]!r}"
        for piece in (*SUMMARIES, LONG)
        if (piece in ours) != (piece in got.asked)
    ]
