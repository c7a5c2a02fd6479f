"""The harness's own tools: files, search, commands and the plan.

Owns: the names, schemas and descriptions that a model sees; what each tool does, touches and
answers; the limits on what a call may read, print and run.

Does not know: the log, the turn that calls it, permission (it only says what a call would touch),
ACP, or whether files come from the editor or the disk.

Invariants: a tool never raises but on cancellation: what goes wrong is a result. A call leaves no
process and no half-written file behind. What `access` judged is what `run` opens, but for links
that change in between. Nothing here asks the user, reads the environment for settings, or writes
to the log.
"""

from acp_bridge.harness.tools.arguments import (
    check_arguments,
    invalid_arguments,
    parse_arguments,
)
from acp_bridge.harness.tools.disk import DiskFiles
from acp_bridge.ports import Tool

__all__ = [
    "DiskFiles",
    "asking_tools",
    "builtin_tools",
    "check_arguments",
    "invalid_arguments",
    "parse_arguments",
]


def builtin_tools() -> tuple[Tool, ...]:
    """Every tool of this room, in the order in which a model is told of them.

    Their modules are imported here: a session opens 10 ms sooner without them.
    """
    from acp_bridge.harness.tools.bash import BashTool
    from acp_bridge.harness.tools.change import EditTool, WriteTool
    from acp_bridge.harness.tools.read import ReadTool
    from acp_bridge.harness.tools.search import GlobTool, GrepTool
    from acp_bridge.harness.tools.todo import TodoWriteTool

    return (
        ReadTool(),
        WriteTool(),
        EditTool(),
        GlobTool(),
        GrepTool(),
        BashTool(),
        TodoWriteTool(),
    )


def asking_tools() -> tuple[Tool, ...]:
    """The tools that are offered only where the user can be asked."""
    from acp_bridge.harness.tools.ask import AskUserTool

    return (AskUserTool(),)
