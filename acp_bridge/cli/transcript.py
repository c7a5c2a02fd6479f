"""A stored log as a reader sees it: replayed through the projector that editors are served by."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from acp_bridge.acp.converter import unstructure
from acp_bridge.bridge.clients import View
from acp_bridge.bridge.projector import Projector
from acp_bridge.runtime.attachments import AttachmentStore
from acp_bridge.sessions.reading import StoredLog
from acp_bridge.vocabulary import Event, JsonObject, JsonValue

Replayed: TypeAlias = tuple[Event | None, list[JsonObject]]
"""A row and the updates that it means; no row for what a replay ends with."""

_USAGE = "usage_update"


@attrs.define
class Message:
    """Content blocks that one speaker said in one go."""

    speaker: Literal["user", "agent", "thought"]
    message_id: str
    blocks: list[JsonObject]


@attrs.define
class Call:
    """A tool call in its last state: the announcement with all its updates laid over it."""

    state: JsonObject


@attrs.frozen
class PlanShown:
    """The plan as it was at that moment."""

    entries: list[JsonObject]


Item: TypeAlias = Message | Call | PlanShown


@attrs.define
class Turn:
    """What happened from one prompt to its end; ``number`` None: between turns.

    ``note`` says how it ended, if it did not simply complete.
    """

    number: int | None
    started_ms: int
    items: list[Item] = attrs.field(factory=list)
    note: str | None = None


@attrs.frozen
class UsagePoint:
    """Tokens in the context after one answer, of ``size``."""

    time_ms: int
    used: int
    size: int


@attrs.frozen
class Transcript:
    """A whole session, in order."""

    turns: list[Turn]
    usage: list[UsagePoint]


def replayed(log: StoredLog, home: Path) -> Iterator[Replayed]:
    """The rows of a log, each with the updates that a loading editor is sent for it."""
    projector = _projector(log, home)
    for event in log.events:
        updates = projector.project(event)
        if updates or event.type in {"turn/start", "turn/end"}:
            yield event, [unstructure(update) for update in updates]
    yield None, [unstructure(update) for update in projector.finish_replay()]


def transcript(log: StoredLog, home: Path) -> Transcript:
    """The whole session as turns of items, and how full its context was after each answer."""
    projector = _projector(log, home)
    fold = _Fold()
    last = None
    for event in log.events:
        fold.boundary(event)
        for update in projector.project(event):
            fold.add(unstructure(update), event.time_ms)
        for usage in projector.finish_replay():
            if usage is not last:
                last = usage
                fold.add(unstructure(usage), event.time_ms)
    return Transcript([turn for turn in fold.turns if turn.items or turn.note], fold.usage)


def _projector(log: StoredLog, home: Path) -> Projector:
    return Projector(
        cwd=Path(log.header.cwd or "/"),
        view=View(),
        replay=True,
        find_attachment=AttachmentStore(home / "attachments").find,
    )


class _Fold:
    """Updates to turns of items."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.usage: list[UsagePoint] = []
        self._calls: dict[str, Call] = {}
        self._in_turn = False

    def boundary(self, event: Event) -> None:
        if event.type == "turn/start":
            number = event.data.get("turn") if isinstance(event.data, dict) else None
            self.turns.append(Turn(number if isinstance(number, int) else None, event.time_ms))
            self._in_turn = True
        elif event.type == "turn/end" and self.turns:
            self.turns[-1].note = turn_note(event)
            self._in_turn = False

    def add(self, update: JsonObject, time_ms: int) -> None:
        match update.get("sessionUpdate"):
            case "user_message_chunk":
                self._say("user", update, time_ms)
            case "agent_message_chunk":
                self._say("agent", update, time_ms)
            case "agent_thought_chunk":
                self._say("thought", update, time_ms)
            case "tool_call":
                call = self._calls[str(update["toolCallId"])] = Call(update)
                self._items(time_ms).append(call)
            case "tool_call_update":
                call = self._calls[str(update["toolCallId"])]
                call.state = {**call.state, **{k: v for k, v in update.items() if v is not None}}
            case "plan":
                self._items(time_ms).append(PlanShown(objects(update.get("entries"))))
            case "usage_update":
                used, size = update["used"], update["size"]
                assert isinstance(used, int)
                assert isinstance(size, int)
                self.usage.append(UsagePoint(time_ms, used, size))
            case _:
                pass

    def _say(
        self, speaker: Literal["user", "agent", "thought"], update: JsonObject, time_ms: int
    ) -> None:
        block, message_id = update["content"], str(update.get("messageId"))
        assert isinstance(block, dict)
        items = self._items(time_ms)
        last = items[-1] if items else None
        if isinstance(last, Message) and (last.speaker, last.message_id) == (speaker, message_id):
            last.blocks.append(block)
        else:
            items.append(Message(speaker, message_id, [block]))

    def _items(self, time_ms: int) -> list[Item]:
        """Where the next item goes: into the running turn, or between turns."""
        if not self.turns or (not self._in_turn and self.turns[-1].number is not None):
            self.turns.append(Turn(None, time_ms))
        return self.turns[-1].items


def turn_note(event: Event) -> str | None:
    """How a turn ended, if this row ends one and it did not simply complete."""
    if event.type != "turn/end" or not isinstance(event.data, dict):
        return None
    reason = event.data.get("reason")
    if not isinstance(reason, dict):
        return None
    match reason.get("kind"):
        case "completed":
            return None
        case "error":
            error = reason.get("error")
            why = error.get("message") if isinstance(error, dict) else None
            return f"failed: {why}" if why else "failed"
        case "aborted":
            by = reason.get("reason")
            kind = by.get("kind") if isinstance(by, dict) else None
            return "cancelled" if kind == "user" else f"cancelled ({kind})"
        case "interrupted":
            return "interrupted: the program ended in the middle of it"
        case kind:
            return str(kind)


def objects(value: JsonValue) -> list[JsonObject]:
    """The objects of a JSON array."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def when(time_ms: int) -> str:
    """A time for people, in their zone, to the minute."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone()
    except (OverflowError, ValueError, OSError):
        return "?"  # a log may hold any number
    return moment.strftime("%Y-%m-%d %H:%M")


def iso(time_ms: int) -> str | None:
    """A time for machines: ISO 8601 in UTC; None for one beyond the calendar."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
