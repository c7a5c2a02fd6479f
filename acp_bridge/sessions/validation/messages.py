"""The surface: which rows the model sees, and the messages and tool rows on it.

Order on the surface is position, never number: a row that replaces others takes their place, so
the list of seqs does not stay sorted (``dsh-events`` sections 1.2 and 2).
"""

import re
from typing import Final

from acp_bridge.sessions.header import count
from acp_bridge.sessions.validation.blocks import (
    check_message,
    check_no_wrapper,
    check_stream,
    content_of,
    message_of,
    source_of,
)
from acp_bridge.sessions.validation.state import (
    PendingCall,
    State,
    need_step,
    need_turn,
    nonempty,
    refuse,
)
from acp_bridge.vocabulary import Event, JsonObject, JsonValue

NOT_STARTED_TEXT: Final = (
    "The tool call was interrupted before the Harness recorded it as started. "
    "Retry it if it is still needed."
)
"""The runtime's fixed sentence: only with it may a result stand without its ``tool/call``."""

NOT_STARTED_ERROR: Final[JsonObject] = {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}

_FORKED_ID = re.compile(r"forked-tool-result-(.*)-([0-9]{1,16})", re.DOTALL)
_INTERRUPTED_ID = re.compile(r"interrupted-tool-result-(.*)-[0-9]+", re.DOTALL)
_BLOCK_FIELDS = {
    "text": ("text",),
    "reasoning": ("text",),
    "tool-call": ("id", "name", "arguments"),
}


def span(state: State, seq: int, start: JsonValue, end: JsonValue) -> tuple[int, int]:
    """First and one-past-last position of the surface slice between two rows, both included."""
    first_seq, last_seq = count(start), count(end)
    if first_seq not in state.surface_rows or last_seq not in state.surface_rows:
        refuse(seq, f"{start!r:.20} to {end!r:.20} is no part of what the model sees")
    first, last = state.surface.index(first_seq), state.surface.index(last_seq)
    if first > last:
        refuse(seq, f"{start!r:.20} comes after {end!r:.20} in what the model sees")
    return first, last + 1


def _place(state: State, event: Event) -> None:
    """Append the row to the surface, or put it in the place of the rows it replaces."""
    op, sources = event.surface_op, event.source_event_seqs
    if sources == ():
        refuse(event.seq, "sourceEventSeqs is empty")
    if op == "append":
        state.surface.append(event.seq)
    elif isinstance(op, tuple):
        first, end = span(state, event.seq, *op)
        gone = state.surface[first:end]
        if not set(gone).issubset(sources or ()):
            refuse(event.seq, "sourceEventSeqs does not name every row that is replaced")
        alone = end == 1 and event.type == "system/message"
        if first == 0 and state.has_system_head and not alone:
            refuse(event.seq, "the system message at the head may only be replaced by another")
        state.surface[first:end] = [event.seq]
        for seq in gone:
            del state.surface_rows[seq]
            state.offloaded.pop(seq, None)
    else:
        refuse(event.seq, f"{event.type} without a surfaceOp")
    state.surface_rows[event.seq] = event


def system_message(state: State, event: Event, data: JsonObject) -> None:
    """The head, a replacement of it, or a later one behind a head."""
    need_step(state, event, data)
    message = check_message(event, data.get("message"), "system")
    if source_of(message)["kind"] != "system-prompt":
        refuse(event.seq, "system/message whose source is not the system prompt")
    for block in content_of(message):
        _check_fields(event.seq, block)
    had_head = state.has_system_head or not state.surface
    _place(state, event)
    if not had_head and state.surface[0] != event.seq:
        refuse(event.seq, "a system message although the first message is none")


def _check_fields(seq: int, block: JsonValue) -> None:
    """Only here does the reader look at the fields of content blocks."""
    assert isinstance(block, dict)
    kind = block.get("type")
    if kind == "image":
        if type(block.get("attachment")) is not dict:
            refuse(seq, "an image block without an attachment")
        return
    for name in _BLOCK_FIELDS.get(kind, ()) if type(kind) is str else ():
        if type(block.get(name)) is not str:
            refuse(seq, f"a {kind} block without {name}")


