"""What a home and a worker tell each other of a remote child: payloads and their JSON. Pure.

The home registers a run with a `Task`; the worker claims it, tells `Item` after `Item` in events
of type ``rows``, asks as `remote_asks` has it, and ends with a `Settlement`. The home says what it
has to say in ``new_message`` events (`Steer`, `GiveMode`) and ``cancel`` events (`Cancel`) of the
same run. Every reader names the field that it cannot use, as ``rows[3].event.text``.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import attrs

from acp_bridge.sessions import Header
from acp_bridge.sessions.events import row_from_event
from acp_bridge.subagents.remote_json import (
    bad,
    count_in,
    end_from,
    end_json,
    event_from,
    header_from,
    header_json,
    list_from,
    name_in,
    object_from,
    one_of_in,
    optional_text_in,
    text_in,
)
from acp_bridge.vocabulary import (
    Abort,
    CallId,
    Event,
    FileDiff,
    JsonObject,
    JsonValue,
    Mode,
    SessionId,
    StreamDelta,
    ToolOutput,
    ToolPreview,
    TurnEnd,
)

TASK_VERSION: Final = 1
"""What `Task` is read and written; a worker refuses another one."""

Transient: TypeAlias = StreamDelta | ToolPreview | ToolOutput
"""What a session tells that never enters its log."""


# --- the task ----------------------------------------------------------------------------------


@attrs.frozen(slots=True, kw_only=True)
class Task:
    """What a worker needs to run a child, or to let it go on.

    ``header`` and ``events`` are the child's whole log so far: its inbox holds what it is to do.
    ``place`` is its place among sessions ("1/1"), which counts if its log names none; ``title``
    names the conversation if it has no name yet; ``label`` is its durable name. ``model_id`` is
    ``provider:name``, ``effort`` None as the provider likes. ``depth_max`` and ``live_max`` bound
    its own subagents as those of a local child: the depth counts from the root, as headers do.
    ``takes_questions``: the home's user can be asked questions. ``system_prompt`` is what its
    editor adds to ours; ``images`` are the bytes of the rows' images by ``sha256:<hex>``.
    """

    header: Header
    events: Sequence[Event]
    place: str
    title: str
    label: str
    model_id: str
    effort: str | None
    mode: Mode
    depth_max: int
    live_max: int
    takes_questions: bool = False
    system_prompt: str = ""
    images: Mapping[str, bytes] = attrs.field(factory=dict)


def task_json(task: Task) -> JsonObject:
    """The task as a run is registered with it."""
    return {
        "version": TASK_VERSION,
        "header": header_json(task.header),
        "rows": [row_from_event(event) for event in task.events],
        "place": task.place,
        "title": task.title,
        "label": task.label,
        "model": task.model_id,
        "effort": task.effort,
        "mode": task.mode,
        "subagents": {"depth": task.depth_max, "limit": task.live_max},
        "takes_questions": task.takes_questions,
        "system_prompt": task.system_prompt,
        "images": {name: b64encode(data).decode() for name, data in task.images.items()},
    }


def task_from_json(value: JsonValue) -> Task:
    """The task of a claimed run.

    Raises:
        InvalidParamsError: names the field at fault.
    """
    data = object_from(value, "task")
    version = data.get("version")
    if version != TASK_VERSION:
        raise bad("task.version", f"{TASK_VERSION}; use the same acp-bridge at home and here")
    limits = object_from(data.get("subagents"), "task.subagents")
    return Task(
        header=header_from(data.get("header"), "task.header"),
        events=[
            event_from(row, seq, f"task.rows[{seq}]")
            for seq, row in enumerate(list_from(data.get("rows"), "task.rows"))
        ],
        place=text_in(data, "place", "task."),
        title=text_in(data, "title", "task."),
        label=text_in(data, "label", "task."),
        model_id=text_in(data, "model", "task."),
        effort=optional_text_in(data, "effort", "task."),
        mode=one_of_in(data, "mode", get_args(Mode), "task."),
        depth_max=count_in(limits, "depth", "task.subagents."),
        live_max=count_in(limits, "limit", "task.subagents."),
        takes_questions=data.get("takes_questions") is True,
        system_prompt=optional_text_in(data, "system_prompt", "task.") or "",
        images=_images(object_from(data.get("images", {}), "task.images")),
    )


def _images(data: JsonObject) -> dict[str, bytes]:
    images: dict[str, bytes] = {}
    for name in data:
        try:
            images[name] = b64decode(text_in(data, name, "task.images."), validate=True)
        except ValueError as fault:
            raise bad(f"task.images.{name:.80}", "base64") from fault
    return images


# --- what the worker tells ---------------------------------------------------------------------


@attrs.frozen(slots=True)
class RowItem:
    """A row of a log: the child's own, or that of a descendant that was told to have begun.

    Rows of a log come in the order of their seqs, without a gap from what the task holds, or from 0
    for a descendant. One that comes again is recognised by its seq.
    """

    session_id: SessionId
    event: Event


@attrs.frozen(slots=True)
class TransientItem:
    """Something to be shown and forgotten; pieces of one stream may come joined."""

    session_id: SessionId
    event: Transient


@attrs.frozen(slots=True)
class ChildStartedItem:
    """A descendant began to work, newly delegated or woken: as `vocabulary.ChildStarted`.

    ``header`` is its log's, which the home keeps as well; its rows follow.
    """

    parent_id: SessionId
    child_id: SessionId
    label: str
    task: str
    call_id: CallId
    cwd: Path
    header: Header


@attrs.frozen(slots=True)
class ChildMessagedItem:
    """A running descendant was steered: as `vocabulary.ChildMessaged`."""

    parent_id: SessionId
    child_id: SessionId
    call_id: CallId
    text: str


@attrs.frozen(slots=True)
class ChildFinishedItem:
    """A descendant settled, after its last row: as `vocabulary.ChildFinished`."""

    parent_id: SessionId
    child_id: SessionId
    end: TurnEnd
    answer: str | None


@attrs.frozen(slots=True)
class AskWithdrawnItem:
    """Nobody waits for the answer to this ask any more; ``ask_id`` is its event id."""

    ask_id: str


Item: TypeAlias = (
    RowItem
    | TransientItem
    | ChildStartedItem
    | ChildMessagedItem
    | ChildFinishedItem
    | AskWithdrawnItem
)
"""What happened, in order: the members of ``rows``."""


def item_json(item: Item) -> JsonObject:
    """An item as it is sent."""
    match item:
        case RowItem():
            row = row_from_event(item.event)
            return {"kind": "row", "session_id": item.session_id, "row": row}
        case TransientItem():
            event = _transient_json(item.event)
            return {"kind": "delta", "session_id": item.session_id, "event": event}
        case ChildStartedItem():
            return {
                "kind": "child_started",
                "parent_id": item.parent_id,
                "child_id": item.child_id,
                "label": item.label,
                "task": item.task,
                "call_id": item.call_id,
                "cwd": str(item.cwd),
                "header": header_json(item.header),
            }
        case ChildMessagedItem():
            return {
                "kind": "child_messaged",
                "parent_id": item.parent_id,
                "child_id": item.child_id,
                "call_id": item.call_id,
                "text": item.text,
            }
        case ChildFinishedItem():
            return {
                "kind": "child_finished",
                "parent_id": item.parent_id,
                "child_id": item.child_id,
                "end": end_json(item.end),
                "answer": item.answer,
            }
        case AskWithdrawnItem():
            return {"kind": "ask_withdrawn", "ask_id": item.ask_id}


def items_from_payload(payload: JsonObject) -> list[Item]:
    """The items of an event of type ``rows``.

    Raises:
        InvalidParamsError: names the field at fault.
    """
    rows = list_from(payload.get("rows"), "rows")
    return [_item(value, f"rows[{number}]") for number, value in enumerate(rows)]


def _item(value: JsonValue, where: str) -> Item:
    data, at = object_from(value, where), f"{where}."
    match data.get("kind"):
        case "row":
            row = object_from(data.get("row"), f"{at}row")
            event = event_from(row, count_in(row, "seq", f"{at}row."), f"{at}row")
            return RowItem(SessionId(name_in(data, "session_id", at)), event)
        case "delta":
            told = _transient(object_from(data.get("event"), f"{at}event"), f"{at}event.")
            return TransientItem(SessionId(name_in(data, "session_id", at)), told)
        case "child_started":
            return ChildStartedItem(
                parent_id=SessionId(name_in(data, "parent_id", at)),
                child_id=SessionId(name_in(data, "child_id", at)),
                label=text_in(data, "label", at),
                task=text_in(data, "task", at),
                call_id=CallId(text_in(data, "call_id", at)),
                cwd=Path(name_in(data, "cwd", at)),
                header=header_from(data.get("header"), f"{at}header"),
            )
        case "child_messaged":
            return ChildMessagedItem(
                parent_id=SessionId(name_in(data, "parent_id", at)),
                child_id=SessionId(name_in(data, "child_id", at)),
                call_id=CallId(text_in(data, "call_id", at)),
                text=text_in(data, "text", at),
            )
        case "child_finished":
            return ChildFinishedItem(
                parent_id=SessionId(name_in(data, "parent_id", at)),
                child_id=SessionId(name_in(data, "child_id", at)),
                end=end_from(data.get("end"), f"{at}end"),
                answer=optional_text_in(data, "answer", at),
            )
        case "ask_withdrawn":
            return AskWithdrawnItem(name_in(data, "ask_id", at))
        case _:
            kinds = "row, delta, child_started, child_messaged, child_finished or ask_withdrawn"
            raise bad(f"{at}kind", f"{kinds}; use the same acp-bridge at home and at the worker")


def _transient_json(event: Transient) -> JsonObject:
    match event:
        case StreamDelta():
            return {
                "what": "stream",
                "turn": event.turn,
                "step": event.step,
                "attempt": event.attempt,
                "block": event.block,
                "kind": event.kind,
                "text": event.text,
            }
        case ToolOutput():
            return {"what": "output", "call_id": event.call_id, "text": event.text}
        case ToolPreview():
            diffs: list[JsonValue] = [
                {"path": diff.path, "old_text": diff.old_text, "new_text": diff.new_text}
                for diff in event.diffs
            ]
            return {"what": "preview", "call_id": event.call_id, "diffs": diffs}


def _transient(data: JsonObject, at: str) -> Transient:
    match data.get("what"):
        case "stream":
            return StreamDelta(
                turn=count_in(data, "turn", at),
                step=count_in(data, "step", at),
                attempt=count_in(data, "attempt", at),
                block=count_in(data, "block", at),
                kind=one_of_in(data, "kind", ("text", "reasoning"), at),
                text=text_in(data, "text", at),
            )
        case "output":
            return ToolOutput(CallId(text_in(data, "call_id", at)), text_in(data, "text", at))
        case "preview":
            diffs = [
                _diff(diff, f"{at}diffs[{number}]")
                for number, diff in enumerate(list_from(data.get("diffs"), f"{at}diffs"))
            ]
            return ToolPreview(CallId(text_in(data, "call_id", at)), tuple(diffs))
        case _:
            raise bad(f"{at}what", "stream, output or preview")


def _diff(value: JsonValue, where: str) -> FileDiff:
    data, at = object_from(value, where), f"{where}."
    old = optional_text_in(data, "old_text", at)
    return FileDiff(text_in(data, "path", at), old, text_in(data, "new_text", at))


@attrs.frozen(slots=True)
class Settlement:
    """How an execution ended, and the child's last text since it began; nothing follows it."""

    end: TurnEnd
    answer: str | None = None


