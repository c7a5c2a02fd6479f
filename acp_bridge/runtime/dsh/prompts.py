"""Which turn a prompt got and how it ended: a pure fold of a session's rows.

The runtime acknowledges a prompt with the id of its message and says nothing more of it: the turn
in which that message is written is the prompt's own.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from acp_bridge.vocabulary import Event, JsonObject, JsonValue, TurnEnd


class PromptFold:
    """The fold over the rows of one session while one prompt is on its way.

    Rows may come before the acknowledgement, so ends are remembered until `expect` names the
    message: two notes a turn, for as long as the fold lives.
    """

    def __init__(self) -> None:
        self._wanted: str | None = None
        self._in_turn: set[str] = set()
        self._ends: dict[str, JsonObject] = {}
        self.answer = ""
        """The text of the last answer so far; "" without one."""

    def expect(self, message_id: str) -> None:
        """The prompt's message."""
        self._wanted = message_id

    @property
    def end(self) -> JsonObject | None:
        """The reason with which the prompt's own turn ended; None while it has not."""
        return None if self._wanted is None else self._ends.get(self._wanted)

    def apply(self, event: Event) -> None:
        """Fold one row."""
        data = event.data if isinstance(event.data, dict) else {}
        match event.type:
            case "turn/start":
                self._in_turn.clear()
            case "user/message":
                self._in_turn.add(str(data.get("id")))
            case "assistant/message" if event.surface_op == "append":
                self.answer = text_of_message(data.get("message")) or self.answer
            case "turn/end":
                reason = data.get("reason")
                for message_id in self._in_turn:
                    self._ends[message_id] = reason if isinstance(reason, dict) else {}
                self._in_turn.clear()


class _Failure(NamedTuple):
    message: str
    code: str | None


def end_from_reason(reason: JsonObject) -> TurnEnd:
    """The port's end for a ``turn/end`` reason; anything unknown is an error that names it."""
    match reason.get("kind"):
        case "completed":
            return TurnEnd("completed")
        case "max-tokens":
            return TurnEnd("max-tokens")
        case "aborted" | "interrupted":
            return TurnEnd("aborted")
        case "error":
            failure = _failure(reason.get("error"))
            return TurnEnd("error", failure.message, failure.code)
        case kind:
            details = f"DeepSeek Harness ended the turn as {kind!r:.50}: send the prompt again."
            return TurnEnd("error", details, "INTERNAL")


_NO_KEY = "MISSING_CREDENTIAL"


def _failure(error: JsonValue) -> _Failure:
    found = error if isinstance(error, dict) else {}
    code = found.get("code")
    if code == _NO_KEY:
        details = (
            "DeepSeek Harness has no key: set DEEPSEEK_API_KEY, or run "
            "`acp-bridge setup --provider deepseek`."
        )
        return _Failure(details, "AUTH")
    message = found.get("message")
    text = message if isinstance(message, str) and message else "the runtime does not say why"
    return _Failure(text, code if isinstance(code, str) else None)


def text_of_message(message: JsonValue) -> str:
    """The text blocks of a row's message, joined; "" if it has none."""
    content = message.get("content") if isinstance(message, dict) else None
    return "".join(
        str(block.get("text", ""))
        for block in (content if isinstance(content, list) else [])
        if isinstance(block, dict) and block.get("type") == "text"
    )


def content_for_runtime(
    content: Sequence[JsonObject], attachments: Mapping[str, bytes]
) -> list[JsonObject]:
    """A prompt's blocks as the wire takes them: text as it is, images with their bytes.

    ``attachments`` as `Prompt.attachments`. Attached resources are text by now; their ACP form
    under ``_meta`` is kept in the log, and no model sees it.
    """
    return [
        _image(block, attachments) if block.get("type") == "image" else block for block in content
    ]


def _image(block: JsonObject, attachments: Mapping[str, bytes]) -> JsonObject:
    attachment = block["attachment"]
    assert isinstance(attachment, dict)
    data = attachments[str(attachment["attachmentId"])]
    return {
        "type": "image",
        "data": base64.b64encode(data).decode("ascii"),
        "mimeType": attachment["mediaType"],
    }
