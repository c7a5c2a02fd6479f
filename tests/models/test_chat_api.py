"""The chat completions stream as chunks: text, reasoning, tool calls however they come, ends."""

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
    asked,
    chat_delta,
    chat_events,
    chat_usage,
    chunked,
    opened,
    refusal,
    stream,
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

MODEL = "openai:gpt-5.1"
TOOL: JsonObject = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}


async def chunks(tmp_path: Path, *steps: Any) -> list[Chunk]:
    """What one answer of the server becomes."""
    async with opened(MODEL, tmp_path) as (model, server):
        server.then(*steps)
        return await answer(model)


def call(index: int | None, call_id: str | None, name: str | None, arguments: str) -> Any:
    """A piece of a tool call; what is None is left out."""
    function: dict[str, Any] = {"arguments": arguments}
    piece: dict[str, Any] = {"type": "function", "function": function}
    for where, key, value in (
        (piece, "index", index),
        (piece, "id", call_id),
        (function, "name", name),
    ):
        if value is not None:
            where[key] = value
    return piece


def calls_of(got: list[Chunk]) -> list[tuple[str, str | None, str]]:
    """Calls as (id, name, arguments)."""
    begun = [c for c in got if isinstance(c, ToolCallChunk) and c.name is not None]
    return [
        (
            one.call_id,
            one.name,
            "".join(
                c.arguments_delta
                for c in got
                if isinstance(c, ToolCallChunk) and c.block == one.block
            ),
        )
        for one in begun
    ]


async def test_text_usage_and_the_end_come_as_the_documentation_shows_them(tmp_path: Path) -> None:
    data = chat_events(
        chat_delta(role="assistant", content="", refusal=None),
        chat_delta(content="Hello"),
        chat_delta(content="!"),
        chat_delta("stop"),
        chat_usage(120, 9, cached=100),
    )
    assert await chunks(tmp_path, stream(data)) == [
        TextChunk(1, "Hello"),
        TextChunk(1, "!"),
        UsageChunk(20, 9, cache_read_tokens=100),
        StopChunk("end_turn"),
    ]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_a_server_that_tells_its_reasoning_is_heard_and_remembered(
    tmp_path: Path, field: str
) -> None:
    deltas = [chat_delta(**{field: "Hm"}), chat_delta(**{field: ".", "content": "Hi"})]
    got = await chunks(tmp_path, stream(chat_events(*deltas, chat_delta("stop"))))
    assert got[:3] == [ReasoningChunk(0, "Hm"), ReasoningChunk(0, "."), TextChunk(1, "Hi")]
    state: Any = {"kind": "openai-chat", "version": 1, "model": "gpt-5.1", "reasoning": field}
    assert got[-1] == StopChunk("end_turn", {"response": state})


@pytest.mark.parametrize(
    "pieces",
    [
        # As documented: by place, one after the other.
        [call(0, "a", "look", ""), call(0, None, None, '{"x"'), call(0, None, None, ":1}"),
         call(1, "b", "read", "{}")],
        # Mixed.
        [call(0, "a", "look", '{"x"'), call(1, "b", "read", "{"), call(0, None, None, ":1}"),
         call(1, None, None, "}")],
        # All at one place, told apart by their ids (R083).
        [call(0, "a", "look", '{"x":1}'), call(0, "b", "read", "{}")],
        # No places at all.
        [call(None, "a", "look", '{"x":1}'), call(None, "b", "read", "{}")],
        # The id with every piece; the name late.
        [call(0, "a", None, '{"x"'), call(0, "a", "look", ":1}"), call(1, "b", "read", "")],
    ],
)  # fmt: skip
async def test_tool_calls_are_put_together_however_they_come(
    tmp_path: Path, pieces: list[Any]
) -> None:
    deltas = [chat_delta(tool_calls=[piece]) for piece in pieces]
    got = await chunks(tmp_path, stream(chat_events(*deltas, chat_delta("tool_calls"))))
    assert calls_of(got) == [("a", "look", '{"x":1}'), ("b", "read", "{}")]
    assert got[-1] == StopChunk("tool_calls")


async def test_several_pieces_in_one_event_are_several_calls(tmp_path: Path) -> None:
    both = [call(0, "", "look", "{}"), call(1, "", "look", "{}")]
    got = await chunks(tmp_path, stream(chat_events(chat_delta("tool_calls", tool_calls=both))))
    assert calls_of(got) == [("", "look", "{}"), ("", "look", "{}")]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_calls"),
        ("content_filter", "refusal"),
        ("nap", "end_turn"),
    ],
)
async def test_each_end_is_what_it_is_as_r046_needs(
    tmp_path: Path, finish: str, reason: str
) -> None:
    data = chat_events(chat_delta(content="x"), chat_delta(finish))
    end = (await chunks(tmp_path, stream(data)))[-1]
    assert isinstance(end, StopChunk)
    assert end.reason == reason


