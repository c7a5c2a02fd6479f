"""What goes wrong between us and a provider: every failure has its code, and nothing is raised."""

import gzip
import logging
from contextlib import aclosing
from email.utils import formatdate
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from provider_server import (
    CUT,
    EVENTS_HEAD,
    HANG,
    KEY,
    LAST_CHUNK,
    WAIT_S,
    answer,
    asked,
    chunked,
    message_start,
    messages_answer,
    messages_events,
    opened,
    provider_server,
    refusal,
    stream,
    text_block,
)

from acp_bridge import sse
from acp_bridge.models import http
from acp_bridge.models.catalog import Catalog
from acp_bridge.models.http import retry_after_s
from acp_bridge.models.http_model import HttpModel
from acp_bridge.ports import Chunk, FailureChunk, StopChunk, TextChunk

pytestmark = pytest.mark.anyio

GOOD = stream(messages_answer(text_block(0, "Hi")))


async def failure(tmp_path: Path, *steps: Any, model: str = "deepseek:m") -> FailureChunk:
    """The only chunk of an answer that failed."""
    async with opened(model, tmp_path) as (opened_model, server):
        server.then(*steps)
        got = await answer(opened_model)
    assert len(got) == 1
    assert isinstance(got[0], FailureChunk)
    return got[0]


def error(kind: str, message: str = "Words of theirs", **more: object) -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message, **more}}


@pytest.mark.parametrize(
    ("status", "body", "code", "retryable"),
    [
        (400, error("invalid_request_error"), "INVALID_REQUEST", False),
        (400, error("invalid_request_error", "Your credit balance is too low"), "QUOTA", False),
        (400, error("invalid_request_error", "prompt is too long: 9"), "CONTEXT_WINDOW", False),
        (400, error("x", code="context_length_exceeded"), "CONTEXT_WINDOW", False),
        (400, error("x", "input and `max_tokens` exceed context limit"), "CONTEXT_WINDOW", False),
        (400, error("x", "exceeds the available context size (8192)"), "CONTEXT_WINDOW", False),
        (400, error("x", "exceeds the maximum number of tokens allowed"), "CONTEXT_WINDOW", False),
        (401, error("authentication_error"), "AUTH", False),
        (401, {"error": "nothing but a string"}, "AUTH", False),
        (402, error("unknown_error", "Insufficient Balance"), "QUOTA", False),
        (403, error("permission_error"), "AUTH", False),
        (404, error("not_found_error"), "NOT_FOUND", False),
        (404, error("invalid_request_error", code="model_not_found"), "NOT_FOUND", False),
        (408, b"", "TIMEOUT", True),
        (413, error("request_too_large"), "INVALID_REQUEST", False),
        (422, error("invalid_request_error"), "INVALID_REQUEST", False),
        (429, error("rate_limit_error"), "RATE_LIMIT", True),
        (429, error("insufficient_quota", code="insufficient_quota"), "QUOTA", False),
        (500, error("api_error"), "SERVER", True),
        (502, b"<html>Bad gateway</html>", "SERVER", True),
        (503, b"\xff\xfe", "SERVER", True),
        (529, error("overloaded_error"), "SERVER", True),
        (529, [1], "SERVER", True),
    ],
)
async def test_a_refused_call_has_its_code_as_r046_and_r096_need(
    tmp_path: Path, status: int, body: object, code: str, retryable: bool
) -> None:
    got = await failure(tmp_path, refusal(status, body))
    assert (got.code, got.retryable, got.status) == (code, retryable, status)
    assert got.message.startswith(f"DeepSeek answered {status}")
    assert "<" not in got.message


async def test_a_wrong_key_says_what_to_do(tmp_path: Path) -> None:
    got = await failure(tmp_path, refusal(401, error("authentication_error", "Invalid key")))
    assert got.message == (
        "DeepSeek answered 401: Invalid key. "
        "Set DEEPSEEK_API_KEY, or run `acp-bridge setup --provider deepseek`."
    )


