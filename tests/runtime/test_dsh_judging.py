"""What the runtime's tools touch, and what each mode makes of it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.runtime.dsh.judging import FREE_TOOLS, Rules, judge, question_on
from acp_bridge.vocabulary import JsonObject, Mode

WORK = Path("/work")
TEMP = Path("/tmp")
MODES: tuple[Mode, ...] = ("ask", "accept-edits", "plan", "full")
SPILLED = "/tmp/dsh-spill-Ab1_-9/out.txt"


def verdicts(tool: str, arguments: JsonObject, *grants: str) -> list[str]:
    """By mode: ask, accept-edits, plan, full."""
    rules = [Rules(mode, WORK, TEMP, grants) for mode in MODES]
    return [judge(tool, arguments, cwd=WORK, rules=one).verdict for one in rules]


FREE = ["run", "run", "run", "run"]
EDIT = ["ask", "run", "refuse", "run"]
ASKS = ["ask", "ask", "refuse", "run"]


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        *((tool, {}, FREE) for tool in sorted(FREE_TOOLS)),
        ("read", {"file_path": "a.py"}, FREE),
        ("read", {"file_path": "/work/a.py"}, FREE),
        ("read", {"file_path": "../etc/passwd"}, ASKS),
        ("read", {"file_path": "~/.ssh/id"}, ASKS),
        ("read", {"file_path": SPILLED}, FREE),
        ("read", {"file_path": "/tmp/dsh-spill-x/../y"}, ASKS),
        ("read", {"file_path": "/tmp/dsh-spill"}, ASKS),
        ("read", {"file_path": "/tmp/other"}, ASKS),
        ("read", {}, ASKS),
        ("read_image", {"file_path": "a.png"}, FREE),
        ("write", {"file_path": "a.py", "content": ""}, EDIT),
        ("edit", {"file_path": "/work/b/a.py"}, EDIT),
        ("edit", {"file_path": "/work-too/a.py"}, ASKS),
        ("write", {"file_path": SPILLED}, ASKS),
        ("write", {"file_path": 7}, ASKS),
        ("grep", {"pattern": "x"}, FREE),
        ("grep", {"pattern": "/etc"}, FREE),
        ("grep", {"pattern": "x", "path": "/etc"}, ASKS),
        ("glob", {"pattern": "**/*.py"}, FREE),
        ("glob", {"pattern": "src/*.py"}, FREE),
        ("glob", {"pattern": "../*"}, ASKS),
        ("glob", {"pattern": "/etc/*"}, ASKS),
        ("glob", {"pattern": "/*"}, ASKS),
        ("glob", {"pattern": "*", "path": ".."}, ASKS),
        ("bash", {"command": "ls"}, ASKS),
        ("bash", {}, ASKS),
        ("workflow", {"script": "x"}, ASKS),
        ("web_fetch", {"url": "https://example.org"}, ASKS),
        ("web_search", {"queries": ["x"]}, ASKS),
        ("mcp__tiny__echo", {"text": "x"}, ASKS),
        ("read_mcp_resource", {}, ASKS),
        ("a tool of tomorrow", {}, ASKS),
    ],
)
def test_each_mode_judges(tool: str, arguments: JsonObject, expected: list[str]) -> None:
    assert verdicts(tool, arguments) == expected


def test_a_path_through_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere" / "deep"
    work.mkdir()
    elsewhere.mkdir(parents=True)
    (work / "link").symlink_to(elsewhere)
    rules = Rules("accept-edits", work, tmp_path / "tmp")
    for path in ("link/a", "link/../a"):  # by name the latter is inside, to the system it is not
        judgement = judge("write", {"file_path": path}, cwd=work, rules=rules)
        assert judgement.verdict == "ask"


@pytest.mark.parametrize(
    ("tool", "arguments", "grant"),
    [
        ("bash", {"command": "git status -s"}, "program:git status"),
        ("bash", {"command": "make && make test"}, "command:make && make test"),
        ("write", {"file_path": "a"}, "edits"),
        ("mcp__tiny__echo", {}, "tool:mcp__tiny__echo"),
        ("web_fetch", {"url": "https://example.org"}, "tool:web_fetch"),
    ],
)
def test_always_covers_the_next_call_but_in_plan_mode(
    tool: str, arguments: JsonObject, grant: str
) -> None:
    rules = Rules("ask", WORK, TEMP)
    question = question_on(tool, arguments, cwd=WORK, rules=rules)
    assert question is not None
    assert question.grant == grant
    assert question.always_label is not None
    assert verdicts(tool, arguments, grant) == ["run", "run", "refuse", "run"]


@pytest.mark.parametrize(
    ("mode", "tool", "arguments", "sandbox"),
    [
        ("ask", "read", {"file_path": "a"}, None),
        ("accept-edits", "write", {"file_path": "a"}, "workspace-write"),
        ("full", "write", {"file_path": "a"}, "danger-full-access"),
        ("full", "mcp__a__b", {}, "danger-full-access"),
    ],
)
def test_a_call_that_runs_gets_the_sandbox_it_needs(
    mode: Mode, tool: str, arguments: JsonObject, sandbox: str | None
) -> None:
    assert judge(tool, arguments, cwd=WORK, rules=Rules(mode, WORK, TEMP)).sandbox == sandbox


def test_a_granted_command_runs_without_a_sandbox_as_an_allowed_one_does() -> None:
    rules = Rules("ask", WORK, TEMP, {"program:git status"})
    judgement = judge("bash", {"command": "git status"}, cwd=WORK, rules=rules)
    assert (judgement.verdict, judgement.sandbox) == ("run", "danger-full-access")


def test_a_refusal_says_why_without_the_word_that_the_runtime_adds() -> None:
    judgement = judge("bash", {"command": "ls"}, cwd=WORK, rules=Rules("plan", WORK, TEMP))
    assert judgement.reason is not None
    assert judgement.reason.startswith("plan mode allows no call that runs a command.")


ODD: Any = st.sampled_from(
    [
        *(None, True, 0, 1.5, "", ".", "..", "/", "//", "~", "*", "\0", "\ud800", "a/../.."),
        *([], {}, [""], {"a": 1}),
    ]
)
TOOLS = st.sampled_from(["read", "write", "glob", "grep", "bash", "web_fetch", "mcp__", "other"])
NAMES = st.sampled_from(["file_path", "path", "pattern", "command", "url"])


@given(tool=TOOLS, arguments=st.dictionaries(NAMES, ODD, max_size=3))
def test_arguments_of_any_shape_are_judged(tool: str, arguments: JsonObject) -> None:
    assert verdicts(tool, arguments)[3] == "run"


@pytest.mark.parametrize(
    ("mode", "path", "verdict", "sandbox"),
    [
        ("ask", "/added/a", "ask", None),
        ("accept-edits", "/added/a", "run", "danger-full-access"),  # its sandbox knows one folder
        ("accept-edits", "/added-too/a", "ask", None),
        ("plan", "/added/a", "refuse", None),
    ],
)
def test_an_added_folder_is_part_of_the_workspace(
    mode: Mode, path: str, verdict: str, sandbox: str | None
) -> None:
    rules = Rules(mode, WORK, TEMP, folders=[Path("/added")])
    judgement = judge("write", {"file_path": path}, cwd=WORK, rules=rules)
    assert (judgement.verdict, judgement.sandbox) == (verdict, sandbox)
    assert judge("grep", {"path": "/added"}, cwd=WORK, rules=rules).verdict == "run"
