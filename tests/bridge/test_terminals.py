"""A terminal of the client is released exactly once, whatever the client does (R103)."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.acp.client_side import ClientCalls
from acp_bridge.acp.hello import ClientTraits
from acp_bridge.bridge import permissions, terminals
from acp_bridge.bridge.clients import view_for
from acp_bridge.bridge.permissions import AcpClient
from acp_bridge.bridge.terminals import ClientTerminals, create_request
from acp_bridge.errors import PeerError, PeerGoneError
from acp_bridge.ports import ClientCommand, CommandEnd
from acp_bridge.vocabulary import JsonObject, JsonValue, SessionId

pytestmark = pytest.mark.anyio

NEVER = object()
"""An answer that does not come."""

REFUSED = PeerError("The client refused it: boom", code=-32603)
GONE = PeerGoneError("The client closed its end of the connection.")

GOOD: dict[str, Any] = {
    "terminal/create": {"terminalId": "t"},
    "terminal/wait_for_exit": {"exitCode": 0},
    "terminal/output": {"output": "said\n", "truncated": False},
}


class FakePeer:
    """A client that gives each method one answer after the other, the last one for ever."""

    def __init__(self, **answers: Any) -> None:
        wanted = {f"terminal/{name}": answer for name, answer in answers.items()}
        self.answers = {**GOOD, **wanted}
        self.sent: list[str] = []
        self.asked = anyio.Event()
        self.late: Callable[[JsonValue], None] | None = None

    def notify(self, method: str, params: JsonObject) -> None:
        raise AssertionError(method, params)

    def post(self, method: str, params: JsonObject) -> None:
        assert params["terminalId"] == "t"
        self.sent.append(method.removeprefix("terminal/"))

    async def request(
        self, method: str, params: JsonObject, *, late: Callable[[JsonValue], None] | None = None
    ) -> JsonValue:
        assert params["sessionId"] == "s"
        self.sent.append(method.removeprefix("terminal/"))
        self.asked.set()
        self.asked = anyio.Event()
        answer = self.answers[method]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if answer is NEVER:
            self.late = late
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
        if isinstance(answer, Exception):
            raise answer
        found: JsonValue = answer
        return found

    async def flow(self) -> None:
        raise AssertionError

    async def until(self, method: str) -> None:
        with anyio.fail_after(60):
            while method not in self.sent:
                await self.asked.wait()


class Watch:
    """A command, and what it told."""

    def __init__(self, timeout_s: float = 60.0) -> None:
        self.started: list[str] = []
        self.said: list[str] = []
        self.command = ClientCommand(
            shell="bash",
            line="echo a && echo 'b c'",
            cwd=Path("/w"),
            timeout_s=timeout_s,
            output_bytes_max=9,
            started=self.started.append,
            said=self.said.append,
        )


WAITS = ("CREATE_WAIT_S", "KILLED_WAIT_S", "OUTPUT_WAIT_S", "CANCELLED_WAIT_S")


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Waits are long where an answer comes, and short where, as said of one, it never does."""

    def set_waits(seconds: float) -> None:
        for name in WAITS:
            monkeypatch.setattr(terminals, name, seconds)

    monkeypatch.setattr(permissions, "GONE_WAIT_S", 0.02)
    set_waits(4.0)
    return lambda answer: set_waits(0.02) if answer is NEVER else None


async def run(peer: FakePeer, watch: Watch | None = None) -> CommandEnd:
    with anyio.fail_after(60):
        return await ClientTerminals(ClientCalls(peer), "s").run((watch or Watch()).command)


async def test_a_command_is_shown_waited_for_read_and_released() -> None:
    peer, watch = FakePeer(), Watch()
    assert await run(peer, watch) == CommandEnd(output="said\n", exit_code=0)
    assert peer.sent == ["create", "wait_for_exit", "output", "release"]
    assert watch.started == ["t"]
    assert watch.said == []


@pytest.mark.parametrize("answer", [REFUSED, NEVER, None, {"terminalId": None}])
async def test_without_a_terminal_there_is_nothing_to_release(
    answer: object, brief: Callable[[object], None]
) -> None:
    brief(answer)
    peer = FakePeer(create=answer)
    with pytest.raises(OSError, match=r"the client (could|did) not make a terminal"):
        await run(peer)
    assert peer.sent == ["create"]
    if peer.late is not None:
        peer.late({"terminalId": "t"})
        assert peer.sent == ["create", "release"]


@pytest.mark.parametrize("failing", ["wait_for_exit", "output"])
@pytest.mark.parametrize("answer", [REFUSED, None, "nonsense"])
async def test_a_call_that_fails_is_told_and_the_terminal_released(
    failing: str, answer: object
) -> None:
    peer = FakePeer(**{failing: answer})
    end = await run(peer)
    assert end.fault is not None
    assert peer.sent.count("release") == 1
    assert peer.sent[-1] == "release"
    if failing == "output":
        assert (end.exit_code, end.output) == (0, "")
    else:
        # Nobody knows whether it ended: it must not go on without us.
        assert peer.sent == ["create", "wait_for_exit", "kill", "output", "release"]
        assert end.output == "said\n"


