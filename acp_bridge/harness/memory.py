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
STOPPED_ROW = "plugin:acp-bridge/stopped"
"""A subagent was ended between its turns, while it was held for subagents of its own: no turn of it
says so."""
SUMMARY_RETRY_ROW = "plugin:acp-bridge/summary-retry"
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
        self.summaries = 0
        """As ``position``, of the calls that were to write a summary."""
        self.is_cut = False
        """Whether rows were replaced by shorter ones since the last request header."""
        self.grants: set[str] = set()
        self.sets_up = False
        """Whether the birth rows ([preset], sandbox, policy) are written."""
        self.selection: JsonObject | None = None
        """The last choice of a model: ``{provider, model, reasoningEffort?}``."""
        self.sandbox: str | None = None
        self.policy: str | None = None
        self.planning = False
        self.folder: str | None = None
        """Where the tools work, None: in the session's own folder."""
        for event in events:
            self.apply(event)
        self.reopened = self.request_header is not None

    def header_reason(self, header: JsonObject) -> str | None:
        """Why this header must be logged before the next request, None if it need not be."""
        if self.request_header is None:
            return "initial"
        if self.reopened:
            return "resume"
        if header != self.request_header:
            return "change"
        return "series" if self.is_cut else None

    @property
    def mode(self) -> Mode | None:
        """The permission mode that the log amounts to, None where it says nothing of one."""
        if self.sandbox is None and self.policy is None and not self.planning:
            return None
        return mode_from_log(self.sandbox, self.policy, planning=self.planning)

    def apply(self, event: Event) -> None:
        """Fold one event."""
        if isinstance(event.surface_op, tuple) and event.type != "system/message":
            self.is_cut = True
        fold = _FOLDS.get(event.type)
        if fold is not None and isinstance(event.data, dict):
            fold(self, event.data)


def _header(memory: SessionMemory, data: JsonObject) -> None:
    memory.reopened = memory.is_cut = False
    header = data.get("header")
    if isinstance(header, dict):
        memory.request_header = header
        memory.selection = _selected(header) or memory.selection


def _selected(header: JsonObject) -> JsonObject | None:
    """What a request header says was chosen: an effort that the runtime filled in was not."""
    config, defaults = header.get("config"), header.get("adapterDefaults")
    if not isinstance(config, dict):
        return None
    is_filled = isinstance(defaults, dict) and defaults.get("reasoningEffort") is True
    return {
        key: value for key, value in config.items() if key != "reasoningEffort" or not is_filled
    }


def _context(memory: SessionMemory, data: JsonObject) -> None:
    memory.request_context = data


def _title(memory: SessionMemory, data: JsonObject) -> None:
    title = data.get("title")
    memory.title = title if isinstance(title, str) else None


def _answered(memory: SessionMemory, _data: JsonObject) -> None:
    if _is_scripted(memory):
        memory.position += 1


def _summarized(memory: SessionMemory, _data: JsonObject) -> None:
    if _is_scripted(memory):
        memory.summaries += 1


def _is_scripted(memory: SessionMemory) -> bool:
    config = (memory.request_header or {}).get("config")
    return isinstance(config, dict) and config.get("provider") == SCRIPTED


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
        memory.position = memory.summaries = 0
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


def _moved(memory: SessionMemory, data: JsonObject) -> None:
    folder = data.get("cwd")
    memory.folder = folder if isinstance(folder, str) and folder.startswith("/") else None


def _selection(memory: SessionMemory, data: JsonObject) -> None:
    memory.selection = data


_FOLDS = {
    "request/header": _header,
    "request/context": _context,
    "session/title": _title,
    "assistant/message": _answered,
    "assistant/attempt": _answered,
    "compaction/end": _summarized,
    SUMMARY_RETRY_ROW: _summarized,
    "session/end-seed": _seed_end,
    "permission/preset": _birth,
    "sandbox/mode": _sandbox,
    "approval/policy": _policy,
    "plan/mode": _planning,
    "model/selection": _selection,
    "working-directory/change": _moved,
    PLACE_ROW: _place,
    GRANT_ROW: _grant,
}
