"""The real runtime at one end, a model on loopback at the other: no key, no network.

Synchronous, since a test here is a story told in order; every wait has a bound. A start costs
seconds and hundreds of megabytes, so one process serves many sessions, and no two run at once.
"""

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest

WAIT_S = 60.0
"""The bound of every wait for the runtime; a first start unpacks it."""

INSTALL = (
    "dsh is not installed: `python -m venv dsh && dsh/bin/pip install --pre"
    " deepseek-harness-sdk==0.2.1rc2`, then set ACP_BRIDGE_DSH to dsh/bin/dsh"
)

PATCH = """\
- {id: plugin-package-inventory-deepseek, disabled: true}
"""

PATCH_SILENT = """\
- {id: session-log-deepseek, disabled: true}
"""
"""Without this a request also carries the whole log, and its acceptance adds delivery rows."""

PATCH_PLAIN = """\
- id: session-persistence-jsonl
  config: {root: !!js dshHomePath('sessions'), compression: none}
"""

Message = dict[str, Any]

HOLD: Message = {"type": "hold"}
"""In an answer: the stream stays open here until the model is closed."""

OVERLOADED: Message = {"type": "overloaded"}
"""In an answer: the provider says here that it has too much to do."""

GATE = "\0"
"""Among the pieces of a text: the stream waits here for `Model.go`."""


def dsh_command() -> str:
    """The runtime's command. Missing, it is a failure in CI and a skip elsewhere."""
    command = os.environ.get("ACP_BRIDGE_DSH") or shutil.which("dsh")
    if command is None:
        if os.environ.get("CI") == "true":
            pytest.fail(INSTALL)
        pytest.skip(INSTALL)
    return command


class DshRefusedError(Exception):
    """The runtime's error answer; the text is its own."""


class Model(ThreadingHTTPServer):
    """The Messages API with scripted answers; each request is kept, by session.

    An answer is a list of content blocks. A session without a script (a subagent, of which no test
    knows the id) hears what its first message has been promised, or "Hi from the loopback."
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: dict[str, list[Message]] = defaultdict(list)
        self.script: dict[str, deque[list[Message]]] = defaultdict(deque)
        self.promised: dict[str, deque[list[Message]]] = defaultdict(deque)
        self.gates: dict[str, threading.Semaphore] = defaultdict(lambda: threading.Semaphore(0))
        self.stood: dict[str, int] = defaultdict(int)
        """How often a session's stream has come to a gate."""
        self.came = threading.Condition()
        self.holding = 0
        self.over = threading.Event()
        self.refuse_keys = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, session_id: str, *blocks: Message) -> None:
        """Script one more answer for a session."""
        self.script[session_id].append(list(blocks))

    def promise(self, words: str, *blocks: Message) -> None:
        """Script one more answer for whoever begins with these words and has no script."""
        self.promised[words].append(list(blocks))

    def wait_for_request(self, session_id: str, count: int) -> None:
        """Until a session has sent so many requests."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.requests[session_id]) >= count, WAIT_S)

    def wait_at_gate(self, session_id: str) -> None:
        """Until a session's stream has come to a `GATE`, with all before it sent."""
        with self.came:
            assert self.came.wait_for(lambda: self.stood[session_id] > 0, WAIT_S)

    def go(self, session_id: str) -> None:
        """Let a session's stream through its next `GATE`."""
        self.gates[session_id].release()

    def next_answer(self, session_id: str, body: Message) -> list[Message]:
        """The blocks of a session's next answer."""
        script = self.script.get(session_id)
        if script is None:
            first = json.dumps(body["messages"][0])
            script = next((one for words, one in self.promised.items() if words in first), None)
        return script.popleft() if script else [text("Hi from the loopback.")]

    def asked(self, session_id: str) -> str:
        """The messages of a session's last request, as one text."""
        return json.dumps(self.requests[session_id][-1]["messages"], ensure_ascii=False)


def text(words: str) -> Message:
    return {"type": "text", "text": words}


