"""What we say to the user beside the conversation: notices where the client takes them. Pure.

Everywhere else a sentence is a thought. ACP has notices for what happens now and is no part of the
session's history, so a replay shows none; a thought is shown again, since nothing tells it from
others. What ended a turn or answers a command is no aside and stays what the agent said.
"""

from collections.abc import Iterable
from typing import Final

from acp_bridge.acp.types import (
    AgentMessageChunk,
    AgentThoughtChunk,
    Notice,
    SessionUpdate,
    TextContent,
)
from acp_bridge.bridge.log_rows import integer
from acp_bridge.vocabulary import JsonObject

NOTICE_ROWS: Final = frozenset({"plugin:acp-bridge/notice", "llm/retry"})
"""What `Notices` makes a sentence of."""


class Notices:
    """The fold for one session. ``as_notices``: the client has negotiated ``session.notices``."""

    def __init__(self, *, as_notices: bool, replay: bool) -> None:
        self._as_notices = as_notices
        self._replay = replay

    def sentence(self, seq: int, data: JsonObject) -> Iterable[SessionUpdate]:
        """A row of ours that says something: a model that is gone, a server that failed."""
        return self._told(f"notice.{seq}", str(data.get("text")))

    def retry(self, attempt: int, data: JsonObject) -> Iterable[SessionUpdate]:
        """``llm/retry``: a sign of life while a failed call waits for its next try."""
        failure = data.get("failure")
        cause = failure.get("message") if isinstance(failure, dict) else None
        count = f"{data.get('retry')} of {data.get('maxRetries')}"
        message_id = f"{integer(data, 'turn')}.{integer(data, 'step')}.{attempt}.retry"
        text = f"The model call failed: {cause}. Trying again ({count})."
        return self._told(message_id, text)

    def _told(self, message_id: str, text: str) -> Iterable[SessionUpdate]:
        if not self._as_notices:
            content = TextContent(text=f"{text}\n")
            yield AgentThoughtChunk(content=content, message_id=message_id)
        elif not self._replay:
            yield Notice(severity="warning", title=text)


def failure(details: str, message_id: str, *, as_notice: bool) -> SessionUpdate:
    """Why a turn failed, for a turn whose end answers no request of the client.

    As the error of a prompt it is told now and is no part of the session's history.
    """
    if as_notice:
        return Notice(severity="error", title=details)
    return AgentMessageChunk(content=TextContent(text=f"{details}\n"), message_id=message_id)


def of_subagent(update: SessionUpdate, child_id: str, name: str) -> SessionUpdate:
    """A child's sentence as it stands in its root's conversation: it says whose it is.

    ``name`` is the subagent as its tool call is titled.
    """
    match update:
        case Notice():
            update.title = f"{name}: {update.title}"
        case AgentThoughtChunk(content=TextContent(text=text)):
            update.content = TextContent(text=f"{name}: {text}")
            update.message_id = f"{child_id}/{update.message_id}"
        case _:
            raise AssertionError("no other update is made of a notice")
    return update
