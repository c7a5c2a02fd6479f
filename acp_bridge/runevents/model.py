"""The run event: what it holds, how it is read from JSON and written to it. Pure.

Source: ``orchestration.md``, "Service and wire". Whatever is wrong with an item is said by an
error that names its field; nothing is guessed and nothing is dropped in silence.
"""

import json
import re
from collections.abc import Collection
from datetime import datetime
from typing import Final, NewType

import attrs

from acp_bridge.errors import InvalidParamsError
from acp_bridge.vocabulary import JsonObject, JsonValue

RunId = NewType("RunId", str)
"""The execution behind a session, and its inbox address: see `checked_id` for its letters."""

NEW_MESSAGE: Final = "new_message"
"""A message; the run it is of is its recipient."""
RUN_IN_PROGRESS: Final = "run_in_progress"
RUN_BLOCKED: Final = "run_blocked"
CHILD_STARTED: Final = "child_agent_started"
"""A child was registered; of the parent's run, ``ref_id`` is the child's."""
ROWS: Final = "rows"
ASK: Final = "ask"
ANSWER: Final = "answer"
"""The user's answer to an `ASK`; ``ref_id`` is the ask's event id."""
CANCEL: Final = "cancel"

SETTLEMENTS: Final = frozenset({"run_succeeded", "run_failed", "run_errored", "run_cancelled"})
"""How a run ends; the last thing that it tells until it is continued."""

PROGRESS: Final = frozenset({RUN_IN_PROGRESS, RUN_BLOCKED})
"""What is shown to the user and enters no inbox."""

RUN_ERRORED: Final = "run_errored"
RUN_CANCELLED: Final = "run_cancelled"

ID_CHARS_MAX: Final = 128
"""Longer than any id that is made here, short enough for a hundred of them in one address."""

EVENT_ID_CHARS_MAX: Final = 160
"""Some event ids are made of another id with a word before it."""

_ID: Final = re.compile(r"[A-Za-z0-9._:~@+-]+")
_TYPE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


@attrs.frozen(slots=True)
class EventDraft:
    """A run event before the log gave it a sequence.

    ``run_id`` is the run that it is of: a message's recipient, a lifecycle's run. ``event_id`` is
    its publisher's name for it, unique over all runs: publishing it again changes nothing.
    ``ref_id`` is what it is about, ``execution_id`` the claim under which its run was then
    executed. ``occurred_at`` is an ISO 8601 time with an offset, by the publisher's clock.
    """

    event_type: str
    run_id: RunId
    event_id: str
    occurred_at: str
    ref_id: str | None = None
    execution_id: str | None = None
    payload: JsonObject = attrs.field(factory=dict)


@attrs.frozen(slots=True)
class RunEvent(EventDraft):
    """A run event of a log. ``sequence`` counts from 1 over all runs, and may have gaps."""

    sequence: int = attrs.field(kw_only=True)


@attrs.frozen(slots=True)
class StoredEvent:
    """A run event as logs keep and streams send it: its JSON is made once and never taken apart.

    ``text`` is a JSON object of one line, ASCII, without the sequence.
    """

    sequence: int
    run_id: RunId
    text: str

    def is_of(self, event_types: Collection[str]) -> bool:
        """Whether it is of one of these types; the text begins with its type."""
        return self.text[_TYPE_AT : self.text.index('"', _TYPE_AT)] in event_types

    def frame(self) -> bytes:
        """The event as one server-sent event."""
        rest = self.text[1:]
        return f'id: {self.sequence}\ndata: {{"sequence":{self.sequence},{rest}\n\n'.encode()

    def event(self) -> RunEvent:
        """The event itself."""
        return event_from_json({**json.loads(self.text), "sequence": self.sequence})


_TYPE_AT: Final = len('{"event_type":"')


def stored_text(draft: EventDraft) -> str:
    """The text of a `StoredEvent`."""
    return json_text(
        {
            "event_type": draft.event_type,
            "run_id": draft.run_id,
            "event_id": draft.event_id,
            "occurred_at": draft.occurred_at,
            "ref_id": draft.ref_id,
            "execution_id": draft.execution_id,
            "payload": draft.payload,
        }
    )


