"""What a remote child asks the home's user: permissions and questions, and their answers. Pure.

An ask's ``child_id`` is always who asks: the child or a subagent below it. The row that it is about
was told before. Every reader names the field that it cannot use, as ``ask.questions[1].text``.
"""

from collections.abc import Sequence
from typing import TypeAlias

from acp_bridge.ports import (
    PermissionAsk,
    Question,
    QuestionAnswer,
    QuestionOption,
    QuestionsAsk,
)
from acp_bridge.subagents.remote_json import (
    bad,
    list_from,
    name_in,
    object_from,
    one_of_in,
    optional_text_in,
    text_in,
)
from acp_bridge.vocabulary import Answer, CallId, JsonObject, JsonValue, SessionId

Ask: TypeAlias = PermissionAsk | QuestionsAsk


def ask_json(ask: Ask) -> JsonObject:
    """The payload of an event of type ``ask``."""
    asker: JsonObject = {"child_id": ask.child_id, "call_id": ask.call_id}
    if isinstance(ask, QuestionsAsk):
        return {**asker, "questions": [_question_json(one) for one in ask.questions]}
    return {
        **asker,
        "tool_name": ask.tool_name,
        "reason": ask.reason,
        "always_label": ask.always_label,
    }


def ask_from_json(data: JsonObject) -> Ask:
    """What is asked.

    Raises:
        InvalidParamsError: names the field at fault.
    """
    child_id = SessionId(name_in(data, "child_id", "ask."))
    call_id = CallId(text_in(data, "call_id", "ask."))
    if "questions" in data:
        asked = list_from(data["questions"], "ask.questions")
        questions = [_question(one, f"ask.questions[{number}]") for number, one in enumerate(asked)]
        return QuestionsAsk(call_id, tuple(questions), child_id)
    return PermissionAsk(
        call_id=call_id,
        tool_name=text_in(data, "tool_name", "ask."),
        reason=text_in(data, "reason", "ask."),
        always_label=optional_text_in(data, "always_label", "ask."),
        child_id=child_id,
    )


def answer_json(answer: Answer) -> JsonObject:
    """The payload of an answer to a `PermissionAsk`."""
    return {"answer": answer.value}


def answer_from_json(data: JsonObject) -> Answer:
    """The user's answer.

    Raises:
        InvalidParamsError: names the field at fault.
    """
    return Answer(one_of_in(data, "answer", [one.value for one in Answer], "answer."))


def answers_json(answers: Sequence[QuestionAnswer] | None) -> JsonObject:
    """The payload of an answer to a `QuestionsAsk`; None: declined, or nobody was asked."""
    if answers is None:
        return {"answers": None}
    told: list[JsonValue] = [
        {"question_id": one.question_id, "selected": list(one.selected), "typed": one.typed}
        for one in answers
    ]
    return {"answers": told}


def answers_from_json(data: JsonObject) -> Sequence[QuestionAnswer] | None:
    """The user's answers.

    Raises:
        InvalidParamsError: names the field at fault.
    """
    if data.get("answers") is None:
        return None
    return [
        _answer(one, f"answers[{number}]")
        for number, one in enumerate(list_from(data["answers"], "answers"))
    ]


def _question_json(question: Question) -> JsonObject:
    return {
        "question_id": question.question_id,
        "text": question.text,
        "header": question.header,
        "detail": question.detail,
        "options": [
            {"label": one.label, "description": one.description} for one in question.options
        ],
        "takes_many": question.takes_many,
    }


def _question(value: JsonValue, where: str) -> Question:
    data, at = object_from(value, where), f"{where}."
    options = list_from(data.get("options"), f"{at}options")
    return Question(
        question_id=text_in(data, "question_id", at),
        text=text_in(data, "text", at),
        header=optional_text_in(data, "header", at),
        detail=optional_text_in(data, "detail", at),
        options=tuple(_option(one, f"{at}options[{number}]") for number, one in enumerate(options)),
        takes_many=data.get("takes_many") is True,
    )


def _option(value: JsonValue, where: str) -> QuestionOption:
    data, at = object_from(value, where), f"{where}."
    return QuestionOption(text_in(data, "label", at), optional_text_in(data, "description", at))


def _answer(value: JsonValue, where: str) -> QuestionAnswer:
    data, at = object_from(value, where), f"{where}."
    selected: list[str] = []
    for number, label in enumerate(list_from(data.get("selected"), f"{at}selected")):
        if not isinstance(label, str):
            raise bad(f"{at}selected[{number}]", "a string")
        selected.append(label)
    return QuestionAnswer(
        text_in(data, "question_id", at), tuple(selected), optional_text_in(data, "typed", at)
    )
