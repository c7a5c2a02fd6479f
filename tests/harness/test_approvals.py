"""Which calls are asked for, and what "always" covers (R087, R088)."""

from pathlib import Path

import pytest

from acp_bridge.harness.approvals import EDITS_GRANT, Question, Refusal, verdict_on
from acp_bridge.harness.tools import builtin_tools
from acp_bridge.ports import Access
from acp_bridge.vocabulary import ForeignTool, Mode

WORK = Path("/work")
SPILL = Path("/home/me/spill")
IN, OUT = WORK / "a.txt", Path("/etc/passwd")


def ask(access: Access, *grants: str) -> Question | None:
    verdict = verdict_on(access, mode="ask", workspace=WORK, spill_dir=SPILL, grants=set(grants))
    assert verdict is None or isinstance(verdict, Question)
    return verdict


@pytest.mark.parametrize(
    ("access", "grants", "asked", "always"),
    [
        (Access(), (), False, False),
        (Access(reads=(IN,)), (), False, False),
        (Access(reads=(WORK,)), (), False, False),
        (Access(reads=(OUT,)), (), True, False),
        (Access(reads=(OUT,)), (EDITS_GRANT,), True, False),
        (Access(reads=(Path("/work-too/a"),)), (), True, False),
        (Access(writes=(IN,)), (), True, True),
        (Access(writes=(IN,)), (EDITS_GRANT,), False, False),
        (Access(writes=(OUT,)), (), True, False),
        (Access(writes=(OUT,)), (EDITS_GRANT,), True, False),
        (Access(writes=(IN, OUT)), (EDITS_GRANT,), True, False),
        (Access(command="git status"), (), True, True),
        (Access(reads=(SPILL / "1.txt",)), (), False, False),
        (Access(writes=(SPILL / "1.txt",)), (), True, False),
        (Access(command="git status"), ("program:git status",), False, False),
        (Access(command="git status -s"), ("program:git status",), False, False),
        (Access(command="git push"), ("program:git status",), True, True),
        (Access(command="git -C x status"), ("program:git -C",), True, True),
        (Access(command="git status | tee x"), ("program:git status",), True, True),
        (Access(command="git status; rm x"), ("program:git status",), True, True),
        (Access(command="git status"), (EDITS_GRANT,), True, True),
        (Access(writes=(IN,)), ("program:git status",), True, True),
    ],
)
def test_what_is_asked(access: Access, grants: tuple[str, ...], asked: bool, always: bool) -> None:
    question = ask(access, *grants)
    assert (question is not None) == asked
    if question is not None:
        assert (question.grant is not None) == always == (question.always_label is not None)


@pytest.mark.parametrize(
    "command",
    [
        "a | b",
        "a && b",
        "a; b",
        "a & b",
        "a > b",
        "a < b",
        "a $(b)",
        "a `b`",
        "a $HOME",
        "a\nb",
        "a *",
        "a ?",
        "a [b]",
        "a {b,c}",
        "a ~",
        "a #b",
        "a !b",
        "A=1 b",
        "a 'b c'",
        'a "b"',
        "a \\b",
        "-x",
        "",
        "   ",
        "ls",
        "find . -name x",
        "git",
        "git -C x status",
    ],
)
def test_a_command_that_is_no_plain_list_of_words_is_granted_to_the_letter(command: str) -> None:
    question = ask(Access(command=command))
    assert question is not None
    assert question.grant == f"command:{command}"
    assert ask(Access(command=command), f"command:{command}") is None
    assert ask(Access(command=command + " "), f"command:{command}") is not None


def test_options_of_an_unknown_program_are_not_granted_along() -> None:
    granted = ask(Access(command="find ."))
    assert granted is not None
    assert ask(Access(command="find . -delete"), str(granted.grant)) is not None


def test_labels_say_what_is_covered_in_one_short_line() -> None:
    for command in ("git status -s", "a\nb" * 100, "word " * 100):
        question = ask(Access(command=command))
        assert question is not None
        assert question.always_label is not None
        assert "\n" not in question.always_label
        assert len(question.always_label) < 120
    label = ask(Access(command="git status -s"))
    assert label is not None
    assert "`git status …` with any arguments" in str(label.always_label)


def test_a_link_that_leads_out_is_outside(tmp_path: Path) -> None:
    work, secret = tmp_path / "work", tmp_path / "secret"
    work.mkdir()
    secret.mkdir()
    (work / "link").symlink_to(secret)
    tools = {tool.name: tool for tool in builtin_tools()}
    for name, arguments in (
        ("read", {"file_path": "link/x"}),
        ("write", {"file_path": "link/new", "content": ""}),
        ("read", {"file_path": "../secret/x"}),
    ):
        access = tools[name].access({**arguments}, work)
        question = verdict_on(
            access, mode="ask", workspace=work.resolve(), spill_dir=SPILL, grants={EDITS_GRANT}
        )
        assert isinstance(question, Question)
        assert "outside the workspace" in question.reason


@pytest.mark.parametrize("mode", ["ask", "accept-edits", "plan", "full"])
@pytest.mark.parametrize("only_reads", [False, True])
@pytest.mark.parametrize("granted", [False, True])
def test_a_foreign_tool_asks_and_its_word_to_read_only_counts_in_plan_alone(
    mode: Mode, only_reads: bool, granted: bool
) -> None:
    tool = ForeignTool("it", "it of the MCP server x", only_reads=only_reads)
    grants = {"tool:it"} if granted else {"tool:other"}
    verdict = verdict_on(
        Access(foreign=tool), mode=mode, workspace=WORK, spill_dir=SPILL, grants=grants
    )
    if mode == "full" or (granted and mode != "plan"):
        assert verdict is None
    elif mode == "plan" and not only_reads:
        assert isinstance(verdict, Refusal)
    else:
        assert isinstance(verdict, Question)
        assert verdict.reason == "uses it of the MCP server x"
        always = None if mode == "plan" else "Always allow it of the MCP server x, for this session"
        assert verdict.always_label == always