def json_text(value: JsonValue) -> str:
    """JSON of one line in ASCII, so that half a character harms nobody.

    Raises:
        InvalidParamsError: there is a number in it that JSON does not have.
    """
    try:
        return _encode(value)
    except (ValueError, RecursionError) as fault:
        raise InvalidParamsError(
            "The payload cannot be written as JSON: it holds a number that is none, or is nested "
            "too deeply.",
            field="payload",
        ) from fault


# Made once: `json.dumps` makes an encoder for each call that is not by its defaults.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def object_from_text(text: str | bytes) -> JsonObject:
    """A JSON object.

    Raises:
        InvalidParamsError: it is none.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as fault:
        raise InvalidParamsError("The text is no JSON.", field="(body)") from fault
    if not isinstance(value, dict):
        raise InvalidParamsError("The text must be a JSON object.", field="(body)")
    return value


def draft_from_json(
    value: JsonValue, *, run_id: RunId | None = None, now: str | None = None
) -> EventDraft:
    """A publisher's event.

    ``run_id`` is the run that the address names: the item may leave it out, but not name another.
    ``now`` stands in for a time that the publisher left out.

    Raises:
        InvalidParamsError: names the field at fault.
    """
    if not isinstance(value, dict):
        raise InvalidParamsError("An event must be a JSON object.", field="(event)")
    event_type = value.get("event_type")
    if not isinstance(event_type, str) or not _TYPE.fullmatch(event_type):
        raise _bad("event_type", "a lower-case name of at most 64 letters")
    named = value.get("run_id", run_id)
    if run_id is not None and named != run_id:
        raise _bad("run_id", f"{run_id}, the run of the address")
    return EventDraft(
        event_type=event_type,
        run_id=RunId(checked_id(named, "run_id")),
        event_id=checked_id(value.get("event_id"), "event_id", chars_max=EVENT_ID_CHARS_MAX),
        occurred_at=_time(value.get("occurred_at", now)),
        ref_id=_optional_id(value, "ref_id", chars_max=EVENT_ID_CHARS_MAX),
        execution_id=_optional_id(value, "execution_id"),
        payload=_payload(value.get("payload", {})),
    )


def event_from_json(value: JsonValue) -> RunEvent:
    """An event of a stream.

    Raises:
        InvalidParamsError: names the field at fault.
    """
    draft = draft_from_json(value)
    assert isinstance(value, dict)
    sequence = checked_count(value.get("sequence"), "sequence")
    if sequence == 0:
        raise _bad("sequence", "a whole number from 1")
    return RunEvent(**attrs.asdict(draft, recurse=False), sequence=sequence)


def checked_id(value: JsonValue, field: str, *, chars_max: int = ID_CHARS_MAX) -> str:
    """An id: 1 to ``chars_max`` of the characters ``A-Z a-z 0-9 . _ : ~ @ + -``.

    Raises:
        InvalidParamsError: it is none.
    """
    if not isinstance(value, str) or len(value) > chars_max or not _ID.fullmatch(value):
        raise _bad(field, f"1 to {chars_max} letters, digits or any of . _ : ~ @ + -")
    return value


def checked_count(value: JsonValue, field: str) -> int:
    """A whole number from 0, as cursors are; at most what every log can hold.

    Raises:
        InvalidParamsError: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= COUNT_MAX:
        raise _bad(field, "a whole number from 0")
    return value


COUNT_MAX: Final = 2**53 - 1
"""Beyond it JSON's numbers, and those of Redis' scripts, are not exact any more."""


def _optional_id(value: JsonObject, field: str, *, chars_max: int = ID_CHARS_MAX) -> str | None:
    found = value.get(field)
    return None if found is None else checked_id(found, field, chars_max=chars_max)


def _time(value: JsonValue) -> str:
    if isinstance(value, str):
        try:
            if datetime.fromisoformat(value).tzinfo is not None:
                return value
        except ValueError:
            pass
    raise _bad("occurred_at", "an ISO 8601 time with an offset, like 2026-11-30T12:00:00Z")


def _payload(value: JsonValue) -> JsonObject:
    if not isinstance(value, dict):
        raise _bad("payload", "a JSON object")
    return value


def _bad(field: str, wanted: str) -> InvalidParamsError:
    return InvalidParamsError(f"The event's {field} must be {wanted}.", field=field)


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