def user_message(state: State, event: Event, data: JsonObject) -> None:
    """Any message to the model; a replacing checkpoint fits the open compaction."""
    message = check_message(event, data, "user")
    source = source_of(message)
    kind = source["kind"]
    if kind == "compact-checkpoint" and event.surface_op != "append":
        _check_checkpoint(state, event.seq, source)
    _place(state, event)
    if kind == "user":
        state.human_seqs.add(event.seq)


def _check_checkpoint(state: State, seq: int, source: JsonObject) -> None:
    compaction = state.compaction
    if (
        compaction is None
        or source.get("compactionId") != compaction.compaction_id
        or source.get("sourceCommandId") != compaction.command_id
    ):
        refuse(seq, "the checkpoint belongs to no open compaction")


def developer_message(state: State, event: Event, data: JsonObject) -> None:
    """Tool changes; each added tool is defined once by the named header."""
    need_step(state, event, data)
    message = check_message(event, data.get("message"), "developer")
    if source_of(message)["kind"] != "tool-registry":
        refuse(event.seq, "developer/message whose source is not the tool registry")
    added: list[str] = []
    for block in content_of(message):
        assert isinstance(block, dict)
        name, kind = block.get("toolName"), block.get("type")
        if kind not in ("tool-addition", "tool-removal") or not nonempty(name) or "tool" in block:
            refuse(event.seq, "developer/message with a malformed tool change")
        if kind == "tool-addition":
            added.append(name)
    if bool(added) != ("headerSeq" in data):
        refuse(event.seq, "headerSeq and tool additions do not go together")
    for name in added:
        _check_addition(state, event.seq, count(data.get("headerSeq")), name)
    _place(state, event)


def _check_addition(state: State, seq: int, header_seq: int | None, name: str) -> None:
    header = state.headers.get(header_seq) if header_seq is not None else None
    tools = header.get("tools", []) if header is not None else []
    assert isinstance(tools, list)
    named = [tool for tool in tools if isinstance(tool, dict) and tool.get("name") == name]
    if (
        len(named) != 1
        or type(named[0].get("description")) is not str
        or type(named[0].get("parameters")) is not dict
    ):
        refuse(seq, f"the added tool {name!r:.60} is not defined by the named request/header")


def assistant_message(state: State, event: Event, data: JsonObject) -> None:
    """In the open step; its tool calls wait for their start and result."""
    need_step(state, event, data)
    message = check_message(event, data.get("message"), "assistant")
    source = source_of(message)
    if (
        source["kind"] != "model"
        or not nonempty(source.get("provider"))
        or not nonempty(source.get("model"))
    ):
        refuse(event.seq, "assistant/message whose source is not a model")
    if event.source_event_seqs is not None:
        refuse(event.seq, "assistant/message with sourceEventSeqs")
    if type(data.get("stream")) is not list:
        refuse(event.seq, "assistant/message without a stream")
    if data.get("usage", {}) is None:
        refuse(event.seq, "assistant/message whose usage is null")
    check_stream(event.seq, data["stream"])
    for block in content_of(message):
        assert isinstance(block, dict)
        if block.get("type") == "tool-call":
            call_id = block.get("id")
            if not nonempty(call_id) or call_id in state.pending:
                refuse(event.seq, "a tool call without an id of its own")
            state.pending[call_id] = PendingCall(call_id, block.get("name"), block.get("arguments"))
    _place(state, event)


def tool_call(state: State, event: Event, data: JsonObject) -> None:
    """Starts a waiting call, word for word."""
    need_step(state, event, data)
    call_id = data.get("callId")
    call = state.pending.get(call_id) if nonempty(call_id) else None
    if call is None or call.started_seq is not None:
        refuse(event.seq, f"tool/call {call_id!r:.100} does not wait to be started")
    if data.get("name") != call.name or data.get("arguments") != call.arguments:
        refuse(event.seq, f"tool/call {call_id!r:.100} differs from its message")
    call.started_seq = event.seq


def tool_result(state: State, event: Event, data: JsonObject) -> None:
    """Answers a call, or rewrites the content of one earlier result."""
    message = check_message(event, data.get("message"), "tool")
    call_id, source = message.get("toolCallId"), source_of(message)
    if not nonempty(call_id) or source["kind"] != "tool" or source.get("callId") != call_id:
        refuse(event.seq, "tool/result that does not name its call")
    if type(message.get("isError", False)) is not bool:
        refuse(event.seq, "tool/result whose isError is not a boolean")
    if "error" in data and message.get("isError") is not True:
        refuse(event.seq, "tool/result with an error that is none")
    if event.surface_op == "append":
        _answer(state, event, data, call_id)
        _place(state, event)
    else:
        _rewrite(state, event, data)


