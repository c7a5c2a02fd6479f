"""What passes between a parent and a child, as messages of the log. Pure.

Roles and shape are the real runtime's (``dsh-events`` section 1.6): everything has the role user;
a task looks like a user's prompt, a later message is a ``relay``, a settlement is a ``notice`` of
one block, or of three with the child's last words.
"""

from typing import Final

from acp_bridge.vocabulary import JsonObject, JsonValue, SessionId, TurnEnd

ANSWER_CHARS_MAX: Final = 32_000
"""How much of a child's last words its parent is told: about 8,000 tokens of its context."""


def task_message(text: str, *, message_id: str) -> JsonObject:
    """What a child is set to work with."""
    return _message([text], {"kind": "user"}, message_id)


def relay_message(text: str, *, sender: SessionId, message_id: str) -> JsonObject:
    """What a parent says to a child later."""
    source: JsonObject = {"kind": "agent-message", "form": "relay", "senderSessionId": sender}
    return _message([f"Message from agent {sender}:", text], source, message_id)


def notice_message(
    sender: SessionId, label: str, end: TurnEnd, answer: str | None, *, message_id: str
) -> JsonObject:
    """What a parent is told when a child has settled."""
    summary = f'Subagent {sender} ("{label}") {how_it_ended(end)}'
    texts = [summary]
    if answer:
        texts += ["Its last message:", shortened(answer)]
    source: JsonObject = {
        "kind": "subagent-settled",
        "form": "notice",
        "summary": summary,
        "senderSessionId": sender,
    }
    return _message(texts, source, message_id)


def how_it_ended(end: TurnEnd) -> str:
    """The end of a sentence that begins with the child's name."""
    match end.kind:
        case "completed":
            return "has finished. It works no more unless you send it a message."
        case "max-tokens":
            return "stopped at its token limit; its last message is cut off."
        case "step-limit":
            return "stopped at its step limit before it was done."
        case "refusal":
            return "refused to go on."
        case "aborted":
            return "was stopped before it was done."
        case "error":
            return f"failed: {end.details or 'no reason is known'}"


def shortened(answer: str) -> str:
    """A child's words as a parent gets them: the end is what counts, so that is kept."""
    if len(answer) <= ANSWER_CHARS_MAX:
        return answer
    left_out = len(answer) - ANSWER_CHARS_MAX
    return f"[{left_out} characters before this are left out]\n{answer[-ANSWER_CHARS_MAX:]}"


def _message(texts: list[str], source: JsonObject, message_id: str) -> JsonObject:
    content: list[JsonValue] = [{"type": "text", "text": text} for text in texts]
    return {"content": content, "source": source, "role": "user", "id": message_id}
