"""Forks that we make, of the runtime's sessions and of ours, in the hands of the real runtime.

In the shape ``dsh-0.2.1`` it takes each and goes on; in the shape ``current`` it refuses those that
carry a delivery row of another session, as corrupt, and takes the rest.
"""

from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import anyio
import attrs
import pytest
from dsh_rig import (
    Dsh,
    Model,
    Round,
    dsh,
    dsh_command,
    have_a_turn,
    loopback_model,
    missing,
    text,
    tool,
)
from log_mutants import Mutator, read_source
from our_sessions import CASES, always_say, bench_in, play_cases
from session_rows import Clock, homes

from acp_bridge.sessions import SessionStore
from acp_bridge.sessions.fork import Shape
from acp_bridge.sessions.paths import Encoding, log_name
from acp_bridge.vocabulary import Event, JsonObject

pytestmark = [pytest.mark.dsh, pytest.mark.process]

SHAPES: tuple[Shape, ...] = ("current", "dsh-0.2.1")
DELIVERY = "session-log-deepseek/delivery-accepted"

STORED = (
    "cforks/cf-after_turn",
    "compact_manual/cm",
    "deleg/dg",
    "deleg/f94dbe68-e0a3-4c82-b9e7-1bdf61670294",
    "forks/1eccc68a-02ef-4d19-9a2e-b7e123223a4f",
    "forks/f1-correct",
    "forks/f11-opencut-noclosers",
    "forks/f2-noparent",
    "goals/go",
    "nodelivery/nd",
    "plain-encoding/pf",
    "plan/pl",
)
"""Captured stores: compacted ones, parents, children, historical and parentless forks."""

OURS = tuple(case for case in CASES if case.name in {"text", "tools", "modes", "cancelled tool"})

HOLDS = {
    "talk": ("first words", "an answer", "second words", "another “Antwort”"),
    "shell": ("use the shell", '"b1"', "out-of-bash", "after the shell"),
    **{case.name: case.holds for case in OURS},
    "an empty session": (),
}
"""What a model must be told of a whole fork of the sources that are written here."""

OWN_WORDS = {
    "by an editor": ("in the fork", "Heard in the fork.", "and dsh"),
    "after a turn": ("and dsh", "Hi from the loopback.", "once more"),
}
"""What follows in a fork that did not only hear "and dsh"."""

VARIANTS = ("whole", "first turn", "nested", "elsewhere")

NOT_YET = Round("")


@attrs.frozen
class Made:
    """One fork, the bytes of its log when it was made, and what came of it."""

    source: str
    variant: str
    shape: Shape
    session_id: str
    path: Path
    bytes_before: bytes
    is_foreign: bool
    """Whether it holds a delivery row of another session."""
    after: Round = NOT_YET

    @property
    def is_taken(self) -> bool:
        """Whether the runtime took it and ended a turn in it."""
        return self.after.outcome == "completed"

    def __str__(self) -> str:
        return f"{self.variant} of {self.source}, {self.shape}: {self.after}"


