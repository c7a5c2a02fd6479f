"""Questions as forms, and what clients make of a form as answers."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from acp_bridge.acp import schema_files
from acp_bridge.bridge.questions import answers_from_result, form_message, form_schema
from acp_bridge.ports import Question, QuestionAnswer, QuestionOption
from acp_bridge.vocabulary import JsonObject, JsonValue

SCHEMA = json.loads(schema_files()["stable"].read_text("utf-8"))
FORMS = Draft202012Validator({"$ref": "#/$defs/CreateElicitationRequest", "$defs": SCHEMA["$defs"]})

options = st.builds(QuestionOption, label=st.text(), description=st.none() | st.text())
asked = st.builds(
    Question,
    question_id=st.text(),
    text=st.text(),
    header=st.none() | st.text(),
    detail=st.none() | st.text(),
    options=st.lists(options, max_size=4).map(tuple),
    takes_many=st.booleans(),
)
questions = st.lists(asked, min_size=1, max_size=4)
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


def answered(one: Question, data: st.DataObject) -> tuple[JsonObject, QuestionAnswer]:
    """A user's way with a question: what a client sends for its two fields, and what it means."""
    typed = data.draw(st.none() | st.text(min_size=1).filter(str.strip))
    labels = [option.label for option in one.options]
    if not labels:
        return ({} if typed is None else {"": typed}), QuestionAnswer(one.question_id, (), typed)
    most = len(labels) if one.takes_many else 1
    chosen = data.draw(st.lists(st.sampled_from(labels), max_size=most, unique=True))
    fields: JsonObject = {}
    if one.takes_many:
        fields[""] = list(chosen)
    elif chosen:
        fields[""] = chosen[0]
    if typed is not None:
        fields["_other"] = typed
    return fields, QuestionAnswer(one.question_id, tuple(chosen), typed)


@given(questions, st.none() | st.text(min_size=1))
def test_any_questions_make_a_form_that_clients_can_read(
    many: list[Question], asker: str | None
) -> None:
    schema: Any = form_schema(many)
    request = {
        "mode": "form",
        "sessionId": "s",
        "message": form_message(many, asker),
        "requestedSchema": schema,
    }
    assert list(FORMS.iter_errors(request)) == []
    fields = schema["properties"]
    assert set(schema.get("required", [])) <= set(fields)
    for number, one in enumerate(many, start=1):
        field = fields[f"q{number}"]
        labels = list(dict.fromkeys(option.label for option in one.options))
        choices = field.get("items", {}).get("anyOf") or field.get("oneOf") or []
        assert [choice["const"] for choice in choices] == labels
        assert (f"q{number}_other" in fields) == bool(labels)


@given(questions, st.data())
def test_what_a_user_fills_in_is_the_answer(many: list[Question], data: st.DataObject) -> None:
    content: JsonObject = {}
    expected = []
    for number, one in enumerate(many, start=1):
        fields, answer = answered(one, data)
        content |= {f"q{number}{suffix}": value for suffix, value in fields.items()}
        expected.append(answer)
    assert answers_from_result(many, {"action": "accept", "content": content}) == expected


@given(questions, st.data())
def test_whatever_a_client_answers_is_no_fault_and_invents_no_choice(
    many: list[Question], data: st.DataObject
) -> None:
    keys = st.sampled_from(["q1", "q1_other", "q2", "q4_other", "x"])
    content = st.dictionaries(keys, json_values) | json_values
    accepted = st.fixed_dictionaries({"action": st.just("accept"), "content": content})
    answers = answers_from_result(many, data.draw(accepted | json_values))
    if answers is None:
        return
    assert [one.question_id for one in answers] == [one.question_id for one in many]
    for one, answer in zip(many, answers, strict=True):
        assert set(answer.selected) <= {option.label for option in one.options}
        assert len(answer.selected) <= (len(one.options) if one.takes_many else 1)
        assert answer.typed is None or answer.typed.strip()


def test_only_an_accepted_form_counts() -> None:
    one = [Question("a", "Which?")]
    results: list[JsonValue] = [None, [], "accept", {}, {"action": "decline"}, {"action": "_x"}]
    for result in results:
        assert answers_from_result(one, result) is None
    assert answers_from_result(one, {"action": "accept"}) == [QuestionAnswer("a")]


def test_an_answer_that_was_not_offered_counts_as_typed() -> None:
    one = [Question("a", "Which?", options=(QuestionOption("x"), QuestionOption("y")))]
    result: JsonObject = {"action": "accept", "content": {"q1": "z", "q1_other": "or w"}}
    assert answers_from_result(one, result) == [QuestionAnswer("a", (), "z\nor w")]


def test_one_of_two_that_were_chosen_where_one_may_be_is_not_guessed() -> None:
    one = [Question("a", "Which?", options=(QuestionOption("x"), QuestionOption("y")))]
    result: JsonObject = {"action": "accept", "content": {"q1": ["x", "y"]}}
    assert answers_from_result(one, result) == [QuestionAnswer("a")]