def settlement_type(end: TurnEnd) -> str:
    """The event type that tells this end."""
    match end.kind:
        case "completed":
            return "run_succeeded"
        case "aborted":
            return "run_cancelled"
        case "error":
            return "run_errored"
        case _:
            return "run_failed"


def settlement_json(settlement: Settlement) -> JsonObject:
    """The payload of a settlement."""
    return {"end": end_json(settlement.end), "answer": settlement.answer}


LOST_CODE: Final = "WORKER_LOST"
"""The code of an end that the event service told, since the worker did not."""


def settlement_from_event(event_type: str, payload: JsonObject) -> Settlement:
    """How it ended. The service's own settlements have no ``end`` but ``details``, or nothing.

    Raises:
        InvalidParamsError: names the field at fault.
    """
    if "end" in payload:
        end = end_from(payload["end"], "settlement.end")
        return Settlement(end, optional_text_in(payload, "answer", "settlement."))
    if event_type == "run_cancelled":
        return Settlement(TurnEnd("aborted"))
    details = optional_text_in(payload, "details", "settlement.")
    return Settlement(TurnEnd("error", details or "The run ended without a reason.", LOST_CODE))


# --- what the home tells -----------------------------------------------------------------------


@attrs.frozen(slots=True)
class Steer:
    """A log message for the child's inbox, as its next step's; its row comes back with its id."""

    message: JsonObject


