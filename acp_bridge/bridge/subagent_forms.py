"""The two forms in which a client sees subagents: sessions of their own, or tool calls. Pure.

Native (ACP v1, Subagents): a subagent is announced on its parent's session before anything bears
its id, its own updates come under that id, and its state is told on the parent. The call that
started it stays what it is, a call of the parent that is over when the subagent has started.

Fallback: all is on the root's session. One tool call shows one run from its start to its end, the
call that started it where the root made that one; else an entry of its own, since a subagent's
calls are not shown. Only those of its calls that the user is asked about stand beside it, and what
is said of it beside its work, under its name.
"""

import json
from collections.abc import Iterable
from typing import Literal

from acp_bridge.acp.types import (
    AgentMessageChunk,
    AgentThoughtChunk,
    ContentBlock,
    Error,
    IdleStateUpdate,
    Notice,
    RequiresActionStateUpdate,
    RunningStateUpdate,
    SessionCancelCapabilities,
    SessionMessage,
    SessionMessageChunk,
    SessionUpdate,
    StateUpdate,
    SubagentSessionCapabilities,
    SubagentUpdate,
    TextContent,
    ToolCall,
    ToolCallUpdate,
)
from acp_bridge.bridge import tool_calls
from acp_bridge.bridge.notices import NOTICE_ROWS, of_subagent
from acp_bridge.bridge.projector import TEXT_CHARS_MAX, ChildLook, ShownCall
from acp_bridge.bridge.subagent_family import Asked, Child, Family, Form, Shown
from acp_bridge.errors import ModelFailedError
from acp_bridge.vocabulary import (
    CallId,
    ChildFinished,
    ChildMessaged,
    ChildStarted,
    Event,
    JsonObject,
    OwnEvent,
    SessionId,
    TurnEnd,
)

STOP_REASONS = {
    "completed": "end_turn",
    "max-tokens": "max_tokens",
    "step-limit": "max_turn_requests",
    "refusal": "refusal",
    "aborted": "cancelled",
    "error": "error",
}
"""ACP's words for a subagent's end; unlike a prompt's, a failure has one too."""

_ENDS = {
    "max-tokens": "The subagent stopped at its token limit.",
    "step-limit": "The subagent stopped at its limit of steps.",
    "refusal": "The model refused to go on.",
    "aborted": "The subagent was cancelled.",
    "error": "The subagent failed.",
}
"""What a person reads under a subagent's work that was not completed."""


def form_of(family: Family) -> Form:
    """The form that the client takes."""
    return _Native(family) if family.view.native_subagents else _Fallback(family)


class _Native:
    """Subagents as sessions."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def look(self, _child_id: SessionId) -> ChildLook:
        return ChildLook()

    def started(self, child: Child, event: ChildStarted) -> Iterable[Shown]:
        call = self._family.projector(event.parent_id).shown_call(event.call_id)
        child.is_waited = call is not None and call.look.raw_input.get("wait") is True
        yield from self._told(child, RunningStateUpdate())
        yield from self._message(child, event.parent_id, event.task)

    def said(self, child: Child, _event: OwnEvent, updates: list[SessionUpdate]) -> Iterable[Shown]:
        return [(child.session_id, update) for update in updates]

    def messaged(self, child: Child, event: ChildMessaged) -> Iterable[Shown]:
        return self._message(child, event.parent_id, event.text)

    def finished(self, child: Child, event: ChildFinished) -> Iterable[Shown]:
        yield from _cut_off(child.session_id, child.projector.open_calls())
        if event.answer and not child.is_waited:  # else it is the parent's tool result
            message_id = f"{child.session_id}.{child.runs}"
            content = _parts(event.answer)
            yield from _between(
                child.parent_id, message_id, child.session_id, child.parent_id, content
            )
        yield from self._told(child, _idle(event.end))

    def waits(self, child: Child, *, for_user: bool) -> Iterable[Shown]:
        state = RequiresActionStateUpdate() if for_user else RunningStateUpdate()
        return self._told(child, state)

    def again(self, child: Child) -> Iterable[Shown]:
        if child.state == "idle":
            return self._told(child, IdleStateUpdate())
        return self._told(
            child, RequiresActionStateUpdate() if child.asking else RunningStateUpdate()
        )

    def asked(self, child: Child, call: ShownCall) -> Asked | None:
        return Asked(child.session_id, call, call.look.title)

    def closed(self, child: Child) -> Iterable[Shown]:
        return [(child.session_id, update) for update in child.projector.finish_replay()]

    def unfinished(self, child: Child) -> Iterable[Shown]:
        return [(child.session_id, update) for update in child.projector.unfinished()]

    def _told(self, child: Child, state: StateUpdate) -> Iterable[Shown]:
        """A change of state on the parent; whoever is not announced is announced by it."""
        update = SubagentUpdate(session_id=child.session_id, state=state)
        if not child.announced:
            parent = self._family.children.get(child.parent_id)
            if parent is not None and not parent.announced:
                yield from self.again(parent)
            child.announced = True
            update.title = child.label
            if child.cwd != self._family.cwd(child.parent_id):
                update.cwd = str(child.cwd)
            if not self._family.replay:  # what is past cannot be cancelled
                cancel = SessionCancelCapabilities()
                update.capabilities = SubagentSessionCapabilities(cancel=cancel)
        yield child.parent_id, update

    def _message(self, child: Child, sender: SessionId, text: str) -> Iterable[Shown]:
        """What the parent told the child, in the child's own transcript."""
        message_id = f"{child.runs}.{child.messages}.told"
        return _between(child.session_id, message_id, sender, child.session_id, _parts(text))


