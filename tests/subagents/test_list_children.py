"""`list_children`: order, statuses, diagnostics, and which failure fails what."""

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import pytest
from index_world import BOUNDARY, FakeLive, World, descriptor
from session_rows import header, placed, put, text_turn, user

from acp_bridge.errors import ConfigError, SessionQueryError
from acp_bridge.sessions import Header, SessionQuery, query
from acp_bridge.subagents.catalog import Child, Diagnostic, list_children
from acp_bridge.vocabulary import Draft, Event, JsonObject

MARKER = Draft("session/end-seed", {"inherited": True})


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.add("p", text_turn(1))
    return made


Lister = Callable[..., list[str]]
Asker = Callable[..., SessionQuery]


@pytest.fixture(params=[True, False], ids=["indexed", "bare"])
def ask(request: pytest.FixtureRequest, world: World) -> Asker:
    def made(*live: FakeLive, kind: type[SessionQuery] = SessionQuery) -> SessionQuery:
        world.tick()
        store = world.store(indexed=request.param)
        store.list()
        world.tick()
        return kind(store, lambda: live)

    return made


@pytest.fixture
def listed(ask: Asker) -> Lister:
    def listed(*live: FakeLive, parent: str = "p") -> list[str]:
        return shown(list_children(ask(*live), parent))

    return listed


def shown(entries: Sequence[Child | Diagnostic]) -> list[str]:
    return [
        f"{entry.session_id} {entry.status} {entry.label}"
        if isinstance(entry, Child)
        else f"{entry.session_id} {entry.reason}"
        for entry in entries
    ]


def kid(session_id: str, *, parent: str = "p", at: int = 1, **more: object) -> Header:
    made = header(session_id, origin="subagent", parent_session=parent, **more)
    return attrs.evolve(made, created_at_ms=at)


def add(world: World, session_id: str, *first: Draft, at: int = 1, parent: str = "p") -> Path:
    """A child's log: these rows, then a turn."""
    batches = [[*first], text_turn(1)] if first else [text_turn(1)]
    return world.add(session_id, *batches, head=kid(session_id, at=at, parent=parent))


def odd(**changed: object) -> Draft:
    """A descriptor with other members; None leaves one out."""
    data = descriptor("odd").data
    assert isinstance(data, dict)
    kept = {**data, **changed}
    return Draft("subagent/descriptor", {k: v for k, v in kept.items() if v is not None})  # type: ignore[misc]


def test_children_come_by_creation_then_id_and_only_the_live_ones_run(
    world: World, listed: Lister
) -> None:
    for session_id, at in (("late", 9), ("tie-b", 5), ("tie-a", 5), ("early", 2)):
        add(world, session_id, descriptor(f"is {session_id}"), at=at)
    live = FakeLive(kid("tie-b", at=5), placed([descriptor("is tie-b")]))
    assert listed(live) == [
        "early complete is early",
        "tie-a complete is tie-a",
        "tie-b running is tie-b",
        "late complete is late",
    ]


def test_a_session_without_children_has_an_empty_list(listed: Lister) -> None:
    assert listed() == []


def test_forks_one_shot_children_and_other_modes_are_omitted(world: World, listed: Lister) -> None:
    add(world, "one-shot")
    add(world, "external", odd(mode="external", label=None))
    world.add("fork", text_turn(1), head=header("fork", parent_session="p", is_seeded=False))
    add(world, "real", descriptor("real"))
    assert listed() == ["real complete real"]


def test_a_seeded_childs_inherited_descriptors_are_anothers(world: World, listed: Lister) -> None:
    seed = [descriptor("ancestor"), *text_turn(1), MARKER]
    world.add("with", [*seed, descriptor("own")], head=kid("with", is_seeded=True))
    world.add("without", seed, head=kid("without", is_seeded=True))
    assert listed() == ["with complete own"]


def test_a_forked_parent_has_the_text_but_not_the_children(world: World, ask: Asker) -> None:
    add(world, "real", descriptor("real"))
    world.store().fork("p", new_id="twin", created_at_ms=1)
    query = ask()
    assert shown(list_children(query, "p")) == ["real complete real"]
    assert list_children(query, "twin") == []


