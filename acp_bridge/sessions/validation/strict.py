"""The payload checks of rows that are written here.

The runtime's reader hardly looks into payloads (``dsh-events`` section 0), so a writer has to be
strict itself: this table is section 1 of that document, field by field. A known type that is not
in it has no writer here yet; write its shape down before its first row. Ignorable ``plugin:`` rows
may hold anything.
"""

import re
from typing import Final

from acp_bridge.errors import LocalProtocolError
from acp_bridge.sessions.events import SURFACE_TYPES
from acp_bridge.sessions.validation.shapes import (
    TRUE,
    Shape,
    any_object,
    anything,
    array,
    boolean,
    either,
    integer,
    integers,
    natural,
    nestr,
    number,
    obj,
    one_of,
    positive,
    tagged,
    text,
    texts,
)
from acp_bridge.vocabulary import Draft, JsonValue

_PLUGIN_NAME = re.compile(r"plugin:[a-z0-9][a-z0-9._-]*(?:/[a-z0-9][a-z0-9._-]*)*")

_TURN: Final = {"turn": positive}
_TURN_OR_NONE: Final = either(positive, one_of(None))
_STEP: Final = {"turn": positive, "step": positive}

_TEXT: Final = obj({"type": one_of("text"), "text": text})
_IMAGE: Final = obj(
    {
        "type": one_of("image"),
        "attachment": obj(
            {
                "attachmentId": nestr,
                "mediaType": one_of("image/png", "image/jpeg", "image/webp", "image/gif"),
                "bytes": natural,
                "width": natural,
                "height": natural,
            },
            {"name": text, "originalDimensions": obj({"width": natural, "height": natural})},
        ),
    }
)
_FILE: Final = obj(
    {
        "type": one_of("file"),
        "attachment": obj({"attachmentId": nestr, "name": text, "bytes": natural}),
    }
)
# What a user attached keeps its ACP form beside the text; dsh 0.2.1rc2 takes that and ignores it.
_USER_TEXT: Final = obj({"type": one_of("text"), "text": text}, {"_meta": any_object})
_USER_CONTENT: Final = array(tagged("type", {"text": _USER_TEXT, "image": _IMAGE, "file": _FILE}))
_TOOL_CONTENT: Final = array(tagged("type", {"text": _TEXT, "image": _IMAGE}))
_ASSISTANT_BLOCK: Final = tagged(
    "type",
    {
        "text": _TEXT,
        "reasoning": obj({"type": one_of("reasoning"), "text": text}),
        "tool-call": obj(
            {"type": one_of("tool-call"), "id": nestr, "name": text, "arguments": text}
        ),
    },
)
_SENT: Final = {"kind": nestr, "senderSessionId": nestr}
_SENT_SOURCES: Final = {
    "agent-message": obj({**_SENT, "form": one_of("relay")}),
    "subagent-settled": obj({**_SENT, "form": one_of("notice"), "summary": nestr}),
}
_OPEN_SOURCE: Final = obj({"kind": nestr}, is_open=True)


