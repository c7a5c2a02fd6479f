"""A provider's errors as the log's failure codes, and whether trying again can help. Pure.

Source: the codes that the real runtime writes into ``assistant/attempt`` rows, and the error
tables of the Messages and the chat completions API.
"""

import re

import attrs

from acp_bridge.ports import FailureChunk

RETRYABLE_CODES = frozenset({"RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT", "EMPTY_RESPONSE"})
"""Failures that the same request may not meet again."""

REFUSAL = "REFUSAL"
"""Not a failure to whoever asked: the provider's content filter refused to answer."""

MESSAGE_CHARS_MAX = 300
"""What is shown of a provider's own words: a sentence or two, never a page of HTML."""

_CODES = {
    400: "INVALID_REQUEST",
    401: "AUTH",
    402: "QUOTA",
    403: "AUTH",
    404: "NOT_FOUND",
    408: "TIMEOUT",
    413: "INVALID_REQUEST",
    429: "RATE_LIMIT",
}

_KINDS = {
    "authentication_error": "AUTH",
    "invalid_api_key": "AUTH",
    "permission_error": "AUTH",
    "billing_error": "QUOTA",
    "insufficient_quota": "QUOTA",
    "billing_hard_limit_reached": "QUOTA",
    "rate_limit_error": "RATE_LIMIT",
    "rate_limit_exceeded": "RATE_LIMIT",
    "overloaded_error": "SERVER",
    "api_error": "SERVER",
    "server_error": "SERVER",
    "internal_server_error": "SERVER",
    "timeout_error": "TIMEOUT",
    "not_found_error": "NOT_FOUND",
    "model_not_found": "NOT_FOUND",
    "context_length_exceeded": "CONTEXT_WINDOW",
    "content_filter": REFUSAL,
    "content_policy_violation": REFUSAL,
}
"""What the providers' own names mean. ``invalid_request_error`` is not here: providers use it for
everything, and the status says more."""

_WORDS = (
    # Without a code of its own at one provider each; the status alone would call them our fault.
    (re.compile(r"credit balance is too low|insufficient balance", re.IGNORECASE), "QUOTA"),
    (
        re.compile(
            r"prompt is too long|maximum context length|context (?:window|limit|size)"
            r"|exceeds the maximum number of tokens",
            re.IGNORECASE,
        ),
        "CONTEXT_WINDOW",
    ),
)

_SECRET = re.compile(r"\b(?:sk|key)-[\w*.-]{6,}", re.IGNORECASE)


@attrs.frozen(slots=True)
class ProviderError:
    """An error as a provider tells it: HTTP status, its own names for the kind, its words."""

    status: int | None
    kinds: tuple[str, ...]
    message: str


def failure_from_status(
    status: int, message: str, *, retry_after_s: float | None = None
) -> FailureChunk:
    """The failure that an HTTP answer with this status is."""
    return _failure(
        code_of_error(ProviderError(status, (), message)), message, status, retry_after_s
    )


def lost_connection(message: str = "the connection to the model was lost") -> FailureChunk:
    """The failure of a stream that was cut off."""
    return FailureChunk(message=message, code="TRANSPORT", retryable=True)


def failure_from_error(
    error: ProviderError, *, title: str, sign_in: str, retry_after_s: float | None = None
) -> FailureChunk:
    """The failure that a provider's error is, with a sentence for people.

    ``title`` is the provider's name, ``sign_in`` what to do about a key that it does not take.
    """
    code = code_of_error(error)
    said = error.message or "it gave no reason"
    if error.status is None:
        text = f"{title} broke off: {said}"
    else:
        text = f"{title} answered {error.status}: {said}"
    match code:
        case "AUTH":
            text = f"{_stopped(text)} {sign_in}"
        case "QUOTA":
            text = f"{_stopped(text)} The quota or the balance of this key is used up."
        case "NOT_FOUND":
            text = f"{_stopped(text)} Check the model's name and the base address."
    return _failure(code, text, error.status, retry_after_s)


def code_of_error(error: ProviderError) -> str:
    """The log's code for a provider's error."""
    for kind in error.kinds:
        if kind in _KINDS:
            return _KINDS[kind]
    if error.status in {None, 400, 403, 413}:
        for words, code in _WORDS:
            if words.search(error.message):
                return code
    if error.status is not None:
        return _code_of_status(error.status)
    return "INVALID_REQUEST" if "invalid_request_error" in error.kinds else "SERVER"


def shown(text: str, *, secret: str) -> str:
    """A provider's words on one line, short, and without a key: its own, or one like it."""
    line = " ".join(text.split())
    if secret:
        line = line.replace(secret, "[redacted]")
    line = _SECRET.sub("[redacted]", line)
    return line if len(line) <= MESSAGE_CHARS_MAX else line[: MESSAGE_CHARS_MAX - 1] + "…"


def _code_of_status(status: int) -> str:
    return _CODES.get(status, "SERVER" if status >= 500 else "INVALID_REQUEST")  # noqa: PLR2004


def _failure(
    code: str, message: str, status: int | None, retry_after_s: float | None
) -> FailureChunk:
    return FailureChunk(
        message=message,
        code=code,
        status=status,
        retryable=code in RETRYABLE_CODES,
        retry_after_s=retry_after_s,
    )


def _stopped(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else text + "."
