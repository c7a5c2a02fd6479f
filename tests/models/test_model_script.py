"""Scripts are read whole or refused with line and item, and played item by item."""

import json
from pathlib import Path

import anyio
import attrs
import pytest

from acp_bridge.errors import AuthRequiredError, ConfigError
from acp_bridge.models.catalog import Catalog
from acp_bridge.models.script import CONTEXT_WINDOW_DEFAULT, script_from_text
from acp_bridge.models.scripted import ScriptedModel
from acp_bridge.ports import (
    Chunk,
    FailureChunk,
    ModelRequest,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)
from acp_bridge.vocabulary import JsonObject, JsonValue

pytestmark = pytest.mark.anyio


def request(position: int = 0, *, agent: str = "1", purpose: str = "turn") -> ModelRequest:
    return ModelRequest(
        system="",
        messages=[],
        tools=[],
        purpose=purpose,  # type: ignore[arg-type]
        agent=agent,
        position=position,
    )


def model(*lines: JsonValue, releases: Path = Path("/nowhere")) -> ScriptedModel:
    text = "\n".join(json.dumps(line) for line in lines)
    return ScriptedModel(script_from_text(text, name="s"), name="s", releases=releases)


async def chunks(*items: JsonValue) -> list[Chunk]:
    answer = model({"stream": list(items)})
    return [chunk async for chunk in answer.stream(request())]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "line 2: this is no JSON"),
        ("[]", "line 2: expected a JSON object"),
        ('{"agent": 1, "stream": []}', 'line 2: "agent" must be a place'),
        ('{"agent": "", "stream": []}', 'line 2: "agent" must be a place'),
        ('{"stream": {}}', 'line 2: "stream" must be a list'),
        ("{}", 'line 2: "stream" must be a list'),
        ('{"for": "lunch", "stream": []}', 'line 2: "for" can only be "compact"'),
        ('{"strem": []}', "line 2: unknown key 'strem'"),
        ('{"context_window": 0}', 'line 2: "context_window" must be a whole number from 1'),
        ('{"stream": [{"text": "a"}, 7]}', "line 2, item 2: expected a JSON object"),
        ('{"stream": [{"txt": "a"}]}', "line 2, item 1: expected one of text, reasoning"),
        ('{"stream": [{"text": 1}]}', 'line 2, item 1: "text" must be a string'),
        ('{"stream": [{"text": "a", "repeat": 0}]}', 'item 1: "repeat" must be a whole number'),
        ('{"stream": [{"text": "a", "repeat": true}]}', 'item 1: "repeat" must be a whole number'),
        ('{"stream": [{"text": "a", "stop": "end_turn"}]}', "item 1: unknown key 'stop' beside"),
        ('{"stream": [{"tool_call": {"id": "c"}}]}', 'item 1: "name" must be a string'),
        ('{"stream": [{"tool_call": {"id": "c", "name": "n", "args": {}}}]}', "unknown key 'args'"),
        (
            '{"stream": [{"tool_call": {"id": "c", "name": "n", "split": true}}]}',
            'item 1: "split" must be a whole number',
        ),
        ('{"stream": [{"delay_ms": -1}]}', 'item 1: "delay_ms" must be a whole number from 0'),
        ('{"stream": [{"wait": "../x"}]}', 'item 1: "wait" must be a plain name'),
        ('{"stream": [{"wait": ""}]}', 'item 1: "wait" must be a plain name'),
        ('{"stream": [{"usage": {"input_tokens": -1}}]}', 'item 1: "input_tokens" must be'),
        ('{"stream": [{"stop": "done"}]}', 'item 1: "stop" must be end_turn, max_tokens or'),
        ('{"stream": [{"error": {"status": "x", "message": "m"}}]}', 'item 1: "status" must be'),
        (
            '{"stream": [{"error": {"status": 429, "message": "m", "retry_after_s": "1"}}]}',
            'item 1: "retry_after_s" must be a number',
        ),
    ],
)
def test_a_bad_script_is_refused_with_line_and_item(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        script_from_text('{"context_window": 9}\n' + line, name="my.jsonl")
    assert says in refused.value.details
    assert refused.value.details.startswith("scripted model my.jsonl, line 2")


def test_blank_lines_and_windows_line_ends_are_fine() -> None:
    script = script_from_text('{"context_window": 77}\r\n\r\n{"stream": []}\r\n', name="s")
    assert script.context_window == 77
    assert list(script.answers) == [("1", "turn")]
    assert script_from_text("", name="s").context_window == CONTEXT_WINDOW_DEFAULT


async def test_an_error_is_read_as_a_provider_s_would_be() -> None:
    [end] = await chunks({"error": {"status": 400, "message": "prompt is too long"}})
    assert isinstance(end, FailureChunk)
    assert (end.code, end.status, end.retryable) == ("CONTEXT_WINDOW", 400, False)


async def test_text_and_reasoning_are_blocks_and_repeat_gives_deltas() -> None:
    got = await chunks(
        {"reasoning": "hm"}, {"text": "a", "repeat": 3}, {"text": "b"}, {"reasoning": "again"}
    )
    assert got == [
        ReasoningChunk(0, "hm"),
        *[TextChunk(1, "a")] * 3,
        TextChunk(1, "b"),
        ReasoningChunk(2, "again"),
        StopChunk("end_turn"),
    ]


async def test_tool_calls_are_blocks_of_their_own_and_end_the_answer_as_tool_calls() -> None:
    got = await chunks(
        {"tool_call": {"id": "a", "name": "read", "arguments": {"p": "ä"}, "split": 2}},
        {"tool_call": {"id": "b", "name": "bash", "arguments_text": "{oops"}},
        {"tool_call": {"id": "c", "name": "bash", "arguments_text": ""}},
    )
    assert got == [
        ToolCallChunk(0, "a", "read", ""),
        ToolCallChunk(0, "a", None, '{"p":'),
        ToolCallChunk(0, "a", None, ' "ä"}'),
        ToolCallChunk(1, "b", "bash", ""),
        ToolCallChunk(1, "b", None, "{oops"),
        ToolCallChunk(2, "c", "bash", ""),
        StopChunk("tool_calls"),
    ]


async def test_usage_and_stop() -> None:
    usage: JsonValue = {"input_tokens": 5, "output_tokens": 2, "cache_read_tokens": 1}
    got = await chunks({"usage": usage}, {"stop": "refusal"}, {"text": "never"})
    assert got == [UsageChunk(5, 2, 1), StopChunk("refusal")]


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, "INVALID_REQUEST", False),
        (401, "AUTH", False),
        (404, "NOT_FOUND", False),
        (408, "TIMEOUT", True),
        (418, "INVALID_REQUEST", False),
        (429, "RATE_LIMIT", True),
        (500, "SERVER", True),
        (529, "SERVER", True),
    ],
)
async def test_an_error_says_whether_a_retry_helps(status: int, code: str, retryable: bool) -> None:
    (got,) = await chunks({"error": {"status": status, "message": "no", "retry_after_s": 2}})
    assert got == FailureChunk("no", code, status, retryable, 2)


