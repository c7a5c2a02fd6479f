"""Parameters of the SDK wire: what is taken, and what is refused before anything is stored."""

import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from picture_bytes import b64, png_bytes

from acp_bridge.errors import InvalidParamsError
from acp_bridge.runtime.sdk.params import Hello, hello_from_params, prompt_from_blocks
from acp_bridge.vocabulary import JsonObject, JsonValue

GOOD: JsonObject = {"cwd": "/w", "provider": "deepseek-official", "model": "deepseek-v4-flash"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


def test_initialize_names_folder_and_model() -> None:
    assert hello_from_params({**GOOD, "unknown": 1}) == Hello(
        "/w", "deepseek-official", "deepseek-v4-flash", None, None
    )
    whole = hello_from_params({**GOOD, "reasoningEffort": "high", "maxTokens": 5})
    assert (whole.effort, whole.tokens_max) == ("high", 5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cwd", None),
        ("cwd", ""),
        ("cwd", 5),
        ("provider", " "),
        ("model", ["m"]),
        ("reasoningEffort", 1),
        ("reasoningEffort", ""),
        ("maxTokens", 0),
        ("maxTokens", "5"),
        ("maxTokens", True),
        ("maxTokens", 1.5),
    ],
)
def test_a_bad_parameter_is_named(name: str, value: JsonValue) -> None:
    with pytest.raises(InvalidParamsError) as refused:
        hello_from_params({**GOOD, name: value})
    assert refused.value.field == name
    assert name in refused.value.details


def test_text_and_images_become_a_prompt() -> None:
    picture = png_bytes(1, 1)
    blocks: list[JsonValue] = [
        {"type": "text", "text": "Look\n at this"},
        {"type": "text", "text": "  "},
        {"type": "image", "data": b64(picture), "mimeType": "image/png"},
    ]
    prompt = prompt_from_blocks(blocks, "m")
    name = f"sha256:{hashlib.sha256(picture).hexdigest()}"
    assert prompt.message_id == "m"
    assert prompt.title == "Look at this"
    assert dict(prompt.attachments) == {name: picture}
    assert prompt.content[0] == {"type": "text", "text": "Look\n at this"}
    assert [block["type"] for block in prompt.content] == ["text", "image"]


@pytest.mark.parametrize(
    ("blocks", "field"),
    [
        (None, "contentBlocks"),
        ("text", "contentBlocks"),
        ({}, "contentBlocks"),
        ([], "contentBlocks"),
        ([{"type": "text", "text": " "}], "contentBlocks"),
        (["text"], "contentBlocks[0]"),
        ([{}], "contentBlocks[0].type"),
        ([{"type": "text", "text": "a"}, {"type": "resource_link"}], "contentBlocks[1].type"),
        ([{"type": "text"}], "contentBlocks[0].text"),
        ([{"type": "image", "data": "x"}], "contentBlocks[0].mimeType"),
        ([{"type": "image", "data": "x", "mimeType": "image/png"}], "contentBlocks[0].data"),
    ],
)
def test_a_block_that_could_spoil_the_session_is_refused(blocks: JsonValue, field: str) -> None:
    with pytest.raises(InvalidParamsError) as refused:
        prompt_from_blocks(blocks, "m")
    assert refused.value.field == field


@given(json_values)
def test_no_value_does_more_than_be_refused(value: JsonValue) -> None:
    with contextlib.suppress(InvalidParamsError):
        assert prompt_from_blocks(value, "m").content
