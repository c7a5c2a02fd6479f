"""What a tree's notifications tell of its subagents: a pure fold, one root's from its log on.

The wire names parent and child of a run and no more. Which call began it follows from the parent's
own rows: calls run one after another, so it is the oldest open one that can have done it. A child's
rows before its first turn are not told; nothing that people see is in them.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from acp_bridge.harness.tools.arguments import parse_arguments
from acp_bridge.runtime.dsh.prompts import end_from_reason, text_of_message
from acp_bridge.subagents.tree import CATALOG_ROW, UNNAMED
from acp_bridge.vocabulary import (
    CallId,
    ChildFinished,
    ChildMessaged,
    ChildSaid,
    ChildStarted,
    Event,
    JsonObject,
    RuntimeEvent,
    SessionId,
    StreamDelta,
    TurnEnd,
)

STARTS: Final = frozenset({"subagent", "subagent_fork"})
"""The tools that make a subagent."""

MESSAGES: Final = "send_message"
"""The tool that steers a subagent, or wakes one."""


@attrs.define(slots=True)
class _Call:
    """An open call that can set a child to work. ``target`` is who it has a message for."""

    parent_id: SessionId
    call_id: CallId
    text: str
    label: str | None
    target: SessionId | None
    is_spent: bool = False


@attrs.define(slots=True, eq=False)
class _Run:
    """A child at work."""

    parent_id: SessionId
    child_id: SessionId
    end: TurnEnd = attrs.field(factory=lambda: TurnEnd("aborted"))
    answer: str | None = None


class Delegations:
    """The fold. ``events`` are the root's log so far, which names the children that it has."""

    def __init__(self, root_id: SessionId, events: Iterable[Event] = ()) -> None:
        self._root_id = root_id
        self._calls: dict[tuple[SessionId, CallId], _Call] = {}
        self._labels: dict[SessionId, str] = {}
        self._runs: list[_Run] = []
        self._last_seqs: dict[SessionId, int] = {}
        for event in events:
            self.row(root_id, event)

    @property
    def last_seqs(self) -> dict[SessionId, int]:
        """Where the logs of the children were heard to, of all that ever worked here."""
        return dict(self._last_seqs)

    def running(self) -> list[SessionId]:
        """The children at work, in the order of their starts."""
        return [run.child_id for run in self._runs]

    def started(self, parent_id: SessionId, child_id: SessionId, cwd: Path) -> ChildStarted:
        """A run begins."""
        call = self._beginning(parent_id, child_id)
        label = self._labels.get(child_id) or (None if call is None else call.label) or UNNAMED
        self._labels[child_id] = label
        self._last_seqs.setdefault(child_id, -1)
        self._runs.append(_Run(parent_id, child_id))
        return ChildStarted(
            parent_id=parent_id,
            child_id=child_id,
            label=label,
            task="" if call is None else call.text,
            call_id=CallId("") if call is None else call.call_id,
            cwd=cwd,
        )

    def row(self, session_id: SessionId, event: Event) -> list[RuntimeEvent]:
        """A row of the root or of a child; of the root's own only what it means for a child."""
        told: list[RuntimeEvent] = []
        if session_id in self._last_seqs:
            if event.seq <= self._last_seqs[session_id]:
                return []
            self._last_seqs[session_id] = event.seq
            told.append(ChildSaid(session_id, event))
        run = self._newest(session_id)
        data = event.data if isinstance(event.data, dict) else {}
        match event.type:
            case "turn/start" if run is not None:
                run.end = TurnEnd("aborted")  # until it has another
            case "turn/end" if run is not None and isinstance(data.get("reason"), dict):
                reason = data["reason"]
                assert isinstance(reason, dict)
                run.end = end_from_reason(reason)
            case "assistant/message" if run is not None:
                run.answer = text_of_message(data.get("message")).strip() or run.answer
            case "tool/call":
                self._called(session_id, data)
            case "tool/result":
                told += self._settled(session_id, data)
            case kind if kind == CATALOG_ROW and data.get("label"):
                self._labels[SessionId(str(data.get("childId")))] = str(data["label"])
        return told

    def delta(self, child_id: SessionId, delta: StreamDelta) -> list[RuntimeEvent]:
        """A piece of an answer; nothing if the child does not work here."""
        return [] if self._newest(child_id) is None else [ChildSaid(child_id, delta)]

    def finished(self, parent_id: SessionId, child_id: SessionId) -> list[RuntimeEvent]:
        """The oldest run of a child below this parent ends; nothing if there is none."""
        for run in self._runs:
            if (run.parent_id, run.child_id) == (parent_id, child_id):
                return [self._over(run)]
        return []

    def lost(self, child_id: SessionId, stored: Sequence[Event]) -> list[RuntimeEvent]:
        """The process is gone: what a child's log has beyond what was heard, and its ends."""
        heard = self._last_seqs[child_id]
        told: list[RuntimeEvent] = []
        for event in stored if heard >= 0 else ():  # else none of the rows is known to be new
            told += self.row(child_id, event)
        runs = [run for run in self._runs if run.child_id == child_id]
        return told + [self._over(run) for run in runs]

    # --- inside ---------------------------------------------------------------------------------

    def _over(self, run: _Run) -> ChildFinished:
        self._runs.remove(run)
        for key in [key for key in self._calls if key[0] == run.child_id]:
            del self._calls[key]
        return ChildFinished(run.parent_id, run.child_id, run.end, run.answer)

    def _newest(self, child_id: SessionId) -> _Run | None:
        return next((run for run in reversed(self._runs) if run.child_id == child_id), None)

    def _called(self, session_id: SessionId, data: JsonObject) -> None:
        name, call_id = data.get("name"), CallId(str(data.get("callId")))
        if name != MESSAGES and name not in STARTS:
            return
        parsed = parse_arguments(str(data.get("arguments")))
        arguments = parsed if isinstance(parsed, dict) else {}
        description = arguments.get("description")
        self._calls[session_id, call_id] = _Call(
            session_id,
            call_id,
            text=str(arguments.get("message" if name == MESSAGES else "prompt", "")),
            label=description if isinstance(description, str) and description else None,
            target=SessionId(str(arguments.get("agent_id"))) if name == MESSAGES else None,
        )

    def _beginning(self, parent_id: SessionId, child_id: SessionId) -> _Call | None:
        """The call that began a run: a message to this child, else what makes a new one."""
        fresh = [
            one for one in self._calls.values() if one.parent_id == parent_id and not one.is_spent
        ]
        wanted = None if child_id not in self._labels else child_id
        call = next((one for one in fresh if one.target == wanted), None)
        if call is not None:
            call.is_spent = True
        return call

    def _settled(self, session_id: SessionId, data: JsonObject) -> list[RuntimeEvent]:
        """A call is over; a message that woke nobody was for one who works."""
        message = data.get("message")
        if not isinstance(message, dict):
            return []
        call = self._calls.pop((session_id, CallId(str(message.get("toolCallId")))), None)
        if call is None or call.is_spent or message.get("isError") is True:
            return []
        if call.target is None or call.target not in self._last_seqs:
            return []
        return [ChildMessaged(session_id, call.target, call.call_id, call.text)]
