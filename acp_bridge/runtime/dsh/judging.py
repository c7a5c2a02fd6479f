"""What a tool call of the runtime would touch, and what our modes make of it. Pure but for links.

The rules are those of `harness.approvals`, so a mode means the same in both runtimes: here only the
runtime's own tools are put into its terms. A tool that is not known asks.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

import attrs

from acp_bridge.harness.approvals import Question, Refusal, verdict_on, verdict_on_question
from acp_bridge.harness.tools.paths import absolute_path, resolved_path
from acp_bridge.ports import Access
from acp_bridge.runtime.dsh.control_types import Judgement
from acp_bridge.vocabulary import ForeignTool, JsonObject, Mode

FREE_TOOLS: Final = frozenset(
    {"ask_user_question", "create_goal", "exit_plan_mode", "get_goal", "interrupt_agent"}
    | {"job_kill", "job_list", "job_output", "list_agents", "list_mcp_resource_templates"}
    | {"list_mcp_resources", "send_message", "skill", "subagent", "subagent_fork", "todo_write"}
    | {"update_goal", "working_directory"}
)
"""Tools that change nothing outside the session; what subagents do is judged call by call."""

READ_TOOLS: Final = frozenset({"read", "read_image"})
SEARCH_TOOLS: Final = frozenset({"glob", "grep"})
WRITE_TOOLS: Final = frozenset({"write", "edit"})

_SPILL_FOLDER = re.compile(r"dsh-spill-[A-Za-z0-9_-]+")
"""Where the runtime keeps output that was too long: under the temporary folder, one a process."""

_MCP_TOOL = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)")
_WILDCARDS = frozenset("*?[{")


@attrs.frozen(slots=True)
class Rules:
    """What a call is judged by: the root session's mode, workspace and grants.

    ``workspace`` is resolved; ``temp_dir`` is the runtime's temporary folder, resolved, and so are
    ``folders``, more roots of the workspace. With ``foreign`` the tool is one of an MCP server that
    we run.
    """

    mode: Mode
    workspace: Path
    temp_dir: Path
    grants: Collection[str] = ()
    folders: Collection[Path] = ()
    foreign: ForeignTool | None = None


def judge(tool_name: str, arguments: JsonObject, *, cwd: Path, rules: Rules) -> Judgement:
    """Whether a call runs, asks or is refused, and the sandbox that it needs to get done.

    ``arguments`` may be of any shape: what cannot be understood asks.
    """
    touched = _touched(tool_name, arguments, cwd, rules.foreign)
    match _verdict(touched, rules):
        case Question(reason=reason):
            return Judgement("ask", reason=reason)
        case Refusal(text=text):
            return Judgement("refuse", reason=text.removeprefix("Error: "))
    if rules.mode == "full" or (isinstance(touched, Access) and touched.command is not None):
        return Judgement("run", sandbox="danger-full-access")
    if isinstance(touched, Access) and touched.writes:
        # The runtime's sandbox knows one folder; what is to be changed was judged here.
        inside = all(path.is_relative_to(rules.workspace) for path in touched.writes)
        return Judgement("run", sandbox="workspace-write" if inside else "danger-full-access")
    return Judgement("run")


def question_on(
    tool_name: str, arguments: JsonObject, *, cwd: Path, rules: Rules
) -> Question | None:
    """The question to put to the user for a call that asks, with what "always" would cover."""
    verdict = _verdict(_touched(tool_name, arguments, cwd, rules.foreign), rules)
    return verdict if isinstance(verdict, Question) else None


def _verdict(touched: "Access | Question", rules: Rules) -> Question | Refusal | None:
    if isinstance(touched, Question):
        return verdict_on_question(touched, mode=rules.mode, grants=rules.grants)
    return verdict_on(
        touched,
        mode=rules.mode,
        workspace=rules.workspace,
        spill_dir=_spill_folder(touched, rules.temp_dir),
        grants=rules.grants,
        folders=rules.folders,
    )


def _spill_folder(access: Access, temp_dir: Path) -> Path:
    for path in access.reads:
        if path.is_relative_to(temp_dir) and path != temp_dir:
            name = path.relative_to(temp_dir).parts[0]
            if _SPILL_FOLDER.fullmatch(name):
                return temp_dir / name
    return temp_dir / "dsh-spill-"  # no such folder: nothing is read there


def _touched(
    tool_name: str, arguments: JsonObject, cwd: Path, foreign: ForeignTool | None
) -> "Access | Question":
    """What is touched, or for what no `Access` describes the question it comes to."""
    if foreign is not None:
        return Access(foreign=foreign)
    if tool_name in FREE_TOOLS:
        return Access()
    if tool_name in READ_TOOLS | WRITE_TOOLS and (paths := _paths(arguments, "file_path", cwd)):
        return Access(reads=paths) if tool_name in READ_TOOLS else Access(writes=paths)
    if tool_name in SEARCH_TOOLS:
        start = _paths(arguments, "path", cwd) or _resolutions(str(cwd), cwd)
        return Access(reads=(*start, *_pattern_start(tool_name, arguments, start[0])))
    command = arguments.get("command")
    if tool_name == "bash" and isinstance(command, str):
        return Access(command=command)
    return _other_question(tool_name, arguments)


def _other_question(tool_name: str, arguments: JsonObject) -> Question:
    if tool_name == "workflow":
        return Question(reason="runs a script that may start agents")
    if tool_name == "web_fetch":
        url = arguments.get("url")
        reason = f"fetches {url}" if isinstance(url, str) else "fetches a page"
        return _tool_question(tool_name, reason, "fetching pages from the web")
    if tool_name == "web_search":
        return _tool_question(tool_name, "searches the web", "searching the web")
    if (match := _MCP_TOOL.fullmatch(tool_name)) is not None:
        what = f"{match['tool']} of the MCP server {match['server']}"
        return _tool_question(tool_name, f"uses {what}", what)
    return _tool_question(tool_name, f"uses the tool {tool_name}", tool_name)


def _tool_question(tool_name: str, reason: str, what: str) -> Question:
    label = f"Always allow {what}, for this session"
    return Question(reason=reason, grant=f"tool:{tool_name}", always_label=label)


def _paths(arguments: JsonObject, name: str, cwd: Path) -> tuple[Path, ...]:
    text = arguments.get(name)
    return _resolutions(text, cwd) if isinstance(text, str) and text else ()


def _resolutions(text: str, cwd: Path) -> tuple[Path, ...]:
    """Both readings of a path: they differ where ``..`` follows a link. Both must be fine."""
    shown = absolute_path(text, cwd)
    return tuple(dict.fromkeys((resolved_path(shown), resolved_path(cwd / text))))


def _pattern_start(tool_name: str, arguments: JsonObject, start: Path) -> tuple[Path, ...]:
    """Where a pattern leads that names folders before its first wildcard, such as ``../*``."""
    pattern = arguments.get("pattern")
    if tool_name != "glob" or not isinstance(pattern, str):
        return ()
    named: list[str] = []
    for part in pattern.split("/"):
        if _WILDCARDS & set(part):
            break
        named.append(part)
    folder = "/".join(named)
    if pattern.startswith("/"):
        folder = folder or "/"
    return _resolutions(folder, start) if folder else ()
