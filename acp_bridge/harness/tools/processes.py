"""Child processes that end with everything they started: spawn, read output, kill the tree."""

import os
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Literal

import anyio
from anyio import to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from acp_bridge.harness.tools.guard import (
    KILL_GRACE_S,
    MARKER,
    POLL_S,
    TERM_GRACE_S,
    Seen,
    mark_of,
    process_table,
    signal_one,
)
from acp_bridge.harness.tools.guarding import Guard

READ_BYTES_MAX = 64 * 1024
"""What a Linux pipe holds."""

_HUNTS_MAX = 5
"""Looks of `Child.kill_now`: a killed process is gone by the next one, unless it was forking."""

_running: set["Child"] = set()
"""Every child whose pipe is open: what must not outlive this process."""

_guard = Guard()
"""Ends them where this process is killed."""


class Child:
    """A running command, leader of its own session and group."""

    def __init__(self, process: Process, output: int, mark: str) -> None:
        self._process = process
        self._output = output
        self.mark = mark
        self._marked: dict[tuple[int, int], bool] = {}
        self._hunted: dict[int, Seen] = {}
        _running.add(self)

    @property
    def stdin(self) -> ByteSendStream:
        """What a program that talks reads (`spawn`)."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> ByteReceiveStream:
        """What a program that talks says."""
        assert self._process.stdout is not None
        return self._process.stdout

    async def read(self) -> bytes:
        """Some output, at most 64 KiB; b"" once nobody can write any more."""
        while True:
            await anyio.wait_readable(self._output)
            data = self._read_now()
            if data is not None:
                return data

    def read_rest(self, bytes_max: int) -> bytes:
        """What lies in the pipe right now, roughly up to ``bytes_max``."""
        rest = bytearray()
        while len(rest) < bytes_max:
            data = self._read_now()
            if not data:
                break
            rest += data
        return bytes(rest)

    def _read_now(self) -> bytes | None:
        try:
            return os.read(self._output, READ_BYTES_MAX)
        except BlockingIOError:
            return None

    async def wait(self) -> int:
        """The exit code of the command itself, negative for a signal; its children may live on."""
        return await self._process.wait()

    @property
    def exit_code(self) -> int | None:
        """As `wait`; None while it runs."""
        return self._process.returncode

    async def end(self, reach: Literal["group", "tree"]) -> bool:
        """End what still runs: SIGTERM, a grace, SIGKILL; whether anything did.

        Shielded, and bounded by 3 s.

        ``group``: the command's process group. ``tree``: also its descendants in other groups and
        sessions (on Linux; elsewhere the group).
        """
        group = self._process.pid
        if not _group_lives(group) and reach == "group" and self.exit_code is not None:
            return False
        with anyio.move_on_after(2 * (TERM_GRACE_S + KILL_GRACE_S), shield=True):
            if not await self._signal_until_gone(signal.SIGTERM, TERM_GRACE_S, reach):
                await self._signal_until_gone(signal.SIGKILL, KILL_GRACE_S, reach)
            await self._process.wait()
        return bool(self._hunted) or sys.platform != "linux"

    def close(self) -> None:
        """Give the pipe back. Nobody may be reading."""
        _running.discard(self)
        _guard.forget(self.mark)
        os.close(self._output)

    def kill_now(self) -> None:
        """SIGKILL it and its descendants, without waiting: for a process that exits right after."""
        if sys.platform != "linux":
            _signal_group(self._process.pid, signal.SIGKILL)
            return
        for _ in range(_HUNTS_MAX):
            if not self._hunt(signal.SIGKILL, "tree", set()):
                return

    async def _signal_until_gone(
        self, number: signal.Signals, grace_s: float, reach: Literal["group", "tree"]
    ) -> bool:
        until = anyio.current_time() + grace_s
        group = self._process.pid
        told: set[int] = set()
        # A limiter of its own: threads that hang on a dead disk must not keep commands alive.
        limiter = anyio.CapacityLimiter(1)
        while True:
            if sys.platform != "linux":
                _signal_group(group, number)
                alive = _group_lives(group)
            elif reach == "group" and not _group_lives(group):
                alive = False
            else:
                alive = await to_thread.run_sync(self._hunt, number, reach, told, limiter=limiter)
            if not alive:
                return True
            if anyio.current_time() >= until:
                return False
            await anyio.sleep(POLL_S)

    def _hunt(
        self, number: signal.Signals, reach: Literal["group", "tree"], told: set[int]
    ) -> bool:
        """Signal what lives and has not been told yet; False if nothing lives."""
        table = process_table()
        group = self._process.pid
        prey = [seen for seen in table.values() if seen.group == group]
        if reach == "tree":
            prey += self._strays(table, {seen.pid for seen in prey})
        self._hunted |= {seen.pid: seen for seen in prey}
        if any(seen.group == group for seen in prey) and group not in told:
            told.add(group)
            told.update(seen.pid for seen in prey if seen.group == group)
            _signal_group(group, number)
        for seen in prey:
            if seen.pid in told:
                continue
            told.add(seen.pid)
            if seen.group == seen.pid:
                told.update(other.pid for other in prey if other.group == seen.pid)
                _signal_group(seen.group, number)
            else:
                signal_one(seen.pid, number)
        return bool(prey)

    def _strays(self, table: Mapping[int, Seen], group: set[int]) -> list[Seen]:
        """Descendants outside the group, parents first.

        Parents first, since a shell whose `sleep` dies would go on with its next command.
        """
        ours = {*group, self._process.pid, os.getpid()}
        found = {
            seen.pid for seen in table.values() if self._was_hunted(seen) or self._is_marked(seen)
        }
        todo = [*found, *ours - {os.getpid()}]
        children: dict[int, list[int]] = {}
        for seen in table.values():
            children.setdefault(seen.parent, []).append(seen.pid)
        while todo:
            below = [pid for pid in children.get(todo.pop(), []) if pid not in found]
            found.update(below)
            todo += below
        strays = [table[pid] for pid in found - ours]
        return sorted(strays, key=lambda seen: _depth(table, seen.pid))

    def _was_hunted(self, seen: Seen) -> bool:
        before = self._hunted.get(seen.pid)
        return before is not None and before.started == seen.started

    def _is_marked(self, seen: Seen) -> bool:
        key = (seen.pid, seen.started)
        if key not in self._marked:
            self._marked[key] = mark_of(seen.pid) == self.mark.encode()
        return self._marked[key]


async def spawn(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], talks: bool = False
) -> Child:
    """Start a command: own session, stdin at its end, stdout and stderr in one pipe.

    One that ``talks`` has streams of its own for stdin and stdout, and only stderr in the pipe;
    who gets it closes those streams.

    The pipe is ours, not the event loop's: there the exit of a command is told, on some Pythons,
    only when its last grandchild has closed it.

    Raises:
        OSError, ValueError: it cannot be started.
    """
    mark = secrets.token_hex(8)
    reading, writing = os.pipe()
    _guard.watch(mark, talks=talks)
    try:
        os.set_blocking(reading, False)
        # Shielded: a cancellation in here would leave a process that nobody knows.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                list(command),
                stdin=PIPE if talks else DEVNULL,
                stdout=PIPE if talks else writing,
                stderr=writing if talks else STDOUT,
                cwd=cwd,
                env={**env, MARKER: mark},
                start_new_session=True,
            )
    except BaseException:
        _guard.forget(mark)
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return Child(process, reading, mark)


def kill_all_now() -> None:
    """SIGKILL every running command with its descendants; blocks for milliseconds."""
    for child in list(_running):
        child.kill_now()


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # gone, or of another user by now
        return


def _group_lives(group: int) -> bool:
    """Whether the group has members; dead ones that nobody waits for count on Linux."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _depth(table: Mapping[int, Seen], pid: int) -> int:
    depth = 0
    while pid in table and depth < len(table):
        pid = table[pid].parent
        depth += 1
    return depth
