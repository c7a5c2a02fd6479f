"""The shapes of JSON-RPC 2.0: lines to messages, and messages to frames. Source: its sections 4-6.

What is lenient and why: ``params: null`` counts as no params, since some serialisers write it for
an empty option; a result beside ``"error": null`` is a result; a malformed error object of the
peer still settles our request. A nested object with a ``jsonrpc`` key is data: only the outermost
object is a message.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from acp_bridge.errors import BridgeError, LocalProtocolError, RemoteProtocolError
from acp_bridge.wire.codec import PARSE_ERROR, decode, encode
from acp_bridge.wire.framing import LSP_HEADER_ADVICE, Oversize, is_lsp_header

if TYPE_CHECKING:
    from acp_bridge.vocabulary import JsonObject, JsonValue

INVALID_REQUEST: Final = -32600
"""JSON-RPC 2.0, section 5.1: the JSON is no valid message."""

INTERNAL_ERROR: Final = -32603
"""JSON-RPC 2.0, section 5.1: the fault is ours."""

INTERNAL_DETAILS: Final = "The agent failed unexpectedly; its log file has the details."
"""All that a peer learns of an exception that we did not raise on purpose."""

MessageId: TypeAlias = str | int | None
"""A request's id. ACP v1 allows null, which is an id like another but cannot be cancelled."""


class Request(NamedTuple):
    """Wants exactly one reply. ``params`` is None where the peer sent none."""

    id: MessageId
    method: str
    params: JsonObject | list[JsonValue] | None


class Notification(NamedTuple):
    """Wants no reply, not even an error."""

    method: str
    params: JsonObject | list[JsonValue] | None


class Response(NamedTuple):
    """The peer's answer to a request of ours."""

    id: MessageId
    result: JsonValue


class ErrorResponse(NamedTuple):
    """The peer's refusal of a request of ours."""

    id: MessageId
    code: int
    message: str
    data: JsonValue


class Invalid(NamedTuple):
    """A line that is no message.

    ``id`` is what the error reply carries; ``answers`` is the id of a request of *ours* that the
    line was meant to answer, else None. Those two are never the same thing: an answer's id echoed
    in an error would look like our reply to a request of the peer.
    """

    id: MessageId
    error: RemoteProtocolError
    answers: MessageId = None


Message: TypeAlias = Request | Notification | Response | ErrorResponse


def parse(line: bytes) -> Message | Invalid:
    """What a line says. Raises nothing, whatever the bytes."""
    try:
        value = decode(line)
    except RemoteProtocolError as exc:
        header = is_lsp_header(line)
        return Invalid(
            None, RemoteProtocolError(LSP_HEADER_ADVICE, code=PARSE_ERROR) if header else exc
        )
    if isinstance(value, list):
        return _invalid("Batches are not part of ACP: send one message a line.")
    if not isinstance(value, dict):
        return _invalid("A message must be a JSON object.")
    if "method" in value:
        return _parse_call(value)
    if "result" in value or "error" in value:
        return _parse_answer(value)
    return _invalid("A message needs a method, a result or an error.", value.get("id"))


def _parse_call(value: JsonObject) -> Request | Notification | Invalid:
    message_id = value.get("id")
    if value.get("jsonrpc") != "2.0":
        return _invalid('A message needs "jsonrpc": "2.0".', message_id)
    method = value["method"]
    if not isinstance(method, str):
        return _invalid("A method must be a string.", message_id)
    params = value.get("params")
    if params is not None and not isinstance(params, dict | list):
        return _invalid("Params must be an object or an array.", message_id)
    if "id" not in value:
        return Notification(method, params)
    if not _is_id(message_id):
        return _invalid("An id must be a string, an integer or null.")
    return Request(message_id, method, params)  # type: ignore[arg-type]  # _is_id has looked


