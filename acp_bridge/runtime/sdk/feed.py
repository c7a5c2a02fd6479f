"""What a session and its subagents tell, as notifications of the SDK wire. Pure.

The wire's order (dsh section 2, "Notifications out"): ``running`` comes right before the row that
starts a turn, ``idle`` right behind the row that ends one, unless the next prompt waits already.
Only rows of the log go out: pieces of answers and of output have no form there.
"""

from typing import Final, TypeAlias, assert_never

from acp_bridge.sessions.events import row_from_event
from acp_bridge.vocabulary import (
    ChildFinished,
    ChildMessaged,
    ChildProgressed,
    ChildSaid,
    ChildStarted,
    CommandsChanged,
    Event,
    JsonObject,
    JsonValue,
    OptionsChanged,
    RuntimeEvent,
    SessionId,
    StreamDelta,
    ToolOutput,
    ToolPreview,
    ToolTerminal,
    TurnEnd,
)

Notice: TypeAlias = tuple[str, JsonObject]
"""A notification: method and parameters."""

_STOP_REASONS: Final = {"step-limit": "error", "refusal": "error"}
"""Ends that the log, and so the wire, has no word for."""

_GOOD_ENDS: Final = frozenset({"completed", "max-tokens"})
"""An answer cut off at its length is an answer, as the SDK's own runtime has it."""


class Feed:
    """The fold of one root session's events, and what is still to come of it."""

    def __init__(self, root: SessionId) -> None:
        self._root = root
        self._in_turn: set[SessionId] = set()
        self._running: set[SessionId] = set()
        """What was told to run: a session between two turns, one of which waits, still does."""
        self._working: dict[SessionId, int] = {}
        self._providers: dict[SessionId, str] = {}
        self._waiting: dict[str, bool] = {}

    @property
    def quiet(self) -> bool:
        """Nothing runs or waits, neither of the root nor of its subagents."""
        return not (self._running or self._waiting or self._working)

    @property
    def awaits_turn(self) -> bool:
        """Whether a turn of the root runs, or a prompt waits for one."""
        return self._root in self._running or bool(self._waiting)

    def expect(self, message_id: str) -> None:
        """A prompt was admitted under this message id."""
        self._waiting[message_id] = False

    def has(self, message_id: str) -> bool:
        """Whether the log has the message: it was taken into the inbox, or into a turn."""
        return self._waiting.get(message_id, True)

    def drop(self, message_id: str) -> list[Notice]:
        """A prompt is over, whether it has had a turn or not."""
        self._waiting.pop(message_id, None)
        # Where its own turn never began, no end of a turn can say that the session is idle.
        return [] if self._waiting or self._root in self._in_turn else self._idle(self._root)

    def take(self, event: RuntimeEvent) -> list[Notice]:
        """The notifications that an event means, in order."""
        match event:
            case Event():
                return self._row(self._root, event)
            case ChildSaid(child_id=child_id, event=Event() as row):
                return self._row(child_id, row)
            case ChildStarted():
                return self._started(event)
            case ChildFinished():
                return self._finished(event)
            case ChildSaid() | ChildMessaged() | ChildProgressed():
                return []
            case OptionsChanged() | CommandsChanged():
                return []
            case StreamDelta() | ToolPreview() | ToolOutput() | ToolTerminal():
                return []
            case _:
                assert_never(event)

    def _row(self, session_id: SessionId, event: Event) -> list[Notice]:
        notices: list[Notice] = []
        if event.type == "turn/start":
            self._in_turn.add(session_id)
            if session_id not in self._running:
                self._running.add(session_id)
                notices.append(_status(session_id, "running"))
        notices.append(("session.event", {"sessionId": session_id, "event": row_from_event(event)}))
        data = event.data if isinstance(event.data, dict) else {}
        if session_id == self._root:
            self._follow_prompts(event.type, data)
        elif event.type == "subagent/descriptor":
            self._providers[session_id] = str(data.get("provider"))
        if event.type == "turn/end":
            self._in_turn.discard(session_id)
            if session_id != self._root or not self._waiting:
                notices += self._idle(session_id)
        return notices

    def _follow_prompts(self, kind: str, data: JsonObject) -> None:
        match kind:
            case "agent/inbox/spliced":
                inserted = data.get("inserted")
                for message in inserted if isinstance(inserted, list) else []:
                    message_id = message.get("id") if isinstance(message, dict) else None
                    if message_id in self._waiting:
                        self._waiting[str(message_id)] = True
            case "user/message":
                self._waiting.pop(str(data.get("id")), None)

    def _started(self, event: ChildStarted) -> list[Notice]:
        child_id = event.child_id
        self._working[child_id] = self._working.get(child_id, 0) + 1
        edge: JsonObject = {"parentSessionId": event.parent_id, "childSessionId": child_id}
        return [("subagent.started", edge)]

    def _finished(self, event: ChildFinished) -> list[Notice]:
        child_id = event.child_id
        left = self._working.pop(child_id, 1) - 1
        if left > 0:
            self._working[child_id] = left
        told: JsonObject = {"agentId": child_id}
        provider = self._providers.get(child_id)
        if provider is not None:
            told = {"provider": provider, **told}
        told |= {
            "parentSessionId": event.parent_id,
            "childSessionId": child_id,
            **_end(event.end),
        }
        if event.answer is not None:
            answer: list[JsonValue] = [{"type": "text", "text": event.answer}]
            told["lastAssistantMessage"] = answer
        self._in_turn.discard(child_id)
        return [*self._idle(child_id), ("subagent.finished", told)]

    def _idle(self, session_id: SessionId) -> list[Notice]:
        if session_id not in self._running:
            return []
        self._running.discard(session_id)
        return [_status(session_id, "idle")]


def _status(session_id: SessionId, status: str) -> Notice:
    return "session.status", {"sessionId": session_id, "status": status}


def _end(end: TurnEnd) -> JsonObject:
    status = "ok" if end.kind in _GOOD_ENDS else "error"
    return {"status": status, "stopReason": _STOP_REASONS.get(end.kind, end.kind)}