@pytest.mark.parametrize("kind", ["content_filter", "content_policy_violation"])
async def test_a_content_filter_before_the_answer_is_a_refusal_as_r046_needs(
    tmp_path: Path, kind: str
) -> None:
    async with opened("openai:m", tmp_path) as (model, server):
        server.then(refusal(400, error("invalid_request_error", code=kind)))
        assert await answer(model) == [StopChunk("refusal")]


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": formatdate(1_000_030, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(999_000, usegmt=True)}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 99 Foo 9999 99:99:99 GMT"}, None),
        ({}, None),
    ],
)
def test_the_providers_wish_for_a_wait_is_read(
    headers: dict[str, str], wait_s: float | None
) -> None:
    assert retry_after_s(headers, 1_000_000.0) == wait_s


async def test_the_wish_comes_with_the_failure(tmp_path: Path) -> None:
    got = await failure(tmp_path, refusal(429, error("rate_limit_error"), "Retry-After: 3"))
    assert got.retry_after_s == 3.0


@pytest.mark.parametrize(
    "answered",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\n<html",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        refusal(200, {"id": "msg", "content": []}),
    ],
)
async def test_an_answer_without_events_is_no_answer(tmp_path: Path, answered: bytes) -> None:
    got = await failure(tmp_path, answered)
    assert (got.code, got.retryable) == ("MALFORMED_RESPONSE", False)
    assert "DEEPSEEK_BASE_URL" in got.message


async def test_an_error_with_a_good_status_is_still_an_error(tmp_path: Path) -> None:
    got = await failure(tmp_path, refusal(200, error("overloaded_error")))
    assert (got.code, got.retryable) == ("SERVER", True)


@pytest.mark.parametrize(
    "steps",
    [(CUT,), (b"HTTP/1.1 200", CUT), (b"no http at all\r\n\r\n", CUT), (EVENTS_HEAD, CUT)],
)
async def test_a_lost_connection_may_be_tried_again(tmp_path: Path, steps: Any) -> None:
    got = await failure(tmp_path, *steps)
    assert (got.code, got.retryable) == ("TRANSPORT", True)
    assert "DeepSeek" in got.message


async def test_a_refused_connection_may_be_tried_again(tmp_path: Path) -> None:
    async with provider_server() as server:
        url = server.url
    environment = {"DEEPSEEK_API_KEY": KEY, "DEEPSEEK_BASE_URL": url}
    models = Catalog(home=tmp_path, environment=environment)
    model = models.open("deepseek:m")
    assert isinstance(model, HttpModel)
    got = await answer(model)
    await models.aclose()
    assert got == [
        FailureChunk("no connection to DeepSeek at 127.0.0.1", "TRANSPORT", retryable=True)
    ]


async def test_silence_ends_at_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "IDLE_TIMEOUT_S", 0.05)
    got = await failure(tmp_path, EVENTS_HEAD, HANG)
    assert (got.code, got.retryable) == ("TIMEOUT", True)


async def test_an_error_whose_text_never_comes_is_known_by_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "ERROR_WAIT_S", 0.05)
    head = b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\nhalf"
    got = await failure(tmp_path, head, HANG)
    assert (got.code, got.status) == ("SERVER", 503)


async def test_an_endless_error_text_is_not_read_to_its_end(tmp_path: Path) -> None:
    page = b"x" * (http.ERROR_BYTES_MAX * 4)
    got = await failure(tmp_path, refusal(500, page))
    assert len(got.message) < 400


async def test_a_finished_answer_does_not_wait_for_a_server_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "DRAIN_WAIT_S", 0.05)
    async with opened("deepseek:m", tmp_path) as (model, server):
        server.then(EVENTS_HEAD, chunked(messages_answer(text_block(0, "Hi"))), HANG)
        assert isinstance((await answer(model))[-1], StopChunk)
        with anyio.fail_after(WAIT_S):
            await server.left.wait()
        server.then(GOOD)
        assert isinstance((await answer(model))[-1], StopChunk)


async def first_chunk(model: HttpModel) -> Chunk:
    async with aclosing(model.stream(asked())) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            return chunk
    raise AssertionError("no chunk came")