class _Fallback:
    """Subagents as tool calls of the root."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def look(self, child_id: SessionId) -> ChildLook:
        return ChildLook(id_prefix=f"{child_id}/", terminals=True)

    def started(self, child: Child, event: ChildStarted) -> Iterable[Shown]:
        child.progress = ""
        if child.runs == 1 and event.parent_id == self._family.root_id:
            yield from self._claimed(child, event)
        if child.entry is None:
            child.entry = f"{child.session_id}.{child.runs}"
            yield self._on_root(
                ToolCall(
                    tool_call_id=child.entry,
                    title=tool_calls.subagent_title(child.label),
                    name="subagent",
                    kind="think",
                    status="in_progress",
                    raw_input=_task(event),
                ),
                self._lineage(child),
            )

    def said(self, child: Child, event: OwnEvent, updates: list[SessionUpdate]) -> Iterable[Shown]:
        if isinstance(event, Event) and event.type in NOTICE_ROWS:
            yield from self._noticed(child, updates)
            return
        if isinstance(event, Event) and _asks_user(event):
            yield from self._beside(child, event)
        for update in updates:
            if isinstance(update, ToolCallUpdate) and update.tool_call_id in child.flat:
                yield self._on_root(update, self._lineage(child))
            progress = _progress(update)
            if progress is not None:
                yield from self._progressed(child, progress)

    def messaged(self, child: Child, _event: ChildMessaged) -> Iterable[Shown]:
        return self._progressed(child, "was told more")

    def finished(self, child: Child, event: ChildFinished) -> Iterable[Shown]:
        still_open = [call for call in child.flat.values() if call in child.projector.open_calls()]
        for session_id, update in _cut_off(self._family.root_id, still_open):
            yield session_id, _with_meta(update, self._lineage(child))
        if child.entry is None:
            return
        status: Literal["completed", "failed"] = (
            "completed" if event.end.kind == "completed" else "failed"
        )
        raw_output: JsonObject = {
            "childSessionId": child.session_id,
            "stopReason": STOP_REASONS[event.end.kind],
        }
        text = "\n\n".join(part for part in (event.answer, _ending(event.end)) if part)
        update = ToolCallUpdate(
            tool_call_id=child.entry,
            title=tool_calls.subagent_title(child.label),
            status=status,
            content=[tool_calls.text_content(text)] if text else None,
            raw_output=raw_output,
        )
        if child.own_call is not None:
            child.own_call.status = status
        child.entry, child.own_call = None, None
        yield self._on_root(update, self._lineage(child))

    def waits(self, child: Child, *, for_user: bool) -> Iterable[Shown]:
        return self._progressed(child, "waits for your answer" if for_user else "goes on")

    def again(self, _child: Child) -> Iterable[Shown]:
        return ()

    def asked(self, child: Child, call: ShownCall) -> Asked | None:
        if call.acp_id not in child.flat:
            return None
        title = tool_calls.owned_title(call.look.title, call.look.kind, child.label)
        asker = tool_calls.short_label(child.label) or "A subagent"
        return Asked(self._family.root_id, call, title, self._lineage(child), asker)

    def closed(self, _child: Child) -> Iterable[Shown]:
        return ()

    def unfinished(self, _child: Child) -> Iterable[Shown]:
        return ()

    def _claimed(self, child: Child, event: ChildStarted) -> Iterable[Shown]:
        """Let the root's own call show the run, if it is to be had."""
        root = self._family.root
        call = root.claim(event.call_id)
        if call is not None:
            title = tool_calls.subagent_title(child.label)
            update = ToolCallUpdate(tool_call_id=call.acp_id, title=title, status="in_progress")
            yield self._on_root(update, self._lineage(child))
        elif event.call_id and root.shown_call(event.call_id) is None:
            # It comes before its own row, which will find it shown.
            early = root.announce(event.call_id, "subagent", json.dumps(_task(event)))
            call = root.claim(event.call_id)
            yield self._on_root(early, self._lineage(child))
        child.own_call = call
        child.entry = None if call is None else call.acp_id

    def _beside(self, child: Child, event: Event) -> Iterable[Shown]:
        """Show the call that the user is about to be asked for."""
        call_id = event.data.get("callId") if isinstance(event.data, dict) else None
        call = child.projector.shown_call(CallId(str(call_id)))
        if call is None or call.acp_id in child.flat:
            return
        child.flat[call.acp_id] = call
        update = child.projector.announcement(call)
        update.title = tool_calls.owned_title(call.look.title, call.look.kind, child.label)
        yield self._on_root(update, self._lineage(child))

    def _noticed(self, child: Child, updates: list[SessionUpdate]) -> Iterable[Shown]:
        name = tool_calls.subagent_title(child.label)
        for update in updates:
            told = of_subagent(update, child.session_id, name)
            yield self._on_root(told, self._lineage(child))

    def _progressed(self, child: Child, progress: str) -> Iterable[Shown]:
        if child.entry is None or progress == child.progress or self._family.replay:
            return
        child.progress = progress
        title = tool_calls.subagent_title(child.label, progress)
        update = ToolCallUpdate(tool_call_id=child.entry, title=title, status="in_progress")
        yield self._on_root(update, self._lineage(child))

    def _lineage(self, child: Child) -> JsonObject:
        """Who the child is, and under which entry it stands; kept small, it comes often."""
        family = self._family
        ours: JsonObject = {
            "childSessionId": child.session_id,
            "parentSessionId": child.parent_id,
            "rootSessionId": family.root_id,
            "depth": child.depth,
        }
        meta: JsonObject = {"acp-bridge": ours}
        parent = family.children.get(child.parent_id)
        above = None if parent is None else parent.entry
        if above is not None:
            ours["parentToolCallId"] = above
            meta["claudeCode"] = {"parentToolUseId": above}
        return meta

    def _on_root(self, update: SessionUpdate, meta: JsonObject) -> Shown:
        return self._family.root_id, _with_meta(update, meta)


