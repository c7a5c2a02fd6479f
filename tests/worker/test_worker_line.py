"""The line to a home: whoever makes too much waits, and a refusal that stays is told once."""

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.errors import EventServiceError
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.model import RunId
from acp_bridge.subagents.remote_payloads import Item, RowItem, TransientItem
from acp_bridge.vocabulary import CallId, Event, JsonValue, SessionId, ToolOutput
from acp_bridge.worker import line as lines
from acp_bridge.worker.forwarding import FULL_BYTES
from acp_bridge.worker.line import Line, may_pass, says_gone

pytestmark = pytest.mark.anyio

A = SessionId("a")


class RowClient(EventClient):
    """Takes rows while its gate is open; refuses once with each of ``refusals``."""

    def __init__(self, *refusals: int | None) -> None:
        super().__init__("http://127.0.0.1:1")
        self.gate = anyio.Event()
        self.refusals = list(refusals)
        self.batches: list[tuple[str, list[JsonValue]]] = []

    async def rows(
        self, run_id: RunId, *, execution_id: str, event_id: str, rows: list[JsonValue]
    ) -> int:
        assert (run_id, execution_id) == ("r", "x")
        await self.gate.wait()
        self.batches.append((event_id, rows))
        if self.refusals:
            raise EventServiceError("No.", status=self.refusals.pop(0))
        return len(self.batches)


def row(seq: int, size: int = 0) -> Item:
    return RowItem(A, Event(seq, 0, "user/message", {"text": "x" * size}))


def output(text: str) -> Item:
    return TransientItem(A, ToolOutput(CallId("c"), text))


async def test_whoever_makes_more_than_the_line_takes_waits_until_it_has() -> None:
    client = RowClient()
    line = Line(client, RunId("r"), "x")
    with anyio.fail_after(60):
        await line.flow()  # nothing is on its way
        seq = 0
        while seq * 200_000 < FULL_BYTES:
            line.put(row(seq, 200_000))
            seq += 1
        passed: list[str] = []

        async def flow() -> None:
            await line.flow()
            passed.append("flow")
            await line.flushed()
            passed.append("flushed")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(line.send)
            tasks.start_soon(flow)
            await anyio.wait_all_tasks_blocked()
            assert passed == []
            client.gate.set()
            while passed != ["flow", "flushed"]:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert [item["row"]["seq"] for _, rows in client.batches for item in rows] == [*range(seq)]  # type: ignore[index,call-overload]


async def test_a_refusal_that_passes_is_met_with_the_same_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "DELAYS_S", (0.0,))
    client = RowClient(None, 503, 429, 401)
    client.gate.set()
    line = Line(client, RunId("r"), "x")
    line.put(row(0))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(line.send)
            await line.flushed()
            tasks.cancel_scope.cancel()
    assert len(client.batches) == 5
    assert client.batches == [client.batches[0]] * 5


@pytest.mark.parametrize("status", [400, 404, 409, 413])
async def test_a_refusal_that_stays_ends_the_sending(status: int) -> None:
    client = RowClient(status)
    client.gate.set()
    line = Line(client, RunId("r"), "x")
    line.put(row(0))
    with anyio.fail_after(60), pytest.raises(EventServiceError) as refusal:
        await line.send()
    assert not may_pass(refusal.value)
    assert says_gone(refusal.value) == (status in {404, 409})
    assert len(client.batches) == 1


async def test_pieces_gather_for_a_moment_and_a_row_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "PIECES_S", 1_000)
    client = RowClient()
    client.gate.set()
    line = Line(client, RunId("r"), "x")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(line.send)
            for text in "abc":
                line.put(output(text))
                await anyio.wait_all_tasks_blocked()
            assert client.batches == []
            line.put(row(0))
            await line.flushed()
            tasks.cancel_scope.cancel()
    ((_, rows),) = client.batches
    assert [item["kind"] for item in rows] == ["delta", "row"]  # type: ignore[index,call-overload]
