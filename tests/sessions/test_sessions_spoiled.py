"""Real rows, spoiled, left out, swapped, or folded one at a time."""

import contextlib
import copy
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from session_rows import Clock, homes

from acp_bridge.errors import SessionCorruptError, SessionUnsupportedError
from acp_bridge.sessions import LogState, SessionStore, model_view, title
from acp_bridge.sessions import request_header as newest_header
from acp_bridge.sessions.events import KNOWN_TYPES, event_from_row, row_from_event
from acp_bridge.sessions.repair import boundary, closers
from acp_bridge.vocabulary import Event, JsonObject, JsonValue


def real_logs() -> list[tuple[str, LogState, list[JsonObject]]]:
    """Rows of real logs that together hold most of the types."""
    found = []
    names = {
        "tools": "tools",
        "compact_auto": "ca",
        "retry": "rt",
        "devmsg": "dv",
        "image": "im",
        "plan": "pl",
        "workflow": "wf",
        "forks": "f12-opencut-closers",
    }
    for case, session_id in names.items():
        log = SessionStore(homes() / case / "sessions", clock=Clock()).read(session_id)
        found.append((case, LogState(log.header), [row_from_event(one) for one in log.events]))
    return found


REAL = real_logs()
WRONG: list[JsonValue] = [None, True, -1, 1.5, 10**18, "", "x", [], {}, [None], {"a": []}, [[1]]]


def test_the_real_rows_hold_most_types() -> None:
    seen = {row["type"] for _, _, rows in REAL for row in rows}
    assert len(seen & KNOWN_TYPES) >= 40


def places(value: JsonValue, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where in a row a value may be spoiled, five levels deep."""
    if path:
        yield path
    if len(path) < 6:
        if isinstance(value, dict):
            for key, member in value.items():
                yield from places(member, (*path, key))
        elif isinstance(value, list):
            for index, member in enumerate(value[:2]):
                yield from places(member, (*path, index))


def spoil(
    row: JsonObject, path: tuple[str | int, ...], value: JsonValue, *, drop: bool
) -> JsonObject:
    spoiled: JsonObject = copy.deepcopy(row)
    target: JsonValue = spoiled
    for key in path[:-1]:
        target = target[key]  # type: ignore[index]
    if drop:
        del target[path[-1]]  # type: ignore[union-attr,arg-type]
    else:
        target[path[-1]] = value  # type: ignore[index]
    return spoiled


@settings(max_examples=400)
@given(st.data())
def test_a_spoiled_row_never_raises_anything_but_our_refusals(data: st.DataObject) -> None:
    _, fresh, rows = data.draw(st.sampled_from(REAL))
    at = data.draw(st.integers(0, len(rows) - 1))
    path = data.draw(st.sampled_from(list(places(rows[at]))))
    drop = data.draw(st.booleans())
    spoiled = spoil(rows[at], path, data.draw(st.sampled_from(WRONG)), drop=drop)
    state = LogState(fresh.header)
    events: list[Event] = []
    try:
        for seq, row in enumerate(rows):
            event = event_from_row(spoiled if seq == at else row, seq)
            state.apply(event)
            events.append(event)
        state.settle()
        state.require_supported()
    except (SessionCorruptError, SessionUnsupportedError):
        return
    # What the reader accepts must not break the folds behind it either.
    model_view(events)
    title(events)
    newest_header(events)
    closers(state)
    boundary(state)


@settings(max_examples=50)
@given(st.data())
def test_rows_left_out_or_swapped_are_refused_as_corrupt_or_accepted(data: st.DataObject) -> None:
    _, fresh, rows = data.draw(st.sampled_from(REAL))
    order = list(range(len(rows)))
    left, right = (data.draw(st.integers(0, len(rows) - 1)) for _ in range(2))
    if data.draw(st.booleans()):
        order[left], order[right] = order[right], order[left]
    else:
        del order[left]
    state = LogState(fresh.header)
    with contextlib.suppress(SessionCorruptError):
        for seq, place in enumerate(order):
            state.apply(event_from_row({**rows[place], "seq": seq}, seq))
        state.settle()


@pytest.mark.parametrize("case", [name for name, _, _ in REAL])
def test_folding_one_at_a_time_equals_folding_all(case: str) -> None:
    head, rows = next((state.header, rows) for name, state, rows in REAL if name == case)
    events = [event_from_row(row, seq) for seq, row in enumerate(rows)]
    step_by_step = LogState(head)
    for count, event in enumerate(events, start=1):
        step_by_step.apply(event)
        if count % 20 == 0:
            again = LogState(head)
            for earlier in events[:count]:
                again.apply(earlier)
            assert vars(again) == vars(step_by_step)
    at_once = LogState(head)
    at_once.rebuild(events)
    step_by_step.settle()
    assert vars(at_once) == vars(step_by_step)