class Forks:
    """A home with the runtime's sessions and ours; what is forked in it, and what came of that."""

    def __init__(self, folder: Path, encoding: Encoding) -> None:
        self.bench = bench_in(folder)
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        self.encoding: Encoding = encoding
        self.store = SessionStore(self.bench.home / "sessions", clock=Clock(), durable=False)
        self.sources: dict[str, str] = {}
        self.before: dict[str, bytes] = {}
        self.made: list[Made] = []

    def write_sources(self, model: Model) -> None:
        """Sessions of the runtime, just played and captured, and ours."""
        with self.runtime(model) as runtime:
            model.answer("talk", text("an answer"))
            model.answer("talk", text("another “Antwort”"))
            model.answer("shell", tool("b1", "bash", command="echo out-of-bash", description="d"))
            model.answer("shell", text("after the shell"))
            for session_id, said in (
                ("talk", "first words"),
                ("talk", "second words"),
                ("shell", "use the shell"),
            ):
                assert runtime.prompt(session_id, said) == "completed"
                self.sources[session_id] = session_id
        mutator = Mutator([], self.bench.cwd, self.encoding, seed=5)
        folder = self.store.read("talk").path.parent.parent
        for name in STORED:
            case, session_id = name.split("/")
            [path] = (homes() / case / "sessions").glob(f"*/{session_id}/session.v4.*")
            copy = mutator.sound(read_source(path, name))
            (folder / copy.session_id).mkdir()
            (folder / copy.session_id / log_name(self.encoding)).write_bytes(copy.data)
            self.sources[name] = copy.session_id
        self.sources |= anyio.run(play_cases, self.bench, OURS)

    def runtime(self, model: Model) -> AbstractContextManager[Dsh]:
        """As its users have it: it adds delivery rows."""
        plain = self.encoding == "plain"
        return dsh(self.bench.home, self.bench.cwd, model, plain=plain, delivers=True)

    def fork_all(self) -> None:
        """Every source, whole and at its first turn's end, in both shapes, here and elsewhere."""
        for source, source_id in self.sources.items():
            log = self.store.read(source_id)
            self.before[source] = log.path.read_bytes()
            ends = [event.seq for event in log.events if event.type == "turn/end"]
            for shape in SHAPES:
                whole = self.fork(source, source_id, "whole", shape)
                self.fork(source, source_id, "first turn", shape, at_seq=ends[0])
                self.fork(source, whole.session_id, "nested", shape)
                self.fork(source, source_id, "elsewhere", shape, cwd=self.elsewhere)

    def fork(
        self,
        source: str,
        source_id: str,
        variant: str,
        shape: Shape,
        *,
        at_seq: int | None = None,
        cwd: Path | None = None,
    ) -> Made:
        """Make one fork; nobody has it yet."""
        new_id = f"fork-{len(self.made)}"
        fork = self.store.fork(
            source_id,
            new_id=new_id,
            created_at_ms=1_800_000_000_000,
            at_seq=at_seq,
            cwd=None if cwd is None else str(cwd),
            shape=shape,
        )
        assert fork.is_stored
        return self.take(source, variant, shape, new_id)

    def take(self, source: str, variant: str, shape: Shape, session_id: str) -> Made:
        """Remember a fork as it is before the runtime has it."""
        log = self.store.read(session_id)
        is_foreign = any(named(event) not in {None, session_id} for event in log.events)
        data = log.path.read_bytes()
        made = Made(source, variant, shape, session_id, log.path, data, is_foreign)
        self.made.append(made)
        return made

    async def fork_in_an_editor(self) -> None:
        """What the bridge's own ``session/fork`` makes, with a turn of ours after it."""
        bench = self.bench
        bench.script = bench.folder / "editor.jsonl"
        always_say(bench, "Heard in the fork.")
        async with bench.editor() as editor:
            empty = await editor.new(bench.cwd)
            for source, source_id in (
                ("talk", "talk"),
                ("text", self.sources["text"]),
                ("an empty session", empty),
            ):
                place: JsonObject = {"cwd": str(bench.cwd), "mcpServers": []}
                answer = await editor.call("session/fork", {"sessionId": source_id, **place})
                session_id = str(answer["sessionId"])
                assert await editor.prompt(session_id, "in the fork") == "end_turn"
                self.take(source, "by an editor", "current", session_id)

    def resume_all(self, model: Model) -> None:
        """Each fork gets a turn of the runtime's; what took it is forked and resumed once more."""
        with self.runtime(model) as runtime:
            self.made = [
                attrs.evolve(one, after=have_a_turn(runtime, model, one.session_id, "and dsh"))
                for one in self.made
            ]
            grown = [one for one in self.made if one.variant == "whole" and one.is_taken]
            for one in grown:
                runtime.until(partial(self._is_settled, one))
                for shape in SHAPES:
                    made = self.fork(one.source, one.session_id, "after a turn", shape)
                    after = have_a_turn(runtime, model, made.session_id, "once more")
                    self.made[-1] = attrs.evolve(made, after=after)

    def _is_settled(self, one: Made) -> bool:
        last = self.store.read(one.session_id).events[-1]
        return last.type == "turn/end"


