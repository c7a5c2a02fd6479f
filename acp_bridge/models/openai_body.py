"""A model request as the chat completions API wants it. Pure.

Source: Chat Completions API, "Create chat completion".
"""

from collections.abc import Iterable, Sequence
from typing import Final

from acp_bridge.models.known import Provider, name_of
from acp_bridge.models.messages import (
    Answered,
    Asked,
    Call,
    Entry,
    Picture,
    Pictures,
    Text,
    Thought,
    conversation,
    tool_name,
)
from acp_bridge.ports import ModelInfo, ModelRequest
from acp_bridge.vocabulary import JsonObject, JsonValue

_PICTURES_OF_A_TOOL: Final = "The images of the tool result:"


def chat_body(
    request: ModelRequest, pictures: Pictures, *, provider: Provider, info: ModelInfo
) -> JsonObject:
    """The body of one call."""
    reasoning = provider.known(name_of(info)).reasoning
    messages: list[JsonValue] = []
    if request.system.strip():
        messages.append({"role": "system", "content": request.system})
    for entry in conversation(request.messages, pictures, replay_kind=provider.replay_kind):
        messages += _messages(entry)
    body: JsonObject = {
        "model": name_of(info),
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": messages,
    }
    if info.output_tokens_max is not None:
        body["max_completion_tokens"] = info.output_tokens_max
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if reasoning == "none-with-tools":
        if request.tools:
            body["reasoning_effort"] = "none"
    elif request.effort is not None:
        body["reasoning_effort"] = request.effort
    return body


def without_reasoning(body: JsonObject) -> JsonObject | None:
    """The same body with reasoning switched off; None if it is so already, or calls no tools."""
    if "tools" not in body or body.get("reasoning_effort") == "none":
        return None
    return {**body, "reasoning_effort": "none"}


def _messages(entry: Entry) -> Sequence[JsonObject]:
    match entry:
        case Asked(results, parts):
            messages: list[JsonObject] = [
                {
                    "role": "tool",
                    "tool_call_id": result.call_id,
                    "content": _joined(result.parts),
                }
                for result in results
            ]
            pictures = [p for result in results for p in result.parts if isinstance(p, Picture)]
            if pictures:  # a tool message holds text alone
                parts = [Text(_PICTURES_OF_A_TOOL), *pictures, *parts]
            if parts:
                messages.append({"role": "user", "content": _content(parts)})
            return messages
        case Answered(answered, state):
            message: JsonObject = {"role": "assistant", "content": _joined(answered)}
            calls: list[JsonValue] = [_call(part) for part in answered if isinstance(part, Call)]
            if calls:
                message["tool_calls"] = calls
            thought = "".join(part.text for part in answered if isinstance(part, Thought))
            field = (state or {}).get("reasoning")
            if thought and isinstance(field, str):
                # Servers that tell their reasoning want it back, by the name that they gave it.
                message[field] = thought
            return [message]


def _call(call: Call) -> JsonObject:
    function: JsonObject = {"name": call.name, "arguments": call.arguments_text}
    return {"id": call.call_id, "type": "function", "function": function}


def _joined(parts: Iterable[object]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, Text))


def _content(parts: Sequence[Text | Picture]) -> JsonValue:
    """A plain string where there are no images: many servers take nothing else."""
    if not any(isinstance(part, Picture) for part in parts):
        return _joined(parts)
    return [_part(part) for part in parts]


def _part(part: Text | Picture) -> JsonObject:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Picture(media_type, data):
            return {
                "type": "image_url",
                "image_url": {"url": f"data:{media_type};base64,{data}"},
            }


def _tool(tool: JsonObject) -> JsonObject:
    function: JsonObject = {
        "name": tool_name(str(tool["name"])),
        "description": tool["description"],
        "parameters": tool["parameters"],
    }
    return {"type": "function", "function": function}
