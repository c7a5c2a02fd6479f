"""What a session remembers of its own log: a fold that the loop asks instead of re-reading rows.

Rows before the inherited cut belong to another session: they shape the model's view, but grants,
place and position count from the cut on (``session/end-seed {inherited: true}``).
"""

import re
from collections.abc import Iterable

from acp_bridge.harness.modes import mode_from_log
from acp_bridge.vocabulary import Event, JsonObject, JsonValue, Mode

PLACE_ROW = "plugin:acp-bridge/place"
GRANT_ROW = "plugin:acp-bridge/grant"
NOTICE_ROW = "plugin:acp-bridge/notice"
SCRIPTED = "scripted"
_PLACE = re.compile(r"[1-9][0-9]{0,8}(?:/[1-9][0-9]{0,8})*")


class SessionMemory:
    """The fold. Attributes are read by the loop, written by `apply` alone."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.request_header: JsonObject | None = None
        """The last ``request/header`` row's header."""
        self.request_context: JsonObject | None = None
        self.title: str | None = None
        self.place: str | None = None
        """The asker's place that the log records, None if it records none."""
        self.position = 0
        """Model calls under a scripted request header in the session's own range."""
        self.grants: set[str] = set()
        self.sets_up = False
        """Whether the birth rows ([preset], sandbox, policy) are written."""
        self.selection: JsonObject | None = None
        """The last choice of a model: ``{provider, model, reasoningEffort?}``."""
        self.sandbox: str | None = None
        self.policy: str | None = None
        self.planning = False
        for event in events:
            self.apply(event)
        self.reopened = self.request_header is not None

    def header_reason(self, header: JsonObject) -> str | None:
        """Why this header must be logged before the next request, None if it need not be."""
        if self.request_header is None:
            return "initial"
        if self.reopened:
            return "resume"
        return "change" if header != self.request_header else None

    @property
    def mode(self) -> Mode | None:
        """The permission mode that the log amounts to, None where it says nothing of one."""
        if self.sandbox is None and self.policy is None and not self.planning:
            return None
        return mode_from_log(self.sandbox, self.policy, planning=self.planning)

    def apply(self, event: Event) -> None:
        """Fold one event."""
        fold = _FOLDS.get(event.type)
        if fold is not None and isinstance(event.data, dict):
            fold(self, event.data)


def _header(memory: SessionMemory, data: JsonObject) -> None:
    memory.reopened = False
    header = data.get("header")
    if isinstance(header, dict):
        memory.request_header = header
        config = header.get("config")
        if isinstance(config, dict):
            memory.selection = config


def _context(memory: SessionMemory, data: JsonObject) -> None:
    memory.request_context = data


def _title(memory: SessionMemory, data: JsonObject) -> None:
    title = data.get("title")
    memory.title = title if isinstance(title, str) else None


def _answered(memory: SessionMemory, _data: JsonObject) -> None:
    config = (memory.request_header or {}).get("config")
    if isinstance(config, dict) and config.get("provider") == SCRIPTED:
        memory.position += 1


def _place(memory: SessionMemory, data: JsonObject) -> None:
    place = data.get("place")
    memory.place = place if isinstance(place, str) and _PLACE.fullmatch(place) else None


def _grant(memory: SessionMemory, data: JsonObject) -> None:
    grant: JsonValue = data.get("grant")
    if isinstance(grant, str):
        memory.grants.add(grant)


def _seed_end(memory: SessionMemory, data: JsonObject) -> None:
    if data.get("inherited") is True:
        memory.place = None
        memory.position = 0
        memory.grants.clear()


def _birth(memory: SessionMemory, _data: JsonObject) -> None:
    memory.sets_up = True


def _sandbox(memory: SessionMemory, data: JsonObject) -> None:
    memory.sets_up = True  # a subagent's log has no preset
    memory.sandbox = str(data.get("mode"))


def _policy(memory: SessionMemory, data: JsonObject) -> None:
    memory.policy = str(data.get("policy"))


def _planning(memory: SessionMemory, data: JsonObject) -> None:
    memory.planning = data.get("active") is True


def _selection(memory: SessionMemory, data: JsonObject) -> None:
    memory.selection = data


_FOLDS = {
    "request/header": _header,
    "request/context": _context,
    "session/title": _title,
    "assistant/message": _answered,
    "assistant/attempt": _answered,
    "session/end-seed": _seed_end,
    "permission/preset": _birth,
    "sandbox/mode": _sandbox,
    "approval/policy": _policy,
    "plan/mode": _planning,
    "model/selection": _selection,
    PLACE_ROW: _place,
    GRANT_ROW: _grant,
}