async def test_leaving_an_answer_closes_its_connection_at_once(tmp_path: Path) -> None:
    begun = chunked(messages_events(message_start(), *text_block(0, "Hi")))
    async with opened("deepseek:m", tmp_path) as (model, server):
        server.then(EVENTS_HEAD, begun, HANG)
        assert await first_chunk(model) == TextChunk(0, "Hi")
        with anyio.fail_after(WAIT_S):
            await server.left.wait()


@pytest.mark.parametrize("steps", [(HANG,), (EVENTS_HEAD, HANG)])
async def test_a_cancel_closes_the_connection_at_once(tmp_path: Path, steps: Any) -> None:
    async with opened("deepseek:m", tmp_path) as (model, server):
        server.then(*steps)
        came = server.asked
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as group:
                group.start_soon(answer, model)
                await came.wait()
                group.cancel_scope.cancel()
            await server.left.wait()
        server.then(GOOD)
        assert isinstance((await answer(model))[-1], StopChunk)


async def test_answers_share_one_connection(tmp_path: Path) -> None:
    async with opened("deepseek:m", tmp_path) as (model, server):
        for _ in range(3):
            server.then(GOOD)
            await answer(model)
        server.then(refusal(429, error("rate_limit_error")))
        await answer(model)
        server.then(GOOD)
        await answer(model)
        assert server.connections == 1


async def test_a_proxy_of_the_environment_is_not_asked_about_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with opened("deepseek:m", tmp_path) as (model, server):
        server.then(GOOD)
        assert isinstance((await answer(model))[-1], StopChunk)


async def test_a_proxy_that_cannot_be_used_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "gopher://127.0.0.1")
    models = Catalog(home=tmp_path, environment={"DEEPSEEK_API_KEY": KEY})
    model = models.open("deepseek:m")
    assert isinstance(model, HttpModel)
    got = await answer(model)
    await models.aclose()
    assert isinstance(got[0], FailureChunk)
    assert (got[0].code, got[0].retryable) == ("INVALID_REQUEST", False)


async def test_an_answer_that_is_compressed_against_our_wish_is_read(tmp_path: Path) -> None:
    data = gzip.compress(messages_answer(text_block(0, "Hi")))
    head = EVENTS_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    async with opened("deepseek:m", tmp_path) as (model, server):
        server.then(head, chunked(data), LAST_CHUNK)
        assert (await answer(model))[0] == TextChunk(0, "Hi")
        assert server.requests[0].headers["accept-encoding"] == "identity"


async def test_an_event_without_end_is_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "EVENT_BYTES_MAX", 1000)
    got = await failure(tmp_path, EVENTS_HEAD, chunked(b"data: " + b"a" * 1000), HANG)
    assert got.code == "MALFORMED_RESPONSE"


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (httpx.ConnectTimeout, "TIMEOUT"),
        (httpx.ReadTimeout, "TIMEOUT"),
        (httpx.ProxyError, "TRANSPORT"),
        (httpx.WriteError, "TRANSPORT"),
        (httpx.DecodingError, "TRANSPORT"),
        (httpx.LocalProtocolError, "INVALID_REQUEST"),
        (httpx.UnsupportedProtocol, "INVALID_REQUEST"),
        (httpx.InvalidURL, "INVALID_REQUEST"),
    ],
)
async def test_no_word_of_the_http_client_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[Exception], code: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault("client's words")

    monkeypatch.setattr(httpx.AsyncClient, "stream", fail)
    got = await failure(tmp_path)
    assert (got.code, got.retryable) == (code, code != "INVALID_REQUEST")
    assert "client's words" not in got.message


async def test_no_key_is_ever_shown_or_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    words = f"Incorrect API key provided: {KEY} or sk-abc***wxyz."
    async with opened("openai:m", tmp_path) as (model, server):
        server.then(refusal(401, error("invalid_request_error", words, code="invalid_api_key")))
        server.then(CUT)
        got = [*await answer(model), *await answer(model)]
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert KEY not in repr(vars(model)) + repr(vars(model._http))
    told = caplog.text + repr(got)
    assert KEY not in told
    assert "wxyz" not in told
    assert isinstance(got[0], FailureChunk)
    assert "[redacted]" in got[0].message