def test_grandchildren_are_their_parents_business(world: World, listed: Lister) -> None:
    add(world, "child", descriptor("child"))
    add(world, "grandchild", descriptor("grandchild"), parent="child")
    put(world.root, "broken-grandchild", b"garbage")
    assert listed() == ["child complete child"]
    assert listed(parent="child") == ["grandchild complete grandchild"]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([descriptor("a"), descriptor("b")], "corrupt"),
        ([descriptor("a"), odd(mode="external")], "corrupt"),
        ([odd(label=None)], "corrupt"),
        ([odd(label="")], "corrupt"),
        ([odd(label=7)], "corrupt"),
        ([odd(provider=None)], "corrupt"),
        ([odd(mode=None)], "corrupt"),
        ([odd(agentModel="")], "corrupt"),
        ([odd(version=None)], "corrupt"),
        ([odd(version=True)], "corrupt"),
        ([Draft("subagent/descriptor", "x")], "corrupt"),
        ([Draft("subagent/descriptor", None)], "corrupt"),
        ([odd(version=2)], "unsupported"),
        ([odd(version=4, label=None)], "unsupported"),
    ],
)
def test_a_descriptor_that_does_not_say_what_a_child_is_becomes_a_diagnostic(
    world: World, listed: Lister, rows: list[Draft], reason: str
) -> None:
    add(world, "bad", *rows, at=1)
    add(world, "good", descriptor("good"), at=2)
    assert listed() == [f"bad {reason}", "good complete good"]


def test_a_provider_that_is_not_registered_hides_nobody(world: World, listed: Lister) -> None:
    add(world, "foreign", odd(provider="team"))
    assert listed() == ["foreign complete odd"]


def test_a_damaged_log_is_corrupt_and_a_newer_one_unsupported(world: World, listed: Lister) -> None:
    add(world, "bad", descriptor("bad"), Draft("turn/end", {"turn": 7}), at=1)
    add(world, "new", descriptor("new"), Draft("new/kind", {}), at=2)
    add(world, "good", descriptor("good"), at=3)
    assert listed() == ["bad corrupt", "new unsupported", "good complete good"]


def test_an_interrupted_tail_is_no_damage(world: World, listed: Lister) -> None:
    path = add(world, "torn", descriptor("torn"))
    path.write_bytes(path.read_bytes() + b"\x28\xb5\x2f")
    add(world, "open", descriptor("open"), Draft("turn/start", {"turn": 1}), at=2)
    cut = world.add(
        "cut", [descriptor("cut"), Draft("turn/start", {"turn": 1})], head=kid("cut", at=3)
    )
    assert cut.exists()
    assert listed() == ["torn complete torn", "open corrupt", "cut complete cut"]


def test_compaction_changes_nothing(world: World, listed: Lister) -> None:
    add(world, "plain", descriptor("twin"), at=1)
    surface = [6, 8]  # user and assistant; seq 5 is the system message
    name: JsonObject = {"compactionId": "k"}
    checkpoint = user("ck", "What was said: hello.")
    checkpoint["source"] = {"kind": "compact-checkpoint", **name}
    summary: JsonObject = {
        **name,
        "shadowedRange": {"start": surface[0], "end": surface[-1]},
        "shadowedSeqs": list(surface),
        "summary": checkpoint["content"],
    }
    compaction = [
        Draft("compaction/start", {**name, "turn": None}),
        Draft("compaction/summary", summary),
        Draft("user/message", checkpoint, (6, 8), (6, 8)),
        Draft("compaction/end", {**name, "turn": None}),
    ]
    rows = [descriptor("twin"), *text_turn(1)]
    world.add("compacted", rows, compaction, head=kid("compacted", at=2))
    assert not world.store(indexed=False).list().bad
    assert listed() == ["plain complete twin", "compacted complete twin"]


def test_a_reopened_child_still_has_one_descriptor(world: World, listed: Lister) -> None:
    world.add("woken", [descriptor("woken")], text_turn(1), [BOUNDARY], head=kid("woken"))
    assert listed() == ["woken complete woken"]


# --- what changes between the trace and the read -----------------------------------------------


class Between(SessionQuery):
    """A query that lets something happen after the trace."""

    happens: Callable[[], object] = staticmethod(lambda: None)

    def trace(self, session_id: str) -> query.Trace:
        made = super().trace(session_id)
        type(self).happens()
        return made


