"""Whatever the order of arrival, and after a load: a client has the same of subagents."""

from collections import defaultdict
from itertools import permutations

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shown_story import (
    background,
    calls,
    content,
    drawn,
    of_kind,
    replayed,
    sent,
    states,
    texts,
    three_levels,
    view,
)
from story_rows import ENDS, ROOT, Story

from acp_bridge.acp.converter import unstructure
from acp_bridge.bridge import subagent_view
from acp_bridge.bridge.subagent_history import history, missed
from acp_bridge.vocabulary import (
    ChildFinished,
    ChildSaid,
    ChildStarted,
    Descendant,
    Event,
    RuntimeEvent,
    SessionId,
)

FORMS = pytest.mark.parametrize("native", [True, False], ids=["native", "fallback"])


def parts_of_a_delegation() -> tuple[list[RuntimeEvent], list[list[RuntimeEvent]]]:
    """What comes first, and what can come in any order: of a grandchild, as the worst case."""
    story = Story()
    story.turn()
    parent = story.delegate(ROOT, "c1", "mid", "middle")
    story.call(parent, "c1", "subagent", {"description": "leaf", "prompt": "Do it."})
    before = list(story.told)
    child = story.started(parent, "c1", "leaf", "leaf")
    story.say(child, "Found it.", streamed=False)
    story.finish(child)
    story.result(parent, "c1", "started subagent leaf")
    after = story.told[len(before) :]
    registered = next(e for e in before if isinstance(e, ChildStarted))
    started = next(e for e in after if isinstance(e, ChildStarted))
    finished = next(e for e in after if isinstance(e, ChildFinished))
    update: list[RuntimeEvent] = [
        e for e in after if isinstance(e, ChildSaid) and e.child_id == "leaf"
    ]
    result: list[RuntimeEvent] = [
        e
        for e in after
        if isinstance(e, ChildSaid) and isinstance(e.event, Event) and e.event.type == "tool/result"
    ]
    first = [e for e in before if e is not registered]
    return first, [result, [started], update, [finished], [registered]]


FIRST, PARTS = parts_of_a_delegation()


@FORMS
def test_every_order_of_arrival_shows_the_same_of_a_grandchild(native: bool) -> None:
    """R081: spawn result, started, child update, finished, parent registered."""
    usual = sent(FIRST + PARTS[4] + PARTS[1] + PARTS[2] + PARTS[3] + PARTS[0], native=native)
    for order in permutations(range(5)):
        found = sent(FIRST + [event for part in order for event in PARTS[part]], native=native)
        assert drawn(found) == drawn(usual), order
        assert native or list(calls(found)) == ["c1", "leaf.1"], order


@FORMS
def test_every_order_of_arrival_shows_the_same_of_a_child(native: bool) -> None:
    """The root's own call, its result, and the child's start, update and end."""
    story = Story()
    story.turn()
    start = len(story.told)
    child = story.delegate(ROOT, "c1", "kid", "k")
    story.say(child, "Found it.", streamed=False)
    story.finish(child)
    story.result(ROOT, "c1", "started subagent kid")
    told = story.told[start:]
    own = [e for e in told if isinstance(e, Event)]
    parts: list[list[RuntimeEvent]] = [
        [*own[:2]],
        [own[-1]],
        [e for e in told if isinstance(e, ChildStarted)],
        [e for e in told if isinstance(e, ChildSaid)],
        [e for e in told if isinstance(e, ChildFinished)],
    ]
    usual = sent(story.told, native=native)
    for order in permutations(range(5)):
        if order.index(0) < order.index(1):  # a session's own rows come in their order
            found = sent(story.told[:start] + [e for p in order for e in parts[p]], native=native)
            assert drawn(found) == drawn(usual), order


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the clock is the machine's
@given(st.data(), st.booleans())
def test_any_interleaving_of_sessions_shows_the_same(data: st.DataObject, native: bool) -> None:
    """Each session's own events keep their order; starts and ends belong to the child."""
    story = Story()
    story.turn()
    for number, kind in enumerate(("completed", "error", "aborted")):
        child = story.delegate(ROOT, f"c{number}", f"kid{number}", f"k{number}")
        leaf = story.delegate(child, "c", f"leaf{number}", f"l{number}")
        story.say(leaf, "leaf")
        story.finish(leaf)
        story.result(child, "c", f"started subagent leaf{number}")
        story.say(child, "kid")
        story.finish(child, kind)
        story.result(ROOT, f"c{number}", f"started subagent kid{number}")
    queues: dict[str, list[RuntimeEvent]] = defaultdict(list)
    for event in story.told:
        name = ROOT if isinstance(event, Event) else getattr(event, "child_id", ROOT)
        queues[str(name)].append(event)
    mixed: list[RuntimeEvent] = []
    while queues:
        name = data.draw(st.sampled_from(sorted(queues)))
        mixed.append(queues[name].pop(0))
        if not queues[name]:
            del queues[name]
    assert drawn(sent(mixed, native=native)) == drawn(sent(story.told, native=native))


