"""A root session and its subagents, told row by row: the events that a runtime would tell of them.

A `Story` keeps each session's log as it would be stored, so that the same story can be told live
and then read again.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from acp_bridge.bridge import log_rows
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
    StreamDelta,
    SurfaceOp,
    TurnEnd,
)

ROOT = SessionId("root")
CWD = Path("/work")

_REASONS: dict[str, JsonObject] = {
    "completed": {"kind": "completed"},
    "max-tokens": {"kind": "max-tokens"},
    "aborted": {"kind": "aborted", "reason": {"kind": "user"}},
    "step-limit": {"kind": "error", "error": {"code": "STEP_LIMIT", "message": "Too many."}},
    "refusal": {"kind": "error", "error": {"code": "REFUSAL", "message": "No."}},
    "error": {"kind": "error", "error": {"code": "SERVER", "message": "The server is down."}},
}

ENDS = {
    "completed": TurnEnd("completed"),
    "max-tokens": TurnEnd("max-tokens"),
    "aborted": TurnEnd("aborted"),
    "step-limit": TurnEnd("step-limit"),
    "refusal": TurnEnd("refusal", "No.", "REFUSAL"),
    "error": TurnEnd("error", "The server is down.", "SERVER"),
}
"""How a turn can end, by kind, as a runtime tells it."""


@attrs.define
class Member:
    """A session of the story."""

    parent_id: SessionId | None
    label: str = ""
    cwd: Path = CWD
    events: list[Event] = attrs.field(factory=list)
    running: bool = False
    turn: int = 0
    step: int = 0
    run_start: int = 0


class Story:
    """Tells ``consumer`` each event as it happens, and keeps them all in ``told``."""

    def __init__(self, cwd: Path = CWD, root_id: SessionId = ROOT) -> None:
        self.root_id = root_id
        self.members: dict[SessionId, Member] = {root_id: Member(None, cwd=cwd)}
        self.told: list[RuntimeEvent] = []
        self.consumers: list[Callable[[RuntimeEvent], None]] = []
        self._now = 0

    @property
    def root(self) -> Member:
        return self.members[self.root_id]

    def descendants(self) -> list[Descendant]:
        return [
            Descendant(name, m.parent_id, m.label, m.cwd, m.running, m.events)
            for name, m in self.members.items()
            if m.parent_id is not None
        ]

    def tell(self, event: RuntimeEvent) -> None:
        self.told.append(event)
        for consumer in self.consumers:
            consumer(event)

    def row(
        self, session: SessionId, kind: str, data: JsonObject, op: SurfaceOp | None = None
    ) -> Event:
        event = self.written(session, kind, data, op)
        self.tell(event if session == self.root_id else ChildSaid(session, event))
        return event

    def written(
        self, session: SessionId, kind: str, data: JsonObject, op: SurfaceOp | None = None
    ) -> Event:
        """A row that is in the log and not told yet."""
        self._now += 1
        events = self.members[session].events
        events.append(Event(len(events), self._now, kind, data, op))
        return events[-1]

    def turn(self, session: SessionId | None = None) -> None:
        session = session or self.root_id
        member = self.members[session]
        member.turn, member.step = member.turn + 1, 0
        self.row(session, "turn/start", {"turn": member.turn})

    def end_turn(self, session: SessionId | None = None, kind: str = "completed") -> None:
        session = session or self.root_id
        turn = self.members[session].turn
        self.row(session, "turn/end", {"turn": turn, "reason": _REASONS[kind]})

    def say(self, session: SessionId, text: str, *, streamed: bool = True) -> None:
        """One answer: its deltas, then its row."""
        self._answer(session, [{"type": "text", "text": text}], text if streamed else "")

    def calls(self, session: SessionId, *calls: tuple[str, str, JsonObject]) -> None:
        """One answer that calls tools, each ``(call id, name, arguments)``; not their rows."""
        blocks: list[JsonValue] = [
            {"type": "tool-call", "id": call_id, "name": name, "arguments": json.dumps(arguments)}
            for call_id, name, arguments in calls
        ]
        self._answer(session, blocks, "")

    def call(
        self,
        session: SessionId,
        call_id: str,
        name: str,
        arguments: JsonObject,
        *,
        said: bool = True,
    ) -> None:
        """A call that begins to run."""
        if said:
            self.calls(session, (call_id, name, arguments))
        member = self.members[session]
        self.row(
            session,
            "tool/call",
            {
                "turn": member.turn,
                "step": member.step,
                "callId": call_id,
                "name": name,
                "arguments": json.dumps(arguments),
            },
        )

    def result(
        self, session: SessionId, call_id: str, text: str, *, is_error: bool = False
    ) -> None:
        message: JsonObject = {
            "role": "tool",
            "toolCallId": call_id,
            "content": [{"type": "text", "text": text}],
            "isError": is_error,
        }
        self.row(session, "tool/result", {"message": message}, "append")

    def asked(self, session: SessionId, call_id: str) -> None:
        self.row(session, "approval/asked", {"id": f"ask-{call_id}", "callId": call_id})

    def decided(self, session: SessionId, call_id: str, outcome: str = "allowed-once") -> None:
        self.row(session, "approval/decided", {"id": f"ask-{call_id}", "outcome": outcome})

    def delegate(
        self,
        parent: SessionId,
        call_id: str,
        child: str,
        label: str,
        *,
        task: str = "Do it.",
        wait: bool = False,
        cwd: Path | None = None,
    ) -> SessionId:
        """The parent's call, and the child at work in its first turn."""
        arguments: JsonObject = {"description": label, "prompt": task}
        if wait:
            arguments["wait"] = True
        self.call(parent, call_id, "subagent", arguments)
        return self.started(parent, call_id, child, label, task=task, cwd=cwd)

    def started(
        self,
        parent: SessionId,
        call_id: str,
        child: str,
        label: str,
        *,
        task: str = "Do it.",
        cwd: Path | None = None,
    ) -> SessionId:
        name = SessionId(child)
        if name not in self.members:
            place = cwd or self.members[parent].cwd
            self.members[name] = Member(parent, label, place)
            born = self.written(name, "subagent/descriptor", {"label": label})
            catalog: JsonObject = {"childId": child, "mode": "continuable", "label": label}
            self.row(parent, "subagent/catalog", catalog)
        else:
            born = self.written(name, "session/end-seed", {})
        member = self.members[name]
        member.running = True
        member.run_start = born.seq
        self.tell(ChildStarted(parent, name, label, task, CallId(call_id), member.cwd))
        self.tell(ChildSaid(name, born))
        self.turn(name)
        return name

    def wake(self, parent: SessionId, call_id: str, child: SessionId, message: str) -> None:
        """A message to a child that is complete."""
        self.call(parent, call_id, "send_message", {"agent_id": child, "message": message})
        self.started(parent, call_id, child, self.members[child].label, task=message)
        self.result(parent, call_id, f"subagent {child} goes on")

    def steer(self, parent: SessionId, call_id: str, child: SessionId, message: str) -> None:
        """A message to a child that runs."""
        self.call(parent, call_id, "send_message", {"agent_id": child, "message": message})
        self.row(child, "agent/inbox/spliced", {"target": "next-step"})
        self.tell(ChildMessaged(parent, child, CallId(call_id), message))
        self.result(parent, call_id, f"told subagent {child}")

    def finish(self, child: SessionId, kind: str = "completed") -> None:
        """The child's turn ends, and it settles."""
        member = self.members[child]
        self.end_turn(child, kind)
        member.running = False
        assert member.parent_id is not None
        answer = log_rows.last_text(member.events[member.run_start :])
        self.tell(ChildFinished(member.parent_id, child, ENDS[kind], answer))

    def _answer(self, session: SessionId, blocks: list[JsonValue], streamed: str) -> None:
        member = self.members[session]
        member.step += 1
        for piece in _pieces(streamed):
            delta = StreamDelta(member.turn, member.step, 1, 0, "text", piece)
            self.tell(delta if session == self.root_id else ChildSaid(session, delta))
        data: JsonObject = {
            "turn": member.turn,
            "step": member.step,
            "message": {"role": "assistant", "content": blocks},
            "stream": [],
        }
        self.row(session, "assistant/message", data, "append")


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), 4):
        yield text[start : start + 4]
