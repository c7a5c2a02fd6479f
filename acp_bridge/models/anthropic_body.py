"""A model request as the Messages API wants it. Pure.

Source: Messages API, "Create a message"; what DeepSeek takes of it: dsh section 1.
"""

from collections.abc import Sequence
from typing import Final

from acp_bridge.models.known import Provider, Reasoning, name_of
from acp_bridge.models.messages import (
    Answered,
    Asked,
    Call,
    Entry,
    Hidden,
    Picture,
    Pictures,
    Result,
    Text,
    Thought,
    conversation,
    tool_name,
)
from acp_bridge.ports import ModelInfo, ModelRequest
from acp_bridge.vocabulary import JsonObject, JsonValue

OUTPUT_TOKENS_MAX: Final = 32_000
"""The API wants a limit. What every model takes, for one of which nothing is known."""

BUDGETS: Final = {"low": 4_096, "medium": 16_384, "high": 31_000}
"""Thinking tokens by effort, for models that want a number."""

_ANSWER_TOKENS_MIN: Final = 1_024
_CACHE: Final[JsonObject] = {"type": "ephemeral"}
_MARKED_MESSAGES: Final = 2
"""How many of the last user messages end in a cache mark: the newest, and the one whose entry the
previous request wrote. With those of tools and system these are the four that the API allows."""


def messages_body(
    request: ModelRequest, pictures: Pictures, *, provider: Provider, info: ModelInfo
) -> JsonObject:
    """The body of one call."""
    reasoning = provider.known(name_of(info)).reasoning
    entries = conversation(request.messages, pictures, replay_kind=provider.replay_kind)
    output_max = info.output_tokens_max or OUTPUT_TOKENS_MAX
    messages = [_message(entry, unsigned=provider.unsigned) for entry in entries]
    tools: list[JsonValue] = [_tool(tool) for tool in request.tools]
    body: JsonObject = {
        "model": name_of(info),
        "max_tokens": output_max,
        "stream": True,
    }
    if request.system.strip():
        system: JsonObject = {"type": "text", "text": request.system}
        body["system"] = [system]
        if provider.caches:
            system["cache_control"] = dict(_CACHE)
    if tools:
        body["tools"] = tools
        if provider.caches:
            _mark(tools)
    if provider.caches:
        _mark_messages(messages)
    body["messages"] = list(messages)
    body.update(_thinking(request.effort, reasoning, output_max, entries))
    return body


def without_thinking(body: JsonObject) -> JsonObject | None:
    """The same body with no earlier reasoning in it; None if it has none.

    A provider refuses reasoning whose history has changed since, or that another key made; and it
    demands all of it or nothing.
    """
    messages = body["messages"]
    assert isinstance(messages, list)
    changed: list[JsonValue] = []
    for message in messages:
        assert isinstance(message, dict)
        content = message["content"]
        assert isinstance(content, list)
        kept: list[JsonValue] = [
            block
            for block in content
            if not (isinstance(block, dict) and "thinking" in str(block["type"]))
        ]
        changed.append({**message, "content": kept})
    if changed == messages:
        return None
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and "budget_tokens" in thinking:
        body = {key: value for key, value in body.items() if key != "thinking"}
    return {**body, "messages": changed}


def _message(entry: Entry, *, unsigned: bool) -> JsonObject:
    content: list[JsonValue]
    match entry:
        case Asked(results, parts):
            # Results must come first in the message that follows their calls.
            content = [_result(result) for result in results]
            content += [_part(part) for part in parts]
            return {"role": "user", "content": content}
        case Answered(answered):
            blocks = (_answer_block(part, unsigned=unsigned) for part in answered)
            content = [block for block in blocks if block is not None]
            return {"role": "assistant", "content": content}


def _answer_block(part: Text | Thought | Hidden | Call, *, unsigned: bool) -> JsonObject | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Thought(text, signature):
            if signature is not None:
                return {"type": "thinking", "thinking": text, "signature": signature}
            return {"type": "thinking", "thinking": text} if unsigned else None
        case Hidden(block):
            return block
        case Call(call_id, name, arguments):
            return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _result(result: Result) -> JsonObject:
    content: list[JsonValue] = [_part(part) for part in result.parts]
    block: JsonObject = {"type": "tool_result", "tool_use_id": result.call_id}
    if content:
        block["content"] = content
    if result.is_error:
        block["is_error"] = True
    return block


def _part(part: Text | Picture) -> JsonObject:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Picture(media_type, data):
            source: JsonObject = {"type": "base64", "media_type": media_type, "data": data}
            return {"type": "image", "source": source}


def _tool(tool: JsonObject) -> JsonObject:
    return {
        "name": tool_name(str(tool["name"])),
        "description": tool["description"],
        "input_schema": tool["parameters"],
    }


def _mark_messages(messages: Sequence[JsonObject]) -> None:
    asked = [message for message in messages if message["role"] == "user"]
    for message in asked[-_MARKED_MESSAGES:]:
        content = message["content"]
        assert isinstance(content, list)
        _mark(content)


def _mark(blocks: list[JsonValue]) -> None:
    last = blocks[-1]
    assert isinstance(last, dict)
    last["cache_control"] = dict(_CACHE)


def _thinking(
    effort: str | None, reasoning: Reasoning, output_max: int, entries: Sequence[Entry]
) -> JsonObject:
    match reasoning:
        case "adaptive":
            # Without the wish for a summary the newest models think without telling.
            fields: JsonObject = {"thinking": {"type": "adaptive", "display": "summarized"}}
            return fields if effort is None else {**fields, "output_config": {"effort": effort}}
        case "switch" if effort == "off":
            return {"thinking": {"type": "disabled"}}
        case "switch" if effort is not None:
            return {"thinking": {"type": "enabled"}, "output_config": {"effort": effort}}
        case "effort" if effort is not None:
            return {"output_config": {"effort": effort}}
        case "budget" if effort in BUDGETS:
            budget = min(BUDGETS[effort], output_max - _ANSWER_TOKENS_MIN)
            if budget < _ANSWER_TOKENS_MIN or _calls_without_thought(entries):
                return {}
            return {"thinking": {"type": "enabled", "budget_tokens": budget}}
        case _:
            return {}


def _calls_without_thought(entries: Sequence[Entry]) -> bool:
    """Whether results stand open for an answer that did not begin in signed reasoning.

    A model that thinks by budget refuses to go on from there with thinking switched on.
    """
    last = entries[-1]
    if len(entries) == 1 or not isinstance(last, Asked) or not last.results:
        return False
    answer = entries[-2]
    assert isinstance(answer, Answered)
    first = answer.parts[0]
    signed = isinstance(first, Thought) and first.signature is not None
    return not (signed or isinstance(first, Hidden))
