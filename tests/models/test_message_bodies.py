"""What a provider is sent: exact bodies, and histories that would be refused as they are."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from provider_server import (
    answer,
    asked,
    chat_delta,
    chat_events,
    messages_answer,
    opened,
    refusal,
    stream,
    text_block,
    thinking_block,
)

from acp_bridge.models.anthropic_body import messages_body
from acp_bridge.models.known import PROVIDERS, model_info
from acp_bridge.models.messages import CALL_ID_CHARS_MAX, Picture
from acp_bridge.models.openai_body import chat_body
from acp_bridge.ports import ModelRequest, StopChunk
from acp_bridge.vocabulary import JsonObject

pytestmark = pytest.mark.anyio

MARK = {"type": "ephemeral"}
TOOLS: list[JsonObject] = [
    {"name": "read", "description": "Read.", "parameters": {"type": "object", "properties": {}}},
    {"name": "bash", "description": "Run.", "parameters": {"type": "object"}},
]
PNG = b"\x89PNG bytes"
IMAGE_ID = "sha256:ab"
IMAGE: JsonObject = {
    "type": "image",
    "attachment": {"attachmentId": IMAGE_ID, "mediaType": "image/png", "bytes": 9},
}


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def user(*blocks: JsonObject | str, kind: str = "user") -> JsonObject:
    content: list[Any] = [text(b) if isinstance(b, str) else b for b in blocks]
    return {"role": "user", "source": {"kind": kind}, "content": content}


def call(call_id: str, arguments: str = "{}", name: str = "read") -> JsonObject:
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}


def said(*blocks: JsonObject | str, state: JsonObject | None = None) -> JsonObject:
    source: JsonObject = {"kind": "model", "provider": "p", "model": "m"}
    if state is not None:
        source["replayState"] = state
    content: list[Any] = [text(b) if isinstance(b, str) else b for b in blocks]
    return {"role": "assistant", "source": source, "content": content}


def result(call_id: str, *blocks: JsonObject | str, is_error: bool = False) -> JsonObject:
    content: list[Any] = [text(b) if isinstance(b, str) else b for b in blocks]
    return {
        "role": "tool",
        "toolCallId": call_id,
        "source": {"kind": "tool", "callId": call_id},
        "content": content,
        "isError": is_error,
    }


def reasoning(words: str) -> JsonObject:
    return {"type": "reasoning", "text": words}


def state(kind: str, *blocks: JsonObject) -> JsonObject:
    return {"response": {"kind": kind, "version": 1, "model": "m"}, "blocks": list(blocks)}


def body(model_id: str, request: ModelRequest, pictures: dict[str, Picture] | None = None) -> Any:
    provider = PROVIDERS[model_id.partition(":")[0]]
    info = model_info(provider, model_id.partition(":")[2], {})
    make = messages_body if provider.api == "messages" else chat_body
    return make(request, pictures or {}, provider=provider, info=info)


def messages(model_id: str, *history: JsonObject, **more: Any) -> Any:
    return body(model_id, asked(messages=list(history), system="", **more))["messages"]


HISTORY = [
    user("go"),
    said("I look.", call("a", '{"file_path": "x"}'), call("b", name="bash")),
    result("b", "Error: no", is_error=True),
    result("a", "text of x"),
    user("by the way", kind="notice"),
]


def test_the_messages_api_gets_exactly_this() -> None:
    got = body("anthropic:claude-opus-5-5", asked(messages=HISTORY, tools=TOOLS, effort="low"))
    use: Any = {"type": "tool_use", "id": "a", "name": "read", "input": {"file_path": "x"}}
    assert got == {
        "model": "claude-opus-5-5",
        "max_tokens": 128_000,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
        "tools": [
            {"name": "read", "description": "Read.", "input_schema": TOOLS[0]["parameters"]},
            {
                "name": "bash",
                "description": "Run.",
                "input_schema": {"type": "object"},
                "cache_control": MARK,
            },
        ],
        "messages": [
            {"role": "user", "content": [{**text("go"), "cache_control": MARK}]},
            {
                "role": "assistant",
                "content": [
                    text("I look."),
                    use,
                    {"type": "tool_use", "id": "b", "name": "bash", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "b",
                        "content": [text("Error: no")],
                        "is_error": True,
                    },
                    {"type": "tool_result", "tool_use_id": "a", "content": [text("text of x")]},
                    {**text("by the way"), "cache_control": MARK},
                ],
            },
        ],
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "low"},
    }


def test_deepseek_gets_no_cache_marks_and_its_own_switch() -> None:
    got = body("deepseek:deepseek-flash", asked(tools=TOOLS, effort="max"))
    assert got.pop("tools")[0]["name"] == "read"
    assert got == {
        "model": "deepseek-flash",
        "max_tokens": 256_000,
        "stream": True,
        "system": [text("Be brief.")],
        "messages": [{"role": "user", "content": [text("hello")]}],
        "thinking": {"type": "enabled"},
        "output_config": {"effort": "max"},
    }
    off = body("deepseek:deepseek-flash", asked(effort="off"))
    assert off["thinking"] == {"type": "disabled"}
    assert "output_config" not in off
    assert "thinking" not in body("deepseek:deepseek-flash", asked())


def test_chat_completions_get_exactly_this() -> None:
    got = body("openai:gpt-5.1", asked(messages=HISTORY, tools=TOOLS[:1], effort="high"))
    functions = [
        {"name": "read", "arguments": '{"file_path": "x"}'},
        {"name": "bash", "arguments": "{}"},
    ]
    calls = [
        {"id": call_id, "type": "function", "function": made}
        for call_id, made in zip("ab", functions, strict=True)
    ]
    function = {"name": "read", "description": "Read.", "parameters": TOOLS[0]["parameters"]}
    assert got == {
        "model": "gpt-5.1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "I look.", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "b", "content": "Error: no"},
            {"role": "tool", "tool_call_id": "a", "content": "text of x"},
            {"role": "user", "content": "by the way"},
        ],
        "max_completion_tokens": 128_000,
        "tools": [{"type": "function", "function": function}],
        "reasoning_effort": "high",
    }


def test_a_model_that_reasons_only_without_tools_is_told_so() -> None:
    assert body("openai:gpt-5.6", asked(tools=TOOLS, effort="high"))["reasoning_effort"] == "none"
    assert "reasoning_effort" not in body("openai:gpt-5.6", asked())
    unknown = body("openai:local", asked(effort=None))
    assert not unknown.keys() & {"reasoning_effort", "max_completion_tokens", "tools"}


@pytest.mark.parametrize(("effort", "budget"), [("low", 4_096), ("high", 31_000), (None, None)])
def test_a_model_that_thinks_by_budget_gets_a_number(
    effort: str | None, budget: int | None
) -> None:
    got = body("anthropic:claude-haiku-4-5", asked(effort=effort))
    wanted = None if budget is None else {"type": "enabled", "budget_tokens": budget}
    assert got.get("thinking") == wanted


def test_thinking_by_budget_does_not_start_in_the_middle_of_calls() -> None:
    history = [user("go"), said(call("a")), result("a", "x")]
    got = body("anthropic:claude-haiku-4-5", asked(messages=history, effort="low"))
    assert "thinking" not in got


def test_signed_reasoning_goes_back_to_the_provider_that_signed_it() -> None:
    marks: tuple[JsonObject, ...] = (
        {"type": "reasoning", "signature": "sig"},
        {"type": "text"},
        {"type": "tool-call"},
    )
    signed = said(reasoning("Hm."), "I look.", call("a"), state=state("anthropic-messages", *marks))
    history = [user("go"), signed, result("a", "x")]
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    assert messages("anthropic:m", *history)[1]["content"][0] == thinking
    # R061: to others it is a text at most, never another provider's handle.
    assert messages("deepseek:m", *history)[1]["content"][0] == {
        "type": "thinking",
        "thinking": "Hm.",
    }
    assert "Hm." not in json.dumps(messages("openai:m", *history))
    unsigned = [user("go"), said(reasoning("Hm."), call("a")), result("a", "x")]
    assert [b["type"] for b in messages("anthropic:m", *unsigned)[1]["content"]] == ["tool_use"]


def test_reasoning_that_was_not_told_goes_back_in_its_place() -> None:
    silent: JsonObject = {"type": "thinking", "thinking": "", "signature": "s"}
    marks: tuple[JsonObject, ...] = (
        {"type": "hidden", "block": silent},
        {"type": "text"},  # it was empty, and the log dropped it
        {"type": "reasoning", "signature": "t"},
        {"type": "tool-call"},
    )
    answered = said(reasoning("Hm."), call("a"), state=state("anthropic-messages", *marks))
    got = messages("anthropic:m", user("go"), answered, result("a", "x"))[1]["content"]
    assert got[:2] == [silent, {"type": "thinking", "thinking": "Hm.", "signature": "t"}]


def test_a_server_gets_its_reasoning_back_by_the_name_that_it_gave_it() -> None:
    kept: JsonObject = {"response": {"kind": "openai-chat", "reasoning": "reasoning_content"}}
    got = messages("openai:m", user("go"), said(reasoning("Hm."), "Hi", state=kept), user("on"))
    assert got[1] == {"role": "assistant", "content": "Hi", "reasoning_content": "Hm."}


def test_an_answer_of_reasoning_alone_is_left_out() -> None:
    got = messages("deepseek:m", user("go"), said(reasoning("Hm.")), user("on"))
    assert got == [{"role": "user", "content": [text("go"), text("on")]}]


@pytest.mark.parametrize("model_id", ["deepseek:m", "openai:m"])
def test_ids_that_repeat_over_turns_are_told_apart_as_r083_needs(model_id: str) -> None:
    once = [user("go"), said(call("call_0"), call("call_0~2")), result("call_0", "one")]
    history = [*once, result("call_0~2", "two"), said("ok"), *once]
    got = json.dumps(messages(model_id, *history))
    assert got == json.dumps(messages(model_id, *history))
    wire = messages(model_id, *history)
    made, answered = _ids(wire)
    assert len(set(made)) == len(made) == 4
    assert sorted(made) == sorted(answered)
    # What was sent before is sent again as it was: a cache would be lost else.
    assert messages(model_id, *once[:2], result("call_0", "one"))[:2] == wire[:2]


def _ids(wire: list[Any]) -> tuple[list[str], list[str]]:
    """The ids of the calls made and answered in a body of either API."""
    blocks = [b for m in wire for b in m["content"] if isinstance(b, dict)]
    made = [b["id"] for b in blocks if b.get("type") == "tool_use"]
    made += [c["id"] for m in wire for c in m.get("tool_calls", [])]
    answered = [b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"]
    answered += [m["tool_call_id"] for m in wire if m["role"] == "tool"]
    return made, answered


@pytest.mark.parametrize("call_id", ["", "a b", "x" * 65, "é", "functions.read:0"])
@pytest.mark.parametrize("model_id", ["anthropic:m", "openai:m"])
def test_an_id_that_a_provider_would_refuse_is_made_fit(model_id: str, call_id: str) -> None:
    wire = messages(model_id, user("go"), said(call(call_id)), result(call_id, "x"))
    made, answered = _ids(wire)
    assert made == answered
    assert 0 < len(made[0]) <= CALL_ID_CHARS_MAX
    assert made[0].replace("_", "").replace("-", "").isalnum()
    assert made[0].isascii()


def test_a_name_that_a_model_made_up_does_not_poison_the_session() -> None:
    wire = messages(
        "anthropic:m", user("go"), said(call("a", name="no such/tool!"), call("b", name=""))
    )
    assert [b["name"] for b in wire[1]["content"]] == ["no_such_tool_", "unknown"]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ("", {}),
        ("  ", {}),
        ('{"a": 1}', {"a": 1}),
        ('{"a": ', {"invalid_json": '{"a": '}),
        ("[1]", {"invalid_json": "[1]"}),
        ("null", {"invalid_json": "null"}),
        ('{"a": NaN}', {"invalid_json": '{"a": NaN}'}),
        ("[" * 9999, {"invalid_json": "[" * 9999}),
    ],
)
def test_arguments_that_are_no_object_are_still_sent(arguments: str, sent: JsonObject) -> None:
    history = (user("go"), said(call("a", arguments)), result("a", "Error: invalid arguments"))
    assert messages("anthropic:m", *history)[1]["content"][0]["input"] == sent
    spelled = messages("openai:m", *history)[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(spelled) == sent


def test_a_call_without_a_result_and_a_result_without_a_call_are_mended() -> None:
    history = (user("go"), said(call("a")), user("on"), result("gone", "old words"), said("ok"))
    wire = messages("anthropic:m", *history)
    assert [m["role"] for m in wire] == ["user", "assistant", "user", "assistant", "user"]
    kinds = [b["type"] for b in wire[2]["content"]]
    assert kinds == ["tool_result", "text", "text"]
    assert wire[2]["content"][0]["is_error"] is True
    assert wire[-1]["content"][0]["text"] == "Go on."
    chat = messages("openai:m", *history)
    assert [m["role"] for m in chat] == ["user", "assistant", "tool", "user", "assistant", "user"]


@pytest.mark.parametrize("model_id", ["anthropic:m", "deepseek:m", "openai:m"])
def test_a_request_always_has_something_to_answer(model_id: str) -> None:
    aside: JsonObject = {"role": "developer", "content": [text("hush")]}
    for history in ([], [user("  ")], [said("a")], [said("")], [aside]):
        wire = messages(model_id, *history)
        assert wire[0]["role"] == wire[-1]["role"] == "user"
        assert "hush" not in json.dumps(wire)


def test_images_are_sent_where_they_can_be_seen_and_named_where_not() -> None:
    history = [user("see", IMAGE), said(call("a")), result("a", "shot", IMAGE)]
    pictures = {IMAGE_ID: Picture("image/png", "AAAA")}
    request = asked(messages=history, system="")
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    wire = body("anthropic:m", request, pictures)["messages"]
    assert wire[0]["content"][1]["source"] == source
    assert wire[2]["content"][0]["content"][1]["source"] == source
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    chat = body("openai:m", request, pictures)["messages"]
    assert chat[0]["content"] == [text("see"), url]
    assert chat[2]["content"] == "shot"
    assert chat[3]["content"][1] == url
    note = "[An image (image/png) is not shown here.]"
    assert body("openai:m", request)["messages"][0]["content"] == f"see\n\n{note}"


@pytest.mark.parametrize(
    ("model_id", "shown"), [("deepseek:deepseek-flash", True), ("deepseek:deepseek-v4-pro", False)]
)
async def test_bytes_of_images_are_fetched_only_for_a_model_that_sees(
    tmp_path: Path, model_id: str, shown: bool
) -> None:
    fetched = []

    async def find(attachment_id: str) -> bytes | None:
        fetched.append(attachment_id)
        return PNG if attachment_id == IMAGE_ID else None

    lost: JsonObject = {"type": "image", "attachment": {"attachmentId": "sha256:cd"}}
    gone: JsonObject = {**IMAGE, "offloaded": True}
    async with opened(model_id, tmp_path) as (model, server):
        server.then(stream(messages_answer(text_block(0, "x"))))
        request = asked(messages=[user(IMAGE, lost, IMAGE, gone)], find_image=find)
        await answer(model, request)
        kinds = [block["type"] for block in server.bodies[0]["messages"][0]["content"]]
    assert kinds == (["image", "text", "image", "text"] if shown else ["text"] * 4)
    assert fetched == ([IMAGE_ID, "sha256:cd"] if shown else [])


async def test_old_reasoning_that_is_refused_is_left_out_the_second_time(tmp_path: Path) -> None:
    words = "messages.1.content.0: Invalid `signature` in `thinking` block."
    error = {"error": {"type": "invalid_request_error", "message": words}}
    mark: JsonObject = {"type": "reasoning", "signature": "old"}
    answered = said(reasoning("Hm."), "Hi", state=state("anthropic-messages", mark))
    async with opened("anthropic:claude-opus-5-5", tmp_path) as (model, server):
        server.then(refusal(400, error))
        server.then(stream(messages_answer(thinking_block(0, "new", "Oh."), text_block(1, "Ho"))))
        got = await answer(model, asked(messages=[user("go"), answered, user("on")]))
        assert isinstance(got[-1], StopChunk)
        first, second = (body["messages"][1]["content"] for body in server.bodies)
        assert [block["type"] for block in first] == ["thinking", "text"]
        assert second == [text("Hi")]
        server.then(refusal(400, error))
        assert len(await answer(model, asked())) == 1
        assert len(server.requests) == 3


async def test_the_headers_and_the_path_are_those_of_the_api(tmp_path: Path) -> None:
    async with opened("anthropic:m", tmp_path) as (model, server):
        server.then(stream(messages_answer(text_block(0, "x"))))
        await answer(model)
        sent = server.requests[0]
        assert (sent.method, sent.path) == ("POST", "/v1/messages")
        assert sent.headers["anthropic-version"] == "2023-06-01"
        assert sent.headers["content-type"] == "application/json"
        assert sent.headers["accept"] == "text/event-stream"
        assert "authorization" not in sent.headers
    async with opened("openai:m", tmp_path) as (model, server):
        server.then(stream(chat_events(chat_delta("stop", content="x"))))
        await answer(model)
        assert server.requests[0].path == "/v1/chat/completions"
        assert "x-api-key" not in server.requests[0].headers


async def test_half_a_surrogate_pair_does_not_break_the_request(tmp_path: Path) -> None:
    async with opened("openai:m", tmp_path) as (model, server):
        server.then(stream(chat_events(chat_delta("stop", content="x"))))
        await answer(model, asked("a\ud800b🙂"))
        assert server.bodies[0]["messages"][1]["content"] == "a?b🙂"


BLOCKS: st.SearchStrategy[JsonObject] = st.one_of(
    st.sampled_from(["", " ", "words"]).map(text),
    st.just(IMAGE),
    st.sampled_from(["file", "from later"]).map(lambda kind: {"type": kind}),
)
CALLS = st.builds(call, st.sampled_from(["", "a", "b", "a~2"]), st.sampled_from(["", "{}", "["]))
HISTORIES = st.lists(
    st.one_of(
        st.lists(BLOCKS, max_size=2).map(lambda blocks: user(*blocks)),
        st.lists(st.one_of(BLOCKS, CALLS, st.just(reasoning("Hm."))), max_size=3).map(
            lambda blocks: said(*blocks)
        ),
        st.builds(result, st.sampled_from(["", "a", "b", "c"]), BLOCKS),
    ),
    max_size=8,
)


@given(history=HISTORIES)
def test_any_history_becomes_one_that_is_taken(history: list[JsonObject]) -> None:
    for model_id in ("anthropic:m", "deepseek:m"):
        wire = messages(model_id, *history)
        assert wire[0]["role"] == wire[-1]["role"] == "user"
        open_calls: list[str] = []
        for message in wire:
            assert message["content"]
            kinds = [block["type"] for block in message["content"]]
            results = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
            assert kinds[: len(results)] == ["tool_result"] * len(results)
            assert sorted(results) == sorted(open_calls)
            open_calls = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
            if message["role"] == "assistant":
                assert kinds[-1] in {"text", "tool_use"}
            assert all(b["text"].strip() for b in message["content"] if b["type"] == "text")
        made, _ = _ids(wire)
        assert len(made) == len(set(made))
    chat = messages("openai:m", *history)
    made, answered = _ids(chat)
    assert sorted(made) == sorted(answered)
    assert len(made) == len(set(made))