def _asks_user(event: Event) -> bool:
    """Whether the user is about to be asked something about a call, or by one."""
    if event.type == "tool/call":
        return isinstance(event.data, dict) and event.data.get("name") == tool_calls.ASKING
    return event.type == "approval/asked"


def _with_meta(update: SessionUpdate, meta: JsonObject) -> SessionUpdate:
    assert isinstance(update, ToolCall | ToolCallUpdate | AgentThoughtChunk | Notice)
    update.meta = {**(update.meta or {}), **meta}
    return update


def _cut_off(session_id: SessionId, calls: list[ShownCall]) -> Iterable[Shown]:
    """End calls that their session left open: its log was cut off."""
    for call in calls:
        call.status = "failed"
        yield session_id, ToolCallUpdate(tool_call_id=call.acp_id, status="failed")


def _between(
    where: SessionId,
    message_id: str,
    sender: SessionId,
    recipient: SessionId,
    content: list[ContentBlock],
) -> Iterable[Shown]:
    """A message between sessions; what does not fit on one line of the wire follows in chunks."""
    first, *rest = content
    yield (
        where,
        SessionMessage(
            message_id=message_id,
            sender_session_id=sender,
            recipient_session_id=recipient,
            content=[first],
        ),
    )
    for part in rest:
        yield where, SessionMessageChunk(message_id=message_id, content=part)


def _parts(text: str) -> list[ContentBlock]:
    starts = range(0, max(1, len(text)), TEXT_CHARS_MAX)
    return [TextContent(text=text[start : start + TEXT_CHARS_MAX]) for start in starts]


def _idle(end: TurnEnd) -> StateUpdate:
    state = IdleStateUpdate(stop_reason=STOP_REASONS[end.kind])
    if end.kind == "error":
        state.error = Error(code=ModelFailedError.code, message=end.details or _ENDS["error"])
    return state


def _ending(end: TurnEnd) -> str | None:
    """A sentence on how it ended, unless it ended well."""
    sentence = _ENDS.get(end.kind)
    return f"{sentence} {end.details}" if sentence and end.details else sentence


def _task(event: ChildStarted) -> JsonObject:
    return {"description": event.label, "prompt": event.task}


def _progress(update: SessionUpdate) -> str | None:
    """What a subagent does now, in a few words."""
    match update:
        case ToolCall():
            return update.title.replace("`", "")
        case AgentMessageChunk():
            return "answers"
        case AgentThoughtChunk():
            return "thinks"
        case _:
            return None
