"""ACP prompt blocks to what the log and the model take, and attached ones back. Pure.

An attached resource becomes a text block that a model can read; its ACP form stays beside it
under ``_meta.acp``, so that a replay shows the client what it sent (field report R098), and text
that merely looks like ours stays text (R063).
"""

import re
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from acp_bridge.acp.base import Unknown
from acp_bridge.acp.types import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from acp_bridge.errors import InvalidParamsError
from acp_bridge.harness.titles import TITLE_CHARS_MAX, title_from_text
from acp_bridge.vocabulary import Command, CommandInfo, JsonObject, Prompt

_COMMAND = re.compile(r"/([a-z0-9][a-z0-9_-]*)(?:\s+(.*))?", re.DOTALL)
_LINES = re.compile(r"L?(\d+)(?:[:-]L?(\d+))?")


def prompt_from_acp(blocks: Sequence[ContentBlock]) -> Prompt:
    """The prompt that these blocks make.

    Raises:
        InvalidParamsError: nothing is said, or a block cannot be used; names the block.
    """
    content: list[JsonObject] = []
    attachments: dict[str, bytes] = {}
    title: list[str] = []
    for number, block in enumerate(blocks):
        field = f"prompt[{number}]"
        match block:
            case TextContent(text=text):
                title.append(text)
                if text.strip():
                    content.append({"type": "text", "text": text})
            case ResourceLink():
                title.append(_name(block.uri, block.name))
                content.append(_link_block(block))
            case EmbeddedResource(resource=resource):
                content.append(_resource_block(resource, field))
                title.append(_name(str(getattr(resource, "uri", "")), ""))
            case ImageContent(data=data, mime_type=mime_type):
                # Late: few prompts hold one, and hashing takes 4 ms to import.
                from acp_bridge.harness.images import image_from_base64

                image = image_from_base64(data, mime_type, field=field)
                attachments[image.attachment_id] = image.data
                content.append(image.block)
            case AudioContent():
                raise InvalidParamsError("Audio is not supported in prompts.", field=field)
            case Unknown(raw=raw):
                kind = str(raw.get("type"))[:50]
                raise InvalidParamsError(
                    f"The content type {kind!r} is not known: use text, image, resource_link "
                    "or resource.",
                    field=f"{field}.type",
                )
    if not content:
        raise InvalidParamsError("The prompt is empty: say something.", field="prompt")
    return Prompt(
        content=content,
        title=_title(title, blocks),
        attachments=attachments,
        command=_typed(blocks),
    )


def command_from_acp(
    blocks: Sequence[ContentBlock], commands: Sequence[CommandInfo]
) -> Command | None:
    """The slash command that a prompt is: one text alone, beginning with a name that we know.

    Anything else that begins with a slash is a prompt, and so is a command that stands for one.
    """
    typed = _typed(blocks)
    names = {info.name for info in commands if not info.is_prompt}
    return typed if typed is not None and typed.name in names else None


def _typed(blocks: Sequence[ContentBlock]) -> Command | None:
    """What has the form of a command."""
    if len(blocks) != 1 or not isinstance(blocks[0], TextContent):
        return None
    found = _COMMAND.fullmatch(blocks[0].text.strip())
    return found and Command(name=found[1], argument=(found[2] or "").strip())


def acp_block_from_log(block: JsonObject) -> ContentBlock | None:
    """What the client sent, where this log block was made from it; None where it is the same.

    That is an attached resource, or a command that stands for a prompt, as it was typed.
    """
    meta = block.get("_meta")
    form = meta.get("acp") if isinstance(meta, dict) else None
    if not isinstance(form, dict):
        return None
    if form.get("type") == "text":
        typed = form.get("text")
        return TextContent(text=typed) if isinstance(typed, str) else None
    uri, name, mime_type = form.get("uri"), form.get("name"), form.get("mimeType")
    if not isinstance(uri, str) or not isinstance(mime_type, str | None):
        return None
    if form.get("type") == "resource_link":
        return ResourceLink(uri=uri, name=str(name), mime_type=mime_type)
    start, end, text = form.get("start"), form.get("end"), block.get("text")
    if isinstance(start, int) and isinstance(end, int) and isinstance(text, str):
        resource = TextResourceContents(uri=uri, text=text[start:end], mime_type=mime_type)
        return EmbeddedResource(resource=resource)
    return None


def _link_block(link: ResourceLink) -> JsonObject:
    form: JsonObject = {"type": "resource_link", "uri": link.uri, "name": link.name}
    if link.mime_type is not None:
        form["mimeType"] = link.mime_type
    return {
        "type": "text",
        "text": f"[attached: {_where(link.uri)}]",
        "_meta": {"acp": form},
    }


def _resource_block(resource: object, field: str) -> JsonObject:
    match resource:
        case TextResourceContents(uri=uri, text=text, mime_type=mime_type):
            head = f"[attached: {_where(uri)}]\n"
            form: JsonObject = {
                "type": "resource",
                "uri": uri,
                "start": len(head),
                "end": len(head) + len(text),
            }
            if mime_type is not None:
                form["mimeType"] = mime_type
            whole = f"{head}{text}\n[end of {_where(uri)}]"
            return {"type": "text", "text": whole, "_meta": {"acp": form}}
        case BlobResourceContents(uri=uri, blob=blob, mime_type=mime_type):
            # A model cannot read it here, so a link says all; its bytes never enter the log.
            kind = mime_type or "unknown type"
            shown = f"[attached, not readable here: {_where(uri)}, {kind}, {len(blob)} base64]"
            link: JsonObject = {"type": "resource_link", "uri": uri, "name": _name(uri, "")}
            if mime_type is not None:
                link["mimeType"] = mime_type
            return {"type": "text", "text": shown, "_meta": {"acp": link}}
        case _:
            raise InvalidParamsError(
                "The resource holds neither text nor blob.", field=f"{field}.resource"
            )


def _where(uri: str) -> str:
    """A file URI as path and lines, since models work with paths; others as they are."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # text that is no URI: shown as it is
        return uri
    if parts.scheme != "file":
        return uri
    path = unquote(parts.path)
    lines = _LINES.fullmatch(parts.fragment)
    if lines is None:
        return path
    first, last = lines.groups()
    if last is None or last == first:
        return f"{path}, line {first}"
    return f"{path}, lines {first}-{last}"


def _name(uri: str, name: str) -> str:
    path = uri.partition("#")[0].partition("?")[0]
    return name or unquote(path).rpartition("/")[2] or uri


def _title(pieces: Sequence[str], blocks: Sequence[ContentBlock]) -> str:
    """One line for lists. Editors that send their own texts first put the user's last."""
    text = " ".join(" ".join(pieces).split())
    typed = [block.text for block in blocks if isinstance(block, TextContent)]
    if len(text) > TITLE_CHARS_MAX * 4 and len(typed) > 1:
        text = " ".join(typed[-1].split())
    return title_from_text(text)
