"""What lives on this machine (Linux), and who ends the commands of a process that was killed.

Nobody can clean up after a SIGKILL of itself, so the first command starts a guard: this file as a
script. It is told which commands run, a line each on its stdin: ``+MARK``, or ``~MARK`` for one
that ends by itself when its own input does; later ``-MARK``. When the guard's input ends so has the
process, however that came, and what still runs then is ended.

Invariants: imports the standard library only, since the script runs without site packages; the
guard holds no stream of the process that it watches, so nobody waits for it.
"""

import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

TERM_GRACE_S = 0.5
"""Between SIGTERM and SIGKILL: enough to remove a lock file, too short to notice in an editor."""

KILL_GRACE_S = 1.0
"""How long SIGKILL may take to show; a process that outlives it hangs in the kernel."""

POLL_S = 0.01

LEAVE_S = 5.0
"""What a program that talks gets to end by itself: a runtime still writes its logs."""

MARKER = "ACP_BRIDGE_CALL"
"""Set in a command's environment: its children are known by it even after they left its tree."""


class Seen(NamedTuple):
    """A live process. ``started`` (clock ticks) tells it from a later one of the same id."""

    pid: int
    parent: int
    group: int
    session: int
    started: int


def process_table() -> dict[int, Seen]:
    """Every process that lives (a zombie does not), by id, from ``/proc``."""
    table = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_bytes()
        except OSError:  # gone
            continue
        # The name in parentheses may hold anything, parentheses too (proc(5), stat).
        fields = stat.rpartition(b")")[2].split()
        if fields[0] not in {b"Z", b"X"}:
            pid = int(entry.name)
            parent, group, session = map(int, fields[1:4])
            table[pid] = Seen(pid, parent, group, session, int(fields[19]))
    return table


def mark_of(pid: int) -> bytes | None:
    """The mark of the command that a process belongs to, as its environment says."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # another user's, or gone
        return None
    start = f"{MARKER}=".encode()
    for variable in environment.split(b"\0"):
        if variable.startswith(start):
            return variable[len(start) :]
    return None


def signal_one(pid: int, number: signal.Signals) -> None:
    """Signal a process, if it is there and ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):  # gone, or of another user by now
        return


def end_marked(marks: Iterable[bytes], found: set[tuple[int, int]]) -> None:
    """End commands and what they started: SIGTERM, a grace, SIGKILL. Blocks for 1.5 s at most.

    A descendant that lost the mark is known by its session, which is the command's own, or by a
    parent that is known. ``found``: who was known before, as ids and starts.
    """
    wanted = frozenset(marks)
    for number, grace_s in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
        told: set[tuple[int, int]] = set()
        until = time.monotonic() + grace_s
        while wanted:
            prey = _prey(process_table(), wanted, found)
            if not prey:
                return
            for seen in prey:
                if (seen.pid, seen.started) not in told:
                    told.add((seen.pid, seen.started))
                    signal_one(seen.pid, number)
            if time.monotonic() >= until:
                break
            time.sleep(POLL_S)


def _prey(
    table: Mapping[int, Seen], marks: frozenset[bytes], found: set[tuple[int, int]]
) -> list[Seen]:
    """What belongs to the commands and lives; ``found`` remembers it by id and start."""
    prey = {
        seen.pid: seen
        for seen in table.values()
        if (seen.pid, seen.started) in found or mark_of(seen.pid) in marks
    }
    # A command leads a session, so all of that session is its own.
    sessions = {seen.session for seen in prey.values() if seen.session in prey}
    size = -1
    while size != len(prey):
        size = len(prey)
        prey |= {
            seen.pid: seen
            for seen in table.values()
            if seen.parent in prey or seen.session in sessions
        }
    found |= {(seen.pid, seen.started) for seen in prey.values()}
    return list(prey.values())


def _main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for whom it watches, who will end its input
    commands, talking = set[bytes](), set[bytes]()
    for line in sys.stdin.buffer:
        mark = line[1:].rstrip()
        if line.startswith(b"-"):
            commands.discard(mark)
            talking.discard(mark)
        else:
            (talking if line.startswith(b"~") else commands).add(mark)
    until = time.monotonic() + LEAVE_S
    leaving, found = frozenset(talking), set[tuple[int, int]]()
    # Looked at before it leaves: of what it then leaves behind, nothing may tell whose it was.
    while leaving and _prey(process_table(), leaving, found) and time.monotonic() < until:
        end_marked(commands, set())
        commands.clear()
        time.sleep(POLL_S * 10)
    end_marked(commands, set())
    end_marked(leaving, found)


if __name__ == "__main__":
    _main()