async def test_a_disconnect_is_a_lost_connection() -> None:
    *_, got = await chunks({"text": "a"}, {"disconnect": True}, {"text": "never"})
    assert isinstance(got, FailureChunk)
    assert (got.code, got.retryable) == ("TRANSPORT", True)


async def test_a_wait_lasts_until_it_is_released(tmp_path: Path) -> None:
    answer = model({"stream": [{"wait": "go"}, {"text": "went"}]}, releases=tmp_path)
    got: list[Chunk] = []

    async def take() -> None:
        got.extend([chunk async for chunk in answer.stream(request())])

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            assert got == []
            (tmp_path / "go").touch()
    assert got[0] == TextChunk(0, "went")


async def test_a_delay_lets_time_pass_and_ends_with_a_cancel() -> None:
    answer = model({"stream": [{"delay_ms": 60_000}]})
    with anyio.move_on_after(0) as scope:
        _ = [chunk async for chunk in answer.stream(request())]
    assert scope.cancelled_caught


async def test_agent_position_and_purpose_choose_the_answer() -> None:
    script = model(
        {"stream": [{"text": "1:0"}]},
        {"agent": "2", "stream": [{"text": "2:0"}]},
        {"for": "compact", "stream": [{"text": "compact"}]},
        {"agent": "1", "stream": [{"text": "1:1"}]},
    )

    async def first(**asked: object) -> Chunk:
        return await anext(script.stream(request(**asked)))  # type: ignore[arg-type]

    assert await first() == TextChunk(0, "1:0")
    assert await first(position=1) == TextChunk(0, "1:1")
    assert await first(agent="2") == TextChunk(0, "2:0")
    assert await first(purpose="compact") == TextChunk(0, "compact")


async def test_running_out_of_answers_names_agent_and_position() -> None:
    (got,) = [c async for c in model({"stream": []}).stream(request(1, agent="1/2"))]
    assert isinstance(got, FailureChunk)
    assert "agent 1/2 at position 2" in got.message
    assert not got.retryable


def test_a_script_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        ScriptedModel.load(tmp_path / "missing.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        ScriptedModel.load(tmp_path / "latin.jsonl")


def test_names_of_models(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"stream": []}')
    catalog = Catalog(home=tmp_path, environment={})
    scripted = catalog.open(f"scripted:{path}")
    assert (scripted.name, scripted.info.model_id) == ("m.jsonl", f"scripted:{path}")
    assert catalog.open("demo").info.model_id == "demo"
    with pytest.raises(AuthRequiredError, match="--model demo"):
        catalog.open(None)
    for wrong in ("scripted:", "scripted", "gpt", ""):
        with pytest.raises(ConfigError, match="not known"):
            catalog.open(wrong)


async def test_a_call_may_name_the_subagents_that_its_place_has_started() -> None:
    named: JsonValue = {"tool_call": {"id": "c", "name": "x", "arguments": {"a": "{{subagent 2}}"}}}
    told: list[JsonObject] = [
        {"role": "tool", "content": [{"type": "text", "text": f"started subagent {name}"}]}
        for name in ("one", "two")
    ]
    for messages, wanted in ((told, "two"), (told[:1], "{{subagent 2}}")):
        asked = attrs.evolve(request(), messages=messages)
        chunks = [chunk async for chunk in model({"stream": [named]}).stream(asked)]
        text = "".join(one.arguments_delta for one in chunks if isinstance(one, ToolCallChunk))
        assert json.loads(text) == {"a": wanted}
