"""Stored logs of a session and its subagents to the events that a live consumer was told. Pure.

A log names the child that a call started in the call's result, and in the ``subagent/catalog`` row
before it; a child's log marks each time it was set to work again by ``session/end-seed``. Which
message woke a child and which one steered it follows from the order in time. Each run is told
right behind the call that began it, whatever ran beside it.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import attrs

from acp_bridge.bridge import log_rows, tool_calls
from acp_bridge.vocabulary import (
    CallId,
    ChildFinished,
    ChildMessaged,
    ChildSaid,
    ChildStarted,
    Descendant,
    Event,
    JsonObject,
    JsonValue,
    RuntimeEvent,
    SessionId,
)

_STARTED = "started subagent "
"""What the model is told of a subagent that runs beside it, before the id."""


@attrs.frozen(slots=True)
class _Call:
    """A call of a log that set a child to work, or told it something."""

    call_id: CallId
    seq: int
    time_ms: int
    text: str


@attrs.define(slots=True)
class _Run:
    """A child's work from one start to its end: its rows, and what began and steered it."""

    child: Descendant
    events: Sequence[Event]
    is_last: bool
    begun_by: _Call | None = None
    steered_by: list[_Call] = attrs.field(factory=list)


_Begun: TypeAlias = dict[SessionId, dict[int, list[_Run]]]
"""By session, the runs that its rows began, by their seq; each is taken out when it is told."""

Told: TypeAlias = tuple[type, SessionId]
"""A kind of event, and the child that it is of."""

_NO_CALL = -1
"""The place of runs that no call of the log began, as far as it says."""


def history(
    root_id: SessionId, events: Sequence[Event], descendants: Sequence[Descendant]
) -> Iterator[RuntimeEvent]:
    """What a consumer of the root would have been told, each run whole where it began."""
    children: dict[SessionId, list[Descendant]] = defaultdict(list)
    for descendant in descendants:
        children[descendant.parent_id].append(descendant)
    begun = {root_id: _begun(events, children[root_id])}
    for descendant in descendants:
        rows = log_rows.own_range(descendant.events)
        begun[descendant.session_id] = _begun(rows, children[descendant.session_id])
    for event in events:
        yield event
        yield from _runs(begun[root_id].pop(event.seq, ()), root_id, begun)
    yield from _runs(begun[root_id].pop(_NO_CALL, ()), root_id, begun)


def missed(
    past: Sequence[RuntimeEvent],
    recorded: Sequence[RuntimeEvent],
    descendants: Sequence[Descendant],
    told: Mapping[Told, int],
) -> Iterator[RuntimeEvent]:
    """What was told while the logs were read, and is not in them; deltas are the caller's.

    ``past`` is their `history`, ``told`` how much was told in all, by `told_of`. Of what was
    recorded the last ones are missing from the past, as many as it has too few.
    """
    rows = {one.session_id: len(one.events) for one in descendants}
    known = Counter(filter(None, map(told_of, past)))
    left = Counter(filter(None, map(told_of, recorded)))
    for event in recorded:
        key = told_of(event)
        if key is not None:
            if left[key] <= told.get(key, 0) - known[key]:
                yield event
            left[key] -= 1
        elif isinstance(event, ChildSaid) and isinstance(row := event.event, Event):
            yield from [event] if row.seq >= rows.get(event.child_id, 0) else []


def told_of(event: RuntimeEvent) -> Told | None:
    """What is told of a child beside its rows: a start, a message or an end; None for the rest."""
    if isinstance(event, ChildStarted | ChildMessaged | ChildFinished):
        return type(event), event.child_id
    return None


def _runs(runs: Iterable[_Run], parent_id: SessionId, begun: _Begun) -> Iterator[RuntimeEvent]:
    for run in runs:
        yield from _run(run, parent_id, begun)


def _run(run: _Run, parent_id: SessionId, begun: _Begun) -> Iterator[RuntimeEvent]:
    """One run from its start to its end, with those that it began inside."""
    child, call = run.child, run.begun_by
    yield ChildStarted(
        parent_id=parent_id,
        child_id=child.session_id,
        label=child.label,
        task="" if call is None else call.text,
        call_id=CallId("") if call is None else call.call_id,
        cwd=child.cwd,
    )
    steered = list(run.steered_by)
    mine = begun[child.session_id]
    for event in run.events:
        while steered and event.time_ms > steered[0].time_ms:
            yield _messaged(steered.pop(0), parent_id, child)
        yield ChildSaid(child.session_id, event)
        yield from _runs(mine.pop(event.seq, ()), child.session_id, begun)
    for message in steered:
        yield _messaged(message, parent_id, child)
    if run.is_last:
        yield from _runs(mine.pop(_NO_CALL, ()), child.session_id, begun)
    if not (run.is_last and child.is_running):
        end, answer = log_rows.end_of(run.events), log_rows.last_text(run.events)
        yield ChildFinished(parent_id, child.session_id, end, answer)


def _messaged(call: _Call, parent_id: SessionId, child: Descendant) -> ChildMessaged:
    return ChildMessaged(parent_id, child.session_id, call.call_id, call.text)


