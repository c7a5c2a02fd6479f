"""``acp-bridge record``: a stored session, or a trace, becomes a snapshot scenario.

Exit code 0: it is made and a second run gave the same; 1: it could not be made, or differed.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acp_bridge.cli.screen import plain
from acp_bridge.cli.stored import Stored, list_command
from acp_bridge.config import Settings, resolve
from acp_bridge.errors import BridgeError, ConfigError, SessionNotFoundError
from acp_bridge.sessions import SessionStore
from acp_bridge.testing.client import ScenarioError
from acp_bridge.testing.recording.record import Report, record_session, record_trace

EXIT_FAILED = 1
EXIT_USAGE = 2


def run(flags: Mapping[str, str | None], options: Mapping[str, Any]) -> int:
    """Record what ``options`` name: ``id`` or ``trace``, and ``into``; the exit code."""
    into = Path(options["into"])
    session_id, trace = options["id"], flags.get("trace")
    try:
        settings = resolve({**flags, "trace": None}, os.environ)[0]
        if (session_id is None) == (trace is None):
            return _failed("name the session by its id, or a trace with --trace FILE.", EXIT_USAGE)
        if trace is not None:
            report = record_trace(Path(trace), into)
        else:
            report = _session(_home(settings), str(session_id), into)
    except ConfigError as error:
        return _failed(error.details, EXIT_USAGE)
    except SessionNotFoundError as error:
        named = str(_home(settings)) if settings.runtime == "dsh" else flags.get("home")
        return _failed(error.for_a_shell(list_command(named)), EXIT_FAILED)
    except BridgeError as error:
        return _failed(error.details, EXIT_FAILED)
    except (ScenarioError, RuntimeError) as error:
        return _failed(str(error), EXIT_FAILED)
    _tell(report, is_whole=trace is None)
    return EXIT_FAILED if report.unsteady else 0


def _home(settings: Settings) -> Path:
    """The store's home: DeepSeek Harness keeps its own."""
    if settings.runtime == "dsh":
        return Path(os.environ.get("DSH_HOME") or Path.home() / ".dsh")
    return settings.home


def _session(home: Path, typed: str, into: Path) -> Report:
    session_id = Stored(home).id_of(typed)
    store = SessionStore(home / "sessions", clock=lambda: time.time_ns() // 1_000_000)
    return record_session(store, home, session_id, into)


def _tell(report: Report, *, is_whole: bool) -> None:
    _say([f"Recorded: {report.folder}"])
    _list("Not carried over, or made otherwise:", report.notes)
    _list("A load of the scenario shows something else than one of the session:", report.unlike)
    _list("A second run was not like the first, so this scenario will not hold:", report.unsteady)
    if is_whole and not report.unlike:
        _say(["A load of the scenario shows what one of the session does."])
    if is_whole and not report.unsteady:
        _say(["It was played twice with the same end. Read it before you keep it."])


def _list(head: str, sentences: Sequence[str]) -> None:
    if sentences:
        _say(["", head, *(f"- {sentence}" for sentence in sentences), ""])


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        sys.stdout.write("\n".join(plain(part) for part in line.split("\n")) + "\n")


def _failed(sentence: str, code: int) -> int:
    lines = "\n".join(plain(part) for part in sentence.split("\n"))
    sys.stderr.write(f"acp-bridge: {lines}\n")
    return code