def named(event: Event) -> str | None:
    """The session that a delivery row names."""
    if event.type != DELIVERY or not isinstance(event.data, dict):
        return None
    return str(event.data["sessionId"])


@pytest.fixture(scope="module", params=["zstd", "plain"])
def forks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Forks:
    dsh_command()
    made = Forks(tmp_path_factory.mktemp(request.param) / "bench", request.param)
    with loopback_model() as model:
        made.write_sources(model)
        made.fork_all()
        anyio.run(made.fork_in_an_editor)
        made.resume_all(model)
    return made


def test_in_its_own_shape_the_runtime_takes_every_fork_and_ends_a_turn_in_it(forks: Forks) -> None:
    theirs = [one for one in forks.made if one.shape == "dsh-0.2.1"]
    assert {one.variant for one in theirs} == {*VARIANTS, "after a turn"}
    assert not [str(one) for one in theirs if one.is_foreign or not one.is_taken]


def test_in_the_current_shape_it_refuses_exactly_those_with_a_delivery_row_of_another_session(
    forks: Forks,
) -> None:
    ours = [one for one in forks.made if one.shape == "current"]
    for variant in (*VARIANTS, "by an editor"):  # both kinds, or this would tell nothing
        assert {one.is_foreign for one in ours if one.variant == variant} == {True, False}
    assert not [str(one) for one in ours if one.is_taken == one.is_foreign]


def test_what_it_says_of_them_is_corruption_and_not_that_it_is_too_old(forks: Forks) -> None:
    for one in forks.made:
        if one.is_foreign:
            assert one.after.outcome == (
                f'session "{one.session_id}": stored log is corrupt: SessionFormatError:'
                " current-generation delivery marker names the wrong Session"
                f" (raw log: {one.path})"
            )


def test_a_refusal_leaves_every_byte_and_a_turn_only_appends(forks: Forks) -> None:
    for one in forks.made:
        data = one.path.read_bytes()
        assert data.startswith(one.bytes_before), str(one)
        assert (data == one.bytes_before) == one.is_foreign, str(one)


def test_a_fork_tells_the_model_all_that_its_source_did_and_then_its_own(forks: Forks) -> None:
    told = [one for one in forks.made if one.is_taken and one.source in HOLDS]
    assert {one.source for one in told} == {*HOLDS}
    for one in told:
        own = OWN_WORDS.get(one.variant, ("and dsh",))
        inherited = HOLDS[one.source][: 2 if one.variant == "first turn" else None]
        assert missing((*inherited, *own), one.after.asked) == [], str(one)
        after = HOLDS[one.source][2:] if one.variant == "first turn" else ()
        if one.source == "talk":
            assert not [piece for piece in after if piece in one.after.asked], str(one)


def test_a_fork_that_was_given_another_folder_works_there(forks: Forks) -> None:
    moved = [one for one in forks.made if one.variant == "elsewhere" and one.is_taken]
    for one in moved:
        assert forks.store.read_header(one.session_id).cwd == str(forks.elsewhere)
        assert f'working directory: \\"{forks.elsewhere}\\"' in one.after.asked, str(one)


def test_no_source_changed_and_what_the_runtime_left_of_each_fork_is_sound(forks: Forks) -> None:
    for source, source_id in forks.sources.items():
        assert forks.store.read(source_id).path.read_bytes() == forks.before[source], source
    for one in forks.made:
        header = forks.store.read(one.session_id).header
        assert (header.parent_session, header.origin) == (None, None)
    assert forks.store.list().bad == []
