import pytest
from lsprotocol.types import (
    CodeAction,
    CodeActionContext,
    CodeActionParams,
    Command,
    Diagnostic,
    Position,
    Range,
    TextDocumentIdentifier,
)

from acp_bridge.lsp.actions import Question, Standing, actions_at, agent_comment


def params(
    first: tuple[int, int] = (0, 0),
    last: tuple[int, int] = (0, 0),
    *problems: Diagnostic,
    only: list[str] | None = None,
) -> CodeActionParams:
    return CodeActionParams(
        text_document=TextDocumentIdentifier("file:///w/a.py"),
        range=Range(Position(*first), Position(*last)),
        context=CodeActionContext(diagnostics=list(problems), only=only),
    )


def titles(found: list[CodeAction | Command]) -> list[str]:
    return [action.title for action in found]


@pytest.mark.parametrize(
    "text",
    [
        "# AGENT: do it\n",
        "// AGENT: do it\n",
        "x = 1\n  -- AGENT: do it\n",
        "/* AGENT: do it */\n",
        "<!-- AGENT: do it -->\n",
        ";; AGENT: do it\r\n",
        '" AGENT: do it\n',
        "AGENT: do it",
        "% AGENT:   do it   \n",
    ],
)
def test_a_comment_in_any_language_is_a_prompt(text: str) -> None:
    found = agent_comment(text, 0, 5)
    assert found is not None
    assert found.text == "do it"


def test_a_comment_goes_on_over_lines_with_the_same_sign() -> None:
    text = "a\n# AGENT: split this\n#   into two functions\nb\n# other\n"
    found = agent_comment(text, 2, 2)
    assert found is not None
    assert (found.text, found.first, found.last) == ("split this into two functions", 1, 2)
    assert agent_comment(text, 3, 4) is None


@pytest.mark.parametrize("text", ["# agent: x", "name.AGENT: x", "# AGENT:", "# AGENTS: x", ""])
def test_anything_else_is_no_prompt(text: str) -> None:
    assert agent_comment(text, 0, 9) is None


def test_each_problem_at_the_place_can_be_fixed() -> None:
    where = Range(Position(3, 0), Position(3, 4))
    problem = Diagnostic(range=where, message="name 'x' is not\ndefined", source="ruff")
    (action,) = actions_at(params((3, 1), (3, 1), problem), "", Standing(), literals=True)
    assert isinstance(action, CodeAction)
    assert action.title == "Agent: fix: name 'x' is not defined"
    assert action.diagnostics == [problem]
    assert action.command is not None
    (ask,) = action.command.arguments or ()
    assert isinstance(ask, dict)
    assert ask["text"] == "Fix this problem (ruff): name 'x' is not defined"
    assert (ask["firstLine"], ask["lastLine"]) == (3, 3)


def test_a_selection_that_ends_at_a_line_start_leaves_that_line_out() -> None:
    (action,) = actions_at(params((1, 0), (3, 0)), "a\nb\nc\nd\n", Standing(), literals=True)
    assert isinstance(action, CodeAction)
    assert action.command is not None
    (ask,) = action.command.arguments or ()
    assert isinstance(ask, dict)
    assert (ask["firstLine"], ask["lastLine"]) == (1, 2)


def test_questions_come_first_and_always_only_where_it_is_offered() -> None:
    questions = [Question("1", "Edit `a.py`", None), Question("2", "ls", "Always for `ls`")]
    standing = Standing(questions, is_busy=True, has_transcript=True)
    assert titles(actions_at(params(), "", standing, literals=True)) == [
        "Agent: allow once: Edit `a.py`",
        "Agent: reject: Edit `a.py`",
        "Agent: allow once: ls",
        "Agent: Always for `ls`: ls",
        "Agent: reject: ls",
        "Agent: cancel",
        "Agent: open the transcript",
    ]


def test_a_client_without_code_actions_gets_commands() -> None:
    (found,) = actions_at(params(), "", Standing(is_busy=True), literals=False)
    assert isinstance(found, Command)
    assert (found.title, found.command) == ("Agent: cancel", "agent.cancel")


def test_only_the_kinds_that_are_asked_for_are_given() -> None:
    standing = Standing([Question("1", "ls", None)], is_busy=True)
    asked = params(only=["source"])
    assert titles(actions_at(asked, "", standing, literals=True)) == ["Agent: cancel"]
    assert actions_at(params(only=["refactor.extract"]), "", standing, literals=True) == []
    assert len(actions_at(params(only=[""]), "", standing, literals=True)) == 3


def test_a_title_is_a_line_of_a_menu() -> None:
    text = f"# AGENT: {'word ' * 40}"
    (action,) = actions_at(params(), text, Standing(), literals=True)
    assert len(action.title) == 70
