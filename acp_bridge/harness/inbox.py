"""The log's inbox: messages that are durable before a turn takes them.

Two queues, as the real runtime keeps them: ``next-turn`` for what begins a turn, ``next-step`` for
what a running one takes at its next step. A message of the user begins a turn of its own; what
subagents and parents say joins whatever turn comes first, so that ten children that settle together
cost their parent one turn.

Splices count on what the fold of the log holds, so each change holds `Desk.inbox`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from acp_bridge.harness.desk import Desk
from acp_bridge.vocabulary import Draft, Event, JsonObject, JsonValue

Target: TypeAlias = Literal["next-turn", "next-step"]


def splice(
    target: Target, *, start: int, removed: int = 0, inserted: Sequence[JsonObject] = ()
) -> Draft:
    """A change of one queue."""
    data: JsonObject = {"target": target, "start": start}
    if removed:
        data["removedCount"] = removed
    put: list[JsonValue] = list(inserted)
    return Draft("agent/inbox/spliced", {**data, "inserted": put})


def queues(desk: Desk) -> Mapping[str, Sequence[JsonObject]]:
    """What waits, by target."""
    return desk.committer.writer.state.inbox


def put_row(desk: Desk, target: Target, message: JsonObject) -> Draft:
    """The row that puts a message behind the others."""
    return splice(target, start=len(queues(desk)[target]), inserted=[message])


def inserted_ids(row: Event) -> Iterator[str]:
    """The ids of the messages that a row puts into the inbox."""
    data: Mapping[str, object] = row.data if isinstance(row.data, dict) else {}
    inserted = data.get("inserted")
    if row.type == "agent/inbox/spliced" and isinstance(inserted, list):
        for message in inserted:
            if isinstance(message, dict) and isinstance(message.get("id"), str):
                yield message["id"]


def was_put(events: Sequence[Event], message_id: JsonValue) -> bool:
    """Whether a message of this id came into the inbox, taken by now or not."""
    return any(message_id in set(inserted_ids(row)) for row in reversed(events))


def is_prompt(message: JsonObject) -> bool:
    """Whether it begins a turn of its own: a user said it, or a parent set a task with it."""
    source = message.get("source")
    return isinstance(source, dict) and source.get("kind") == "user"


def taken(
    desk: Desk, own: JsonObject | None, *, is_queued: bool
) -> tuple[list[Draft], list[JsonObject]]:
    """What a turn that begins takes: the splices, and the messages in the order of arrival.

    ``own`` is the prompt that it begins with; ``is_queued`` False: an insertion just before these
    splices puts it behind the others.
    """
    waiting = list(queues(desk)["next-turn"])
    if own is not None and not is_queued:
        waiting.append(own)
    splices: list[Draft] = []
    messages: list[JsonObject] = []
    kept = 0
    for message in waiting:
        if is_prompt(message) and (own is None or message["id"] != own["id"]):
            kept += 1
            continue
        splices.append(splice("next-turn", start=kept, removed=1))
        messages.append(message)
    more, steered = taken_by_step(desk)
    if own is not None and not is_queued:
        messages.pop()  # it comes last, also behind what was meant for a turn before
        return splices + more, [*messages, *steered, own]
    return splices + more, messages + steered


def taken_by_step(desk: Desk) -> tuple[list[Draft], list[JsonObject]]:
    """What the next step of a running turn takes."""
    steered = list(queues(desk)["next-step"])
    splices = [splice("next-step", start=0, removed=len(steered))] if steered else []
    return splices, steered


def dropped(desk: Desk) -> list[Draft]:
    """The splices that take away what the user said to a turn and no step of it took."""
    splices: list[Draft] = []
    kept = 0
    for message in queues(desk)["next-step"]:
        if is_prompt(message):
            splices.append(splice("next-step", start=kept, removed=1))
        else:
            kept += 1
    return splices


def message_rows(messages: Sequence[JsonObject]) -> list[Draft]:
    """The rows that show messages to the model."""
    return [Draft("user/message", message, surface_op="append") for message in messages]