def meanwhile(happens: Callable[[], object]) -> type[Between]:
    return type("Meanwhile", (Between,), {"happens": staticmethod(happens)})


def test_a_child_that_is_gone_since_is_unavailable(world: World, ask: Asker) -> None:
    path = add(world, "gone", descriptor("gone"))
    add(world, "good", descriptor("good"), at=2)
    found = list_children(ask(kind=meanwhile(path.unlink)), "p")
    assert shown(found) == ["gone unavailable", "good complete good"]


@pytest.mark.parametrize("change", [{"at": 3}, {"parent": "other"}])
def test_a_header_that_differs_from_the_traced_one_is_corrupt(
    world: World, ask: Asker, change: dict[str, object]
) -> None:
    add(world, "kid", descriptor("kid"))

    def again() -> None:
        add(world, "kid", descriptor("kid, but longer"), **change)  # type: ignore[arg-type]

    assert shown(list_children(ask(kind=meanwhile(again)), "p")) == ["kid corrupt"]


def test_a_live_session_with_another_header_is_corrupt(world: World, ask: Asker) -> None:
    add(world, "kid", descriptor("kid"))
    live: list[FakeLive] = []
    made = ask(kind=meanwhile(lambda: live.append(FakeLive(kid("kid", at=7)))))
    made._live = lambda: live
    assert shown(list_children(made, "p")) == ["kid corrupt"]


@pytest.mark.parametrize("found", [descriptor("kid"), text_turn(1)[0]])
def test_a_read_that_is_not_the_located_event_is_corrupt(
    world: World, ask: Asker, monkeypatch: pytest.MonkeyPatch, found: Draft
) -> None:
    add(world, "kid", descriptor("kid"))
    made = ask()
    event = Event(5, 1, found.type, found.data)
    monkeypatch.setattr(made, "read_event", lambda *_, **__: (kid("kid"), event))
    assert shown(list_children(made, "p")) == ["kid corrupt"]


# --- what fails the whole call ------------------------------------------------------------------


def fails(made: SessionQuery, code: str, parent: str = "p") -> None:
    with pytest.raises(SessionQueryError) as caught:
        list_children(made, parent)
    assert caught.value.query_code == f"SESSION_QUERY_{code}"


def test_without_a_trace_there_is_no_answer(
    world: World, ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(world, "kid", descriptor("kid"))
    fails(ask(), "SESSION_NOT_FOUND", parent="nobody")
    fails(ask(FakeLive(attrs.evolve(header("p"), created_at_ms=3))), "HEADER_CONFLICT")
    made = ask()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "")

    monkeypatch.setattr("os.scandir", refuse)
    fails(made, "PERSISTENCE_FAILED")


@pytest.mark.parametrize(
    "failure",
    [
        SessionQueryError("no such window", query_code=query.INVALID_WINDOW),
        SessionQueryError("what is this", query_code="SESSION_QUERY_OF_TOMORROW"),
        ConfigError("not configured"),
        RuntimeError("nobody knows"),
    ],
)
@pytest.mark.parametrize("step", ["descriptor_seqs", "read_event"])
def test_failures_that_are_not_about_one_child_propagate(
    world: World, ask: Asker, monkeypatch: pytest.MonkeyPatch, failure: Exception, step: str
) -> None:
    add(world, "kid", descriptor("kid"))
    made = ask()

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(made, step, fail)
    with pytest.raises(type(failure)) as caught:
        list_children(made, "p")
    assert caught.value is failure


def test_listing_writes_nothing_and_reads_only_the_children(
    world: World, ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(world, "kid", descriptor("kid"))
    add(world, "below", descriptor("below"), parent="kid")
    made = ask()
    before = {path: path.read_bytes() for path in world.logs()}
    read: list[str] = []
    real = made._store.read_event

    def noted(session_id: str, seq: int, *, at: Path | None = None) -> tuple[Header, Event | None]:
        read.append(session_id)
        return real(session_id, seq, at=at)

    monkeypatch.setattr(made._store, "read_event", noted)
    list_children(made, "p")
    assert read == ["kid"]
    assert {path: path.read_bytes() for path in world.logs()} == before