async def test_a_client_that_cannot_wait_may_know_the_end() -> None:
    said = {"output": "x", "truncated": True, "exitStatus": {"exitCode": 4}}
    end = await run(FakePeer(wait_for_exit=REFUSED, output=said))
    assert end == CommandEnd(output="x", is_cut=True, exit_code=4)


async def test_output_that_never_comes_is_not_waited_for_without_end(
    brief: Callable[[object], None],
) -> None:
    brief(NEVER)
    peer = FakePeer(output=NEVER)
    end = await run(peer)
    assert (end.exit_code, end.fault) == (
        0,
        "the client did not give the command's output within 0.02 s",
    )
    assert peer.sent == ["create", "wait_for_exit", "output", "release"]


@pytest.mark.parametrize("then", [{"signal": "SIGKILL"}, NEVER, REFUSED])
async def test_a_command_that_runs_too_long_is_killed_and_released(
    then: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if then is NEVER:
        monkeypatch.setattr(terminals, "KILLED_WAIT_S", 0.02)
    peer = FakePeer(wait_for_exit=[NEVER, then])
    end = await run(peer, Watch(timeout_s=0.02))
    assert end.timed_out
    assert end.output == "said\n"
    assert end.signal == ("SIGKILL" if isinstance(then, dict) else None)
    assert peer.sent == ["create", "wait_for_exit", "kill", "wait_for_exit", "output", "release"]


@pytest.mark.parametrize("output", [GOOD["terminal/output"], NEVER, REFUSED, None, GONE])
async def test_a_cancel_kills_reads_and_releases_and_waits_for_little(
    output: object, brief: Callable[[object], None]
) -> None:
    brief(output)
    peer, watch = FakePeer(wait_for_exit=NEVER, output=output), Watch()
    async with anyio.create_task_group() as group:
        group.start_soon(run, peer, watch)
        await peer.until("wait_for_exit")
        group.cancel_scope.cancel()
    assert peer.sent == ["create", "wait_for_exit", "kill", "output", "release"]
    assert watch.said == (["said\n"] if isinstance(output, dict) else [])


async def test_a_cancel_before_there_is_a_terminal_releases_the_one_that_comes() -> None:
    peer = FakePeer(create=NEVER)
    async with anyio.create_task_group() as group:
        group.start_soon(run, peer)
        await peer.until("create")
        group.cancel_scope.cancel()
    assert peer.late is not None
    peer.late({"terminalId": "t"})
    assert peer.sent == ["create", "release"]


@pytest.mark.parametrize("at", ["kill", "output"])
async def test_a_cancel_after_the_time_is_up_still_releases_once(at: str) -> None:
    peer = FakePeer(wait_for_exit=NEVER, output=[NEVER, GOOD["terminal/output"]])
    async with anyio.create_task_group() as group:
        group.start_soon(run, peer, Watch(timeout_s=0.01))
        await peer.until("wait_for_exit" if at == "kill" else at)
        group.cancel_scope.cancel()
    assert peer.sent.count("release") == 1
    assert peer.sent[-1] == "release"


@pytest.mark.parametrize("at", ["create", "wait_for_exit", "output"])
async def test_a_client_that_is_gone_ends_the_command(at: str) -> None:
    peer = FakePeer(**{at: GONE})
    with pytest.raises(PeerGoneError):
        await run(peer)
    assert peer.sent.count("release") == (0 if at == "create" else 1)
    client = AcpClient(ClientCalls(peer), ClientTraits())
    client.session_id = SessionId("s")
    with pytest.raises(OSError, match="the client is gone"):
        await client.run_command(Watch().command)


async def test_a_viewer_that_fails_does_not_keep_the_terminal() -> None:
    peer, watch = FakePeer(), Watch()

    def fail(_terminal_id: str) -> None:
        raise RuntimeError("broken")

    object.__setattr__(watch.command, "started", fail)
    with pytest.raises(RuntimeError):
        await run(peer, watch)
    assert peer.sent == ["create", "release"]


def test_a_line_is_never_the_name_of_a_program_r105() -> None:
    command = Watch().command
    request = create_request(command, "s", joined=False)
    assert (request.command, request.args) == ("bash", ["-c", "echo a && echo 'b c'"])
    assert (request.cwd, request.output_byte_limit) == ("/w", 9)


@pytest.mark.parametrize("name", ["zed", "vscode-acp-client"])
def test_clients_that_join_arguments_get_one_line_that_survives_it(name: str) -> None:
    assert view_for(ClientTraits(name=name)).joins_arguments
    assert not view_for(ClientTraits(name="JetBrains.IDE")).joins_arguments
    request = create_request(Watch().command, "s", joined=True)
    assert request.args == []
    joined = " ".join([request.command, *request.args])
    assert shlex.split(joined) == ["bash", "-c", "echo a && echo 'b c'"]


def test_display_terminals_are_for_commands_that_run_here() -> None:
    traits = ClientTraits(terminal=True, terminal_output_meta=True)
    assert view_for(traits).display_terminals
    assert not view_for(traits, runs_here=False).display_terminals
