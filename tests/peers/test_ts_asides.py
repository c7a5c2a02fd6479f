"""The TypeScript SDK reads forms, notices and plans with ids, and passes words on to a turn."""

from typing import Any

import pytest
from test_typescript_sdk import Desk, call, desk, of_session, prompt

pytestmark = [pytest.mark.peer, pytest.mark.process]

__all__ = ["desk"]

EVERYTHING: dict[str, Any] = {
    "elicitation": {"form": {}},
    "plan": {},
    "session": {"notices": {}},
}


def test_a_form_is_typed_and_its_content_comes_back(desk: Desk) -> None:
    options = [{"label": "red", "description": "Warm."}, {"label": "blue"}]
    questions = [
        {"id": "one", "question": "Which?", "header": "Colour", "options": options},
        {"id": "many", "question": "Which all?", "options": options, "multi_select": True},
        {"id": "name", "question": "What name?"},
    ]
    desk.answers([call("q", "ask_user_question", questions=questions)], [{"text": "Thanks."}])
    filled = {"q1": "blue", "q2": ["red", "blue"], "q3": "Bridge", "q2_other": "or green"}
    seen = desk.play([desk.new(), prompt()], capabilities=EVERYTHING, filled=[filled])
    (form,) = seen.forms
    assert form["mode"] == "form"
    assert list(form["requestedSchema"]["properties"]) == ["q1", "q1_other", "q2", "q2_other", "q3"]
    (shown,) = (u for u in seen.of_kind("tool_call_update") if u["status"] == "completed")
    assert shown["content"][0]["content"]["text"] == (
        "one: blue\nmany: red, blue, or green\nname: Bridge\n"
    )


def test_a_notice_is_typed(desk: Desk) -> None:
    error = {"status": 503, "message": "overloaded", "retry_after_s": 0.01}
    desk.answers([{"error": error}], [{"text": "Done."}])
    seen = desk.play([desk.new(), prompt()], capabilities=EVERYTHING)
    (notice,) = seen.of_kind("notice")
    assert "overloaded" in notice["title"]
    assert seen.of_kind("agent_thought_chunk") == []


def test_a_plan_with_an_id_is_typed_and_removed(desk: Desk) -> None:
    todos = [{"content": "Look", "status": "pending"}]
    desk.answers(
        [call("a", "todo_write", todos=todos)],
        [call("b", "todo_write", todos=[])],
        [{"text": "Done."}],
    )
    seen = desk.play([desk.new(), prompt()], capabilities=EVERYTHING, unstable=True)
    assert [update["plan"]["planId"] for update in seen.of_kind("plan_update")] == ["todos"]
    assert [update["planId"] for update in seen.of_kind("plan_removed")] == ["todos"]
    assert seen.of_kind("plan") == []


def test_words_reach_a_running_turn(desk: Desk) -> None:
    desk.answers([{"text": "Half"}, {"wait": "heard"}, {"text": "."}], [{"text": "I heard."}])
    words = [{"type": "text", "text": "Listen."}]
    half = {"update": {"sessionUpdate": "agent_message_chunk", "content": {"text": "Half"}}}
    seen = desk.play(
        [
            desk.new(),
            prompt(do="start"),
            {"until": half},
            {**of_session("call", "_session/steering", prompt=words), "as": "steered"},
            {"touch": str(desk.script.with_name(f"{desk.script.name}.releases") / "heard")},
            {"await": "prompt"},
        ]
    )
    assert seen.answers["hello"]["_meta"] == {"steering": {"supported": True}}
    assert seen.answers["steered"] == {"outcome": "injected"}
    assert seen.text() == "Half.I heard."
