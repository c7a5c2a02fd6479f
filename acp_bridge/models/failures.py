"""HTTP status codes as the log's failure codes, and whether trying again can help.

Source: the codes that the real runtime writes into ``assistant/attempt`` rows.
"""

from acp_bridge.ports import FailureChunk

RETRYABLE_CODES = frozenset({"RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT", "EMPTY_RESPONSE"})
"""Failures that the same request may not meet again."""

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


def failure_from_status(
    status: int, message: str, *, retry_after_s: float | None = None
) -> FailureChunk:
    """The failure that an HTTP answer with this status is."""
    code = _CODES.get(status, "SERVER" if status >= 500 else "INVALID_REQUEST")  # noqa: PLR2004
    return FailureChunk(
        message=message,
        code=code,
        status=status,
        retryable=code in RETRYABLE_CODES,
        retry_after_s=retry_after_s,
    )


def lost_connection(message: str = "the connection to the model was lost") -> FailureChunk:
    """The failure of a stream that was cut off."""
    return FailureChunk(message=message, code="TRANSPORT", retryable=True)
