"""Which code actions an editor is offered at a place. Pure.

An editor that speaks only LSP has no box to type a prompt into: a comment ``AGENT: …`` is one.
"""

import re
from collections.abc import Sequence
from typing import Final

import attrs
from lsprotocol.types import CodeAction, CodeActionKind, CodeActionParams, Command

from acp_bridge.lsp.positions import split_lines

PROMPT: Final = "agent.prompt"
CANCEL: Final = "agent.cancel"
MODE: Final = "agent.mode"
OPEN: Final = "agent.open"
ALLOW: Final = "agent.allow"
REJECT: Final = "agent.reject"
COMMANDS: Final = (PROMPT, CANCEL, MODE, OPEN, ALLOW, REJECT)

TITLE_CHARS_MAX: Final = 70
"""An action is a line of a menu."""

DIAGNOSTICS_MAX: Final = 5
"""A line with more problems than that is one problem."""

_MARK: Final = re.compile(r"^(?P<leader>\s*(?:\S{1,4}\s*)?)AGENT:\s*(?P<text>\S.*)$")
_TAIL: Final = re.compile(r"\s*(?:\*/|-->|\*\)|#\}|-\}|\]\])\s*$")


@attrs.frozen(slots=True)
class Question:
    """A permission question that the editor could not be asked by itself.

    ``always`` is what "always" would cover; None: it is not offered.
    """

    question_id: str
    title: str
    always: str | None


@attrs.frozen(slots=True)
class AgentComment:
    """An ``AGENT:`` comment: what it says, and its first and last line, from 0."""

    text: str
    first: int
    last: int


@attrs.frozen(slots=True)
class Standing:
    """What the agent has to offer besides new work: open questions, a running turn, a past."""

    questions: Sequence[Question] = ()
    is_busy: bool = False
    has_transcript: bool = False


def agent_comment(text: str, first: int, last: int) -> AgentComment | None:
    """The first ``AGENT:`` comment that touches these lines, with the lines that go on with it.

    A line goes on with a comment if it begins with the same sign, as in ``# AGENT: do this`` and
    ``# and that``. Signs have at most four characters; without a sign, one line counts.
    """
    lines = [line.rstrip("\r\n") for line in split_lines(text)]
    for number, line in enumerate(lines[: last + 1]):
        found = _MARK.match(line)
        if found is None:
            continue
        sign = found["leader"].strip()
        said = [_TAIL.sub("", found["text"]).strip()]
        end = number
        while sign and end + 1 < len(lines) and _goes_on(lines[end + 1], sign):
            end += 1
            said.append(_TAIL.sub("", lines[end].strip().removeprefix(sign)).strip())
        if end >= first:
            return AgentComment(" ".join(filter(None, said)), number, end)
    return None


def _goes_on(line: str, sign: str) -> bool:
    rest = line.strip()
    return rest.startswith(sign) and rest != sign and _MARK.match(line) is None


def actions_at(
    params: CodeActionParams, text: str | None, standing: Standing, *, literals: bool
) -> list[CodeAction | Command]:
    """What to offer, most pressing first. ``text`` is the document, if the editor has it open.

    ``literals``: the client takes code actions; else it gets their commands alone.
    """
    found = [
        *_answers(standing.questions),
        *_fixes(params),
        *_work(params, text),
        *_rest(standing),
    ]
    only = params.context.only
    if only is not None:
        found = [action for action in found if _wanted(action, only)]
    if literals:
        return list(found)
    return [action.command for action in found if action.command is not None]


def _answers(questions: Sequence[Question]) -> list[CodeAction]:
    actions: list[CodeAction] = []
    for question in questions:
        about = question.title
        actions.append(_action(f"allow once: {about}", "quickfix", ALLOW, question.question_id))
        if question.always is not None:
            label = f"{question.always}: {about}"
            actions.append(_action(label, "quickfix", ALLOW, question.question_id, "always"))
        actions.append(_action(f"reject: {about}", "quickfix", REJECT, question.question_id))
    return actions


def _fixes(params: CodeActionParams) -> list[CodeAction]:
    actions = []
    for problem in params.context.diagnostics[:DIAGNOSTICS_MAX]:
        ask = _ask(params.text_document.uri, problem.range.start.line, problem.range.end.line)
        message = " ".join(problem.message.split())
        by = f" ({problem.source})" if problem.source else ""
        ask["text"] = f"Fix this problem{by}: {message}"
        action = _action(f"fix: {message}", "quickfix", PROMPT, ask)
        action.diagnostics = [problem]
        actions.append(action)
    return actions


def _work(params: CodeActionParams, text: str | None) -> list[CodeAction]:
    start, end = params.range.start, params.range.end
    last = end.line - 1 if end.character == 0 and end.line > start.line else end.line
    actions = []
    comment = None if text is None else agent_comment(text, start.line, last)
    if comment is not None:
        ask = _ask(params.text_document.uri, comment.first, comment.last)
        ask["text"] = comment.text
        ask["isComment"] = True
        actions.append(_action(comment.text, "refactor", PROMPT, ask))
    if start != end:
        ask = _ask(params.text_document.uri, start.line, last)
        ask["text"] = "Work on the selected lines: do what their comments ask, else improve them."
        actions.append(_action("work on the selection", "refactor", PROMPT, ask))
    return actions


def _rest(standing: Standing) -> list[CodeAction]:
    actions = []
    if standing.is_busy:
        actions.append(_action("cancel", "source", CANCEL))
    if standing.has_transcript:
        actions.append(_action("open the transcript", "source", OPEN))
    return actions


def _ask(uri: str, first: int, last: int) -> dict[str, object]:
    """The argument of `PROMPT`; lines count from 0."""
    return {"uri": uri, "firstLine": first, "lastLine": last}


def _action(title: str, kind: str, command: str, *arguments: object) -> CodeAction:
    title = f"Agent: {title}"
    if len(title) > TITLE_CHARS_MAX:
        title = title[: TITLE_CHARS_MAX - 1].rstrip() + "…"
    return CodeAction(
        title=title,
        kind=kind,
        command=Command(title=title, command=command, arguments=list(arguments)),
    )


def _wanted(action: CodeAction, only: Sequence[CodeActionKind | str]) -> bool:
    """Kinds are a tree by their dots (LSP 3.17, Code Action Kind); the empty one holds all."""
    kind = str(action.kind)
    return any(not root or kind == root or kind.startswith(f"{root}.") for root in only)


__all__ = [
    "ALLOW",
    "CANCEL",
    "COMMANDS",
    "MODE",
    "OPEN",
    "PROMPT",
    "REJECT",
    "AgentComment",
    "Question",
    "Standing",
    "actions_at",
    "agent_comment",
]