@attrs.frozen(slots=True)
class GiveMode:
    """The child goes on in this mode, and what works below it too."""

    mode: Mode


@attrs.frozen(slots=True)
class Relayed:
    """What another agent sent to a run that is no child of the sender's: a text."""

    text: str


Message: TypeAlias = Steer | GiveMode | Relayed
"""The payload of an event of type ``new_message``."""


def message_json(message: Message) -> JsonObject:
    """A message as it is sent."""
    match message:
        case Steer():
            return {"kind": "message", "message": message.message}
        case GiveMode():
            return {"kind": "mode", "mode": message.mode}
        case Relayed():
            return {"kind": "text", "text": message.text}


def message_from_json(data: JsonObject) -> Message:
    """What the home, or another agent, says.

    Raises:
        InvalidParamsError: names the field at fault.
    """
    match data.get("kind"):
        case "message":
            message = object_from(data.get("message"), "message.message")
            if message.get("role") != "user" or not isinstance(message.get("id"), str):
                raise bad("message.message", "a message of the log, of role user and with an id")
            return Steer(message)
        case "mode":
            return GiveMode(one_of_in(data, "mode", get_args(Mode), "message."))
        case "text":
            return Relayed(name_in(data, "text", "message."))
        case _:
            raise bad("message.kind", "message, mode or text")


