"""Parameters of the SDK wire's requests, checked, and its prompts as prompts of ours. Pure.

The SDK's own runtime stores blocks that it does not know and can never run that session again
(dsh section 2); here they are refused before anything is stored.
"""

from collections.abc import Mapping

import attrs

from acp_bridge.errors import InvalidParamsError
from acp_bridge.harness.titles import title_from_text
from acp_bridge.vocabulary import JsonObject, JsonValue, Prompt


@attrs.frozen(slots=True)
class Hello:
    """What ``initialize`` asks for: sessions that are new from now on begin with it."""

    cwd: str
    provider: str
    model: str
    effort: str | None
    tokens_max: int | None


def text_param(params: Mapping[str, JsonValue], name: str) -> str:
    """A string that may be empty.

    Raises:
        InvalidParamsError: it is missing, or no string.
    """
    value = params.get(name)
    if not isinstance(value, str):
        raise InvalidParamsError(f"{name} must be a string.", field=name)
    return value


def name_param(params: Mapping[str, JsonValue], name: str) -> str:
    """A string that says something.

    Raises:
        InvalidParamsError: it is missing, empty, or no string.
    """
    value = text_param(params, name)
    if not value.strip():
        raise InvalidParamsError(f"{name} must not be empty.", field=name)
    return value


def hello_from_params(params: Mapping[str, JsonValue]) -> Hello:
    """The parameters of ``initialize``.

    Raises:
        InvalidParamsError: one cannot be used.
    """
    tokens_max = params.get("maxTokens")
    if tokens_max is not None and (
        not isinstance(tokens_max, int) or isinstance(tokens_max, bool) or tokens_max < 1
    ):
        raise InvalidParamsError("maxTokens must be a whole number from 1.", field="maxTokens")
    return Hello(
        cwd=name_param(params, "cwd"),
        provider=name_param(params, "provider"),
        model=name_param(params, "model"),
        effort=None
        if params.get("reasoningEffort") is None
        else name_param(params, "reasoningEffort"),
        tokens_max=tokens_max,
    )


def prompt_from_blocks(blocks: JsonValue, message_id: str) -> Prompt:
    """The prompt that content blocks make: ``text``, and ``image`` with its bytes in base64.

    Raises:
        InvalidParamsError: nothing is said, or a block cannot be used; names the block.
    """
    if not isinstance(blocks, list):
        raise InvalidParamsError(
            "contentBlocks must be a list of content blocks.", field="contentBlocks"
        )
    content: list[JsonObject] = []
    attachments: dict[str, bytes] = {}
    said: list[str] = []
    for number, block in enumerate(blocks):
        field = f"contentBlocks[{number}]"
        if not isinstance(block, dict):
            raise InvalidParamsError(f"{field} must be an object.", field=field)
        match block.get("type"):
            case "text":
                text = _member(block, "text", field)
                if text.strip():
                    said.append(text)
                    content.append({"type": "text", "text": text})
            case "image":
                # Late: few prompts hold one, and hashing takes 4 ms to import.
                from acp_bridge.harness.images import image_from_base64

                image = image_from_base64(
                    _member(block, "data", field), _member(block, "mimeType", field), field=field
                )
                attachments[image.attachment_id] = image.data
                content.append(image.block)
            case other:
                raise InvalidParamsError(
                    f"{field} has the type {other!r:.60}, which is not known: use text or image.",
                    field=f"{field}.type",
                )
    if not content:
        raise InvalidParamsError("The prompt is empty: say something.", field="contentBlocks")
    return Prompt(
        content=content,
        title=title_from_text(" ".join(said)),
        attachments=attachments,
        message_id=message_id,
    )


def _member(block: JsonObject, name: str, field: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise InvalidParamsError(f"{field}.{name} must be a string.", field=f"{field}.{name}")
    return value