def _begun(events: Sequence[Event], children: list[Descendant]) -> dict[int, list[_Run]]:
    """The runs of a session's children by the seq of the call that began them, or `_NO_CALL`."""
    begun: dict[int, list[_Run]] = defaultdict(list)
    if not children:
        return begun
    started, told = _calls(events)
    for child in children:
        runs = _runs_of(child)
        if not runs:
            continue
        runs[0].begun_by = started.get(child.session_id)
        _share(runs, told.get(child.session_id, []))
        for run in runs:
            begun[_NO_CALL if run.begun_by is None else run.begun_by.seq].append(run)
    return begun


def _runs_of(child: Descendant) -> list[_Run]:
    """The child's own rows cut where it was set to work again; a piece without a turn is none."""
    rows = log_rows.own_range(child.events)
    marks = [n for n, event in enumerate(rows) if event.type == "session/end-seed"]
    pieces = [rows[start:end] for start, end in pairwise([0, *marks, len(rows)])]
    worked = [piece for piece in pieces if any(event.type == "turn/start" for event in piece)]
    if child.is_running and (not worked or worked[-1] is not pieces[-1]):
        worked.append(pieces[-1])
    last = len(worked) - 1
    return [_Run(child, piece, is_last=number == last) for number, piece in enumerate(worked)]


def _share(runs: list[_Run], messages: list[_Call]) -> None:
    """Give each run the message that woke it, and the others to the run that they steered."""
    left = list(messages)
    for before, run in pairwise(runs):
        if not left or not run.events:
            break
        # The first one after the last run ended; it is in the log before the child wakes.
        ended_ms = before.events[-1].time_ms
        at = bisect_left(left, ended_ms, key=lambda call: call.time_ms)
        began_ms = run.events[0].time_ms
        if at == len(left) or left[at].time_ms > began_ms:
            at = max(0, at - 1)
        before.steered_by += left[:at]
        run.begun_by = left[at]
        left = left[at + 1 :]
    last = runs[-1]
    until_ms = last.events[-1].time_ms if last.events else 0
    # What is behind its last row is for a part of its log that was not read.
    last.steered_by += [message for message in left if message.time_ms <= until_ms]


def _calls(
    events: Sequence[Event],
) -> tuple[dict[SessionId, _Call], dict[SessionId, list[_Call]]]:
    """The calls that started children, by child, and those that told one something, in order."""
    started: dict[SessionId, _Call] = {}
    told: dict[SessionId, list[_Call]] = defaultdict(list)
    pending: dict[CallId, tuple[_Call, str, JsonObject]] = {}
    named: dict[CallId, SessionId] = {}
    for event in events:
        data = event.data if isinstance(event.data, dict) else {}
        if event.type == "tool/call":
            call_id, name = CallId(str(data.get("callId"))), str(data.get("name"))
            arguments = tool_calls.arguments_of(str(data.get("arguments"))) or {}
            text = str(arguments.get("message" if name == "send_message" else "prompt", ""))
            call = _Call(call_id, event.seq, event.time_ms, text)
            pending[call_id] = call, name, arguments
            named.pop(call_id, None)
        elif event.type == "subagent/catalog":
            starter = _starter(pending, named, data.get("label"))
            if starter is not None:
                named[starter] = SessionId(str(data.get("childId")))
        elif event.type == "tool/result":
            message = data.get("message")
            if isinstance(message, dict):
                _settle(message, pending, named, started, told)
    for call_id, (call, name, arguments) in pending.items():  # their results are still to come
        if call_id in named:
            started.setdefault(named[call_id], call)
        elif name == "send_message":
            told[SessionId(str(arguments.get("agent_id")))].append(call)
    return started, told


def _settle(
    message: JsonObject,
    pending: dict[CallId, tuple[_Call, str, JsonObject]],
    named: dict[CallId, SessionId],
    started: dict[SessionId, _Call],
    told: dict[SessionId, list[_Call]],
) -> None:
    """Take a result: it says what became of its call."""
    call_id = CallId(str(message.get("toolCallId")))
    if call_id not in pending:
        return
    call, name, arguments = pending.pop(call_id)
    child_id = named.pop(call_id, None)
    if name in tool_calls.DELEGATING:
        text = log_rows.text_of(message.get("content"))
        if text.startswith(_STARTED):
            child_id = SessionId(text.removeprefix(_STARTED).strip())
        if child_id is not None:
            started.setdefault(child_id, call)
    elif name == "send_message" and message.get("isError") is not True:
        told[SessionId(str(arguments.get("agent_id")))].append(call)


def _starter(
    pending: dict[CallId, tuple[_Call, str, JsonObject]],
    named: dict[CallId, SessionId],
    label: JsonValue,
) -> CallId | None:
    """The call that a catalog row belongs to: the oldest open one, of this name if possible."""
    free = [
        (call_id, arguments)
        for call_id, (_, name, arguments) in pending.items()
        if name in tool_calls.DELEGATING and call_id not in named
    ]
    same = [call_id for call_id, arguments in free if arguments.get("description") == label]
    return next(iter([*same, *(call_id for call_id, _ in free)]), None)