async def test_a_refusal_is_text_and_an_end_of_its_own(tmp_path: Path) -> None:
    data = chat_events(chat_delta(refusal="I cannot."), chat_delta("stop"))
    assert await chunks(tmp_path, stream(data)) == [
        TextChunk(1, "I cannot."),
        StopChunk("refusal"),
    ]


@pytest.mark.parametrize("ending", [(LAST_CHUNK,), (CUT,)])
async def test_a_stream_that_stops_before_its_answer_is_cut_off(
    tmp_path: Path, ending: tuple[Any, ...]
) -> None:
    data = chat_events(chat_delta(content="x"), done=False)
    got = await chunks(tmp_path, EVENTS_HEAD, chunked(data), *ending)
    assert got[0] == TextChunk(1, "x")
    assert isinstance(got[1], FailureChunk)
    assert (got[1].code, got[1].retryable) == ("TRANSPORT", True)


async def test_a_call_that_was_cut_off_is_not_made(tmp_path: Path) -> None:
    data = chat_events(chat_delta(tool_calls=[call(0, "a", "look", '{"x"')]), done=False)
    got = await chunks(tmp_path, stream(data))
    assert [type(chunk) for chunk in got] == [FailureChunk]


async def test_an_answer_that_lacks_only_its_farewell_is_whole(tmp_path: Path) -> None:
    data = chat_events(chat_delta(content="x"), chat_delta("stop"), done=False)
    assert (await chunks(tmp_path, stream(data)))[-1] == StopChunk("end_turn")


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"message": "Slow down", "type": "x", "code": "rate_limit_exceeded"}, "RATE_LIMIT", True),
        ({"message": "No money", "type": "insufficient_quota", "code": None}, "QUOTA", False),
        ({"message": "Busy", "type": "server_error", "code": None}, "SERVER", True),
        ({"message": "Upstream", "code": 502}, "SERVER", True),
        ({"message": "Upstream", "code": 429}, "RATE_LIMIT", True),
        ("just words", "SERVER", True),
    ],
)
async def test_an_error_in_mid_stream_is_what_it_says(
    tmp_path: Path, error: Any, code: str, retryable: bool
) -> None:
    data = chat_events(chat_delta(content="x"), {"error": error})
    end = (await chunks(tmp_path, stream(data)))[-1]
    assert isinstance(end, FailureChunk)
    assert (end.code, end.retryable) == (code, retryable)


@pytest.mark.parametrize(
    "data",
    [
        b"data: {not json\n\n",
        b"data: 1\n\n",
        b'data: {"choices": [1]}\n\n',
        b'data: {"choices": {"a": 1}}\n\n',
        b'data: {"choices": [{"delta": {"tool_calls": [1]}}]}\n\n',
    ],
)
async def test_an_event_that_is_not_of_the_api_ends_the_call(tmp_path: Path, data: bytes) -> None:
    got = await chunks(tmp_path, stream(data))
    assert len(got) == 1
    assert isinstance(got[0], FailureChunk)
    assert (got[0].code, got[0].retryable) == ("MALFORMED_RESPONSE", False)


async def test_a_model_that_takes_tools_only_without_reasoning_gets_them_so(tmp_path: Path) -> None:
    words = (
        "Function tools with reasoning_effort are not supported for m in /v1/chat/completions. "
        "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
    )
    error = {"error": {"message": words, "type": "invalid_request_error", "code": None}}
    async with opened("openai:gpt-new", tmp_path) as (model, server):
        server.then(refusal(400, error))
        server.then(stream(chat_events(chat_delta(content="x"), chat_delta("stop"))))
        got = await answer(model, asked(tools=[TOOL], effort="high"))
        assert got == [TextChunk(1, "x"), StopChunk("end_turn")]
        assert [body.get("reasoning_effort") for body in server.bodies] == ["high", "none"]
        server.then(refusal(400, error))
        server.then(refusal(400, error))
        assert [type(c) for c in await answer(model, asked(tools=[TOOL]))] == [FailureChunk]
        assert not server.answers


SAMPLE = b": keep-alive\n\n" + chat_events(
    chat_delta(role="assistant", content=""),
    chat_delta(reasoning_content="Überlegen…"),
    chat_delta(content="Grüße\n🙂 data: [DONE]\r\n"),
    chat_delta(tool_calls=[call(0, "a", "look", '{"a":')]),
    chat_delta(tool_calls=[call(0, None, None, ' "ß"}')]),
    chat_delta("tool_calls"),
    chat_usage(3, 4),
)


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    cuts=st.lists(st.integers(1, len(SAMPLE) - 1), max_size=200),
    newline=st.sampled_from([b"\n", b"\r\n"]),
)
def test_any_split_of_the_bytes_gives_the_same_chunks(
    tmp_path: Path, cuts: list[int], newline: bytes
) -> None:
    async def compare() -> None:
        async with opened(MODEL, tmp_path) as (model, server):
            server.then(stream(SAMPLE))
            server.then(stream(SAMPLE.replace(b"\n", newline), *cuts))
            whole = await answer(model)
            assert len(whole) == 6
            assert await answer(model) == whole

    anyio.run(compare)
