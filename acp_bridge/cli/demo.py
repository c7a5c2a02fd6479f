"""``acp-bridge demo``: a conversation over a real pipe, printed as an editor would show it."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from acp_bridge.cli.command import own_command
from acp_bridge.cli.screen import Screen
from acp_bridge.errors import BridgeError, MethodNotFoundError
from acp_bridge.wire.endpoint import Endpoint, Reply

if TYPE_CHECKING:
    from anyio.abc import Process

    from acp_bridge.vocabulary import JsonObject, JsonValue
    from acp_bridge.wire.messages import Notification, Request

PROMPTS = ("Show me what you can do.", "Go on: write something.", "And now a command.")
TIMEOUT_S = 60.0
"""The demo takes about two seconds; a machine that needs a minute has another problem."""


class DemoClient:
    """The client's side: prints updates, allows what is asked for."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def admit(self, message: Request | Notification) -> Reply | None:
        """The endpoint's admission hook."""
        params = message.params
        assert isinstance(params, dict)
        if message.method == "session/update":
            update = params["update"]
            assert isinstance(update, dict)
            self._screen.show(update)
            return None
        if message.method == "session/request_permission":
            return self._allow(params)
        raise MethodNotFoundError(f"Method not found: {message.method}")

    def _allow(self, params: JsonObject) -> Reply:
        call, options = params["toolCall"], params["options"]
        assert isinstance(call, dict)
        assert isinstance(options, list)
        names = [str(option["name"]) for option in options if isinstance(option, dict)]
        self._screen.line(f"  ? May it? {call['title']}  [{' | '.join(names)}]", "35")
        self._screen.line(f"    you: {names[0]}", "35")
        first = options[0]
        assert isinstance(first, dict)
        chosen: JsonObject = {"outcome": "selected", "optionId": first["optionId"]}
        return Reply({"outcome": chosen})


class _ProcessStream:
    """A child process's pipes as a `ByteStream`."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def receive(self) -> bytes:
        try:
            return await self._stdout.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return b""

    async def send(self, data: bytes) -> None:
        await self._stdin.send(data)

    async def aclose(self) -> None:
        await self._stdin.aclose()


def run(*, keep: bool) -> int:
    """Hold the conversation; the exit code, 128 + n if signal n ended it."""
    screen = Screen(sys.stdout)
    try:
        folder = Path(tempfile.mkdtemp(prefix="acp-bridge-demo-"))
    except OSError as fault:
        return _failed(fault)
    try:
        (folder / "workspace").mkdir()
        (folder / "workspace" / "hello.py").write_text('print("hello")\n', encoding="utf-8")
        exit_code = anyio.run(_converse, folder, screen)
    except Exception as fault:
        screen.line("")
        cause = _cause(fault)
        if not isinstance(cause, (BridgeError, TimeoutError, OSError)):
            raise
        return _failed(cause)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        if keep:
            screen.line(f"Kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if exit_code == 0:
        screen.line("That was a real conversation: the same bytes that an editor exchanges.")
        screen.line("Next: `acp-bridge editor` prints what to put into your editor's settings.")
    return exit_code


def _failed(cause: Exception) -> int:
    why = f"it was not over after {TIMEOUT_S:g} s" if isinstance(cause, TimeoutError) else cause
    sys.stderr.write(f"acp-bridge: the demo failed: {why}\n")
    return 1


def _cause(fault: Exception) -> Exception:
    """What a task group wrapped."""
    while isinstance(fault, ExceptionGroup):
        fault = fault.exceptions[0]
    return fault


async def _converse(folder: Path, screen: Screen) -> int:
    """Talk until all is said or a signal comes; the exit code. Nothing is left running."""
    exit_code = 0
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with anyio.create_task_group() as group:

            async def stop_at_a_signal() -> None:
                nonlocal exit_code
                exit_code = 128 + await anext(signals)
                group.cancel_scope.cancel()

            group.start_soon(stop_at_a_signal)
            await _talk(folder, screen)
            group.cancel_scope.cancel()
    return exit_code


async def _talk(folder: Path, screen: Screen) -> None:
    home = str(folder / "home")
    command = own_command(home, "--model", "demo")
    with anyio.fail_after(TIMEOUT_S):
        process = await anyio.open_process(command, stderr=None)
        async with process:
            endpoint = Endpoint(_ProcessStream(process), DemoClient(screen).admit)
            async with anyio.create_task_group() as group:
                group.start_soon(endpoint.run)
                await _ask_all(endpoint, str(folder / "workspace"), screen)
                endpoint.stop("The demo is over.")
            await process.wait()


async def _ask_all(endpoint: Endpoint, cwd: str, screen: Screen) -> None:
    hello = await _call(endpoint, "initialize", {"protocolVersion": 1})
    info = hello["agentInfo"]
    assert isinstance(info, dict)
    screen.line(f"Connected to {info['title']} {info['version']}", "1")
    session = await _call(endpoint, "session/new", {"cwd": cwd, "mcpServers": []})
    for prompt in PROMPTS:
        if screen.closed:
            return
        screen.line("")
        screen.line(f"you: {prompt}", "1")
        block: JsonObject = {"type": "text", "text": prompt}
        params: JsonObject = {"sessionId": session["sessionId"], "prompt": [block]}
        answer = await _call(endpoint, "session/prompt", params)
        screen.line(f"  ({answer['stopReason']})", "2")
    screen.line("")


async def _call(endpoint: Endpoint, method: str, params: JsonObject) -> JsonObject:
    result: JsonValue = await endpoint.request(method, params)
    assert isinstance(result, dict)
    return result
