"""The Messages API's stream as chunks: every block, every end, at any split."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from provider_server import (
    CUT,
    EVENTS_HEAD,
    LAST_CHUNK,
    answer,
    block,
    chunked,
    message_end,
    message_start,
    messages_answer,
    messages_events,
    opened,
    stream,
    text_block,
    thinking_block,
    tool_block,
)

from acp_bridge.ports import (
    Chunk,
    FailureChunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)
from acp_bridge.vocabulary import JsonObject

pytestmark = pytest.mark.anyio

MODEL = "anthropic:claude-sonnet-5-5"
STATE: JsonObject = {"kind": "anthropic-messages", "version": 1, "model": "claude-sonnet-5-5"}


async def chunks(tmp_path: Path, *steps: Any, model: str = MODEL) -> list[Chunk]:
    """What one answer of the server becomes."""
    async with opened(model, tmp_path) as (opened_model, server):
        server.then(*steps)
        return await answer(opened_model)


async def test_text_usage_and_the_end_come_as_the_documentation_shows_them(tmp_path: Path) -> None:
    data = messages_events(
        message_start(cache_read_input_tokens=100, cache_creation_input_tokens=7),
        {"type": "ping"},
        *text_block(0, "Hello", "!"),
        *message_end("end_turn"),
    )
    assert await chunks(tmp_path, stream(data)) == [
        TextChunk(0, "Hello"),
        TextChunk(0, "!"),
        UsageChunk(25, 15, cache_read_tokens=100, cache_write_tokens=7),
        StopChunk("end_turn", {"response": STATE, "blocks": [{"type": "text"}]}),
    ]


async def test_reasoning_and_a_tool_call_keep_their_blocks_and_the_signature(
    tmp_path: Path,
) -> None:
    data = messages_answer(
        thinking_block(0, "sig-1", "Let me ", "look."),
        text_block(1, "I look."),
        tool_block(2, "toolu_1", "read", "", '{"file_', 'path": "a"}'),
        stop="tool_use",
    )
    blocks: list[Any] = [
        {"type": "reasoning", "signature": "sig-1"},
        {"type": "text"},
        {"type": "tool-call"},
    ]
    assert await chunks(tmp_path, stream(data)) == [
        ReasoningChunk(0, "Let me "),
        ReasoningChunk(0, "look."),
        TextChunk(1, "I look."),
        ToolCallChunk(2, "toolu_1", "read", ""),
        ToolCallChunk(2, "toolu_1", None, '{"file_'),
        ToolCallChunk(2, "toolu_1", None, 'path": "a"}'),
        UsageChunk(25, 15),
        StopChunk("tool_calls", {"response": STATE, "blocks": blocks}),
    ]


async def test_reasoning_that_is_not_told_goes_back_as_it_came(tmp_path: Path) -> None:
    redacted: JsonObject = {"type": "redacted_thinking", "data": "abc"}
    data = messages_answer(thinking_block(0, "sig"), block(1, redacted), text_block(2, "Hi"))
    end = (await chunks(tmp_path, stream(data)))[-1]
    assert isinstance(end, StopChunk)
    assert end.replay_state is not None
    silent = {"type": "thinking", "thinking": "", "signature": "sig"}
    assert end.replay_state["blocks"] == [
        {"type": "hidden", "block": silent},
        {"type": "hidden", "block": redacted},
        {"type": "text"},
    ]


@pytest.mark.parametrize("pieces", [(), ("",)])
async def test_a_call_without_arguments_is_an_empty_object(
    tmp_path: Path, pieces: tuple[str, ...]
) -> None:
    data = messages_answer(tool_block(0, "t", "look", *pieces), stop="tool_use")
    got = await chunks(tmp_path, stream(data))
    assert got[:2] == [ToolCallChunk(0, "t", "look", ""), ToolCallChunk(0, "t", None, "{}")]


async def test_a_server_may_give_a_blocks_content_whole(tmp_path: Path) -> None:
    data = messages_answer(
        block(0, {"type": "thinking", "thinking": "Hm.", "signature": "s"}),
        block(1, {"type": "text", "text": "Hi"}),
        block(2, {"type": "tool_use", "id": "t", "name": "look", "input": {"at": 1}}),
        stop="tool_use",
    )
    got = await chunks(tmp_path, stream(data))
    assert got[:4] == [
        ReasoningChunk(0, "Hm."),
        TextChunk(1, "Hi"),
        ToolCallChunk(2, "t", "look", ""),
        ToolCallChunk(2, "t", None, '{"at": 1}'),
    ]


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "end_turn"),
        ("stop_sequence", "end_turn"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("refusal", "refusal"),
    ],
)
async def test_each_end_is_what_it_is_as_r046_needs(tmp_path: Path, stop: str, reason: str) -> None:
    end = (await chunks(tmp_path, stream(messages_answer(text_block(0, "x"), stop=stop))))[-1]
    assert isinstance(end, StopChunk)
    assert end.reason == reason


async def test_an_unknown_end_is_an_end_and_leaves_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end = (await chunks(tmp_path, stream(messages_answer(text_block(0, "x"), stop="nap"))))[-1]
    assert isinstance(end, StopChunk)
    assert end.reason == "end_turn"
    assert "'nap'" in caplog.text


@pytest.mark.parametrize("ending", [(LAST_CHUNK,), (CUT,)])
async def test_a_stream_that_stops_before_its_answer_is_cut_off(
    tmp_path: Path, ending: tuple[Any, ...]
) -> None:
    data = messages_events(message_start(), *text_block(0, "one", "two")[:-1])
    got = await chunks(tmp_path, EVENTS_HEAD, chunked(data), *ending)
    assert got[:2] == [TextChunk(0, "one"), TextChunk(0, "two")]
    end = got[2]
    assert isinstance(end, FailureChunk)
    assert (end.code, end.retryable) == ("TRANSPORT", True)
    assert len(got) == 3


async def test_an_answer_that_lacks_only_its_farewell_is_whole(tmp_path: Path) -> None:
    data = messages_events(message_start(), *text_block(0, "x"), message_end("end_turn")[0])
    assert isinstance((await chunks(tmp_path, stream(data)))[-1], StopChunk)


@pytest.mark.parametrize(
    ("kind", "code", "retryable"),
    [
        ("overloaded_error", "SERVER", True),
        ("api_error", "SERVER", True),
        ("rate_limit_error", "RATE_LIMIT", True),
        ("timeout_error", "TIMEOUT", True),
        ("invalid_request_error", "INVALID_REQUEST", False),
        ("authentication_error", "AUTH", False),
        ("something_new", "SERVER", True),
    ],
)
async def test_an_error_in_mid_stream_is_what_it_says(
    tmp_path: Path, kind: str, code: str, retryable: bool
) -> None:
    error: JsonObject = {"type": "error", "error": {"type": kind, "message": "Words."}}
    data = messages_events(message_start(), *text_block(0, "x"), error)
    got = await chunks(tmp_path, stream(data))
    end = got[-1]
    assert got[0] == TextChunk(0, "x")
    assert isinstance(end, FailureChunk)
    assert (end.code, end.retryable) == (code, retryable)
    assert end.message.startswith("Anthropic broke off: Words.")


@pytest.mark.parametrize(
    "data",
    [
        b"data: {not json\n\n",
        b"data: []\n\n",
        b'data: "text"\n\n',
        b"data: {}\n\n",
        b'data: {"type": "message_start"}\n\n',
        b'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}}\n\n',
        b'data: {"type": "content_block_delta", "index": 0}\n\n',
        messages_events(block(9, {}, {"type": "input_json_delta", "partial_json": "x"})[1]),
        b"data: " + b"[" * 100_000 + b"\n\n",
    ],
)
async def test_an_event_that_is_not_of_the_api_ends_the_call(tmp_path: Path, data: bytes) -> None:
    got = await chunks(tmp_path, stream(messages_events(message_start()) + data))
    assert len(got) == 1
    assert isinstance(got[0], FailureChunk)
    assert (got[0].code, got[0].retryable) == ("MALFORMED_RESPONSE", False)
    assert "ANTHROPIC_BASE_URL" in got[0].message


async def test_events_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    new: JsonObject = {"type": "citations_delta", "citation": {}}
    data = messages_events(
        message_start(),
        {"type": "aside", "what": 1},
        *block(0, {"type": "server_tool_use", "id": "s", "name": "search", "input": {}}, new),
        *text_block(1, "x"),
        *message_end("end_turn"),
    )
    got = await chunks(tmp_path, stream(b": a comment\n\nretry: 10\n\n" + data))
    assert got[0] == TextChunk(1, "x")
    assert isinstance(got[-1], StopChunk)


SAMPLE = b": keep-alive\n\n" + messages_answer(
    thinking_block(0, "sig-ä", "Überlegen…", "\u2028🙂"),
    text_block(1, "Grüße\n", "data: no\r\n"),
    tool_block(2, "t", "look", '{"a":', ' "ß"}'),
    stop="tool_use",
)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
async def test_every_cut_in_two_gives_the_same_chunks(tmp_path: Path, newline: bytes) -> None:
    data = SAMPLE.replace(b"\n", newline)
    async with opened(MODEL, tmp_path) as (model, server):
        server.then(stream(data))
        whole = await answer(model)
        assert len(whole) == 9
        for cut in [
            *range(1, 90),
            *range(90, len(data) - 20, 7),
            *range(len(data) - 20, len(data)),
        ]:
            server.then(stream(data, cut))
            assert await answer(model) == whole
        assert server.connections == 1


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(cuts=st.lists(st.integers(1, len(SAMPLE) - 1), max_size=200))
def test_any_split_of_the_bytes_gives_the_same_chunks(tmp_path: Path, cuts: list[int]) -> None:
    async def compare() -> None:
        async with opened(MODEL, tmp_path) as (model, server):
            server.then(stream(SAMPLE))
            server.then(stream(SAMPLE, *cuts))
            assert await answer(model) == await answer(model)

    anyio.run(compare)


async def test_one_byte_at_a_time_is_the_same_answer(tmp_path: Path) -> None:
    async with opened(MODEL, tmp_path) as (model, server):
        server.then(stream(SAMPLE))
        server.then(EVENTS_HEAD, *(chunked(bytes([byte])) for byte in SAMPLE), LAST_CHUNK)
        assert await answer(model) == await answer(model)
