"""What went over one client's wire, in the client's own order, and which answer belongs to what.

Values only. A transcript is a list of `Entry`; `read` puts beside each message its kind, its
method (a response has that of its request) and the session that it concerns.
"""

import json
from collections.abc import Iterable
from typing import Literal

import attrs

from acp_bridge.vocabulary import JsonObject, JsonValue


@attrs.frozen(slots=True)
class Entry:
    """One message. ``run`` counts the agent's starts from 1; ``to`` is who gets it."""

    run: int
    to: Literal["agent", "client"]
    message: JsonObject


@attrs.frozen(slots=True)
class Line:
    """An entry with what its place in the transcript says about it.

    ``method`` is "" and ``request`` None for a response that answers nothing. ``session`` is the
    id that the message concerns: its own, that of its request, or the one it creates.
    ``withdrawn`` is the request that a `$/cancel_request` withdraws.
    """

    entry: Entry
    kind: Literal["request", "notification", "response"]
    method: str
    session: str | None
    request: JsonObject | None
    withdrawn: JsonObject | None = None

    @property
    def message(self) -> JsonObject:
        """The message itself."""
        return self.entry.message

    @property
    def params(self) -> JsonObject:
        """The parameters of a request or notification; {} if there are none."""
        return obj(self.message.get("params"))

    @property
    def update(self) -> JsonObject:
        """The update of a `session/update`; {} for anything else."""
        return obj(self.params.get("update")) if self.method == "session/update" else {}


def obj(value: JsonValue) -> JsonObject:
    """The value if it is an object, else {}."""
    return value if isinstance(value, dict) else {}


def arr(value: JsonValue) -> list[JsonValue]:
    """The value if it is a list, else []."""
    return value if isinstance(value, list) else []


def text_or_none(value: JsonValue) -> str | None:
    """The value if it is a string."""
    return value if isinstance(value, str) else None


def child_of(update: JsonObject) -> str | None:
    """The subagent whose work an update on the root's session shows."""
    return text_or_none(obj(obj(update.get("_meta")).get("acp-bridge")).get("childSessionId"))


def at(value: JsonValue, path: str) -> JsonValue:
    """The member at a dotted path; list items by number.

    Raises:
        KeyError: there is no such member.
    """
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise KeyError(path)
    return value


def entries_from_trace(text: str) -> list[Entry]:
    """What ``acp-bridge --trace FILE`` wrote, as a transcript; each `initialize` begins a run.

    Only for a file that one process after another wrote: two at once cannot be told apart.
    """
    entries: list[Entry] = []
    run = 0
    for line in text.splitlines():
        record: JsonObject = json.loads(line)
        message = obj(record.get("message"))
        run += message.get("method") == "initialize"
        entries.append(Entry(run, "agent" if record.get("dir") == "in" else "client", message))
    return entries


def read(entries: Iterable[Entry]) -> list[Line]:
    """Every entry with its kind, method, session and, for a response, its request."""
    pending: dict[tuple[str, str], JsonObject] = {}
    lines: list[Line] = []
    run = 0
    for entry in entries:
        if entry.run != run:
            run = entry.run
            pending.clear()
        message = entry.message
        method = text_or_none(message.get("method"))
        if method is None:
            lines.append(_response(entry, pending.pop(_key(entry.to, message), None)))
            continue
        params = obj(message.get("params"))
        session = text_or_none(params.get("sessionId", params.get("parentSessionId")))
        answer_goes_to = "client" if entry.to == "agent" else "agent"
        withdrawn: JsonObject = {}
        if method == "$/cancel_request":
            named = {"id": obj(message.get("params")).get("requestId")}
            withdrawn = obj(pending.get(_key(answer_goes_to, named)))
            session = text_or_none(obj(withdrawn.get("params")).get("sessionId"))
        if "id" not in message:
            lines.append(Line(entry, "notification", method, session, None, withdrawn or None))
            continue
        pending[_key(answer_goes_to, message)] = message
        lines.append(Line(entry, "request", method, session, None))
    return lines


def _key(answer_goes_to: str, message: JsonObject) -> tuple[str, str]:
    return answer_goes_to, repr(message.get("id"))


def _response(entry: Entry, request: JsonObject | None) -> Line:
    if request is None:
        return Line(entry, "response", "", None, None)
    asked = text_or_none(obj(request.get("params")).get("sessionId"))
    created = text_or_none(obj(entry.message.get("result")).get("sessionId"))
    return Line(entry, "response", str(request["method"]), created or asked, request)
