"""What a command that ended says to the model: its output, and marks for how it went."""

import signal
from pathlib import Path

import attrs

from acp_bridge.harness.tools.output import KeptOutput
from acp_bridge.harness.tools.paths import shown_path
from acp_bridge.ports import ToolResult
from acp_bridge.vocabulary import JsonObject


@attrs.frozen(slots=True)
class Ended:
    """How a command ended.

    ``exit_code`` is 128 + n for signal n, None if nobody knows; ``signal`` its name.
    ``timed_out_ms`` is the limit that it broke; ``left``: it left processes, which were ended.
    """

    exit_code: int | None
    signal: str | None = None
    timed_out_ms: int | None = None
    left: bool = False


def command_result(ended: Ended, kept: KeptOutput, workdir: Path) -> ToolResult:
    """``meta``: cwd, exitCode; signal, timedOut, outputFile if so."""
    meta, shown = _meta(ended, kept, workdir), kept.text()
    if ended.timed_out_ms is not None:
        return ToolResult(
            text=f"Error: the command was still running after {ended.timed_out_ms} ms and was "
            f"killed. Its output so far:\n{shown or '(no output)'}",
            is_error=True,
            error_name="ToolTimeoutError",
            error_code="TIMEOUT",
            meta=meta,
        )
    lines = [shown.removesuffix("\n") or "(no output)"]
    if ended.signal is not None:
        lines.append(f"[signal: {ended.signal}]")
    if ended.left:
        lines.append("[processes left in the background were ended]")
    lines.append(f"[exit code: {'unknown' if ended.exit_code is None else ended.exit_code}]")
    return ToolResult(text="\n".join(lines), meta=meta)


def _meta(ended: Ended, kept: KeptOutput, workdir: Path) -> JsonObject:
    meta: JsonObject = {"cwd": shown_path(workdir)}
    if ended.signal is not None:
        meta["signal"] = ended.signal
    meta["exitCode"] = ended.exit_code
    if kept.file is not None:
        meta["outputFile"] = shown_path(kept.file)
    if ended.timed_out_ms is not None:
        meta["timedOut"] = True
    return meta


def signal_name(number: int) -> str:
    """SIGKILL for 9; SIG35 for one that has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"SIG{number}"


def signal_number(name: str) -> int | None:
    """9 for SIGKILL, KILL or sigkill, and for "9"; None for what is no signal here."""
    bare = name.upper().removeprefix("SIG")
    if bare.isdecimal():
        return int(bare)
    found = signal.Signals.__members__.get(f"SIG{bare}")
    return None if found is None else found.value
