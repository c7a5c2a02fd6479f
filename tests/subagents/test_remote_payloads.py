"""What a home and a worker tell each other survives JSON, and what does not fit is named."""

import json
from pathlib import Path

import pytest

from acp_bridge.errors import InvalidParamsError
from acp_bridge.ports import (
    PermissionAsk,
    Question,
    QuestionAnswer,
    QuestionOption,
    QuestionsAsk,
)
from acp_bridge.sessions import Header, LogState
from acp_bridge.subagents.remote_asks import (
    answer_from_json,
    answer_json,
    answers_from_json,
    answers_json,
    ask_from_json,
    ask_json,
)
from acp_bridge.subagents.remote_closing import ending_rows
from acp_bridge.subagents.remote_payloads import (
    AskWithdrawnItem,
    Cancel,
    ChildFinishedItem,
    ChildMessagedItem,
    ChildStartedItem,
    GiveMode,
    Item,
    Message,
    Relayed,
    RowItem,
    Settlement,
    Steer,
    Task,
    TransientItem,
    addressed,
    cancel_from_json,
    cancel_json,
    is_for,
    item_json,
    items_from_payload,
    message_from_json,
    message_json,
    settlement_from_event,
    settlement_json,
    settlement_type,
    task_from_json,
    task_json,
)
from acp_bridge.vocabulary import (
    Answer,
    CallId,
    Event,
    FileDiff,
    JsonObject,
    SessionId,
    StreamDelta,
    ToolOutput,
    ToolPreview,
    TurnEnd,
)

ROOT, CHILD, BELOW = SessionId("r"), SessionId("c"), SessionId("d")
HEADER = Header("d", 5, "/w", delegation_depth=2, parent_session="c", origin="subagent")
ROW = Event(3, 7, "user/message", {"content": []}, "append", (0, 1, 2), ignorable=True)

TASK = Task(
    header=HEADER,
    events=[Event(0, 1, "turn/start", {"turn": 1}), Event(1, 2, "x/y", None, (0, 0))],
    place="1/2",
    title="t",
    label="l",
    model_id="p:m",
    effort="high",
    mode="plan",
    depth_max=3,
    live_max=16,
    system_prompt="Be kind.",
    images={"sha256:ab": b"\x89PNG"},
)

ITEMS: list[Item] = [
    RowItem(CHILD, ROW),
    TransientItem(CHILD, StreamDelta(1, 2, 3, 4, "reasoning", "hm")),
    TransientItem(CHILD, ToolOutput(CallId("k"), "out")),
    TransientItem(CHILD, ToolPreview(CallId("k"), (FileDiff("/a", None, "b"),))),
    ChildStartedItem(CHILD, BELOW, "l", "t", CallId("k"), Path("/w"), HEADER),
    ChildMessagedItem(CHILD, BELOW, CallId("k"), "more"),
    ChildFinishedItem(CHILD, BELOW, TurnEnd("error", "why", "CODE"), None),
    AskWithdrawnItem("q1"),
]


def sent(payload: JsonObject) -> JsonObject:
    """As it arrives."""
    arrived: JsonObject = json.loads(json.dumps(payload))
    return arrived


QUESTIONS = QuestionsAsk(
    CallId("k"),
    (
        Question("q", "Which?", "Pick", "*All* of it.", (QuestionOption("A", "first"),), True),
        Question("r", "Why?"),
    ),
    BELOW,
)


TOLD: JsonObject = {"rows": [item_json(item) for item in ITEMS]}


def test_everything_arrives_as_it_was_sent() -> None:
    assert task_from_json(sent(task_json(TASK))) == TASK
    assert items_from_payload(sent(TOLD)) == ITEMS
    ask = PermissionAsk(CallId("k"), "bash", "runs", None, BELOW)
    assert ask_from_json(sent(ask_json(ask))) == ask
    assert ask_from_json(sent(ask_json(QUESTIONS))) == QUESTIONS
    for answers in (None, [], [QuestionAnswer("q", ("A",), "more"), QuestionAnswer("r")]):
        assert answers_from_json(sent(answers_json(answers))) == answers
    for cancel in (Cancel("user"), Cancel("parent", "turn"), Cancel("user", session_id=BELOW)):
        assert cancel_from_json(sent(cancel_json(cancel))) == cancel
    messages: list[Message] = [
        Steer({"role": "user", "id": "m", "content": []}),
        GiveMode("full"),
        Relayed("hello"),
    ]
    assert [message_from_json(sent(message_json(one))) for one in messages] == messages
    assert [answer_from_json(sent(answer_json(one))) for one in Answer] == list(Answer)


@pytest.mark.parametrize(
    ("end", "event_type"),
    [
        (TurnEnd("completed"), "run_succeeded"),
        (TurnEnd("aborted"), "run_cancelled"),
        (TurnEnd("error", "why", "CODE"), "run_errored"),
        (TurnEnd("refusal", "no", "REFUSAL"), "run_failed"),
        (TurnEnd("max-tokens"), "run_failed"),
    ],
)
def test_an_end_arrives_by_its_event_type(end: TurnEnd, event_type: str) -> None:
    assert settlement_type(end) == event_type
    told = Settlement(end, "last words")
    assert settlement_from_event(event_type, sent(settlement_json(told))) == told


