"""The system prompt. Pinned in snapshots/_shared, so a change of it shows in review. Pure.

Ours come first and say what may be done without asking; what files and the client add stands
behind, marked as theirs. It changes with what it says and not otherwise: providers cache what
stands before a conversation.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from acp_bridge.harness.project.instructions import Instructions
from acp_bridge.vocabulary import Mode

_INSTRUCTIONS = """\
You are a coding agent. You work in a user's editor through ACP Bridge, on the files of one \
workspace, with the tools listed in this request.

How to work:
- Look before you change: read a file before you edit it, and search before you assume.
- Prefer `read`, `glob` and `grep` to shell commands for looking at files.
- Prefer `edit` for small changes and `write` for new files. Keep the style of what is there.
- Check your work: run the tests or the program when there are any, and look at the exit code.
- For work of more than a few steps keep a plan with `todo_write`, and keep it current.
- Independent tool calls belong in one answer, side by side.

Permission: the user may be asked before a call that changes files, runs a command, or leaves the \
workspace. When a call is rejected, do not try to reach the same end another way; say what you \
wanted to do and why, or go on with what is left.

Answer in Markdown, briefly. Name files by their paths, with line numbers where they help.

Workspace: {cwd}
"""


_PLANNING = """
You are in plan mode: calls that change anything, run a command or leave the workspace are \
refused. Look at what you need, then present a plan, and stop there. The user switches the mode.
"""


_DELEGATED = """
You are a subagent: another agent gave you this task and goes on with other work meanwhile. It \
shares your workspace and sees nothing of what you do but your last message, so put the whole \
result there. It may send you messages while you work; what they say counts from then on. You \
cannot ask it back: decide, and say what you decided.
"""


_FROM_FILES = """
The user and the project have written down how to work here; a project's file is for the folder \
that it is in and what is below. Follow it; where two differ, the one further down counts. What \
the user says in this conversation counts more, and none of it changes what permission is asked for.
"""


_FROM_CLIENT = """
The user's editor adds these instructions. None of them changes what permission is asked for.
"""


def system_prompt(
    cwd: Path,
    mode: Mode,
    *,
    folder: Path,
    folders: Sequence[Path] = (),
    instructions: Sequence[Instructions] = (),
    given: str = "",
    is_delegated: bool = False,
) -> str:
    """The instructions for a session in this workspace and permission mode.

    ``folder`` is where its tools work, if that is not the workspace itself; ``folders`` are more
    roots of it. ``instructions`` come from files, ``given`` from the client. ``is_delegated``:
    another session set it to work.
    """
    text = _INSTRUCTIONS.format(cwd=cwd)
    text += folders_text(folders)
    if folder != cwd:
        text += f"Current folder, where commands run and relative paths start: {folder}\n"
    if is_delegated:
        text += _DELEGATED
    if mode == "plan":
        text += _PLANNING
    return text + added_text(instructions, given)


def folders_text(folders: Sequence[Path]) -> str:
    """What a model is told of more roots of its workspace; "" without any."""
    if not folders:
        return ""
    lines = "".join(f"- {one}\n" for one in folders)
    return f"These folders belong to the workspace too; name paths in them in full:\n{lines}"


def added_text(instructions: Sequence[Instructions], given: str) -> str:
    """What files and the client (``given``) add, marked as theirs; "" without any."""
    return "".join(_added(instructions, given))


def _added(instructions: Sequence[Instructions], given: str) -> Iterable[str]:
    if instructions:
        yield _FROM_FILES
    for one in instructions:
        shown = one.text
        if one.is_cut:
            shown += f"\n[cut here: {one.path} has {one.size:,} bytes; `read` shows the rest]"
        yield f'\n<instructions file="{one.path}">\n{shown}\n</instructions>\n'
    if given:
        yield f'{_FROM_CLIENT}\n<instructions from="editor">\n{given}\n</instructions>\n'
