"""Whoever drives a session: permission, questions, files, terminals."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from acp_bridge.vocabulary import Answer, CallId, SessionId


class CommandRunner(Protocol):
    """Who runs commands instead of this process."""

    @property
    def runs_commands(self) -> bool:
        """Whether `run_command` may be called."""

    async def run_command(self, command: "ClientCommand") -> "CommandEnd":
        """Run a command in a terminal of the client, which has got it back afterwards.

        Bounded by the command's time and some seconds; cancelled, by about half a second.

        Raises:
            OSError: the client could not start it.
        """


class Client(CommandRunner, Protocol):
    """The asking side of whoever drives a session: permission, files, and what it can show."""

    @property
    def reads_text(self) -> bool:
        """Whether `read_text` may be called."""

    @property
    def writes_text(self) -> bool:
        """Whether `write_text` may be called."""

    async def ask_permission(self, ask: "PermissionAsk") -> Answer:
        """The user's answer; never raises but on cancellation."""

    @property
    def takes_questions(self) -> bool:
        """Whether `ask_questions` may be called."""

    async def ask_questions(self, ask: "QuestionsAsk") -> "Sequence[QuestionAnswer] | None":
        """The user's answers, one for each question; None: declined, or nobody can be asked.

        Never raises but on cancellation.
        """

    async def read_text(self, path: Path) -> str:
        """The whole text as the editor has it, unsaved changes included.

        Raises:
            FileNotFoundError: the editor says there is no such file.
            OSError: the editor could not read it.
        """

    async def write_text(self, path: Path, text: str) -> None:
        """Write through the editor.

        Raises:
            OSError: the editor could not write it.
        """

    async def flow(self) -> None:
        """Wait while the client reads slower than we write (back-pressure), else return."""


@attrs.frozen(slots=True)
class ClientCommand:
    """A command line for a terminal of the client: ``shell -c line`` in ``cwd``.

    ``shell`` is a program's name, to be found by the client. ``output_bytes_max`` is how much of
    the output the client should keep. ``started`` is told the terminal's id as soon as it is
    there; ``said`` gets the output so far if the command is cancelled.
    """

    shell: str
    line: str
    cwd: Path
    timeout_s: float
    output_bytes_max: int
    started: Callable[[str], None]
    said: Callable[[str], None]


@attrs.frozen(slots=True)
class CommandEnd:
    """How a command in a terminal of the client ended.

    ``is_cut``: the client kept only a part of the output. ``exit_code`` and ``signal`` (a name)
    are both None where the client does not say. ``fault`` is what the client failed to do after
    the start, as a part of a sentence; what is known all the same is there.
    """

    output: str = ""
    is_cut: bool = False
    exit_code: int | None = None
    signal: str | None = None
    timed_out: bool = False
    fault: str | None = None


@attrs.frozen(slots=True)
class PermissionAsk:
    """One question: may this call run? The call itself is in the log (``approval/asked``).

    ``always_label`` says what "always" would cover; None: "always" is not offered. ``child_id`` is
    the subagent that asks, at any depth; None: the session itself.
    """

    call_id: CallId
    tool_name: str
    reason: str
    always_label: str | None
    child_id: SessionId | None = None


@attrs.frozen(slots=True)
class QuestionOption:
    """An answer to choose: what is shown and given back, and what it means."""

    label: str
    description: str | None = None


@attrs.frozen(slots=True)
class Question:
    """A question of the model to the user. Without ``options`` the user types.

    ``header`` is a word or two that stand above it, ``detail`` Markdown that belongs to it.
    """

    question_id: str
    text: str
    header: str | None = None
    detail: str | None = None
    options: tuple[QuestionOption, ...] = ()
    takes_many: bool = False


@attrs.frozen(slots=True)
class QuestionsAsk:
    """Questions that one call asks together; ``child_id`` as in `PermissionAsk`."""

    call_id: CallId
    questions: tuple[Question, ...]
    child_id: SessionId | None = None


@attrs.frozen(slots=True)
class QuestionAnswer:
    """The labels that were chosen, and what was typed. Neither: skipped."""

    question_id: str
    selected: tuple[str, ...] = ()
    typed: str | None = None