def _parse_answer(value: JsonObject) -> Response | ErrorResponse | Invalid:
    message_id = value.get("id")
    if value.get("jsonrpc") != "2.0":
        return _invalid_answer('A response needs "jsonrpc": "2.0".', message_id)
    if "id" not in value or not _is_id(message_id):
        return _invalid_answer("A response's id must be a string, an integer or null.", None)
    error = value.get("error")
    if error is None:
        if "result" not in value:
            return _invalid_answer("A response needs a result or an error.", message_id)
        return Response(message_id, value["result"])  # type: ignore[arg-type]  # as above
    fields = error if isinstance(error, dict) else {}
    code, message = fields.get("code"), fields.get("message")
    return ErrorResponse(
        message_id,  # type: ignore[arg-type]  # as above
        code if isinstance(code, int) else INTERNAL_ERROR,
        message if isinstance(message, str) else "",
        fields.get("data"),
    )


def _is_id(value: JsonValue) -> bool:
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))


def _invalid(details: str, message_id: JsonValue = None) -> Invalid:
    error = RemoteProtocolError(details, code=INVALID_REQUEST)
    return Invalid(message_id if _is_id(message_id) else None, error)  # type: ignore[arg-type]


def _invalid_answer(details: str, message_id: JsonValue) -> Invalid:
    error = RemoteProtocolError(details, code=INVALID_REQUEST)
    return Invalid(None, error, message_id if _is_id(message_id) else None)  # type: ignore[arg-type]


# Serialisers write the id near the front, before or after the version, and big members last.
_OVERSIZE_HEAD: Final = (
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*("(?:[^"\\]|\\.){0,255}"|-?[0-9]{1,18})'
    rb'\s*,\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"(method|result|error)"'
)


def parse_oversize(oversize: Oversize) -> Invalid:
    """The refusal of a line above the cap, with its id where its beginning shows it (R004)."""
    error = RemoteProtocolError(
        "The message is longer than this agent takes; send less at once.", code=INVALID_REQUEST
    )
    found = re.match(_OVERSIZE_HEAD, oversize.head)  # compiled here: no good start waits for it
    if found is None:
        return Invalid(None, error)
    try:
        message_id = decode(found[1])
    except RemoteProtocolError:
        return Invalid(None, error)
    assert isinstance(message_id, str | int)
    if found[2] == b"method":
        return Invalid(message_id, error)
    return Invalid(None, error, message_id)


def request_frame(message_id: MessageId, method: str, params: object) -> bytes:
    """A request of ours, as a line. Raises LocalProtocolError: ``params`` are no JSON."""
    frame: dict[str, object] = {"jsonrpc": "2.0", "id": message_id, "method": method}
    return encode(frame if params is None else {**frame, "params": params})


def notification_frame(method: str, params: object) -> bytes:
    """A notification, as a line. Raises LocalProtocolError: ``params`` are no JSON."""
    if params is None:
        return encode({"jsonrpc": "2.0", "method": method})
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def result_frame(message_id: MessageId, result: object) -> bytes:
    """A reply, as a line. Raises LocalProtocolError: the result is no JSON."""
    return encode({"jsonrpc": "2.0", "id": message_id, "result": result})


def error_frame(message_id: MessageId, exc: BaseException) -> bytes:
    """An error reply, as a line. Raises nothing: every request must get its reply."""
    code, message, data = error_parts(exc)
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    frame = {"jsonrpc": "2.0", "id": message_id, "error": error}
    try:
        return encode(frame)
    except LocalProtocolError as unwritable:
        code, message, data = error_parts(unwritable)
        return encode({**frame, "error": {"code": code, "message": message, "data": data}})


def error_parts(exc: BaseException) -> tuple[int, str, dict[str, object] | None]:
    """Code, message and data of any exception: the one place where errors become replies.

    What we raised on purpose says so itself. All else is logged with its traceback, and the peer
    gets one fixed sentence: foreign text may hold paths, prompts or keys.
    """
    if isinstance(exc, BridgeError):
        return exc.code, exc.details, exc.data()
    # Imported here because logging takes 5 ms that no good start needs.
    import logging

    logging.getLogger(__name__).error("A request failed unexpectedly", exc_info=exc)
    return INTERNAL_ERROR, "Internal error", {"details": INTERNAL_DETAILS}
