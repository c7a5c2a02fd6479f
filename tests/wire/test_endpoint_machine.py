"""A stateful machine over request, cancel, answer and disconnect: every request answered once."""

import asyncio
from collections import Counter
from typing import Any

import anyio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from wire_peer import Peer

from acp_bridge.errors import PeerError, PeerGoneError
from acp_bridge.wire.endpoint import CANCEL_REQUEST, Endpoint, Reply
from acp_bridge.wire.memory import stream_pair
from acp_bridge.wire.messages import Notification, Request

KINDS = st.sampled_from(["now", "wait", "kind", "ask", "fail"])
IDS = st.integers(0, 5) | st.sampled_from(["0", "1", "x"])


class Connection(RuleBasedStateMachine):
    """Runs an endpoint and its peer on a loop of its own; each rule lets both come to rest."""

    questions = Bundle("questions")

    @initialize()
    def connect(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.gates: dict[int | str, anyio.Event] = {}
        self.running: set[int | str] = set()
        self.owed: Counter[int | str] = Counter()
        self.replies: Counter[int | str] = Counter()
        self.last_reply: dict[int | str, dict[str, Any]] = {}
        self.open_questions: list[int] = []
        self.withdrawn: set[int] = set()
        self.eof = False
        self.loop.run_until_complete(self._connect())

    async def _connect(self) -> None:
        ours, theirs = stream_pair()
        self.endpoint = Endpoint(ours, self._admit)
        self.peer = Peer(theirs)
        self.serving = asyncio.ensure_future(self.endpoint.run())
        self.reading = asyncio.ensure_future(self._read_all())

    def _admit(self, call: Request | Notification) -> Any:
        assert isinstance(call, Request)
        assert call.id is not None
        if call.method == "now":
            return Reply({})
        return self._handle(call.id, call.method)

    async def _handle(self, key: int | str, kind: str) -> Any:
        gate = self.gates[key] = anyio.Event()
        try:
            if kind == "ask":
                return {"answer": await self.endpoint.request("ask", {"for": key})}
            await gate.wait()
        except anyio.get_cancelled_exc_class():
            if kind == "kind":
                return {"stopped": True}
            raise
        except (PeerError, PeerGoneError):
            return {"answer": None}
        if kind == "fail":
            raise ValueError("odd")
        return {}

    async def _read_all(self) -> None:
        while (message := await self.peer.read()) is not None:
            if message.get("method") == "ask":
                self.open_questions.append(message["id"])
            elif message.get("method") == CANCEL_REQUEST:
                self.withdrawn.add(message["params"]["requestId"])
            else:
                self.replies[message["id"]] += 1
                self.last_reply[message["id"]] = message
                self.running.discard(message["id"])

    def _step(self, *messages: dict[str, Any]) -> None:
        async def step() -> None:
            if messages:
                await self.peer.write(*messages)
            for _ in range(40):
                await asyncio.sleep(0)

        self.loop.run_until_complete(step())

    def _request(self, key: int | str, kind: str) -> dict[str, Any]:
        self.owed[key] += 1
        if kind != "now":
            self.running.add(key)
        return {"id": key, "method": kind}

    @precondition(lambda self: not self.eof)
    @rule(key=IDS, kind=KINDS)
    def request(self, key: int | str, kind: str) -> None:
        was_running = key in self.running
        self._step(self._request(key, kind))
        if was_running:
            self.running.add(key)
            assert self.last_reply[key]["error"]["code"] == -32600
        elif kind == "now":
            assert self.last_reply[key]["result"] == {}

    @precondition(lambda self: not self.eof)
    @rule(key=IDS, kind=KINDS)
    def request_and_cancel_in_one_burst(self, key: int | str, kind: str) -> None:
        self._step(
            self._request(key, kind), {"method": CANCEL_REQUEST, "params": {"requestId": key}}
        )
        assert key not in self.running

    @precondition(lambda self: not self.eof)
    @rule(key=IDS)
    def cancel(self, key: int | str) -> None:
        was_running = key in self.running
        before = self.replies[key]
        self._step({"method": CANCEL_REQUEST, "params": {"requestId": key}})
        assert self.replies[key] == before + was_running
        if was_running:
            reply = self.last_reply[key]
            assert reply.get("result") == {"stopped": True} or reply["error"]["code"] == -32800

    @rule(key=IDS)
    def let_a_handler_finish(self, key: int | str) -> None:
        if key in self.gates:
            self.loop.run_until_complete(self._open(self.gates[key]))
        self._step()

    async def _open(self, gate: anyio.Event) -> None:
        gate.set()

    @precondition(lambda self: not self.eof and self.open_questions)
    @rule(data=st.data(), refuse=st.booleans())
    def answer(self, data: st.DataObject, *, refuse: bool) -> None:
        question = data.draw(st.sampled_from(self.open_questions))
        if refuse:
            self._step({"id": question, "error": {"code": -32603, "message": "no"}})
        else:
            self._step({"id": question, "result": "yes"})
        assert question not in self.endpoint._waiters

    @precondition(lambda self: not self.eof)
    @rule()
    def end_the_input(self) -> None:
        self.eof = True
        self.peer.stream.send_eof()
        self._step()
        assert not self.endpoint._waiters
        assert self.serving.done()

    @invariant()
    def nothing_is_answered_twice(self) -> None:
        for key, count in self.replies.items():
            assert count <= self.owed[key]

    @invariant()
    def only_what_runs_is_owed(self) -> None:
        for key, count in self.owed.items():
            assert count - self.replies[key] == (key in self.running)

    def teardown(self) -> None:
        async def finish() -> None:
            self.peer.stream.send_eof()
            with anyio.fail_after(60):
                await self.serving
                await self.reading

        self.loop.run_until_complete(finish())
        self.loop.close()
        assert self.owed == self.replies
        assert not self.running
        assert self.withdrawn <= set(self.open_questions)


TestConnection = Connection.TestCase
TestConnection.settings = settings(
    max_examples=40,
    stateful_step_count=30,
)
