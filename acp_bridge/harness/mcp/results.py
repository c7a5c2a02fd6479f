"""The result of an MCP call as text for a model. Pure.

What is no text stands there by its kind and size; structured content is shown where it is all there
is, since servers repeat it as text.
"""

import json

from acp_bridge.vocabulary import JsonObject, JsonValue

NOTHING = "(the tool answered nothing)"


def text_of_result(result: JsonObject) -> str:
    """The text of a ``tools/call`` result (MCP 2025-11-25, Tools), whatever it holds."""
    blocks = result.get("content")
    parts = [_block_text(block) for block in blocks] if isinstance(blocks, list) else []
    structured = result.get("structuredContent")
    if structured is not None and not any(map(_is_text, blocks if parts else ())):  # type: ignore[arg-type]
        parts.append(json.dumps(structured, ensure_ascii=False))
    return "\n".join(part for part in parts if part) or NOTHING


def _is_text(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


def _block_text(block: JsonValue) -> str:
    if not isinstance(block, dict):
        return ""
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            return f"[{kind}: {block.get('mimeType')}, {_size(block.get('data'))}]"
        case "resource_link":
            return f"[resource {block.get('name')}: {block.get('uri')}]"
        case "resource":
            return _resource_text(block.get("resource"))
        case kind:
            return f"[{kind}]"


def _resource_text(resource: JsonValue) -> str:
    if not isinstance(resource, dict):
        return ""
    text = resource.get("text")
    if isinstance(text, str):
        return text
    kind = resource.get("mimeType") or "bytes"
    return f"[resource {resource.get('uri')}: {kind}, {_size(resource.get('blob'))}]"


def _size(base64_text: JsonValue) -> str:
    size = len(base64_text) * 3 // 4 if isinstance(base64_text, str) else 0
    return f"about {size} bytes"
