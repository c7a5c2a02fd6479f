"""Questions of the model as an ACP form, and the form's content as answers. Pure.

A form is a JSON schema and is written as one. Each question has a field of its own (``q1``, ``q2``
…): a choice, several choices, or text. Behind a choice comes a second field (``q1_other``), since
the right answer may not be among those that a model thought of. Nothing must be filled in but the
only field of a form, so that a user may skip a question; who wants to skip all declines.
"""

from collections.abc import Sequence
from typing import Final

from acp_bridge.ports import Question, QuestionAnswer
from acp_bridge.vocabulary import JsonObject, JsonValue

OTHER: Final = "Something else"
"""The title of the field for an answer in other words."""


def form_message(questions: Sequence[Question], asker: str | None) -> str:
    """What stands above the form; ``asker`` is the subagent that asks."""
    if len(questions) > 1:
        return f"{asker or 'The agent'} asks {len(questions)} questions."
    text = questions[0].text
    return text if asker is None else f"{asker} asks: {text}"


def form_schema(questions: Sequence[Question]) -> JsonObject:
    """The form: what ``requestedSchema`` of ``elicitation/create`` takes."""
    is_lone = len(questions) == 1
    properties: JsonObject = {}
    for key, question in _keyed(questions):
        properties[key] = _field(question, is_lone=is_lone)
        if question.options:
            properties[_other(key)] = {
                "type": "string",
                "title": OTHER,
                # How agent-shell ties the two together (clients: section 6).
                "_meta": {"_askUserQuestionCustomAnswer": {"questionId": key}},
            }
    schema: JsonObject = {"type": "object", "properties": properties}
    if len(properties) == 1:
        schema["required"] = list(properties)
    return schema


def answers_from_result(
    questions: Sequence[Question], result: JsonValue
) -> list[QuestionAnswer] | None:
    """An answer for each question, whatever a client made of the form; None: not accepted."""
    if not isinstance(result, dict) or result.get("action") != "accept":
        return None
    content = result.get("content")
    given = content if isinstance(content, dict) else {}
    return [
        _answer(question, given.get(key), given.get(_other(key)))
        for key, question in _keyed(questions)
    ]


def _keyed(questions: Sequence[Question]) -> list[tuple[str, Question]]:
    return [(f"q{number}", question) for number, question in enumerate(questions, start=1)]


def _other(key: str) -> str:
    return f"{key}_other"


def _field(question: Question, *, is_lone: bool) -> JsonObject:
    shown: JsonObject = {"title": question.header or ("Answer" if is_lone else question.text)}
    text = None if is_lone or question.header is None else question.text
    if told := "\n\n".join(filter(None, (text, question.detail))):
        shown["description"] = told
    if not question.options:
        # An empty text would be no answer where there is nothing else to fill in.
        return {"type": "string", **shown, **({"minLength": 1} if is_lone else {})}
    choices: list[JsonValue] = []
    for option in {option.label: option for option in question.options}.values():
        choice: JsonObject = {"const": option.label, "title": option.label}
        if option.description:
            choice["description"] = option.description
        choices.append(choice)
    if question.takes_many:
        return {"type": "array", **shown, "items": {"anyOf": choices}}
    return {"type": "string", **shown, "oneOf": choices}


def _answer(question: Question, value: JsonValue, other: JsonValue) -> QuestionAnswer:
    labels = {option.label for option in question.options}
    given = value if isinstance(value, list) else [value]
    texts = [text for text in map(_text, given) if text is not None]
    chosen = [text for text in dict.fromkeys(texts) if text in labels]
    if not question.takes_many and len(chosen) > 1:
        chosen = []  # which one is meant cannot be known
    # What is none of the options was meant as an answer all the same.
    said = [text for text in texts if text not in labels]
    if (more := _text(other)) is not None:
        said.append(more)
    typed = "\n".join(said)
    return QuestionAnswer(question.question_id, tuple(chosen), typed if typed.strip() else None)


def _text(value: JsonValue) -> str | None:
    """A form's value as the user sees it; None: there is nothing that could be an answer."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, str | int | float) else None
