"""What the model sees of a log, and its title."""

import attrs
from session_rows import (
    answer,
    call,
    closing,
    opening,
    placed,
    result,
    system_row,
    text_turn,
    user,
)

from acp_bridge.sessions import model_view, request_header, title
from acp_bridge.vocabulary import Draft, JsonObject, JsonValue


def image(name: str) -> JsonObject:
    return {"type": "image", "attachment": {"attachmentId": name}}


def ids(messages: list[JsonObject]) -> list[JsonValue]:
    return [message["id"] for message in messages]


def test_the_view_is_the_head_and_the_messages_in_order() -> None:
    rows = [*opening(1), answer(1, "c"), call(1, "c"), result(1, "c", 8), *closing(1)]
    view = model_view(placed([*rows, *text_turn(2)]))
    assert view.system == "You are an agent."
    assert ids(view.messages) == ["u1", "a1.1", "r-c", "u2", "a2.1"]


def test_an_empty_log_shows_nothing() -> None:
    view = model_view([])
    assert (view.system, view.messages) == ("", [])
    assert title([]) is None
    assert request_header([]) is None


def test_a_new_system_prompt_takes_the_heads_place() -> None:
    new = attrs.evolve(system_row(1, 1, "new", "s2"), surface_op=(4, 4), source_event_seqs=(4,))
    assert model_view(placed([*opening(1), new])).system == "new"


def test_a_later_system_row_stays_among_the_messages() -> None:
    view = model_view(placed([*opening(1), system_row(1, 1, "more", "s2")]))
    assert view.system == "You are an agent."
    assert ids(view.messages) == ["u1", "s2"]


def test_a_replacement_takes_the_place_of_its_rows_by_position() -> None:
    rows = [*text_turn(1), *text_turn(2)]
    rows.append(Draft("user/message", user("short"), (5, 7), (5, 7)))
    first = model_view(placed(rows))
    assert ids(first.messages) == ["short", "u2", "a2.1"]
    at = len(rows) - 1
    rows.append(Draft("user/message", user("shorter"), (at, 14), (at, 14)))
    assert ids(model_view(placed(rows)).messages) == ["shorter", "a2.1"]


def test_an_empty_answer_is_left_out_and_an_empty_result_is_not() -> None:
    empty = answer(1)
    assert isinstance(empty.data, dict)
    message = empty.data["message"]
    assert isinstance(message, dict)
    silent = attrs.evolve(empty, data={**empty.data, "message": {**message, "content": []}})
    assert ids(model_view(placed([*opening(1), silent])).messages) == ["u1"]


def test_offloaded_images_are_counted_depth_first_and_the_rows_stay_whole() -> None:
    nested: JsonObject = {"type": "group", "content": [image("b"), image("c")]}
    message: JsonObject = {**user("u"), "content": [image("a"), nested, image("d")]}
    offload = Draft("image/offload", {"targets": [{"seq": 0, "imageIndexes": [1, 3]}]})
    view = model_view(placed([Draft("user/message", message, "append"), offload]))
    assert view.messages[0]["content"] == [
        image("a"),
        {"type": "group", "content": [{**image("b"), "offloaded": True}, image("c")]},
        {**image("d"), "offloaded": True},
    ]
    assert message["content"] == [image("a"), nested, image("d")]


def test_the_newest_title_and_header_count() -> None:
    rows = [
        *text_turn(1),
        Draft("session/title", {"title": "one", "messageSeqs": [5], "source": {"kind": "x"}}),
        Draft("session/title", {"title": "two", "messageSeqs": [], "source": {"kind": "user"}}),
    ]
    assert title(placed(rows)) == "two"
    assert request_header(placed(rows)) == {"config": {"provider": "p", "model": "m"}}
