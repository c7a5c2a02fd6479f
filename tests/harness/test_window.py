"""How full a model's window is, and which slice of the surface a summary may stand for."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.harness.window import (
    estimate,
    fitting,
    newest_exchange,
    shadow_of,
    tokens_held,
    tokens_max,
)
from acp_bridge.vocabulary import Event, JsonObject, JsonValue, SurfaceOp

FORTY = "x" * 144
"""With what a message costs anyway, 40 tokens."""


def block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def row(
    seq: int,
    kind: str,
    *content: JsonObject,
    usage: JsonObject | None = None,
    op: SurfaceOp = "append",
    **more: JsonValue,
) -> Event:
    blocks: list[JsonValue] = list(content)
    message: JsonObject = {"content": blocks, **more}
    if kind == "user/message":
        return Event(seq, 0, kind, message, op)
    data: JsonObject = {"message": message}
    if usage is not None:
        data["usage"] = usage
    return Event(seq, 0, kind, data, op)


def said(seq: int, text: str = FORTY) -> Event:
    return row(seq, "user/message", block(text))


def answered(seq: int, *calls: str, text: str = FORTY, used: int | None = None) -> Event:
    blocks: list[JsonObject] = [
        {"type": "tool-call", "id": one, "name": "", "arguments": ""} for one in calls
    ]
    usage: JsonObject | None = None if used is None else {"inputTokens": used, "outputTokens": 0}
    return row(seq, "assistant/message", block(text), *blocks, usage=usage)


def result(seq: int, call: str, text: str = FORTY) -> Event:
    return row(seq, "tool/result", block(text), toolCallId=call)


def checkpoint(seq: int) -> Event:
    source: JsonObject = {"kind": "compact-checkpoint"}
    return row(seq, "user/message", block(FORTY), op=(1, 2), source=source)


HEAD = row(0, "system/message", block(FORTY))


def held(*rows: Event) -> int:
    return tokens_held(rows, beside=lambda: 1000)


def test_the_provider_s_count_stands_and_what_came_after_it_is_estimated() -> None:
    assert held(HEAD, said(1), answered(2, used=500)) == 500
    assert held(HEAD, said(1), answered(2, used=500), said(3)) == 540
    assert held(HEAD, said(1), answered(2, used=500), said(3), answered(4, used=7)) == 7


def test_without_a_count_all_is_estimated_tools_included() -> None:
    assert held(HEAD, said(1)) == 1080
    assert held(HEAD, said(1), answered(2)) == 1120
    assert held(HEAD, said(1), answered(2, used=0)) == 1120


def test_cached_tokens_are_in_the_window_too() -> None:
    usage: JsonObject = {
        "inputTokens": 1,
        "outputTokens": 20,
        "cacheReadTokens": 300,
        "cacheWriteTokens": 4000,
        "totalTokens": 4321,
    }
    assert held(row(1, "assistant/message", block("x"), usage=usage)) == 4321


def test_a_count_from_before_a_compaction_is_void() -> None:
    kept = answered(2, used=90_000)
    assert held(HEAD, checkpoint(5), kept) == 1120
    assert held(HEAD, checkpoint(5), kept, answered(6, used=300)) == 300
    changed_head = row(9, "system/message", block(FORTY), op=(0, 0))
    assert held(changed_head, said(1), kept) == 90_000


def test_an_image_counts_for_more_than_its_place_in_the_log() -> None:
    assert estimate([{"content": [{"type": "image", "attachment": {}}]}]) == 1604


def test_the_window_is_full_before_the_longest_answer_would_not_fit() -> None:
    assert tokens_max(context_window=1000, output_tokens_max=None) == 800
    assert tokens_max(context_window=1000, output_tokens_max=100) == 800
    assert tokens_max(context_window=1000, output_tokens_max=400) == 600
    assert tokens_max(context_window=1000, output_tokens_max=900) == 500


def seqs(rows: list[Event], *, tail: int, kept: int = 0) -> list[int]:
    shadow = shadow_of(rows, tail_tokens=tail, kept=kept)
    return [] if shadow is None else [one.seq for one in shadow.rows]


TALK = [HEAD, said(1), answered(2), said(3), answered(4)]


def test_the_head_stays_and_so_does_a_tail_of_the_size() -> None:
    assert seqs(TALK, tail=0) == [1, 2, 3, 4]
    assert seqs(TALK, tail=39) == [1, 2, 3, 4]
    assert seqs(TALK, tail=40) == [1, 2, 3]
    assert seqs(TALK, tail=119) == [1, 2]
    assert seqs(TALK, tail=10_000) == [1]
    assert seqs(TALK[1:], tail=80) == [1, 2], "a log without a head has none to keep"


def test_rows_that_must_stay_do_whatever_they_take() -> None:
    assert seqs(TALK, tail=0, kept=1) == [1, 2, 3]
    assert seqs(TALK, tail=0, kept=4) == []


def test_a_call_stays_with_all_its_results() -> None:
    rows = [HEAD, said(1), answered(2, "a", "b"), result(3, "b"), result(4, "a"), answered(5)]
    assert seqs(rows, tail=40) == [1, 2, 3, 4]
    assert seqs(rows, tail=80) == [1, 2, 3, 4]
    assert seqs(rows, tail=159) == [1, 2, 3, 4]
    assert seqs(rows, tail=160) == [1]
    assert seqs(rows[:4], tail=0) == [1], "a call is still running"


def test_a_summary_alone_is_not_summarized_again() -> None:
    assert seqs([HEAD, checkpoint(5)], tail=0) == []
    assert seqs([HEAD, checkpoint(5), said(6)], tail=0) == [5, 6]
    assert seqs([HEAD, checkpoint(5), said(6)], tail=40) == []
    assert seqs([], tail=0) == seqs([HEAD], tail=0) == []


def test_the_newest_exchange_is_the_last_answer_and_what_followed() -> None:
    assert newest_exchange([*TALK, said(5)]) == 2
    assert newest_exchange([HEAD, answered(2, "a"), result(3, "a")]) == 2
    assert newest_exchange([HEAD, said(1)]) == 0


@given(
    st.lists(st.integers(0, 3), max_size=8), st.integers(0, 400), st.integers(0, 3), st.booleans()
)
def test_whatever_is_taken_is_whole_exchanges_and_leaves_the_head(
    calls: list[int], tail: int, kept: int, has_head: bool
) -> None:
    rows = [HEAD] if has_head else []
    for number, count in enumerate(calls):
        rows.append(said(len(rows) + 1))
        names = [f"{number}.{n}" for n in range(count)]
        rows.append(answered(len(rows) + 1, *names))
        rows += [result(len(rows) + 1 + n, name) for n, name in enumerate(reversed(names))]
    shadow = shadow_of(rows, tail_tokens=tail, kept=kept)
    if shadow is None:
        return
    first = rows.index(shadow.rows[0])
    assert first == int(has_head)
    assert list(shadow.rows) == rows[first : first + len(shadow.rows)]
    rest = rows[first + len(shadow.rows) :]
    assert len(rest) >= kept
    taken = {call_id for one in shadow.rows for call_id in re.findall(r"\d+\.\d+", str(one.data))}
    left = {call_id for one in rest for call_id in re.findall(r"\d+\.\d+", str(one.data))}
    assert not taken & left


def message(role: str, *content: JsonObject, **source: JsonValue) -> JsonObject:
    blocks: list[JsonValue] = list(content)
    return {"role": role, "content": blocks, "source": source}


def test_what_fits_is_sent_as_it_is() -> None:
    messages = [message("user", block("x" * 400))]
    assert fitting(messages, tokens=104) == messages
    assert fitting(messages, tokens=104)[0] is messages[0]


def test_long_parts_are_cut_in_the_middle_until_it_fits() -> None:
    call: JsonObject = {
        "type": "tool-call",
        "id": "c",
        "name": "write",
        "arguments": json.dumps({"content": "y" * 40_000}),
    }
    messages = [
        message("user", block("begin" + "x" * 40_000 + "end"), kind="user"),
        message(
            "assistant",
            {"type": "reasoning", "text": "r" * 40_000},
            call,
            kind="model",
            replayState={"blocks": []},
        ),
        message("user", {"type": "image", "attachment": {}}, kind="user"),
    ]
    fit = fitting(messages, tokens=2000)
    assert estimate(fit) <= 2000
    shown = json.dumps(fit)
    assert "begin" in shown
    assert "end" in shown
    assert "[image]" in shown
    assert "rrr" not in shown
    assert "replayState" not in shown
    [shortened] = [one for one in fit[1]["content"] if isinstance(one, dict)]  # type: ignore[union-attr]
    assert "characters left out" in json.loads(str(shortened["arguments"]))["shortened"]
    assert "replayState" in json.dumps(messages), "the log's own messages are untouched"


def test_what_can_not_be_cut_enough_loses_its_oldest_messages() -> None:
    messages = [message("user", block(f"{n} " + "x" * 200)) for n in range(100)]
    fit = fitting(messages, tokens=500)
    assert 1 <= len(fit) < 100
    assert estimate(fit) <= 500
    assert "99 " in str(fit[-1])