def thought(words: str) -> Message:
    return {"type": "thinking", "thinking": words}


def pieces(*words: str) -> Message:
    """Text that comes piece by piece."""
    return {"type": "text", "text": "".join(words), "pieces": words}


def tool(call_id: str, name: str, /, **arguments: Any) -> Message:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


@contextmanager
def loopback_model() -> Iterator[Model]:
    """A model that listens on an ephemeral port of the loopback."""
    with Model() as model:
        thread = threading.Thread(target=model.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield model
        finally:
            model.over.set()
            model.shutdown()
            thread.join(WAIT_S)


class _Handler(BaseHTTPRequestHandler):
    server: Model

    def log_message(self, *_args: object) -> None:
        pass

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        if not self.path.endswith("/messages"):
            self._upload()
            return
        body = json.loads(data)
        session_id = self.headers.get("x-deepseek-harness-session-id", "")
        with self.server.came:
            self.server.requests[session_id].append(body)
            self.server.came.notify_all()
        if self.server.refuse_keys:
            self._refuse()
            return
        blocks = self.server.next_answer(session_id, body)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        with contextlib.suppress(OSError):  # the runtime was killed meanwhile
            self._stream(blocks, session_id)

    def _upload(self) -> None:
        """Take a picture, which the runtime sends ahead of the request that shows it."""
        self._say(200, {"id": "file_1", "type": "file", "filename": "x", "size_bytes": 1})

    def _refuse(self) -> None:
        error = {"type": "authentication_error", "message": "invalid x-api-key"}
        self._say(401, {"type": "error", "error": error})

    def _say(self, status: int, body: Message) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, blocks: list[Message], session_id: str) -> None:
        usage = {"input_tokens": 10, "output_tokens": 1}
        start = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": []}
        self._event({"type": "message_start", "message": {**start, "usage": usage}})
        for index, block in enumerate(blocks):
            if block == HOLD:
                self.server.holding += 1
                self.server.over.wait(WAIT_S)
                return
            if block == OVERLOADED:
                error = {"type": "overloaded_error", "message": "too much to do"}
                self._event({"type": "error", "error": error})
                return
            if block["type"] == "text":
                empty: Message = {"type": "text", "text": ""}
                words = block.get("pieces", [block["text"]])
                deltas = [{"type": "text_delta", "text": one} for one in words]
            elif block["type"] == "thinking":
                empty = {"type": "thinking", "thinking": ""}
                deltas = [
                    {"type": "thinking_delta", "thinking": block["thinking"]},
                    {"type": "signature_delta", "signature": "signed"},
                ]
            else:
                empty = {**block, "input": {}}
                raw = json.dumps(block["input"])
                deltas = [{"type": "input_json_delta", "partial_json": raw}]
            at = {"index": index}
            self._event({"type": "content_block_start", **at, "content_block": empty})
            for delta in deltas:
                if delta.get("text") == GATE:
                    with self.server.came:
                        self.server.stood[session_id] += 1
                        self.server.came.notify_all()
                    self.server.gates[session_id].acquire(timeout=WAIT_S)
                else:
                    self._event({"type": "content_block_delta", **at, "delta": delta})
            self._event({"type": "content_block_stop", **at})
        reason = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
        delta = {"stop_reason": reason}
        self._event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})
        self._event({"type": "message_stop"})

    def _event(self, data: Message) -> None:
        self.wfile.write(f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()


class Dsh:
    """A running ``dsh --profile sdk``, initialized; use `dsh` to start one."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self.process = process
        self.events: list[Message] = []
        self._errors = errors
        self._next = 0
        self._answers: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" in message:
                self.events.append(message["params"])
            else:
                self._answers.put(message)
        self._answers.put(None)

    def call(self, method: str, **params: Any) -> Message:
        """The result of a request; DshRefusedError with the runtime's text if it is an error."""
        self._next += 1
        request = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        try:
            answer = self._answers.get(timeout=WAIT_S)
        except queue.Empty:
            pytest.fail(f"dsh does not answer {method}: {self._errors.read_text()[-2000:]}")
        if answer is None:
            pytest.fail(f"dsh ended during {method}: {self._errors.read_text()[-2000:]}")
        assert answer["id"] == self._next, answer
        if "error" in answer:
            raise DshRefusedError(answer["error"]["message"])
        result: Message = answer["result"]
        return result

    def resume(self, session_id: str) -> None:
        self.call("session/resume", sessionId=session_id)

    def refusal(self, session_id: str) -> str | None:
        """Why a session is not resumed; None if it is."""
        try:
            self.resume(session_id)
        except DshRefusedError as refused:
            return str(refused)
        return None

    def send(self, session_id: str, words: str, *more: Message) -> None:
        """A prompt, not waited for, with more content blocks after the text."""
        self.call("session/prompt", sessionId=session_id, contentBlocks=[text(words), *more])

    def prompt(self, session_id: str, words: str) -> str:
        """A whole turn; how it ended."""
        self.send(session_id, words)
        self.call("session/wait", sessionId=session_id)
        ends = [
            event["event"]["data"]["reason"]["kind"]
            for event in self.events
            if event.get("sessionId") == session_id
            and event.get("event", {}).get("type") == "turn/end"
        ]
        return str(ends[-1])

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something that the runtime does not tell, such as what is on the disk."""
        end = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < end, "the runtime did not get there"
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL, for the program and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._gone()

    def shut_down(self) -> None:
        """A clean end: all rows are on the disk afterwards."""
        self.call("shutdown")
        self._gone()
        assert self.process.returncode == 0

    def _gone(self) -> None:
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)


@contextmanager
def dsh(
    home: Path, cwd: Path, model: Model, *, plain: bool = False, delivers: bool = False
) -> Iterator[Dsh]:
    """The runtime on a home; shut down at the end, or killed if the test failed or killed it.

    ``delivers``: as a user has it, its requests carry the log, and its logs hold delivery rows.
    """
    command = dsh_command()
    home.mkdir(exist_ok=True)
    patch = home / "patch.yml"
    silent = "" if delivers else PATCH_SILENT
    patch.write_text(PATCH + silent + (PATCH_PLAIN if plain else ""))
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DSH_")},
        "DSH_HOME": str(home),
        "DSH_TELEMETRY_MODE": "DISABLED",
        "DSH_PERMISSION_MODE": "danger-full-access",
        "DEEPSEEK_API_KEY": "dummy",
        "DEEPSEEK_BASE_URL": model.url,
    }
    errors = home / "dsh-stderr.txt"
    with (
        errors.open("ab") as stderr,
        subprocess.Popen(
            [command, "--profile", "sdk", "--patch", str(patch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=env,
            cwd=cwd,
            start_new_session=True,
        ) as process,
    ):
        runtime = Dsh(process, errors)
        try:
            runtime.call(
                "initialize", cwd=str(cwd), provider="deepseek-official", model="deepseek-chat"
            )
            yield runtime
            if process.poll() is None:
                runtime.shut_down()
        finally:
            runtime.kill()


@attrs.frozen
class Round:
    """What came of one session: the runtime's refusal or how its turn ended, and the request."""

    outcome: str
    asked: str = ""


def have_a_turn(runtime: Dsh, model: Model, session_id: str, words: str) -> Round:
    """Resume a session and prompt it."""
    refusal = runtime.refusal(session_id)
    if refusal is not None:
        return Round(refusal)
    outcome = runtime.prompt(session_id, words)
    return Round(outcome, model.asked(session_id))


def missing(pieces: Sequence[str], whole: str) -> list[str]:
    """The pieces that a JSON text does not hold, or not in this order."""
    at, lost = 0, []
    for piece in pieces:
        found = whole.find(piece, at)
        if found < 0:
            lost.append(piece)
        else:
            at = found
    return lost