@attrs.frozen(slots=True)
class Cancel:
    """The payload of a ``cancel`` event.

    ``what`` is ``run`` (the child ends, its own children first) or ``turn`` (its current turn only,
    its inbox is kept). ``session_id`` None: the child itself; else the descendant that it is about.
    """

    why: Abort
    what: Literal["run", "turn"] = "run"
    session_id: SessionId | None = None


def cancel_json(cancel: Cancel) -> JsonObject:
    """A cancel as it is sent."""
    return {"why": cancel.why, "what": cancel.what, "session_id": cancel.session_id}


def cancel_from_json(data: JsonObject) -> Cancel:
    """What is to end; an empty payload: the run, by the user.

    Raises:
        InvalidParamsError: names the field at fault.
    """
    session_id = optional_text_in(data, "session_id", "cancel.")
    return Cancel(
        why=one_of_in({"why": "user", **data}, "why", get_args(Abort), "cancel."),
        what=one_of_in({"what": "run", **data}, "what", ("run", "turn"), "cancel."),
        session_id=None if session_id is None else SessionId(session_id),
    )


# --- to which execution ------------------------------------------------------------------------


def addressed(payload: JsonObject, task_id: str) -> JsonObject:
    """A message or a cancel for whoever executes this task, and for no earlier or later one."""
    return {**payload, "task_id": task_id}


def is_for(payload: JsonObject, task_id: str | None) -> bool:
    """Whether a message or a cancel is meant for the execution of this task.

    One that names no task, as other programs send it, is for whoever hears it.
    """
    return payload.get("task_id") in {None, task_id}
