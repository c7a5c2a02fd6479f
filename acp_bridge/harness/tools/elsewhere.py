"""A shell command that the client runs, in a terminal of its own: for who switched ours off."""

from pathlib import Path

import anyio
import attrs

from acp_bridge.harness.tools.ended import Ended, command_result, signal_name, signal_number
from acp_bridge.harness.tools.output import KeptOutput
from acp_bridge.harness.tools.results import failure, io_failure
from acp_bridge.ports import ClientCommand, CommandEnd, CommandRunner, ToolContext, ToolResult

OUTPUT_BYTES_MAX = 1024 * 1024
"""What the client keeps of the output: far more than a model sees, and one message can hold."""

NOT_OFFERED = failure(
    "commands are switched off here (`execution` is `client`), and this client offers no terminal "
    "to run them in. The command did not run. Work without commands, or ask the user to set "
    "`--execution local`."
)


async def run_elsewhere(
    runner: CommandRunner,
    argv: tuple[str, str],
    context: ToolContext,
    *,
    workdir: Path,
    timeout_ms: int,
) -> ToolResult:
    """The result of a shell (its name) and a line for it, as if it had run here."""
    if not runner.runs_commands:
        return NOT_OFFERED
    shell, line = argv
    command = ClientCommand(
        shell=shell,
        line=line,
        cwd=workdir,
        timeout_s=timeout_ms / 1000,
        output_bytes_max=OUTPUT_BYTES_MAX,
        started=context.in_terminal,
        said=context.emit,
    )
    try:
        end = await runner.run_command(command)
    except OSError as error:
        return io_failure("run the command in", workdir, error)
    kept = KeptOutput(context.spill_dir)
    with anyio.CancelScope(shield=True):
        await kept.add(end.output.encode(errors="replace"), _text(end))
    kept.close()
    result = command_result(_ended(end, timeout_ms), kept, workdir)
    if end.fault is None:
        return result
    told = failure(f"{end.fault}. What is known of the command:\n{result.text}")
    return attrs.evolve(result, text=told.text, is_error=True)


def _text(end: CommandEnd) -> str:
    # A terminal gives what it shows: lines that end as on a teletype.
    text = end.output.replace("\r\n", "\n")
    return f"[… the client kept only a part of the output …]\n{text}" if end.is_cut else text


def _ended(end: CommandEnd, timeout_ms: int) -> Ended:
    signal, code = end.signal, end.exit_code
    if signal is not None:
        number = signal_number(signal)
        if number is not None:
            signal = signal_name(number)
            code = 128 + number if code is None else code
    return Ended(code, signal, timeout_ms if end.timed_out else None)