def _answer(state: State, event: Event, data: JsonObject, call_id: str) -> None:
    need_step(state, event, data)
    call = state.pending.get(call_id)
    if call is None:
        refuse(event.seq, f"tool/result for call {call_id!r:.100} that does not wait for one")
    if call.started_seq is None and not _is_not_started(event, data, call_id):
        refuse(event.seq, f"tool/result for call {call_id!r:.100} that was never started")
    if _forked_seq(event, data) not in {None, event.seq}:
        refuse(event.seq, "the forked result's id does not name its seq")
    del state.pending[call_id]


def _is_not_started(event: Event, data: JsonObject, call_id: str) -> bool:
    """Whether this is the exact repair row for a call that was never started."""
    message = message_of(event)
    content = content_of(message)
    if (
        event.source_event_seqs is not None
        or data.get("error") != NOT_STARTED_ERROR
        or message.get("isError") is not True
        or len(content) != 1
    ):
        return False
    block = content[0]
    assert isinstance(block, dict)
    message_id = str(message["id"])
    if block.get("type") != "text":
        return False
    if message_id == f"forked-tool-result-{call_id}-{event.seq}":
        return True
    interrupted = _INTERRUPTED_ID.fullmatch(message_id)
    return (
        interrupted is not None
        and interrupted[1] == call_id
        and block == {"type": "text", "text": NOT_STARTED_TEXT}
    )


def _rewrite(state: State, event: Event, data: JsonObject) -> None:
    """A later row may change one result's content (pruning), and only inside a turn."""
    need_turn(state, event)
    op = event.surface_op
    if not isinstance(op, tuple):
        refuse(event.seq, "tool/result without a surfaceOp")
    first, end = span(state, event.seq, *op)
    old = state.surface_rows[state.surface[first]]
    if end != first + 1 or old.type != "tool/result":
        refuse(event.seq, "tool/result that replaces something other than one result")
    if _without_content(old.data) != _without_content(data):
        refuse(event.seq, "tool/result that changes more than the content")
    forked = _forked_seq(event, data)
    if forked is not None and (forked >= event.seq or event.source_event_seqs != (forked,)):
        refuse(event.seq, "the replaced forked result does not cite its first row")
    _place(state, event)


def _forked_seq(event: Event, data: JsonObject) -> int | None:
    """The number in the id of a forked not-started result; None for any other result."""
    if data.get("error") != NOT_STARTED_ERROR:
        return None
    match = _FORKED_ID.fullmatch(str(message_of(event)["id"]))
    return int(match[2]) if match is not None else None


def _without_content(data: JsonValue) -> JsonObject:
    assert isinstance(data, dict)
    message = data["message"]
    assert isinstance(message, dict)
    bare = {name: value for name, value in message.items() if name != "content"}
    return {**data, "message": bare}


def ptc_start(state: State, event: Event, data: JsonObject) -> None:
    """A sub call of code mode: a new id below a known parent."""
    need_turn(state, event)
    root, parent, sub = (data.get(name) for name in ("rootCallId", "parentCallId", "subCallId"))
    if not nonempty(root) or not nonempty(parent) or not nonempty(sub) or sub in state.dispatches:
        refuse(event.seq, "a sub call without ids of its own")
    if parent != root:
        known = state.dispatches.get(parent)
        if known is None or known[0].get("rootCallId") != root:
            refuse(event.seq, "a sub call whose parent is unknown")
    state.dispatches[sub] = (data, False)


def ptc_end(state: State, event: Event, data: JsonObject) -> None:
    """Settles a running sub call."""
    sub = data.get("subCallId")
    start, settled = state.dispatches.get(sub, ({}, True)) if nonempty(sub) else ({}, True)
    fields = ("rootCallId", "parentCallId", "name", "arguments")
    if settled or any(start.get(name) != data.get(name) for name in fields):
        refuse(event.seq, "the end of a sub call that does not run")
    check_no_wrapper(event.seq, data.get("content"))
    assert type(sub) is str
    state.dispatches[sub] = (start, True)
