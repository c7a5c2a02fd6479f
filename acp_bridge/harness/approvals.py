"""Whether a call must be asked for, and what "always" would cover. Pure.

Mode ``ask``: reads inside the workspace run, everything else asks; anything outside the workspace
always asks, whatever was granted. A grant covers this session only: one for edits of files, and
one for each shell command with the same words, options aside, when the command is plain enough to
be read that way (no pipes, substitutions or redirections); else for that very line.
"""

import shlex
from collections.abc import Collection
from pathlib import Path

import attrs

from acp_bridge.ports import Access

EDITS_GRANT = "edits"
_SHELL_SYNTAX = frozenset("|&;<>()$`\\\"'*?[]{}~#!\n=%")
"""Characters that make a command line more than a list of words."""
_LABEL_CHARS_MAX = 60


@attrs.frozen(slots=True)
class Question:
    """Why a call must be asked for; without ``grant`` and label "always" is not offered."""

    reason: str
    grant: str | None = None
    always_label: str | None = None


def question_for(access: Access, *, workspace: Path, grants: Collection[str]) -> Question | None:
    """The question to ask before a call with this access, or None when it may run."""
    touched = (*access.reads, *access.writes)
    outside = next((path for path in touched if not path.is_relative_to(workspace)), None)
    if outside is not None:
        return Question(reason=f"touches {outside}, which is outside the workspace {workspace}")
    if access.command is not None:
        question = _command_question(access.command)
    elif access.writes:
        question = Question(
            reason="changes " + ", ".join(str(path) for path in access.writes),
            grant=EDITS_GRANT,
            always_label="Always allow file edits in this workspace, for this session",
        )
    else:
        return None
    return None if question.grant in grants else question


def _command_question(command: str) -> Question:
    words = _plain_words(command)
    if words is None:
        grant = f"command:{command}"
        label = f"Always allow this very command: {_short(command)}"
    else:
        core = " ".join(word for word in words if not word.startswith("-"))
        grant = f"words:{core}"
        label = f"Always allow `{_short(core)}` with any options, for this session"
    return Question(reason="runs a command", grant=grant, always_label=label)


def _plain_words(command: str) -> list[str] | None:
    if _SHELL_SYNTAX & set(command):
        return None
    words = shlex.split(command)
    return words if words and not words[0].startswith("-") else None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LABEL_CHARS_MAX else line[: _LABEL_CHARS_MAX - 1] + "…"
