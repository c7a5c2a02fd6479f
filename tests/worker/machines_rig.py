"""An editor and `acp-bridge --delegation remote`, the service, and workers, each a process.

On one machine, or on two: network namespaces with a link between them that a test can cut.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from process_rig import WAIT_S, Bridge, Place, eventually
from serving_process import ServerProcess
from worker_rig import WorkerProcess, call

from acp_bridge.sessions import SessionStore
from acp_bridge.vocabulary import Event

DELEGATE = call("subagent", "d1", description="look", prompt="look around")
NESTED = call("subagent", "n1", description="deeper", prompt="look deeper")
TOKEN = "let-me-in"
HOME_ADDRESS, WORKER_ADDRESS = "10.77.7.1", "10.77.7.2"


class Machines:
    """A home's machine with the service, and workers, on the same machine or over a link.

    ``log`` is the address of the service's log; None: SQLite.
    """

    def __init__(self, root: Path, link: "Link | None" = None, *, log: str | None = None) -> None:
        self.place = Place(root)
        self.link = link
        self.server = ServerProcess(
            log or f"sqlite:{root / 'events.sqlite'}",
            token=None if link is None else TOKEN,
            host="127.0.0.1" if link is None else HOME_ADDRESS,
            before=() if link is None else link.at_home,
        )
        self.server.start()
        self.workers: list[WorkerProcess] = []
        self._secrets = {} if link is None else {"ACP_BRIDGE_EVENTS_TOKEN": TOKEN}

    def worker(self, name: str, *flags: str) -> WorkerProcess:
        before = () if self.link is None else self.link.at_worker
        made = WorkerProcess(self.place.root, name, self.server.url, *flags, script=None)
        self.workers.append(made.start(*before, **self._secrets))
        return made

    @contextmanager
    def bridge(self, *flags: str) -> Iterator[Bridge]:
        remote = ("--events", self.server.url, "--delegation", "remote")
        before = () if self.link is None else self.link.at_home
        command = [*before, *self.place.command(*remote, *flags)]
        with self.place.bridge(command=command, env={**self.place.env, **self._secrets}) as bridge:
            yield bridge

    def stop(self) -> None:
        try:
            for worker in self.workers:
                worker.stop()
        finally:
            self.server.stop()

    # --- what the home has stored ---------------------------------------------------------------

    def logs(self) -> dict[str, list[Event]]:
        """Every stored log by its id."""
        store = SessionStore(self.place.home / "sessions", clock=lambda: 0)
        return {one: list(store.read(one).events) for one in store.session_ids()}

    def children(self, root: str) -> dict[str, list[Event]]:
        return {one: log for one, log in self.logs().items() if one != root}


def said(log: list[Event]) -> list[str]:
    texts = []
    for event in log:
        if event.type == "assistant/message":
            data: Any = event.data
            texts += [one["text"] for one in data["message"]["content"] if one["type"] == "text"]
    return texts


def stop_reason(bridge: Bridge, prompt: int, *, wait_s: float = WAIT_S) -> str:
    answer = bridge.answer_to(prompt, wait_s=wait_s)
    assert "result" in answer, answer
    return str(answer["result"]["stopReason"])


def until_said(bridge: Bridge, session: str, chars: int) -> None:
    """Wait until a session has said so much."""
    eventually(lambda: len(bridge.text(session)) > chars)


def live_pid(file: Path) -> int | None:
    """The id in a file, if a process of that id lives."""
    try:
        pid = int(file.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if Path(f"/proc/{pid}").exists() else None


class Link:
    """Two network namespaces, a home's and a worker's, and the only wire between them."""

    def __init__(self) -> None:
        self._home = f"acp-home-{os.getpid()}"
        self._worker = f"acp-work-{os.getpid()}"
        self.at_home = ("ip", "netns", "exec", self._home)
        self.at_worker = ("ip", "netns", "exec", self._worker)

    def make(self) -> None:
        """Make them; needs root.

        Raises:
            CalledProcessError, FileNotFoundError: this system does not let us.
        """
        for name in (self._home, self._worker):
            _ip("netns", "add", name)
        _ip("link", "add", "home0", "netns", self._home, "type", "veth",
            "peer", "name", "work0", "netns", self._worker)  # fmt: skip
        for name, device, address in (
            (self._home, "home0", HOME_ADDRESS),
            (self._worker, "work0", WORKER_ADDRESS),
        ):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            _ip("-n", name, "link", "set", device, "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def cut(self) -> None:
        """Nothing comes through any more, and nobody is told."""
        _ip("-n", self._worker, "link", "set", "work0", "down")

    def mend(self) -> None:
        _ip("-n", self._worker, "link", "set", "work0", "up")

    def remove(self) -> None:
        for name in (self._home, self._worker):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
