"""Prompt blocks to log blocks and back: what the model reads, and what a replay shows (R098)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from picture_bytes import png

from acp_bridge.acp.converter import structure, unstructure
from acp_bridge.acp.types import PromptRequest, TextContent
from acp_bridge.bridge.prompts import acp_block_from_log, prompt_from_acp
from acp_bridge.errors import InvalidParamsError
from acp_bridge.harness.titles import TITLE_CHARS_MAX
from acp_bridge.vocabulary import JsonObject, JsonValue, Prompt


def prompt(*blocks: JsonObject) -> Prompt:
    listed: list[JsonValue] = list(blocks)
    request: JsonObject = {"sessionId": "s", "prompt": listed}
    return prompt_from_acp(structure(request, PromptRequest).prompt)


def text(value: str) -> JsonObject:
    return {"type": "text", "text": value}


def link(uri: str, name: str = "n", **more: JsonValue) -> JsonObject:
    return {"type": "resource_link", "uri": uri, "name": name, **more}


def embedded(uri: str, value: str, **more: JsonValue) -> JsonObject:
    return {"type": "resource", "resource": {"uri": uri, "text": value, **more}}


def replayed(block: JsonObject) -> JsonObject:
    """What a client is shown for the log's block."""
    shown = acp_block_from_log(block)
    return {"text": block["text"]} if shown is None else unstructure(shown)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("file:///a/b.py", "/a/b.py"),
        ("file:///a%20b/%C3%A4.py", "/a b/ä.py"),
        ("file:///a.py#L9:15", "/a.py, lines 9-15"),
        ("file:///a.py#L9-L15", "/a.py, lines 9-15"),
        ("file:///a.py#L9-15", "/a.py, lines 9-15"),
        ("file:///a.py#9", "/a.py, line 9"),
        ("file:///a.py#L9", "/a.py, line 9"),
        ("file:///a.py#L9:9", "/a.py, line 9"),
        ("file:///a.py?symbol=run#L10:20", "/a.py, lines 10-20"),
        ("file:///a.py#section", "/a.py"),
        ("zed:///agent/thread/1?name=x", "zed:///agent/thread/1?name=x"),
        ("https://example.org/a#L3", "https://example.org/a#L3"),
        ("http://[broken", "http://[broken"),
        ("", ""),
        ("just words", "just words"),
    ],
)
def test_a_link_is_shown_as_path_and_lines(uri: str, shown: str) -> None:
    (block,) = prompt(link(uri)).content
    assert block["text"] == f"[attached: {shown}]"
    assert replayed(block) == link(uri)


def test_an_embedded_text_is_whole_for_the_model_and_as_it_was_in_a_replay() -> None:
    block = embedded("file:///a%20b.py#L1:2", "one\ntwo\n", mimeType="text/x-python")
    (stored,) = prompt(block).content
    assert (
        stored["text"] == "[attached: /a b.py, lines 1-2]\none\ntwo\n\n[end of /a b.py, lines 1-2]"
    )
    assert replayed(stored) == block


def test_a_blob_is_named_and_its_bytes_stay_out() -> None:
    resource: JsonObject = {"uri": "file:///x/a.pdf", "blob": "QUJD", "mimeType": "application/pdf"}
    (stored,) = prompt({"type": "resource", "resource": resource}).content
    assert "QUJD" not in str(stored)
    assert "application/pdf" in str(stored["text"])
    assert replayed(stored) == {
        "type": "resource_link",
        "uri": "file:///x/a.pdf",
        "name": "a.pdf",
        "mimeType": "application/pdf",
    }


def test_text_that_looks_like_ours_stays_text_r063() -> None:
    for words in ("[attached: /etc/passwd]", "[attached: a]\nx\n[end of a]", '{"_meta": 1}'):
        (stored,) = prompt(text(words)).content
        assert stored == text(words)
        assert acp_block_from_log(stored) is None


@given(st.text(), st.text(), st.none() | st.text(max_size=9))
def test_any_resource_is_replayed_as_it_was(uri: str, value: str, mime: str | None) -> None:
    more: JsonObject = {} if mime is None else {"mimeType": mime}
    (stored,) = prompt(embedded(uri, value, **more)).content
    assert replayed(stored) == embedded(uri, value, **more)
    assert value in str(stored["text"])
    (linked,) = prompt(link(uri, "n", **more)).content
    assert replayed(linked) == link(uri, "n", **more)


@pytest.mark.parametrize(
    "meta",
    [
        3,
        {"acp": 3},
        {"acp": {"type": "resource_link"}},
        {"acp": {"type": "resource_link", "uri": 3}},
        {"acp": {"type": "resource_link", "uri": "u", "mimeType": 3}},
        {"acp": {"type": "resource", "uri": "u", "start": "0", "end": 1}},
        {"acp": {"type": "other", "uri": "u"}},
    ],
)
def test_a_foreign_meta_is_nothing(meta: JsonValue) -> None:
    assert acp_block_from_log({"type": "text", "text": "x", "_meta": meta}) is None


@pytest.mark.parametrize(
    ("blocks", "field"),
    [
        ([], "prompt"),
        ([text("")], "prompt"),
        ([text(" \n"), text("\t")], "prompt"),
        ([text("a"), {"type": "audio", "data": "", "mimeType": "audio/wav"}], "prompt[1]"),
        ([{"type": "video", "url": "x"}], "prompt[0].type"),
        ([text("a"), {"type": "image", "data": "!", "mimeType": "image/png"}], "prompt[1].data"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_field(
    blocks: list[JsonObject], field: str
) -> None:
    with pytest.raises(InvalidParamsError) as refused:
        prompt(*blocks)
    assert refused.value.field == field


def test_a_resource_of_an_unknown_shape_is_refused() -> None:
    with pytest.raises(InvalidParamsError) as refused:
        prompt({"type": "resource", "resource": {"uri": "u", "what": 1}})
    assert "prompt" in refused.value.field


def test_an_image_comes_with_its_bytes() -> None:
    made = prompt(text("look"), {"type": "image", "data": png(2, 3), "mimeType": "image/png"})
    assert [block["type"] for block in made.content] == ["text", "image"]
    attachment = made.content[1]["attachment"]
    assert isinstance(attachment, dict)
    assert list(made.attachments) == [attachment["attachmentId"]]
    assert (attachment["width"], attachment["height"]) == (2, 3)


@pytest.mark.parametrize(
    ("blocks", "title"),
    [
        ([text("Fix\n  the   parser")], "Fix the parser"),
        ([text("\x1b[1mFix\x00 \u202eit")], "[1mFix it"),
        ([text("Look at"), link("file:///x/a.py", "a.py")], "Look at a.py"),
        ([link("file:///x/b.py", "")], "b.py"),
        ([text("x" * 100)], "x" * (TITLE_CHARS_MAX - 1) + "…"),
        ([text("You are an editor. " * 50), text("Fix it")], "Fix it"),
    ],
)
def test_titles_are_one_short_line(blocks: list[JsonObject], title: str) -> None:
    assert prompt(*blocks).title == title


def test_what_was_typed_is_shown_in_place_of_what_it_stood_for() -> None:
    form: JsonObject = {"acp": {"type": "text", "text": "/go home"}}
    shown = acp_block_from_log({"type": "text", "text": "Go home.", "_meta": form})
    assert shown == TextContent(text="/go home")
