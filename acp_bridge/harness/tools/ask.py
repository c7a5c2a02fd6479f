"""The `ask_user_question` tool: the model asks the user in the middle of its work.

Name, parameters and results are those of DeepSeek Harness, so that a log means the same to both.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from acp_bridge.harness.tools.arguments import flag, invalid_arguments, optional_text, required_text
from acp_bridge.harness.tools.results import NoPreview
from acp_bridge.ports import (
    Access,
    Question,
    QuestionAnswer,
    QuestionOption,
    ToolContext,
    ToolResult,
)
from acp_bridge.vocabulary import JsonObject, JsonValue


class AskUserTool(NoPreview):
    """Put questions to the user and wait for the answers."""

    name: ClassVar[str] = "ask_user_question"
    description: ClassVar[str] = (
        "Ask the user and wait for the answer: a decision that is theirs, or something that only "
        "they know. Find out by yourself what can be found out, and do not ask whether you may "
        "use a tool: that is asked for you. Put questions that belong together into one call. "
        "Give options where you can name the likely answers; the user may still answer in other "
        "words, or skip a question."
    )
    parameters: ClassVar[JsonObject] = {
        "type": "object",
        "properties": {
            "questions": {
                "type": "array",
                "description": "What to ask, in order.",
                "items": {
                    "type": "object",
                    "additionalProperties": True,
                    "properties": {
                        "id": {
                            "type": "string",
                            "description": "A name for the question, which its answer bears.",
                        },
                        "question": {"type": "string", "description": "The whole question."},
                        "header": {
                            "type": "string",
                            "description": "One or two words to stand above it.",
                        },
                        "options": {
                            "type": "array",
                            "description": (
                                "Answers to choose from, the best one first. Leave it out to let "
                                "the user type."
                            ),
                            "items": {
                                "type": "object",
                                "additionalProperties": True,
                                "properties": {
                                    "label": {
                                        "type": "string",
                                        "description": "The answer, in a few words.",
                                    },
                                    "description": {
                                        "type": "string",
                                        "description": "What choosing it means, in a sentence.",
                                    },
                                },
                                "required": ["label"],
                            },
                        },
                        "multi_select": {
                            "type": "boolean",
                            "description": "Whether several options may be chosen. Default: false.",
                        },
                    },
                    "required": ["id", "question"],
                },
            }
        },
        "required": ["questions"],
    }

    def access(self, arguments: JsonObject, cwd: Path) -> Access:  # noqa: ARG002
        """Nothing but the user's time."""
        return Access()

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """The answers as ``{"answers": [{"id", "selected", "custom"?}]}``, in order."""
        given = arguments["questions"]
        assert isinstance(given, list)
        if not given:
            return invalid_arguments('property "questions" must not be empty')
        questions: list[Question] = []
        for at, item in enumerate(given):
            assert isinstance(item, dict)
            question = _question(item)
            if problem := _problem(question, questions):
                return invalid_arguments(f'property "questions[{at}].{problem}')
            questions.append(question)
        answers = None if context.ask is None else await context.ask(questions)
        if answers is None:
            return ToolResult(
                "Error: The user did not answer the questions.",
                is_error=True,
                error_name="UserQuestionError",
                error_code="ASK_CANCELLED",
            )
        shown: JsonObject = {"answers": answers_value(answers)}
        return ToolResult(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))


def _question(item: JsonObject) -> Question:
    options = item.get("options")
    return Question(
        question_id=required_text(item, "id"),
        text=required_text(item, "question"),
        header=optional_text(item, "header"),
        options=tuple(
            QuestionOption(required_text(option, "label"), optional_text(option, "description"))
            for option in (options if isinstance(options, list) else ())
            if isinstance(option, dict)
        ),
        takes_many=flag(item, "multi_select"),
    )


def _problem(question: Question, before: Sequence[Question]) -> str | None:
    """What is wrong with a question, from behind its place on."""
    if not question.text.strip():
        return 'question" must not be empty'
    if any(one.question_id == question.question_id for one in before):
        return 'id" must differ from the others'
    labels = [option.label for option in question.options]
    if not all(label.strip() for label in labels):
        return 'options" must have no empty label'
    return None if len(set(labels)) == len(labels) else 'options" must have different labels'


def answers_value(answers: Sequence[QuestionAnswer]) -> list[JsonValue]:
    """Answers as the tool's result has them, here and in the real runtime."""
    shown: list[JsonValue] = []
    for answer in answers:
        one: JsonObject = {"id": answer.question_id, "selected": list(answer.selected)}
        if answer.typed is not None:
            one["custom"] = answer.typed
        shown.append(one)
    return shown
