"""Lines to messages and back; the table holds the raw lines of R007, R017 and their like."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.errors import (
    BridgeError,
    InvalidParamsError,
    LocalProtocolError,
    MethodNotFoundError,
    RequestCancelledError,
    SessionNotFoundError,
)
from acp_bridge.wire.framing import Oversize
from acp_bridge.wire.messages import (
    INTERNAL_DETAILS,
    ErrorResponse,
    Invalid,
    Message,
    MessageId,
    Notification,
    Request,
    Response,
    error_frame,
    error_parts,
    notification_frame,
    parse,
    parse_oversize,
    request_frame,
    result_frame,
)

MESSAGES: list[tuple[bytes, Message]] = [
    (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}', Request(1, "m", {"a": 1})),
    (b'{"jsonrpc":"2.0","id":"x","method":"m","params":[1]}', Request("x", "m", [1])),
    (b'{"jsonrpc":"2.0","id":null,"method":"m"}', Request(None, "m", None)),
    (b'{"jsonrpc":"2.0","id":"","method":"m","params":null}', Request("", "m", None)),
    (b'{"jsonrpc":"2.0","id":-5,"method":"m"}', Request(-5, "m", None)),
    (b'{"jsonrpc":"2.0","id":36893488147419103232,"method":"m"}', Request(2**65, "m", None)),
    (b'{"jsonrpc":"2.0","id":1,"method":"m","extra":{"x":1}}', Request(1, "m", None)),
    (b'{"jsonrpc":"2.0","method":"m","params":{}}', Notification("m", {})),
    (b'{"jsonrpc":"2.0","method":""}', Notification("", None)),
    (b'{"jsonrpc":"2.0","id":1,"result":{}}', Response(1, {})),
    (b'{"jsonrpc":"2.0","id":1,"result":null}', Response(1, None)),
    (b'{"jsonrpc":"2.0","id":1,"result":{"a":1},"error":null}', Response(1, {"a": 1})),
    (
        b'{"jsonrpc":"2.0","id":"a","error":{"code":-32601,"message":"no","data":[1]}}',
        ErrorResponse("a", -32601, "no", [1]),
    ),
    (
        b'{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":5,"message":"no"}}',
        ErrorResponse(1, 5, "no", None),
    ),
    (b'{"jsonrpc":"2.0","id":1,"error":"broken"}', ErrorResponse(1, -32603, "", None)),
    (b'{"jsonrpc":"2.0","id":1,"error":{"code":"5"}}', ErrorResponse(1, -32603, "", None)),
    (
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":{"jsonrpc":"2.0","id":9,"method":5}}}',
        Request(1, "m", {"x": {"jsonrpc": "2.0", "id": 9, "method": 5}}),
    ),
]

INVALID: list[tuple[bytes, int, MessageId]] = [
    (b"not json", -32700, None),
    (b"{", -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"m"', -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, None),
    (b"Content-Length: 12", -32700, None),
    (b"[]", -32600, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', -32600, None),
    (b"42", -32600, None),
    (b"null", -32600, None),
    (b'"text"', -32600, None),
    (b"{}", -32600, None),
    (b'{"jsonrpc":"2.0","id":7}', -32600, 7),
    (b'{"jsonrpc":"2.0","id":"seven"}', -32600, "seven"),
    (b'{"id":1,"method":"m"}', -32600, 1),
    (b'{"jsonrpc":"1.0","id":1,"method":"m"}', -32600, 1),
    (b'{"jsonrpc":2.0,"id":1,"method":"m"}', -32600, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":null}', -32600, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"m","params":5}', -32600, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}', -32600, 1),
    (b'{"jsonrpc":"2.0","id":true,"method":"m"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":1.0,"method":"m"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":{"a":1},"method":"m"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":[1],"method":"m"}', -32600, None),
    (b'{"jsonrpc":"2.0","method":5}', -32600, None),
    (b'{"jsonrpc":"2.0","result":{}}', -32600, None),
    (b'{"jsonrpc":"2.0","id":true,"result":{}}', -32600, None),
]


@pytest.mark.parametrize(("line", "message"), MESSAGES)
def test_a_sound_line_is_read_as_its_message(line: bytes, message: Message) -> None:
    parsed = parse(line)
    assert parsed == message
    assert type(parsed) is type(message)


@pytest.mark.parametrize(("line", "code", "message_id"), INVALID)
def test_an_unsound_line_is_refused_with_its_id_where_it_has_one(
    line: bytes, code: int, message_id: MessageId
) -> None:
    parsed = parse(line)
    assert isinstance(parsed, Invalid)
    assert (parsed.error.code, parsed.id) == (code, message_id)
    assert parsed.answers is None


@pytest.mark.parametrize(
    "line", [b'{"id":3,"result":{}}', b'{"jsonrpc":"2.0","id":3,"error":null}']
)
def test_a_malformed_answer_names_our_request_and_not_one_of_the_peer(line: bytes) -> None:
    parsed = parse(line)
    assert isinstance(parsed, Invalid)
    assert (parsed.id, parsed.answers) == (None, 3)


def test_an_lsp_client_is_told_the_right_command_as_r010_needs() -> None:
    parsed = parse(b"Content-Length: 120")
    assert isinstance(parsed, Invalid)
    assert "`acp-bridge lsp`" in parsed.error.details


@given(
    st.binary(max_size=200)
    | st.dictionaries(
        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"]),
        st.sampled_from(["2.0", 1, 1.5, None, True, "m", {}, [], {"code": 1}, "\ud800"]),
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_bytes_make_parsing_raise(line: bytes) -> None:
    parsed = parse(line)
    if isinstance(parsed, Invalid):
        assert parsed.error.code in (-32700, -32600)
        error_frame(parsed.id, parsed.error)


@pytest.mark.parametrize(
    ("head", "message_id", "answers"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"x":"', 7, None),
        (b'{"id":"a\\"b","jsonrpc":"2.0","method":"m"', 'a"b', None),
        (b'{ "jsonrpc" : "2.0" , "id" : 7 , "result" : "', None, 7),
        (b'{"id":7,"error":{"message":"', None, 7),
        (b'{"jsonrpc":"2.0","method":"m","params":{"id":7,"method":"', None, None),
        (b'{"jsonrpc":"2.0","id":7.5,"method":"m"', None, None),
        (b'{"jsonrpc":"2.0","id":"\xff","method":"m"', None, None),
        (b"xxxxxxxxx", None, None),
    ],
)
def test_an_oversize_line_is_refused_with_the_id_its_beginning_shows(
    head: bytes, message_id: MessageId, answers: MessageId
) -> None:
    invalid = parse_oversize(Oversize(head))
    assert (invalid.id, invalid.answers, invalid.error.code) == (message_id, answers, -32600)


def test_frames_are_read_back_as_what_they_say() -> None:
    assert parse(request_frame(1, "m", {"a": 1})) == Request(1, "m", {"a": 1})
    assert parse(request_frame(1, "m", None)) == Request(1, "m", None)
    assert parse(notification_frame("m", [1])) == Notification("m", [1])
    assert notification_frame("m", None) == b'{"jsonrpc":"2.0","method":"m"}\n'
    assert parse(result_frame(None, {})) == Response(None, {})
    refused = parse(error_frame(None, MethodNotFoundError("No such method: m")))
    assert refused == ErrorResponse(
        None, -32601, "No such method: m", {"details": "No such method: m"}
    )


def test_our_own_errors_say_their_code_and_data() -> None:
    assert error_parts(SessionNotFoundError("s1")) == (
        -32002,
        "Session not found: s1",
        {"sessionId": "s1"},
    )
    assert error_parts(InvalidParamsError("Bad cwd.", field="cwd")) == (
        -32602,
        "Bad cwd.",
        {"field": "cwd", "details": "Bad cwd."},
    )
    assert error_parts(RequestCancelledError()) == (-32800, "Request cancelled", None)
    assert b'"data"' not in error_frame(1, RequestCancelledError())


def test_foreign_text_goes_to_the_log_and_not_on_the_wire(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ValueError, match="sk-123") as caught:
        int("sk-123 in /home/someone")
    with caplog.at_level(logging.ERROR):
        frame = error_frame(4, caught.value)
    error = {"code": -32603, "message": "Internal error", "data": {"details": INTERNAL_DETAILS}}
    assert json.loads(frame) == {"jsonrpc": "2.0", "id": 4, "error": error}
    assert "sk-123" in caplog.text
    assert "Traceback" in caplog.text


def test_an_error_whose_data_is_no_json_is_still_answered() -> None:
    class OddError(BridgeError):
        def data(self) -> dict[str, object]:
            return {"odd": object()}

    reply = json.loads(error_frame(1, OddError("odd")))
    assert (reply["id"], reply["error"]["code"]) == (1, -32603)


def test_a_result_that_is_no_json_is_our_own_fault() -> None:
    with pytest.raises(LocalProtocolError):
        result_frame(1, {"odd": object()})
