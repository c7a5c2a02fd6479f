"""Log messages as a conversation that a provider can take: paired, merged, named as it demands.

What both APIs need is done here; `anthropic_body` and `openai_body` only spell it. A log is older
than the model that reads it: calls may lack results, ids may repeat over turns (R083), arguments
may be no JSON, images may be gone, and reasoning may be another provider's (R061). Pure, but for
`load_pictures`, which asks for bytes.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NoReturn, TypeAlias

import attrs

from acp_bridge.ports import ModelRequest
from acp_bridge.vocabulary import JsonObject, JsonValue

CALL_ID_CHARS_MAX: Final = 40
"""The longest id that every provider takes (OpenAI's limit; Anthropic's is on the letters)."""

NAME_CHARS_MAX: Final = 64
NO_RESULT: Final = "Error: this call has no result: it was cut off."
GO_ON: Final = "Go on."
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_ID_STEM_CHARS: Final = 30


@attrs.frozen(slots=True)
class Text:
    """Text, never only white space."""

    text: str


@attrs.frozen(slots=True)
class Picture:
    """An image's bytes in base64."""

    media_type: str
    data: str


@attrs.frozen(slots=True)
class Thought:
    """Reasoning. ``signature`` proves it to the provider that made it; None: not its own."""

    text: str
    signature: str | None


@attrs.frozen(slots=True)
class Hidden:
    """A block that has no text in the log: the provider's own, sent back as it came."""

    block: JsonObject


@attrs.frozen(slots=True)
class Call:
    """A tool call with an id and a name that a provider takes, and arguments that are JSON."""

    call_id: str
    name: str
    arguments: JsonObject
    arguments_text: str


@attrs.frozen(slots=True)
class Result:
    """What a call gave."""

    call_id: str
    parts: tuple[Text | Picture, ...]
    is_error: bool


@attrs.define(slots=True)
class Asked:
    """Everything between two answers: results first, then what was said."""

    results: list[Result] = attrs.field(factory=list)
    parts: list[Text | Picture] = attrs.field(factory=list)


@attrs.define(slots=True)
class Answered:
    """One answer. ``state`` is the ``response`` of the provider's own replay state, or None."""

    parts: list[Text | Thought | Hidden | Call]
    state: JsonObject | None


Entry: TypeAlias = Asked | Answered
Pictures: TypeAlias = Mapping[str, Picture]


def conversation(
    messages: Iterable[JsonObject], pictures: Pictures, *, replay_kind: str
) -> list[Entry]:
    """The messages as entries: first and last one `Asked`, every call answered, none empty.

    ``pictures`` are the images to show, by attachment id; the others become a line of text.
    ``replay_kind`` names whose replay state counts.
    """
    builder = _Builder(pictures, replay_kind)
    for message in messages:
        builder.add(message)
    return builder.finish()


async def load_pictures(request: ModelRequest) -> dict[str, Picture]:
    """Every image of the request whose bytes can be had, by attachment id."""
    found: dict[str, Picture] = {}
    if request.find_image is None:
        return found
    for block in _images(request.messages):
        attachment_id, media_type = _attachment(block)
        if attachment_id in found or block.get("offloaded") is True:
            continue
        data = await request.find_image(attachment_id)
        if data is not None:
            found[attachment_id] = Picture(media_type, base64.b64encode(data).decode())
    return found


def tool_name(name: str) -> str:
    """A name as providers take it. A model may have made one up, and the log keeps it."""
    return _UNSAFE.sub("_", name)[:NAME_CHARS_MAX] or "unknown"