def test_ends_of_the_services_own_are_understood() -> None:
    lapsed = settlement_from_event("run_errored", {"details": "The lease lapsed."})
    assert lapsed == Settlement(TurnEnd("error", "The lease lapsed.", "WORKER_LOST"))
    assert settlement_from_event("run_cancelled", {}) == Settlement(TurnEnd("aborted"))
    nameless = settlement_from_event("run_failed", {})
    assert nameless.end.details == "The run ended without a reason."


def test_a_message_is_for_the_execution_of_its_task() -> None:
    payload = addressed(message_json(GiveMode("ask")), "t1")
    assert message_from_json(sent(payload)) == GiveMode("ask")
    assert is_for(payload, "t1")
    assert not is_for(payload, "t2")
    assert is_for({}, "t2")
    assert cancel_from_json({}) == Cancel("user")


def broken(payload: JsonObject, path: str, value: object) -> JsonObject:
    """The payload with one member replaced."""
    found = sent(payload)
    *way, last = path.split(".")
    inner: object = found
    for name in way:
        inner = inner[int(name)] if isinstance(inner, list) else inner[name]  # type: ignore[index]
    inner[int(last) if isinstance(inner, list) else last] = value  # type: ignore[index]
    return found


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("version", 2, "task.version"),
        ("header", [], "task.header"),
        ("header.id", "", "task.header"),
        ("rows", {}, "task.rows"),
        ("rows.1", {"seq": 1}, "task.rows[1]"),
        ("mode", "yolo", "task.mode"),
        ("label", None, "task.label"),
        ("effort", 5, "task.effort"),
        ("subagents.depth", -1, "task.subagents.depth"),
        ("subagents.limit", True, "task.subagents.limit"),
        ("subagents", None, "task.subagents"),
        ("system_prompt", 5, "task.system_prompt"),
        ("images", [], "task.images"),
        ("images.x", "?", "task.images.x"),
    ],
)
def test_what_does_not_fit_in_a_task_is_named(path: str, value: object, field: str) -> None:
    with pytest.raises(InvalidParamsError, match=r"must be|is no") as refusal:
        task_from_json(broken(task_json(TASK), path, value))
    assert refusal.value.field == field
    assert field in refusal.value.details


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("rows", 1, "rows"),
        ("rows.0", 1, "rows[0]"),
        ("rows.0.kind", "raw", "rows[0].kind"),
        ("rows.0.row", None, "rows[0].row"),
        ("rows.0.row.seq", "3", "rows[0].row.seq"),
        ("rows.0.row.type", 5, "rows[0].row"),
        ("rows.0.session_id", "", "rows[0].session_id"),
        ("rows.1.event", None, "rows[1].event"),
        ("rows.1.event.what", "smell", "rows[1].event.what"),
        ("rows.1.event.kind", "song", "rows[1].event.kind"),
        ("rows.1.event.turn", 1.5, "rows[1].event.turn"),
        ("rows.3.event.diffs.0.path", 1, "rows[3].event.diffs[0].path"),
        ("rows.4.header", None, "rows[4].header"),
        ("rows.5.text", None, "rows[5].text"),
        ("rows.6.end", None, "rows[6].end"),
        ("rows.6.end.kind", "bored", "rows[6].end.kind"),
        ("rows.7.ask_id", "", "rows[7].ask_id"),
    ],
)
def test_what_does_not_fit_in_rows_is_named(path: str, value: object, field: str) -> None:
    with pytest.raises(InvalidParamsError) as refusal:
        items_from_payload(broken(TOLD, path, value))
    assert refusal.value.field == field


def test_other_messages_that_do_not_fit_are_named() -> None:
    wrong: list[tuple[JsonObject, str]] = [
        ({}, "message.kind"),
        ({"kind": "message", "message": {"role": "tool", "id": "m"}}, "message.message"),
        ({"kind": "text", "text": ""}, "message.text"),
    ]
    for payload, field in wrong:
        with pytest.raises(InvalidParamsError) as refusal:
            message_from_json(payload)
        assert refusal.value.field == field
    with pytest.raises(InvalidParamsError, match=r"cancel\.what"):
        cancel_from_json({"what": "all"})
    with pytest.raises(InvalidParamsError, match=r"answer\.answer"):
        answer_from_json({"answer": "maybe"})
    asked = ask_json(QUESTIONS)
    with pytest.raises(InvalidParamsError, match=r"ask\.questions\[1\]\.options"):
        ask_from_json(broken(asked, "questions.1.options", "none"))
    with pytest.raises(InvalidParamsError, match=r"answers\[0\]\.selected\[0\]"):
        answers_from_json({"answers": [{"question_id": "q", "selected": [5]}]})
    with pytest.raises(InvalidParamsError, match=r"settlement\.end"):
        settlement_from_event("run_failed", {"end": 5})


def test_an_end_that_the_log_tells_gets_no_rows() -> None:
    state = LogState(HEADER)
    lost = TurnEnd("error", "Lost.", "WORKER_LOST")
    assert ending_rows(state, [], TurnEnd("completed")) == []
    made = ending_rows(state, [], lost)
    assert [row.type for row in made] == ["turn/start", "turn/end"]
    told = [Event(0, 0, made[1].type, made[1].data)]
    assert ending_rows(state, told, lost) == []
    done = [Event(0, 0, "turn/end", {"turn": 1, "reason": {"kind": "completed"}})]
    assert ending_rows(state, done, TurnEnd("aborted")) == []
    assert len(ending_rows(state, done, lost)) == 2
