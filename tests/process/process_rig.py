"""An editor at the other end of a real `acp-bridge` process: it can be slow, broken, or gone.

Synchronous on purpose: a test here is a story of signals, pipes and files, told in order. Every
wait has a bound. What the bridge started is known by a variable that all its children inherit.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from pace import patient

from acp_bridge.testing.check import official_schema
from acp_bridge.testing.replay import replay_differences
from acp_bridge.testing.rules import broken_rules
from acp_bridge.testing.schema import schema_problems
from acp_bridge.testing.transcript import Entry, obj

WAIT_S = 60.0
"""The bound of every wait for a message: far above what anything here takes on a busy machine."""

EXIT_S = 2.0
"""How fast the bridge leaves when nothing must be killed (R025)."""

KILL_EXIT_S = 5.0
"""How fast it leaves when something must be killed (R025, R027)."""

BRIDGE = [sys.executable, "-m", "acp_bridge"]
_MARKER = "ACP_BRIDGE_TEST_RUN"

Message = dict[str, Any]
Found = TypeVar("Found")


class Place:
    """One test's folders and script; starts bridges in them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.work = root / "work"
        self.model = root / "model.jsonl"
        self.work.mkdir()
        self.model.touch()
        self.mark = uuid.uuid4().hex
        self.env = {
            **{name: value for name, value in os.environ.items() if "ACP_BRIDGE" not in name},
            "HOME": str(root),
            _MARKER: self.mark,
        }
        self.transcript: list[Entry] = []
        self._runs = 0
        self._unchecked: set[int] = set()
        self._running: set[int] = set()

    def script(self, *answers: list[Message], agent: str = "1") -> None:
        """Add answers for an agent to the script."""
        with self.model.open("a", encoding="utf-8") as file:
            for stream in answers:
                file.write(json.dumps({"agent": agent, "stream": stream}) + "\n")

    def release(self, name: str) -> None:
        """End the script's ``{"wait": name}``."""
        folder = self.model.with_name(self.model.name + ".releases")
        folder.mkdir(exist_ok=True)
        (folder / name).touch()

    def command(self, *flags: str) -> list[str]:
        """The command line of a bridge with this place's home and script."""
        return [*BRIDGE, "--home", str(self.home), "--model", f"scripted:{self.model}", *flags]

    def processes(self) -> dict[int, str]:
        """Everything alive that a bridge of this place started, the bridge included."""
        return {pid: name for pid, name, mark in _alive() if mark == self.mark}

    @contextmanager
    def bridge(
        self,
        *flags: str,
        env: Mapping[str, str] | None = None,
        command: list[str] | None = None,
        stderr_empty: bool = True,
        checked: bool = True,
    ) -> Iterator["Bridge"]:
        """A running bridge; at the end it must be gone with all it started, and have said nothing.

        ``checked``: whether its transcript must be good for schema, rules and replay.
        """
        self._runs += 1
        stderr = self.root / f"stderr-{self._runs}"
        with stderr.open("wb") as errors:
            process = subprocess.Popen(
                command or self.command(*flags),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(self.env if env is None else env),
                cwd=self.root,
            )
        bridge = Bridge(process, self._runs)
        self._running.add(process.pid)
        try:
            yield bridge
            bridge.leave()
        finally:
            left = self._clear(process)
            bridge.join()
        assert left == {}, f"left running: {left}"
        assert bridge.fault is None, bridge.fault
        said = stderr.read_text()
        assert not (stderr_empty and said), said
        self._check(bridge, is_good=checked, was_killed=process.returncode == -signal.SIGKILL)

    def _check(self, bridge: "Bridge", *, is_good: bool, was_killed: bool) -> None:
        found: list[str] = []
        self.transcript += bridge.entries
        if was_killed or not is_good:
            self._unchecked.add(self._runs)
        if is_good:
            found += schema_problems(_without_repeats(bridge.entries), official_schema())
            found += broken_rules(bridge.entries, killed_runs=self._unchecked)
            found += replay_differences(self.transcript, killed_runs=self._unchecked)
        assert not found, "\n".join(line[:600] for line in found[:10])

    def _clear(self, process: subprocess.Popen[bytes]) -> dict[int, str]:
        left = {pid: name for pid, name in self.processes().items() if pid not in self._running}
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if process.poll() is None:
            process.kill()
            process.wait()
            left[process.pid] = "the bridge itself"
        self._running.discard(process.pid)
        return left


