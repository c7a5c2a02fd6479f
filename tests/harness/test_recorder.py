"""An answer's rows: content is what the stream says, and the log takes them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.harness.recorder import AnswerRecorder
from acp_bridge.ports import ReasoningChunk, TextChunk, ToolCallChunk, UsageChunk
from acp_bridge.sessions.validation.strict import check_draft
from acp_bridge.vocabulary import Draft, JsonObject, JsonValue

Piece = TextChunk | ReasoningChunk | ToolCallChunk | UsageChunk


def recorder(*chunks: Piece) -> AnswerRecorder:
    made = AnswerRecorder(itertools.count(1000).__next__)
    for chunk in chunks:
        made.add(chunk)
    return made


def assembled(stream: list[JsonValue]) -> list[JsonObject]:
    """The blocks that a reader of the stream records puts together (dsh-events section 3)."""
    blocks: dict[int, JsonObject] = {}
    for record in stream:
        assert isinstance(record, dict)
        if record["type"] == "chunk":
            chunk = record["chunk"]
            assert isinstance(chunk, dict)
            if chunk["type"] == "block-start":
                index, kind = chunk["index"], chunk["blockType"]
                assert isinstance(index, int)
                assert index == len(blocks)
                empty: JsonObject = {"arguments": ""} if kind == "tool-call" else {"text": ""}
                blocks[index] = {"type": kind, **empty}
            elif chunk["type"] == "block-end":
                index = chunk["index"]
                assert isinstance(index, int)
                assert blocks[index] == chunk["block"]
            continue
        index = record["index"]
        assert isinstance(index, int)
        block = blocks[index]
        if record["type"] == "tool-call-chunks":
            block["id"] = record["id"]
            if "name" in record:
                block["name"] = record["name"]
            pieces, key = record["args"], "arguments"
        else:
            assert record["type"] == f"{block['type']}-chunks"
            pieces, key = record["texts"], "text"
        assert isinstance(pieces, list)
        assert pieces
        block[key] = str(block[key]) + "".join(str(piece) for piece in pieces)
    return [blocks[index] for index in sorted(blocks)]


def row(made: AnswerRecorder, *, with_calls: bool = True) -> Draft:
    message: JsonObject = {
        "role": "assistant",
        "content": made.content(with_calls=with_calls),
        "source": {"kind": "model", "provider": "p", "model": "m"},
        "id": "i",
    }
    data: JsonObject = {"turn": 1, "step": 1, "message": message, "stream": made.stream}
    if made.usage is not None:
        data["usage"] = made.usage
    return Draft("assistant/message", data, surface_op="append")


def test_a_text_answer_is_one_run() -> None:
    made = recorder(TextChunk(0, "a"), TextChunk(0, "b"), UsageChunk(1, 2))
    made.finish({"kind": "stop"})
    kinds = [
        record["chunk"]["type"] if record["type"] == "chunk" else record["type"]  # type: ignore[call-overload,index]
        for record in made.stream
    ]
    assert kinds == ["block-start", "text-chunks", "block-end", "usage", "finish"]
    run = made.stream[1]
    assert isinstance(run, dict)
    assert run["texts"] == ["a", "b"]
    assert run["dt"] == [1]


def test_a_tool_call_is_two_records_the_first_with_its_name() -> None:
    made = recorder(ToolCallChunk(0, "c", "read", ""), ToolCallChunk(0, "c", None, "{}"))
    runs = [r for r in made.stream if isinstance(r, dict) and r["type"] == "tool-call-chunks"]
    assert [(r.get("name"), r["args"], r["id"]) for r in runs] == [
        ("read", [""], "c"),
        (None, ["{}"], "c"),
    ]


def test_ids_that_repeat_within_an_answer_are_renamed_r083() -> None:
    made = recorder(
        ToolCallChunk(0, "c", "read", "{}"),
        ToolCallChunk(1, "c", "read", "{}"),
        ToolCallChunk(2, "", "read", "{}"),
        ToolCallChunk(3, "", "read", "{}"),
        ToolCallChunk(3, "", "read", "{}"),
    )
    assert [call["id"] for call in made.calls()] == ["c", "c~2", "call", "call~2", "call~3"]
    check_draft(row(made))


def test_cut_answers_leave_their_calls_out_but_the_stream_has_them() -> None:
    made = recorder(TextChunk(0, "so far"), ToolCallChunk(1, "c", "read", '{"fi'))
    assert made.content(with_calls=False) == [{"type": "text", "text": "so far"}]
    assert assembled(made.stream)[1]["arguments"] == '{"fi'
    check_draft(row(made, with_calls=False))


def test_a_kind_that_changes_within_a_block_is_a_new_block() -> None:
    made = recorder(ReasoningChunk(0, "hm"), TextChunk(0, "a"))
    assert [block["type"] for block in assembled(made.stream)] == ["reasoning", "text"]


def test_content_can_be_read_at_any_time() -> None:
    made = recorder(TextChunk(0, "a"))
    assert made.content(with_calls=True) == [{"type": "text", "text": "a"}]
    made.add(TextChunk(0, "b"))
    assert made.content(with_calls=True) == [{"type": "text", "text": "ab"}]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
BLOCKS = st.integers(0, 3)
PIECES = st.lists(
    st.one_of(
        st.builds(TextChunk, BLOCKS, TEXTS),
        st.builds(ReasoningChunk, BLOCKS, TEXTS),
        st.builds(
            ToolCallChunk,
            BLOCKS,
            st.sampled_from(["", "a", "b", "a~2"]),
            st.none() | st.just("read"),
            TEXTS,
        ),
        st.builds(UsageChunk, st.integers(0, 9), st.integers(0, 9)),
    ),
    max_size=25,
)


@given(PIECES, st.booleans())
def test_content_equals_the_assembled_stream_and_the_log_takes_the_row(
    pieces: list[Piece], finished: bool
) -> None:
    made = recorder(*pieces)
    if finished:
        made.finish({"kind": "stop"})
    told = [block for block in assembled(made.stream) if block.get("text") != ""]
    assert made.content(with_calls=True) == told
    assert made.content(with_calls=False) == [b for b in told if b["type"] != "tool-call"]
    assert made.calls() == [b for b in told if b["type"] == "tool-call"]
    names = [call["id"] for call in made.calls()]
    assert len(set(map(str, names))) == len(names)
    said = "".join(p.text for p in pieces if isinstance(p, TextChunk | ReasoningChunk))
    assert "".join(str(b["text"]) for b in told if "text" in b) == said
    check_draft(row(made))


@pytest.mark.parametrize("count", [1, 5000])
def test_many_deltas_are_one_record(count: int) -> None:
    made = recorder(*[TextChunk(0, "x")] * count)
    assert len(made.stream) == 2
