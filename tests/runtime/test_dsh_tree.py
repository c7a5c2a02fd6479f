"""The tree of delegations as a pure graph, and the folds beside it."""

from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.runtime.dsh.backlog import Backlog
from acp_bridge.runtime.dsh.prompts import PromptFold, end_from_reason
from acp_bridge.runtime.dsh.tree import SessionTree, edge_of, subject_of
from acp_bridge.vocabulary import Event, JsonObject, TurnEnd
from acp_bridge.wire.messages import Notification

NAMES = st.sampled_from("abcdef")
EDGES = st.lists(st.tuples(NAMES, NAMES).filter(lambda edge: edge[0] != edge[1]), max_size=12)


def tree_of(edges: list[tuple[str, str]]) -> SessionTree:
    tree = SessionTree()
    for child, parent in edges:
        tree.attach(child, parent)
    return tree


@given(EDGES, NAMES)
def test_a_lineage_begins_with_the_session_follows_the_newest_edges_and_ends(
    edges: list[tuple[str, str]], start: str
) -> None:
    lineage = list(tree_of(edges).lineage(start))
    assert lineage[0] == start
    assert len(lineage) == len(set(lineage))
    newest = dict(edges)
    assert lineage[1:] == [newest[session] for session in lineage[:-1]]
    assert newest.get(lineage[-1]) is None or newest[lineage[-1]] in lineage


@given(st.permutations("abcdef"))
def test_depth_is_not_limited_and_order_of_discovery_does_not_matter(names: list[str]) -> None:
    pairs = [(f"s{depth + 1}", f"s{depth}") for depth in range(300)]
    shuffled = sorted(pairs, key=lambda pair: (names.index("abcdef"[hash(pair) % 6]), pair))
    assert list(tree_of(shuffled).lineage("s300"))[-1] == "s0"


@given(EDGES, st.tuples(NAMES, NAMES).filter(lambda edge: edge[0] != edge[1]))
def test_a_new_edge_changes_the_lineages_below_it_and_no_other(
    edges: list[tuple[str, str]], edge: tuple[str, str]
) -> None:
    before, after = tree_of(edges), tree_of([*edges, edge])
    for session in "abcdef":
        old = list(before.lineage(session))
        if edge[0] not in old:
            assert list(after.lineage(session)) == old


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


@given(JSON, st.sampled_from(["subagent.started", "subagent.finished", "session.event", "x"]))
def test_no_params_break_the_routing(params: object, method: str) -> None:
    assert edge_of(params) is None  # type: ignore[arg-type]
    assert subject_of(method, params) is None  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(["", "r", "q"]), max_size=30), st.integers(1, 10))
def test_a_backlog_keeps_the_newest_in_order_and_loses_none_uncounted(
    trees: list[str], size_max: int
) -> None:
    backlog = Backlog(size_max)
    sent = [(tree, Notification(str(number), None)) for number, tree in enumerate(trees)]
    for tree, notification in sent:
        backlog.put(notification, frozenset({tree} - {""}))
    kept = sent[-size_max:]
    assert backlog.dropped == len(sent) - len(kept)
    assert backlog.take("r") == [one for tree, one in kept if tree == "r"]
    assert backlog.take("r") == []
    assert backlog.drain() == [one for tree, one in kept if tree == ""]
    assert backlog.take("q") == [one for tree, one in kept if tree == "q"]


def row(kind: str, **data: object) -> Event:
    return Event(0, 0, kind, data, "append")  # type: ignore[arg-type]


@given(st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=6), st.integers(0, 9))
def test_a_prompt_ends_with_the_turn_that_holds_its_message(
    turns: list[list[int]], wanted: int
) -> None:
    used: set[int] = set()
    early, late = PromptFold(), PromptFold()
    early.expect(str(wanted))
    expected = None
    for number, messages in enumerate(turns):
        fresh = set(messages) - used
        used |= fresh
        reason: JsonObject = {"kind": f"end {number}"}
        if wanted in fresh:
            expected = reason
        for fold in (early, late):
            fold.apply(row("turn/start"))
            for message in fresh:
                fold.apply(row("user/message", id=str(message)))
            assert fold.end == (None if fold is late or expected is reason else expected)
            fold.apply(row("turn/end", reason=reason))
    late.expect(str(wanted))
    assert early.end == late.end == expected


def test_end_reasons_are_the_ports_words_and_a_missing_key_says_what_to_do() -> None:
    assert end_from_reason({"kind": "completed"}) == TurnEnd("completed")
    assert end_from_reason({"kind": "max-tokens"}) == TurnEnd("max-tokens")
    assert end_from_reason({"kind": "aborted"}) == TurnEnd("aborted")
    error: JsonObject = {"message": "busy", "code": "SERVER"}
    assert end_from_reason({"kind": "error", "error": error}) == TurnEnd("error", "busy", "SERVER")
    missing = end_from_reason({"kind": "error", "error": {"code": "MISSING_CREDENTIAL"}})
    assert (missing.kind, missing.code) == ("error", "AUTH")
    assert "acp-bridge setup" in str(missing.details)
    assert end_from_reason({"kind": "blocked"}).kind == "error"
    assert "the runtime does not say why" in str(end_from_reason({"kind": "error"}).details)