class Bridge:
    """A process and the editor that talks to it. A thread keeps what it says, with the time."""

    def __init__(self, process: subprocess.Popen[bytes], run: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._run = run
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self.entries: list[Entry] = []
        self.fault: str | None = None
        self.bytes_read = 0
        self.ended = False
        self._changed = threading.Condition()
        self._may_read = threading.Event()
        self._may_read.set()
        self._next_id = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # --- talking --------------------------------------------------------------------------------

    def send(self, *messages: Message) -> None:
        """Send messages in one write."""
        whole = [{"jsonrpc": "2.0", **message} for message in messages]
        with self._changed:
            self.entries += [Entry(self._run, "agent", message) for message in whole]
        self.raw(b"".join(json.dumps(message).encode() + b"\n" for message in whole))

    def raw(self, data: bytes) -> None:
        """Write bytes."""
        self.stdin.write(data)
        self.stdin.flush()

    def ask(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        message = self.request(method, **params)
        self.send(message)
        return int(message["id"])

    def request(self, method: str, **params: Any) -> Message:
        """A request with a fresh id, not sent yet."""
        self._next_id += 1
        return {"id": self._next_id, "method": method, "params": params}

    def call(self, method: str, *, wait_s: float = WAIT_S, **params: Any) -> Message:
        """Send a request and wait for its answer, the whole message."""
        return self.answer_to(self.ask(method, **params), wait_s=wait_s)

    def result(self, method: str, **params: Any) -> Message:
        """Send a request and wait for its result."""
        answer = self.call(method, **params)
        assert "result" in answer, answer
        result: Message = answer["result"]
        return result

    def prompt(self, session: str, text: str = "go") -> int:
        """Send a prompt; its id."""
        return self.ask("session/prompt", **prompt_params(session, text))

    def cancel(self, session: str) -> None:
        """Send ``session/cancel``."""
        self.send({"method": "session/cancel", "params": {"sessionId": session}})

    def allow(self, question: Message, option: str = "allow-once") -> None:
        """Answer a permission request."""
        outcome = {"outcome": "selected", "optionId": option}
        self.send({"id": question["id"], "result": {"outcome": outcome}})

    def hello(self, **capabilities: Any) -> Message:
        """``initialize``."""
        return self.result("initialize", protocolVersion=1, clientCapabilities=capabilities)

    def new(self, cwd: Path) -> str:
        """``session/new``; the id."""
        return str(self.result("session/new", cwd=str(cwd), mcpServers=[])["sessionId"])

    # --- listening ------------------------------------------------------------------------------

    @property
    def heard(self) -> list[Message]:
        """All that it said."""
        with self._changed:
            return [entry.message for entry in self.entries if entry.to == "client"]

    def sent(self, method: str) -> list[Any]:
        """The ids of all requests of a method that were sent to it."""
        return [
            entry.message["id"]
            for entry in self.entries
            if entry.to == "agent" and entry.message.get("method") == method
        ]

    def wait_for(
        self, find: Callable[[Message], bool], *, wait_s: float = WAIT_S, since: int = 0
    ) -> Message:
        """The first message, from the ``since``-th entry on, that ``find`` likes."""
        until = time.monotonic() + wait_s
        with self._changed:
            while True:
                while since < len(self.entries):
                    entry = self.entries[since]
                    if entry.to == "client" and find(entry.message):
                        return entry.message
                    since += 1
                left_s = until - time.monotonic()
                if self.ended or left_s <= 0 or not self._changed.wait(left_s):
                    last = [str(entry.message)[:300] for entry in self.entries[-12:]]
                    raise AssertionError("it never came; last were\n" + "\n".join(last))

    def answer_to(self, message_id: Any, *, wait_s: float = WAIT_S) -> Message:
        """The answer to the request of this id."""
        return self.wait_for(
            lambda message: "method" not in message and message.get("id") == message_id,
            wait_s=wait_s,
        )

    def asked(self, method: str = "session/request_permission", **wanted: str) -> Message:
        """The first request of the bridge to us, of the named session if one is named."""
        return self.wait_for(
            lambda message: (
                message.get("method") == method and wanted.items() <= message["params"].items()
            )
        )

    def update(self, kind: str, **wanted: str) -> Message:
        """The first ``session/update`` of a kind with these members."""
        return self.wait_for(
            lambda message: (
                message.get("method") == "session/update"
                and {"sessionUpdate": kind, **wanted}.items() <= message["params"]["update"].items()
            )
        )

    def updates(self, session: str | None = None) -> list[Message]:
        """All updates, of one session if one is named."""
        return [
            message["params"]["update"]
            for message in self.heard
            if message.get("method") == "session/update"
            and session in {None, message["params"]["sessionId"]}
        ]

    def text(self, session: str | None = None) -> str:
        """All that was said in ``agent_message_chunk``s."""
        return "".join(
            update["content"]["text"]
            for update in self.updates(session)
            if update["sessionUpdate"] == "agent_message_chunk"
        )

    def stop_reading(self) -> None:
        """Read nothing from its stdout until `read_on` (what is on its way still comes in)."""
        self._may_read.clear()

    def read_on(self) -> None:
        """Read again."""
        self._may_read.set()

    def _read(self) -> None:
        rest = b""
        while True:
            self._may_read.wait()
            try:
                data = os.read(self.stdout.fileno(), 65536)
            except (OSError, ValueError):
                data = b""
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            with self._changed:
                self.bytes_read += len(data)
                for line in lines:
                    self._keep(line)
                self._changed.notify_all()
        with self._changed:
            if rest and self.process.poll() != -signal.SIGKILL:
                self.fault = f"its output ended in the middle of a line: {rest[:200]!r}"
            self.ended = True
            self._changed.notify_all()

    def _keep(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            assert isinstance(message, dict)
        except (ValueError, AssertionError):
            self.fault = f"a line that is no message: {line[:200]!r}"
            return
        self.entries.append(Entry(self._run, "client", message))

    # --- its end --------------------------------------------------------------------------------

    def close_stdin(self) -> None:
        """The end of its input."""
        self.stdin.close()

    def wait_exit(self, within_s: float) -> int:
        """Its exit code; it must come within so many seconds of a quiet machine."""
        started = time.monotonic()
        try:
            code = self.process.wait(within_s + WAIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError("it does not leave") from None
        took_s = time.monotonic() - started
        assert took_s <= patient(within_s), f"it took {took_s:.2f} s to leave"
        return code

    def leave(self) -> None:
        """End it as an editor does, unless it has ended; its exit code must be 0."""
        if self.process.poll() is None:
            self.read_on()
            self.stdin.close()
            assert self.wait_exit(KILL_EXIT_S) == 0

    def join(self) -> None:
        """Wait for the reading thread, and close the pipes."""
        self.read_on()
        self._reader.join(WAIT_S)
        for pipe in (self.stdin, self.stdout):
            try:
                pipe.close()
            except OSError:
                continue

    @property
    def rss_bytes(self) -> int:
        """Its resident memory."""
        return _status_kib(self.process.pid, "VmRSS") * 1024

    @property
    def peak_rss_bytes(self) -> int:
        """The most memory it ever had."""
        return _status_kib(self.process.pid, "VmHWM") * 1024


def prompt_params(session: str, text: str = "go") -> Message:
    """The parameters of a prompt of one text."""
    return {"sessionId": session, "prompt": [{"type": "text", "text": text}]}


def bash_call(command: str, call_id: str = "c1", **arguments: Any) -> Message:
    """A script's item: a call of `bash`."""
    arguments = {"command": command, "description": "Runs a command", **arguments}
    return {"tool_call": {"id": call_id, "name": "bash", "arguments": arguments}}


def eventually(what: Callable[[], Found | None], wait_s: float = WAIT_S) -> Found:
    """What ``what`` gives as soon as it is true."""
    until = time.monotonic() + wait_s
    while not (found := what()):
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)
    return found


def _without_repeats(entries: list[Entry]) -> list[Entry]:
    """One of a row of text chunks stands for all: the schema check takes a millisecond for each."""
    kept: list[Entry] = []
    last = ""
    for entry in entries:
        kind = str(obj(obj(entry.message.get("params")).get("update")).get("sessionUpdate"))
        if not kind.endswith("_chunk") or kind != last:
            kept.append(entry)
        last = kind
    return kept


def _status_kib(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise AssertionError(f"{pid} has no {name}")


def _alive() -> Iterator[tuple[int, str, str]]:
    """Every live process with its command line and our mark."""
    wanted = f"{_MARKER}=".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            marks = [
                value.removeprefix(wanted)
                for value in (entry / "environ").read_bytes().split(b"\0")
                if value.startswith(wanted)
            ]
            state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            name = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if marks and state not in {b"Z", b"X"}:
            yield int(entry.name), name.strip(), marks[0].decode()