def _message_source(value: JsonValue) -> str | None:
    """Whose message it is; the set of kinds is open, those that are written here are exact."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return _SENT_SOURCES.get(kind if isinstance(kind, str) else "", _OPEN_SOURCE)(value)


_USER_MESSAGE: Final = obj(
    {"role": one_of("user"), "id": nestr, "content": _USER_CONTENT, "source": _message_source}
)
_FAILURE: Final = obj(
    {"message": text, "code": nestr},
    {
        "status": integer,
        "requestId": text,
        "providerRetryAfterMs": number,
        "offloadImages": anything,
    },
)
_USAGE: Final = obj(
    {"inputTokens": natural, "outputTokens": natural},
    {
        "totalTokens": natural,
        "cacheReadTokens": natural,
        "cacheWriteTokens": natural,
        "reasoningTokens": natural,
    },
)

_KIND: Final = {"kind": nestr}
_CHUNK: Final = tagged(
    "type",
    {
        "block-start": obj(
            {
                "type": nestr,
                "index": natural,
                "blockType": one_of("text", "reasoning", "tool-call"),
            }
        ),
        "block-end": obj({"type": nestr, "index": natural, "block": _ASSISTANT_BLOCK}),
        "usage": obj({"type": nestr, "usage": _USAGE}),
        "finish": obj(
            {
                "type": nestr,
                "reason": tagged(
                    "kind",
                    {
                        "stop": obj(_KIND),
                        "tool-calls": obj(_KIND),
                        "max-tokens": obj(_KIND),
                        "error": obj({**_KIND, "failure": _FAILURE}),
                        "aborted": obj({**_KIND, "failure": _FAILURE}),
                    },
                ),
            },
            {"replayState": any_object},
        ),
    },
)
_RUN: Final = {"type": nestr, "time0": integer, "index": natural, "dt": integers}
_STREAM: Final = array(
    tagged(
        "type",
        {
            "text-chunks": obj({**_RUN, "texts": texts}),
            "reasoning-chunks": obj({**_RUN, "texts": texts}),
            "tool-call-chunks": obj({**_RUN, "id": nestr, "args": texts}, {"name": text}),
            "chunk": obj({"type": nestr, "time": integer, "chunk": _CHUNK}),
        },
    )
)

_TURN_END: Final = tagged(
    "kind",
    {
        **{
            kind: obj(_KIND)
            for kind in ("completed", "max-tokens", "blocked", "interrupted", "forked")
        },
        "error": obj({**_KIND, "error": _FAILURE}),
        "aborted": obj(
            {
                **_KIND,
                "reason": obj(
                    {"kind": one_of("user", "parent", "disposed", "hook", "legacy")},
                    {"reason": text},
                ),
            }
        ),
    },
)
_CONFIG: Final = obj(
    {"provider": nestr, "model": nestr},
    {"reasoningEffort": nestr, "maxTokens": positive, "temperature": number, "stop": texts},
)
_REQUEST_HEADER: Final = obj(
    {"config": _CONFIG},
    {
        "adapterDefaults": obj({}, {"reasoningEffort": TRUE, "maxTokens": TRUE}),
        "tools": array(
            obj(
                {"name": nestr, "description": text, "parameters": any_object},
                {"deferLoading": TRUE},
            )
        ),
    },
)
_TITLE_SOURCE: Final = tagged(
    "kind",
    {
        "fallback": obj(_KIND),
        "user": obj(_KIND),
        "provider": obj(
            {**_KIND, "provider": nestr}, {"model": obj({"provider": nestr, "model": nestr})}
        ),
    },
)
_MODE_SOURCE: Final = {"source": one_of("delegation")}
_COMPACTION: Final = {"compactionId": nestr}
_FROM_COMMAND: Final = {"sourceCommandId": nestr}
_CHECKPOINT_SOURCE: Final = obj(
    {"kind": one_of("compact-checkpoint"), **_COMPACTION}, _FROM_COMMAND
)
_CALL_ERROR: Final = obj({"name": nestr, "code": nestr}, {"reason": anything})

_SHAPES: Final[dict[str, Shape]] = {
    "turn/start": obj(_TURN),
    "turn/end": obj({**_TURN, "reason": _TURN_END}),
    "step/start": obj(_STEP),
    "step/end": obj(_STEP),
    "session/end-seed": obj({}, {"inherited": TRUE}),
    "agent/inbox/spliced": obj(
        {
            "target": one_of("next-turn", "next-step"),
            "start": natural,
            "inserted": array(_USER_MESSAGE),
        },
        {"removedCount": natural, "outcome": one_of("canceled")},
    ),
    "system/message": obj(
        {
            **_STEP,
            "message": obj(
                {
                    "role": one_of("system"),
                    "id": nestr,
                    "content": array(_TEXT),
                    "source": obj({"kind": one_of("system-prompt")}),
                }
            ),
        }
    ),
    "user/message": _USER_MESSAGE,
    "assistant/message": obj(
        {
            **_STEP,
            "message": obj(
                {
                    "role": one_of("assistant"),
                    "id": nestr,
                    "content": array(_ASSISTANT_BLOCK),
                    "source": obj(
                        {"kind": one_of("model"), "provider": nestr, "model": nestr},
                        {"replayState": any_object},
                    ),
                }
            ),
            "stream": _STREAM,
        },
        {"usage": _USAGE, "interrupted": TRUE},
    ),
    "assistant/attempt": obj({**_STEP, "stream": _STREAM}),
    "tool/call": obj({**_STEP, "callId": nestr, "name": text, "arguments": text}),
    "tool/result": obj(
        {
            **_STEP,
            "message": obj(
                {
                    "role": one_of("tool"),
                    "id": nestr,
                    "toolCallId": nestr,
                    "content": _TOOL_CONTENT,
                    "source": obj({"kind": one_of("tool"), "callId": nestr}),
                },
                {"isError": boolean},
            ),
        },
        {"error": _CALL_ERROR, "meta": anything},
    ),
    "request/header": obj(
        {"header": _REQUEST_HEADER, "reason": one_of("initial", "resume", "change", "series")},
        {"startsSeries": TRUE},
    ),
    "request/context": obj(
        {"provider": nestr, "model": nestr},
        {"contextWindow": natural, "systemPromptUpdate": one_of("in-history")},
    ),
    "model/selection": obj({"provider": nestr, "model": nestr}, {"reasoningEffort": nestr}),
    "llm/retry": obj(
        {
            **_STEP,
            "retryId": nestr,
            "provider": nestr,
            "mode": one_of("normal", "always"),
            "policyKey": nestr,
            "retry": positive,
            "delayMs": number,
            "failure": _FAILURE,
        },
        {"maxRetries": natural},
    ),
    "llm/retry-started": obj({**_STEP, "retryId": nestr, "retry": positive}),
    "session/title": obj({"title": nestr, "messageSeqs": array(natural), "source": _TITLE_SOURCE}),
    "permission/preset": obj({"preset": nestr}),
    "sandbox/mode": obj(
        {"mode": one_of("read-only", "workspace-write", "danger-full-access")}, _MODE_SOURCE
    ),
    "approval/policy": obj({"policy": one_of("ask", "never")}, _MODE_SOURCE),
    "approval/asked": obj({"id": nestr, "toolName": nestr}, {"callId": nestr, "reason": text}),
    "approval/decided": obj(
        {"id": nestr, "outcome": one_of("allowed-once", "rejected", "cancelled", "unavailable")}
    ),
    "plan/mode": obj({"active": boolean}),
    "command/run": obj(
        {"commandId": nestr, "name": nestr, "source": obj({"kind": one_of("user")})},
        {"args": text},
    ),
    "command/done": obj(
        {"commandId": nestr, "kind": one_of("success", "error")},
        {"text": text, "sourceEventSeq": natural},
    ),
    "compaction/start": obj({**_COMPACTION, "turn": _TURN_OR_NONE}, _FROM_COMMAND),
    "compaction/summary": obj(
        {
            **_COMPACTION,
            "summary": array(_TEXT),
            "shadowedRange": obj({"start": natural, "end": natural}),
            "shadowedSeqs": array(natural),
            "shadowedTokenCount": natural,
            "provider": nestr,
            "model": nestr,
        },
        {
            **_FROM_COMMAND,
            "rawOutput": array(_ASSISTANT_BLOCK),
            "llmStreamCall": TRUE,
            "maxTokens": positive,
            "usage": _USAGE,
        },
    ),
    "compaction/end": obj(
        {**_COMPACTION, "turn": _TURN_OR_NONE}, {**_FROM_COMMAND, "error": nestr}
    ),
    "working-directory/change": obj({"cwd": nestr}),
    "subagent/catalog": obj(
        {
            "version": one_of(0),
            "childId": nestr,
            "childCreatedAt": natural,
            "mode": one_of("continuable", "one-shot"),
            "label": nestr,
        }
    ),
    "subagent/descriptor": obj(
        {
            "version": one_of(3),
            "mode": one_of("continuable"),
            "provider": nestr,
            "label": nestr,
            "agentProvider": nestr,
            "agentModel": nestr,
        },
        {"agentReasoningEffort": nestr},
    ),
    "todo/write": obj(
        {
            "todos": array(
                obj(
                    {
                        "content": text,
                        "status": one_of("pending", "in_progress", "completed"),
                    }
                )
            )
        }
    ),
}


SHAPED_TYPES: Final = frozenset(_SHAPES)
"""The types that are written here."""


def check_draft(draft: Draft) -> None:
    """Refuse a row that we must not write: a bug of the caller.

    Raises:
        LocalProtocolError: the text names the type and what is wrong with its payload.
    """
    kind = draft.type
    shape = _SHAPES.get(kind)
    if shape is None:
        _check_plugin_row(draft)
        return
    if draft.ignorable:
        raise LocalProtocolError(f"A {kind} row must not be ignorable.")
    if kind in SURFACE_TYPES and draft.surface_op is None:
        raise LocalProtocolError(f"A {kind} row needs a surface op.")
    fault = shape(draft.data) or _relation_fault(kind, draft.data)
    if fault is not None:
        raise LocalProtocolError(f"A {kind} row is wrong: its data {fault}.")


def _check_plugin_row(draft: Draft) -> None:
    if _PLUGIN_NAME.fullmatch(draft.type) is None:
        raise LocalProtocolError(f"No shape of {draft.type!r} rows is written down here.")
    if not draft.ignorable or draft.surface_op is not None:
        raise LocalProtocolError(f"A {draft.type} row must be ignorable and off the surface.")


def _relation_fault(kind: str, data: JsonValue) -> str | None:
    """What one member demands of another."""
    assert isinstance(data, dict)
    if kind == "llm/retry" and (data["mode"] == "normal") != ("maxRetries" in data):
        return "has maxRetries exactly if its mode is normal, and this one not"
    if kind in {"assistant/message", "assistant/attempt"}:
        return _stream_fault(data["stream"])
    if kind == "user/message":
        return _checkpoint_fault(data["source"])
    if kind == "compaction/summary" and not data["summary"]:
        return "has an empty summary"
    return None


def _checkpoint_fault(source: JsonValue) -> str | None:
    """A checkpoint's source names its compaction."""
    assert isinstance(source, dict)
    if source["kind"] != "compact-checkpoint":
        return None
    fault = _CHECKPOINT_SOURCE(source)
    return None if fault is None else f".source {fault}"


def _stream_fault(stream: JsonValue) -> str | None:
    """A run of n pieces has n - 1 time steps, and at least one piece."""
    assert isinstance(stream, list)
    for record in stream:
        assert isinstance(record, dict)
        pieces = record.get("texts", record.get("args"))
        if pieces is None:
            continue
        steps = record["dt"]
        assert isinstance(pieces, list)
        assert isinstance(steps, list)
        if len(pieces) != len(steps) + 1:
            return "has a stream run whose dt does not fit its pieces"
    return None