class _Builder:
    def __init__(self, pictures: Pictures, replay_kind: str) -> None:
        self._pictures = pictures
        self._replay_kind = replay_kind
        self._entries: list[Entry] = []
        self._used: set[str] = set()
        self._open: list[tuple[str, str]] = []
        self._calls = 0

    def add(self, message: JsonObject) -> None:
        match message.get("role"):
            case "assistant":
                self._answer(message)
            case "tool":
                self._result(message)
            case "user" | "system":
                self._asked().parts += self._shown(message)
            case _:
                pass  # a developer row is about tools, which the request lists by itself

    def finish(self) -> list[Entry]:
        self._close_calls()
        entries = [
            entry
            for entry in self._entries
            if entry.parts or (isinstance(entry, Asked) and entry.results)
        ]
        # An answer with nothing to answer is refused at either end.
        if not entries or isinstance(entries[0], Answered):
            entries.insert(0, Asked(parts=[Text(GO_ON)]))
        if isinstance(entries[-1], Answered):
            entries.append(Asked(parts=[Text(GO_ON)]))
        return entries

    def _asked(self) -> Asked:
        if self._entries and isinstance(last := self._entries[-1], Asked):
            return last
        asked = Asked()
        self._entries.append(asked)
        return asked

    def _answer(self, message: JsonObject) -> None:
        self._close_calls()
        state, marks = _replay(message, self._replay_kind)
        parts: list[Text | Thought | Hidden | Call] = []
        for block in _blocks(message):
            kind = block.get("type")
            before, mark = _taken(marks, kind)
            parts += before
            text = str(block.get("text") or "")
            if kind == "tool-call":
                parts.append(self._call(block))
            elif kind == "reasoning" and text:
                signature = mark.get("signature")
                parts.append(Thought(text, signature if isinstance(signature, str) else None))
            elif kind == "text" and text.strip():
                parts.append(Text(text))
        if not any(isinstance(part, Text | Call) for part in parts):
            return  # an answer may not end in reasoning, let alone be nothing else
        while not isinstance(parts[-1], Text | Call):
            parts.pop()
        self._entries.append(Answered(parts, state))

    def _call(self, block: JsonObject) -> Call:
        original = str(block.get("id") or "")
        call_id = self._new_id(original)
        self._open.append((original, call_id))
        text = str(block.get("arguments") or "")
        arguments = _json_object(text)
        if arguments is None:
            # Sent as it is, it would be refused with all that follows; lost, the model would not
            # know what it did wrong.
            arguments = {"invalid_json": text} if text.strip() else {}
            text = json.dumps(arguments, ensure_ascii=False)
        return Call(call_id, tool_name(str(block.get("name") or "")), arguments, text)

    def _new_id(self, original: str) -> str:
        """The same id if it is fit and new here, else one made of it.

        By place alone, so that the same history gets the same ids and a provider's cache holds.
        """
        self._calls += 1
        fit = bool(original) and not _UNSAFE.search(original)
        call_id = original
        number = self._calls
        while not fit or len(call_id) > CALL_ID_CHARS_MAX or call_id in self._used:
            stem = _UNSAFE.sub("_", original)[:_ID_STEM_CHARS] or "call"
            call_id, number, fit = f"{stem}_{number}", number + 1, True
        self._used.add(call_id)
        return call_id

    def _result(self, message: JsonObject) -> None:
        original = str(message.get("toolCallId") or "")
        found = next((pair for pair in self._open if pair[0] == original), None)
        asked = self._asked()
        parts = self._shown(message)
        if found is None:
            # Its call is gone (compacted, or a damaged log): a result alone would be refused.
            asked.parts += parts
        else:
            self._open.remove(found)
            is_error = message.get("isError") is True
            asked.results.append(Result(found[1], tuple(parts), is_error))

    def _close_calls(self) -> None:
        if self._open:
            asked = self._asked()
            lost = (Text(NO_RESULT),)
            asked.results += [Result(call_id, lost, True) for _, call_id in self._open]  # noqa: FBT003
            self._open.clear()

    def _shown(self, message: JsonObject) -> list[Text | Picture]:
        parts: list[Text | Picture] = []
        for block in _blocks(message):
            match block.get("type"):
                case "text":
                    text = str(block.get("text") or "")
                    parts += [Text(text)] if text.strip() else []
                case "image":
                    attachment_id, media_type = _attachment(block)
                    gone = block.get("offloaded") is True
                    picture = None if gone else self._pictures.get(attachment_id)
                    parts.append(picture or Text(f"[An image ({media_type}) is not shown here.]"))
                case "file":
                    parts.append(Text("[A file is not shown here.]"))
                case _:
                    pass
        return parts


def _replay(message: JsonObject, kind: str) -> tuple[JsonObject | None, list[JsonObject]]:
    """The provider's own state of an answer and its marks per block; (None, []) if it has none."""
    source = message.get("source")
    replay = source.get("replayState") if isinstance(source, dict) else None
    response = replay.get("response") if isinstance(replay, dict) else None
    if not isinstance(response, dict) or response.get("kind") != kind:
        return None, []
    assert isinstance(replay, dict)
    marks = replay.get("blocks")
    if not isinstance(marks, list):
        return response, []
    return response, [mark for mark in marks if isinstance(mark, dict)]


def _taken(marks: list[JsonObject], kind: JsonValue) -> tuple[list[Hidden], JsonObject]:
    """Take the first mark of a kind, and the hidden blocks before it; {} if there is none.

    A log drops empty blocks and the calls of an answer that was cut short, so marks may be over.
    """
    place = next((n for n, mark in enumerate(marks) if mark.get("type") == kind), None)
    if place is None:
        return [], {}
    blocks = [mark.get("block") for mark in marks[:place] if mark.get("type") == "hidden"]
    mark = marks[place]
    del marks[: place + 1]
    return [Hidden(block) for block in blocks if isinstance(block, dict)], mark


def _blocks(message: JsonObject) -> Sequence[JsonObject]:
    content = message.get("content")
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []


def _images(messages: Iterable[JsonObject]) -> Iterator[JsonObject]:
    for message in messages:
        for block in _blocks(message):
            if block.get("type") == "image":
                yield block


def _attachment(block: JsonObject) -> tuple[str, str]:
    """An image block's attachment id and media type."""
    attachment = block.get("attachment")
    if not isinstance(attachment, dict):
        return "", "image"
    return str(attachment.get("attachmentId") or ""), str(attachment.get("mediaType") or "image")


def _json_object(text: str) -> JsonObject | None:
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