@FORMS
def test_two_runs_of_a_child_keep_apart_when_the_second_start_comes_early(native: bool) -> None:
    story = background()
    kid = SessionId("kid")
    story.wake(ROOT, "c2", kid, "More.")
    story.say(kid, "Second.", streamed=False)
    story.finish(kid)
    first_end = next(e for e in story.told if isinstance(e, ChildFinished))
    second = [e for e in story.told if isinstance(e, ChildStarted)][1]
    late = [e for e in story.told if e is not first_end]
    late.insert(late.index(second) + 1, first_end)
    assert drawn(sent(late, native=native)) == drawn(sent(story.told, native=native))


@FORMS
def test_an_end_that_comes_before_its_start_ends_that_run(native: bool) -> None:
    story = background()
    kid = SessionId("kid")
    story.wake(ROOT, "c2", kid, "More.")
    story.say(kid, "Second.", streamed=False)
    story.finish(kid)
    second = [e for e in story.told if isinstance(e, ChildStarted)][1]
    late = [e for e in story.told if e is not second]
    assert drawn(sent([*late, second], native=native)) == drawn(sent(story.told, native=native))


def test_what_never_starts_is_dropped_from_its_oldest_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subagent_view, "PARKED_MAX", 3)
    shown = view(native=True)
    story = background()
    said = [e for e in story.told if isinstance(e, ChildSaid)]
    for event in said[:5]:
        assert shown.project(event) == []
    assert shown.dropped == 2


# --- replay ------------------------------------------------------------------------------------


@FORMS
@pytest.mark.parametrize("kind", list(ENDS))
def test_a_replay_shows_what_was_live(kind: str, native: bool) -> None:
    story = background(kind=kind)
    assert drawn(replayed(story, native=native)) == drawn(sent(story.told, native=native))


@FORMS
def test_a_replay_shows_nested_woken_and_steered_runs_as_they_were(native: bool) -> None:
    story = Story()
    story.turn()
    one = story.delegate(ROOT, "c", "one", "first")
    story.result(ROOT, "c", "started subagent one")
    two = story.delegate(one, "c", "two", "second", wait=True)
    story.say(two, "2")
    story.finish(two)
    story.result(one, "c", "2")
    story.steer(ROOT, "c2", one, "Faster.")
    story.say(one, "1")
    story.finish(one)
    story.end_turn()
    story.turn()
    story.wake(ROOT, "c", one, "Again.")
    story.steer(ROOT, "d", one, "Faster still.")
    three = story.delegate(one, "c", "three", "third")
    story.result(one, "c", "started subagent three")
    story.say(three, "3")
    story.finish(three, "max-tokens")
    story.say(one, "1 again")
    story.finish(one)
    story.end_turn()
    live, again = sent(story.told, native=native), replayed(story, native=native)
    assert drawn(again) == drawn(live)
    for name in ("one", "two", "three") if native else ():
        assert [u for n, u in again if n == name and u["sessionUpdate"] == "session_message"] == [
            u for n, u in live if n == name and u["sessionUpdate"] == "session_message"
        ]


def test_a_log_that_was_repaired_when_its_child_was_woken_names_the_right_message() -> None:
    story = background()
    kid = SessionId("kid")
    turns = len(story.members[kid].events)
    story.wake(ROOT, "c2", kid, "Wakes.")
    story.steer(ROOT, "c3", kid, "Steers.")
    story.say(kid, "Second.")
    story.finish(kid)
    # The row that ends the first turn was written when the log was opened again.
    log = story.members[kid].events
    log[turns - 1] = attrs.evolve(log[turns - 1], time_ms=log[turns].time_ms)
    messages = [u for name, u in of_kind(replayed(story, native=True), "session_message")]
    said = {u["messageId"]: u["content"][0]["text"] for u in messages}  # type: ignore[call-overload,index]
    assert (said["2.0.told"], said["2.1.told"]) == ("Wakes.", "Steers.")


