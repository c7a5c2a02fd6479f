"""`LogState`: one row at a time, is the log still sound, and what does it amount to?

The table below sends each type to its rule. A known type that is in no table is free-form: the
reader asks only that it carries no surface op (``dsh-events`` section 1).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from acp_bridge.errors import SessionCorruptError, SessionUnsupportedError
from acp_bridge.sessions.events import KNOWN_TYPES, RETIRED_TYPES, SURFACE_TYPES
from acp_bridge.sessions.validation import folds, lifecycle, messages
from acp_bridge.sessions.validation.state import State, refuse
from acp_bridge.vocabulary import Event, JsonObject

_Rule = Callable[[State, Event, JsonObject], None]

_RULES: Final[Mapping[str, _Rule]] = {
    "turn/start": lifecycle.turn_start,
    "turn/end": lifecycle.turn_end,
    "step/start": lifecycle.step_start,
    "step/end": lifecycle.step_end,
    "session/end-seed": lifecycle.end_seed,
    "agent/inbox/spliced": lifecycle.inbox_spliced,
    "request/header": lifecycle.request_header,
    "request/context": lifecycle.request_context,
    "llm/retry": lifecycle.llm_retry,
    "llm/retry-started": lifecycle.llm_retry_started,
    "assistant/attempt": lifecycle.assistant_attempt,
    "system/message": messages.system_message,
    "user/message": messages.user_message,
    "developer/message": messages.developer_message,
    "assistant/message": messages.assistant_message,
    "tool/call": messages.tool_call,
    "tool/result": messages.tool_result,
    "tool/ptc-dispatch-start": messages.ptc_start,
    "tool/ptc-dispatch": messages.ptc_end,
    "compaction/start": folds.compaction_start,
    "compaction/summary": folds.compaction_summary,
    "compaction/end": folds.compaction_end,
    "compaction/prune": folds.compaction_prune,
    "command/run": folds.command_run,
    "command/done": folds.command_done,
    "session/title": folds.title,
    "session/title-llm-request": folds.title_request,
    "image/offload": folds.image_offload,
    "subagent/catalog": folds.catalog,
    "subagent/model-selection-policy": folds.model_policy,
    "team/message/queued": folds.team_message,
    "session-log-deepseek/delivery-accepted": lifecycle.delivery_accepted,
}

_LENIENT: Final = "team/message/queued"
"""The type whose rule says nothing about data that is no object."""

_NOT_NULL: Final = frozenset(
    {
        "permission/preset",
        "sandbox/mode",
        "approval/policy",
        "plan/mode",
        "working-directory/change",
        "todo/write",
    }
)


class LogState(State):
    """The fold of a log, from row 0.

    `apply` raises as soon as a row cannot be right; what only the end of the log can tell is
    raised by `settle` and `require_supported`. After a raise the state is void until `rebuild`.
    """

    def apply(self, event: Event) -> None:
        """Take the next row.

        Raises:
            SessionCorruptError: the row is not sound here; the text names the seq.
            SessionUnsupportedError: the row is of a type that needs a migration.
        """
        kind, data = event.type, event.data
        if event.seq != self.next_seq:
            refuse(event.seq, f"the row does not follow seq {self.next_seq - 1}")
        if (
            (event.surface_op is not None or event.source_event_seqs is not None)
            and kind in KNOWN_TYPES
            and kind not in SURFACE_TYPES
        ):
            refuse(event.seq, f"{kind} with a surfaceOp or sourceEventSeqs")
        rule = _RULES.get(kind)
        if rule is not None:
            if type(data) is dict:
                rule(self, event, data)
            elif kind != _LENIENT:
                refuse(event.seq, f"{kind} whose data is not an object")
        elif kind not in KNOWN_TYPES:
            self._take_unknown(event)
        elif data is None and kind in _NOT_NULL:
            refuse(event.seq, f"{kind} without data")
        self.next_seq += 1
        self.last_seqs[kind] = event.seq
        self.last = event

    def _take_unknown(self, event: Event) -> None:
        if event.ignorable:
            return
        why = f"seq {event.seq} is of the unknown type {event.type!r:.80}"
        if event.type in RETIRED_TYPES:
            raise SessionUnsupportedError(why)
        # Damage further on would be the better answer, so the verdict waits for the end.
        self.unsupported = self.unsupported or why

    def settle(self) -> None:
        """The log ends here for now: check what only its end can tell. May be called again.

        Raises:
            SessionCorruptError: the inherited marker is missing, a turn boundary lies inside a
                compaction that no end-seed made an orphan, or an own row breaks an own-range rule.
        """
        if self.header.is_seeded and not self.has_marker:
            raise SessionCorruptError("a seeded session without an inherited end-seed")
        if self.own_fault is not None:
            raise SessionCorruptError(self.own_fault)
        if self.compaction is not None and self.compaction.crossed_seq is not None:
            refuse(self.compaction.crossed_seq, "a turn boundary inside a compaction")
        self.settled = True

    def require_supported(self) -> None:
        """Refuse a sound log that holds rows of a newer reader.

        Raises:
            SessionUnsupportedError: the text names the first such row.
        """
        if self.unsupported is not None:
            raise SessionUnsupportedError(self.unsupported)

    def rebuild(self, events: Iterable[Event]) -> None:
        """Start again from rows that were sound before."""
        self.__init__(self.header)  # type: ignore[misc]  # in place: others hold this object
        for event in events:
            self.apply(event)
        if self.next_seq:
            self.settle()
