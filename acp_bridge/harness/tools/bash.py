"""The `bash` tool: one shell command, with a time limit, ended with all it started."""

import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import ClassVar

import anyio
from anyio import to_thread

from acp_bridge.harness.tools.arguments import (
    invalid_arguments,
    optional_text,
    required_text,
    whole_number,
)
from acp_bridge.harness.tools.elsewhere import run_elsewhere
from acp_bridge.harness.tools.ended import Ended, command_result, signal_name
from acp_bridge.harness.tools.output import CommandOutput, KeptOutput, LiveOutput
from acp_bridge.harness.tools.paths import absolute_path, resolved_path, shown_path
from acp_bridge.harness.tools.processes import Child, spawn
from acp_bridge.harness.tools.results import NoPreview, failure, io_failure
from acp_bridge.ports import Access, ToolContext, ToolResult
from acp_bridge.vocabulary import JsonObject

TIMEOUT_DEFAULT_MS = 120_000
TIMEOUT_MAX_MS = 600_000

DRAIN_S = 0.2
"""After the shell's exit: time for its last output; children that keep the pipe are not awaited."""

_REST_BYTES_MAX = 1024 * 1024


class BashTool(NoPreview):
    """Run a shell command."""

    name: ClassVar[str] = "bash"
    description: ClassVar[str] = (
        "Run a command with `bash -c` and return its output (stdout and stderr in order) and exit "
        "code. Each call is a new shell: folder, variables and background processes do not outlast "
        "it, so set `workdir` instead of using cd. Nothing can be typed into the command: use "
        f"flags that need no answer. It is killed after `timeoutMs` (default {TIMEOUT_DEFAULT_MS}, "
        f"at most {TIMEOUT_MAX_MS}). Of more than 30,000 characters of output the start and the "
        "end are shown, and a file holds it all. To read, search and change files prefer read, "
        "grep, glob and edit."
    )
    parameters: ClassVar[JsonObject] = {
        "type": "object",
        "properties": {
            "description": {
                "type": "string",
                "description": "What the command does, in 5 to 10 words, for the user.",
            },
            "command": {"type": "string", "description": "The command line."},
            "timeoutMs": {
                "type": "number",
                "description": (
                    f"Milliseconds until it is killed. Default {TIMEOUT_DEFAULT_MS}, at most "
                    f"{TIMEOUT_MAX_MS}."
                ),
            },
            "workdir": {
                "type": "string",
                "description": "Folder to run in. Default: the working folder.",
            },
        },
        "required": ["description", "command"],
    }

    def access(self, arguments: JsonObject, cwd: Path) -> Access:
        """The command, and the folder it starts in; what it touches nobody can tell."""
        workdir = absolute_path(optional_text(arguments, "workdir") or ".", cwd)
        return Access(reads=(resolved_path(workdir),), command=required_text(arguments, "command"))

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """``meta``: cwd, exitCode (128 + n for signal n); signal, timedOut, outputFile if so."""
        command = required_text(arguments, "command")
        timeout_ms = whole_number(arguments, "timeoutMs", TIMEOUT_DEFAULT_MS)
        if timeout_ms is None or timeout_ms < 1:
            return invalid_arguments('property "timeoutMs" must be a whole number from 1')
        timeout_ms = min(timeout_ms, TIMEOUT_MAX_MS)
        workdir = absolute_path(optional_text(arguments, "workdir") or ".", context.cwd)
        try:
            if not await to_thread.run_sync(workdir.is_dir):
                return failure(f"workdir {shown_path(workdir)} is not a folder.")
            if context.runner is not None:
                argv = (Path(_shell(context.env)).name, command)
                return await run_elsewhere(
                    context.runner, argv, context, workdir=workdir, timeout_ms=timeout_ms
                )
            child = await spawn([_shell(context.env), "-c", command], cwd=workdir, env=context.env)
        except (OSError, ValueError) as error:
            return io_failure("run the command in", workdir, error)
        output = CommandOutput(LiveOutput(context.emit), KeptOutput(context.spill_dir))
        reach_all = True
        try:
            with anyio.move_on_after(timeout_ms / 1000) as limit:
                await _follow(child, output, context.flow)
                reach_all = False
        finally:
            left = await child.end("tree" if reach_all else "group")
            with anyio.CancelScope(shield=True):
                await output.add(child.read_rest(_REST_BYTES_MAX), anyio.current_time())
                await output.finish()
            child.close()
        timed_out_ms = timeout_ms if limit.cancelled_caught else None
        ended = _ended(child.exit_code, timed_out_ms, left=left)
        return command_result(ended, output.kept, workdir)


async def _follow(child: Child, output: CommandOutput, flow: Callable[[], Awaitable[None]]) -> None:
    """Take output until the shell has ended and its output too, or the drain time is over.

    A watcher that reads slowly slows the command: what it prints waits in its pipe, not here.
    """
    ended = anyio.Event()

    async def take() -> None:
        while True:
            await flow()
            wait_s = output.live.due_in(anyio.current_time())
            with anyio.move_on_after(wait_s) as waiting:
                data = await child.read()
            if waiting.cancelled_caught:
                output.live.tell(anyio.current_time())
                continue
            if not data:
                ended.set()
                return
            await output.add(data, anyio.current_time())

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        await child.wait()
        with anyio.move_on_after(DRAIN_S):
            await ended.wait()
        group.cancel_scope.cancel()


def _shell(env: Mapping[str, str]) -> str:
    path = env.get("PATH")
    return shutil.which("bash", path=path) or shutil.which("sh", path=path) or "/bin/sh"


def _ended(exit_code: int | None, timed_out_ms: int | None, *, left: bool) -> Ended:
    if exit_code is None or exit_code >= 0:
        return Ended(exit_code, None, timed_out_ms, left)
    return Ended(128 - exit_code, signal_name(-exit_code), timed_out_ms, left)
