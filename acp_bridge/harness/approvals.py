"""Whether a call runs, must be asked for, or is refused, and what "always" would cover. Pure.

``ask``: reads inside the workspace run, everything else asks. ``accept-edits``: file changes
inside run too. In both, anything outside the workspace asks every time, whatever was granted.
``plan``: reads inside run, the rest is refused unasked, granted or not. ``full``: everything runs.

A tool of another program (an MCP server) asks in ``ask`` and ``accept-edits``. That it says of
itself to change nothing is a hint and no more: it makes ``plan`` ask instead of refuse.

A grant covers this session only: one for edits of files, one for a sub-command of a program that
has them (``git status`` with anything after it), when the line is plain (no pipes, substitutions
or redirections), and else for that very line: options of an unknown program may turn a look into a
deletion (``find``). The label says what is covered.
"""

from collections.abc import Collection
from pathlib import Path

import attrs

from acp_bridge.ports import Access
from acp_bridge.vocabulary import ForeignTool, Mode

EDITS_GRANT = "edits"
_SHELL_SYNTAX = frozenset("|&;<>()$`\\\"'*?[]{}~#!\n=%")
"""Characters that make a command line more than a list of words."""
_PROGRAMS_OF_COMMANDS = frozenset(
    {"bun", "cargo", "docker", "dotnet", "gh", "git", "go", "kubectl", "make", "npm", "pip", "pnpm"}
    | {"poe", "poetry", "uv", "yarn"}
)
"""Programs whose first argument says what is done, so that it is worth a grant of its own."""

_LABEL_CHARS_MAX = 60
_PLAN_ADVICE = "Look, plan, and say what you would do; the user can switch the mode."


@attrs.frozen(slots=True)
class Question:
    """Why a call must be asked for; without ``grant`` and label "always" is not offered.

    ``only_reads``: the call is said to change nothing, so that it may be asked for in plan mode.
    """

    reason: str
    grant: str | None = None
    always_label: str | None = None
    only_reads: bool = False


@attrs.frozen(slots=True)
class Refusal:
    """A call that the mode forbids; ``text`` tells the model."""

    text: str


def verdict_on(
    access: Access,
    *,
    mode: Mode,
    workspace: Path,
    spill_dir: Path,
    grants: Collection[str],
    folders: Collection[Path] = (),
) -> Question | Refusal | None:
    """The question to ask before a call with this access, its refusal, or None when it runs.

    ``folders`` are more roots of the workspace; all paths are resolved. ``spill_dir`` holds tool
    output that was too long to show: what is there may be read.
    """
    question = _question(access, workspace, folders, spill_dir)
    return None if question is None else verdict_on_question(question, mode=mode, grants=grants)


def verdict_on_question(
    question: Question, *, mode: Mode, grants: Collection[str]
) -> Question | Refusal | None:
    """What a mode makes of a call that is not free: as `verdict_on`.

    For calls that no `Access` describes.
    """
    if mode == "full":
        return None
    if mode == "plan":
        # What was granted "always" in another mode does not hold where nothing may change.
        if question.only_reads:
            return attrs.evolve(question, grant=None, always_label=None)
        return Refusal(f"Error: plan mode allows no call that {question.reason}. {_PLAN_ADVICE}")
    if question.grant in grants or (mode == "accept-edits" and question.grant == EDITS_GRANT):
        return None
    return question


def _question(
    access: Access, workspace: Path, folders: Collection[Path], spill_dir: Path
) -> Question | None:
    roots = (workspace, *folders)
    reads = (path for path in access.reads if not path.is_relative_to(spill_dir))
    touched = (*reads, *access.writes, *access.hands_over)
    outside = next((p for p in touched if not any(map(p.is_relative_to, roots))), None)
    if outside is not None:
        return Question(reason=f"touches {outside}, which is outside the workspace {workspace}")
    if access.command is not None:
        return _command_question(access.command)
    if access.foreign is not None:
        return foreign_question(access.foreign)
    if access.writes:
        return Question(
            reason="changes " + ", ".join(str(path) for path in access.writes),
            grant=EDITS_GRANT,
            always_label="Always allow file edits in this workspace, for this session",
        )
    return None


def foreign_question(tool: ForeignTool) -> Question:
    """The question before a call of another program's tool: what it touches cannot be known."""
    return Question(
        reason=f"uses {tool.what}",
        grant=f"tool:{tool.identity}",
        always_label=f"Always allow {tool.what}, for this session",
        only_reads=tool.only_reads,
    )


def _command_question(command: str) -> Question:
    words = _plain_words(command)
    if words is not None and len(words) > 1 and words[0] in _PROGRAMS_OF_COMMANDS:
        core = f"{words[0]} {words[1]}"
        return Question(
            reason="runs a command",
            grant=f"program:{core}",
            always_label=f"Always allow `{_short(core)} …` with any arguments, for this session",
        )
    shown = " ↵ ".join(command.strip().splitlines())
    return Question(
        reason="runs a command",
        grant=f"command:{command}",
        always_label=f"Always allow just `{_short(shown)}`, for this session",
    )


def _plain_words(command: str) -> list[str] | None:
    if _SHELL_SYNTAX & set(command):
        return None
    words = command.split()
    return words if len(words) < 2 or not words[1].startswith("-") else None  # noqa: PLR2004


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LABEL_CHARS_MAX else line[: _LABEL_CHARS_MAX - 1] + "…"