def test_a_replay_offers_no_cancel_and_ends_nothing_that_works() -> None:
    story = background()
    kid = SessionId("kid")
    story.wake(ROOT, "c2", kid, "More.")
    found = replayed(story, native=True)
    assert not [u for _, u in of_kind(found, "subagent_update") if "capabilities" in u]
    assert states(found, "kid")[-1] == (ROOT, {"state": "running"})
    assert calls(replayed(story, native=False))["kid.2"]["status"] == "in_progress"


def test_after_a_load_only_who_works_is_announced_again_parent_first() -> None:
    story = three_levels()
    story.wake(SessionId("two"), "c9", SessionId("three"), "More.")
    shown = view(native=True)
    shown.prime(history(ROOT, story.root.events, story.descendants()))
    again = [(name, unstructure(update)) for name, update in shown.running()]
    assert [(name, u["sessionId"], u["state"]) for name, u in again] == [
        (ROOT, "one", {"state": "idle"}),
        ("one", "two", {"state": "idle"}),
        ("two", "three", {"state": "running"}),
    ]
    assert all(u["capabilities"] == {"cancel": {}} for _, u in again)


def test_a_child_without_a_call_that_names_it_is_shown_all_the_same() -> None:
    story = background()
    story.root.events[:] = [
        e for e in story.root.events if e.type not in {"subagent/catalog", "tool/result"}
    ]
    assert texts(replayed(story, native=True), "kid") == "C1The answer."
    assert content(calls(replayed(story, native=False))["kid.1"]) == "The answer."


def test_a_forks_past_shows_its_sources_delegation_as_a_call_that_ended() -> None:
    story = background()
    past = list(history(SessionId("fork"), story.root.events, []))
    shown = view(native=False, replay=True, root=SessionId("fork"))
    found = [(name, unstructure(u)) for event in past for name, u in shown.project(event)]
    (call,) = calls(found, "fork").values()
    assert (call["status"], content(call)) == ("completed", "started subagent kid")


def read_while_told() -> tuple[Story, list[list[Descendant]], list[int]]:
    """A story with what the logs held, and how long the root's was, before each of its events."""
    story = Story()
    logs: list[list[Descendant]] = []
    lengths: list[int] = []

    def keep(_event: RuntimeEvent) -> None:
        logs.append([attrs.evolve(one, events=list(one.events)) for one in story.descendants()])
        lengths.append(len(story.root.events))

    story.consumers.append(keep)
    story.turn()
    kid = story.delegate(ROOT, "c1", "kid", "k")
    story.result(ROOT, "c1", "started subagent kid")
    leaf = story.delegate(kid, "c", "leaf", "l")
    story.say(leaf, "leaf", streamed=False)
    story.finish(leaf)
    story.say(kid, "kid", streamed=False)
    story.finish(kid)
    story.wake(ROOT, "c2", kid, "More.")
    story.steer(ROOT, "c3", kid, "Faster.")
    story.say(kid, "again", streamed=False)
    story.finish(kid)
    return story, logs, lengths


@given(st.data())
def test_a_replay_and_what_comes_after_it_are_the_whole_whenever_the_logs_were_read(
    data: st.DataObject,
) -> None:
    """The reading begins at ``first``, sees the logs of ``read``, and is over at ``last``."""
    story, logs, lengths = read_while_told()
    count = len(story.told)
    first = data.draw(st.integers(0, count - 1))
    read = data.draw(st.integers(first, count - 1))
    last = data.draw(st.integers(read, count - 1))
    past = history(ROOT, story.root.events[: lengths[last]], logs[read])
    stored = list(past)
    live = view(native=True)
    live.prime(story.told[: last + 1])
    again = stored + list(missed(stored, story.told[first : last + 1], logs[read], live.told))
    shown = view(native=True, replay=True)
    updates = [shown_now for event in again for shown_now in shown.project(event)]
    updates += live.running()
    updates += [shown_now for event in story.told[last + 1 :] for shown_now in live.project(event)]
    found = [(str(name), unstructure(update)) for name, update in updates]
    assert drawn(found) == drawn(sent(story.told, native=True))
