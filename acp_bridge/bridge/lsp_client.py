"""An LSP editor as `ports.Client`: its open documents, and permission by whatever it can show."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import attrs

from acp_bridge.lsp.actions import Question
from acp_bridge.lsp.editor import Editor
from acp_bridge.ports import (
    ClientCommand,
    CommandEnd,
    PermissionAsk,
    QuestionAnswer,
    QuestionsAsk,
)
from acp_bridge.ports import Question as UserQuestion
from acp_bridge.vocabulary import Answer

if TYPE_CHECKING:
    from acp_bridge.bridge.subagent_family import Asked

_ALLOW, _REJECT = "Allow once", "Reject"


@attrs.define(slots=True)
class _Open:
    """A question that waits for a code action."""

    question: Question
    done: anyio.Event = attrs.field(factory=anyio.Event)
    answer: Answer = Answer.REJECT


class OpenQuestions:
    """Questions of all sessions that wait for a code action or a command, oldest first."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._count = 0

    @property
    def questions(self) -> list[Question]:
        """What is offered as code actions."""
        return [one.question for one in self._open.values()]

    async def ask(self, title: str, always: str | None) -> Answer:
        """Wait for an answer."""
        self._count += 1
        question = Question(str(self._count), title, always)
        one = self._open[question.question_id] = _Open(question)
        try:
            await one.done.wait()
        finally:
            del self._open[question.question_id]
        return one.answer

    def answer(self, question_id: str | None, answer: Answer) -> bool:
        """Answer a question, the oldest without an id; False: it is not open."""
        if question_id is None:
            question_id = next(iter(self._open), "")
        one = self._open.get(question_id)
        if one is None or one.done.is_set():
            return False
        if answer is Answer.ALLOW_ALWAYS and one.question.always is None:
            answer = Answer.ALLOW_ONCE
        one.answer = answer
        one.done.set()
        return True


class LspClient:
    """Implements `ports.Client` for one session.

    ``write_file`` writes the files that the editor has not open. ``asked`` gives a question as
    the transcript has it; bound late, since what is shown and the client belong to each other.
    """

    reads_text = True
    writes_text = True
    runs_commands = False

    def __init__(
        self,
        editor: Editor,
        questions: OpenQuestions,
        write_file: Callable[[Path, bytes], Awaitable[None]],
    ) -> None:
        self._editor = editor
        self._questions = questions
        self._write_file = write_file
        self.asked: Callable[[PermissionAsk], Asked | None] = lambda _ask: None

    async def flow(self) -> None:
        """Wait while the editor reads slower than we write."""
        await self._editor.flow()

    @property
    def takes_questions(self) -> bool:
        """Whether the editor shows messages with buttons."""
        return self._editor.asks

    async def ask_questions(self, ask: QuestionsAsk) -> Sequence[QuestionAnswer] | None:
        """A button for each option; what wants text or several options cannot be asked."""
        if not self.takes_questions or any(
            one.takes_many or not one.options for one in ask.questions
        ):
            return None
        answers = []
        for question in ask.questions:
            shown = "\n\n".join(filter(None, (question.text, question.detail, _meanings(question))))
            labels = list(dict.fromkeys(option.label for option in question.options))
            chosen = await self._editor.choose(shown, labels)
            if chosen not in labels:
                return None
            answers.append(QuestionAnswer(question.question_id, (chosen,)))
        return answers

    async def read_text(self, path: Path) -> str:
        """An open document's text. Raises OSError for any other file: the disk has it."""
        text = self._editor.text_of(path)
        if text is None:
            raise OSError("it is not open in the editor")
        return text

    async def write_text(self, path: Path, text: str) -> None:
        """Change the document where it is open, else the file. Raises OSError."""
        if not await self._editor.replace_text(path, text):
            await self._write_file(path, text.encode())

    async def ask_permission(self, ask: PermissionAsk) -> Answer:
        """The user's answer; a question that cannot be shown is a refusal."""
        asked = self.asked(ask)
        if asked is None:
            return Answer.UNAVAILABLE
        title = asked.title
        if self._editor.asks:
            options = [_ALLOW, _REJECT]
            if ask.always_label is not None:
                options.insert(1, ask.always_label)
            chosen = await self._editor.choose(f"Allow this? {title}\n\nIt {ask.reason}.", options)
            if chosen == _ALLOW:
                return Answer.ALLOW_ONCE
            if chosen is not None and chosen == ask.always_label:
                return Answer.ALLOW_ALWAYS
            return Answer.REJECT
        if not self._editor.offers_actions:
            return Answer.UNAVAILABLE
        self._editor.tell(f"The agent asks: {title}. Answer it with a code action.")
        return await self._questions.ask(title, ask.always_label)

    async def run_command(self, command: ClientCommand) -> CommandEnd:
        """Raises OSError: LSP has no terminals."""
        raise OSError(f"the editor runs no commands: {command.line}")


def _meanings(question: UserQuestion) -> str:
    """What the options mean: a button has its label alone."""
    told = [one for one in question.options if one.description]
    return "\n".join(f"{one.label}: {one.description}" for one in told)
