"""The control plugin's Python face, on a wire in memory."""

from typing import cast

import anyio
import attrs
import pytest

from acp_bridge.errors import PeerError, RemoteProtocolError, RuntimeFailedError
from acp_bridge.ports import QuestionAnswer, ToolResult
from acp_bridge.runtime.dsh import control as control_module
from acp_bridge.runtime.dsh.control import PATCH_FILE, Control
from acp_bridge.runtime.dsh.control_types import (
    ApprovalAsk,
    CallToJudge,
    CallToRun,
    Judgement,
    ModelChoice,
    Opening,
    StreamEnded,
    StreamNote,
    StreamStarted,
    UserAsk,
)
from acp_bridge.runtime.dsh.wire import Listener, RequestHandler
from acp_bridge.vocabulary import (
    Answer,
    JsonObject,
    JsonValue,
    SessionId,
    StreamDelta,
)

pytestmark = pytest.mark.anyio

SESSION = SessionId("s")
HELLO: JsonObject = {
    "protocol": 1,
    "runtime": "0.2.1-rc.2",
    "sessionFormat": 4,
    "features": {"cancel": True, "title": "service sessionTitle is missing"},
}
ASK: JsonObject = {
    "askId": "ask-1",
    "sessionId": "s",
    "rootSessionId": "r",
    "toolName": "bash",
    "reason": "runs a command",
}


@attrs.define
class FakeWire:
    """Implements `Wire`: keeps what is sent, answers what it was told to."""

    answers: dict[str, object] = attrs.field(factory=dict)
    sent: list[tuple[str, JsonObject]] = attrs.field(factory=list)
    handlers: dict[str, RequestHandler] = attrs.field(factory=dict)
    listeners: dict[str, Listener] = attrs.field(factory=dict)

    async def request(self, method: str, params: JsonObject) -> JsonValue:
        self.sent.append((method, params))
        if method not in self.answers:
            await anyio.sleep_forever()
        answer = self.answers[method]
        if isinstance(answer, PeerError):
            raise answer
        return cast("JsonValue", answer)

    def serve(self, method: str, handler: RequestHandler) -> None:
        self.handlers[method] = handler

    def listen(self, method: str, listener: Listener) -> None:
        self.listeners[method] = listener


async def run_call(call: CallToJudge) -> Judgement:
    return Judgement("ask", reason=f"{call.tool_name} in {call.cwd}")


async def test_hello_tells_what_works_and_why_the_rest_does_not() -> None:
    wire = FakeWire({"bridge/hello": HELLO})
    hello = await Control(wire, judge=run_call).hello()
    assert hello is not None
    assert (hello.has("cancel"), hello.has("title")) == (True, False)
    assert hello.missing == {"title": "service sessionTitle is missing"}
    assert wire.sent == [("bridge/hello", {"protocol": 1, "judge": True})]


async def test_without_the_plugin_there_is_no_hello() -> None:
    unknown = PeerError("unknown DeepSeek Harness SDK runtime method: bridge/hello", code=-32603)
    assert await Control(FakeWire({"bridge/hello": unknown})).hello() is None


async def test_another_protocol_is_no_absence() -> None:
    other = PeerError("the control plugin speaks protocol 2, not 1", code=-32603)
    with pytest.raises(PeerError, match="protocol 2"):
        await Control(FakeWire({"bridge/hello": other})).hello()


async def test_a_runtime_that_hangs_at_hello_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "HELLO_TIMEOUT_S", 0.01)
    with pytest.raises(RuntimeFailedError, match="did not answer bridge/hello"):
        await Control(FakeWire()).hello()


@pytest.mark.parametrize(
    ("result", "names"),
    [
        (None, "`result`"),
        ({**HELLO, "runtime": 7}, "`runtime`"),
        ({**HELLO, "features": []}, "`features`"),
        ({**HELLO, "sessionFormat": True}, "`sessionFormat`"),
    ],
)
async def test_an_answer_of_another_shape_is_an_error_that_names_the_member(
    result: JsonValue, names: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=names):
        await Control(FakeWire({"bridge/hello": result})).hello()


async def test_an_opening_carries_folder_and_model() -> None:
    wire = FakeWire({"bridge/open": {"cwd": "/work"}})
    opening = Opening(
        SESSION,
        "/work",
        ModelChoice("deepseek-official", "flash", "high"),
    )
    assert await Control(wire).open_session(opening) == "/work"
    assert wire.sent[-1][1] == {
        "sessionId": "s",
        "cwd": "/work",
        "model": {"provider": "deepseek-official", "model": "flash", "effort": "high"},
    }


async def test_a_call_is_judged() -> None:
    wire = FakeWire()
    Control(wire, judge=run_call)
    params: JsonObject = {"askId": "a", "sessionId": "c", "rootSessionId": "s", "callId": "1"}
    params |= {"toolName": "bash", "arguments": {"command": "ls"}, "cwd": "/work"}
    result = await wire.handlers["bridge/judge"](params)
    assert result == {"verdict": "ask", "reason": "bash in /work", "sandbox": None}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer.ALLOW_ONCE, "allowed-once"),
        (Answer.ALLOW_ALWAYS, "allowed-once"),
        (Answer.REJECT, "rejected"),
        (Answer.CANCELLED, "cancelled"),
        (Answer.UNAVAILABLE, "unavailable"),
    ],
)
async def test_an_answer_in_the_runtimes_words(answer: Answer, outcome: str) -> None:
    wire = FakeWire()
    asked: list[ApprovalAsk] = []

    async def approve(ask: ApprovalAsk) -> Answer:
        asked.append(ask)
        return answer

    Control(wire).answer_approvals(approve)
    more: JsonObject = {"callId": "c1", "arguments": "{}", "turn": 1, "step": 2}
    assert await wire.handlers["bridge/approve"]({**ASK, **more}) == {"outcome": outcome}
    assert (asked[0].call_id, asked[0].arguments, asked[0].place) == ("c1", "{}", (1, 2))


@pytest.mark.parametrize("comes", ["before it is put", "while it waits"])
async def test_an_ask_that_is_withdrawn_ends_its_dialog(comes: str) -> None:
    wire = FakeWire()
    opened = anyio.Event()
    ended: list[str] = []

    async def approve(ask: ApprovalAsk) -> Answer:
        opened.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(ask.ask_id)
        raise AssertionError

    Control(wire).answer_approvals(approve)

    def withdraw() -> None:
        wire.listeners["bridge.withdrawn"]({"askId": "ask-1"})

    results: list[JsonValue] = []

    async def put() -> None:
        results.append(await wire.handlers["bridge/approve"](ASK))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            if comes == "before it is put":
                withdraw()
            group.start_soon(put)
            if comes == "while it waits":
                await opened.wait()
                withdraw()
    assert results == [{"outcome": "cancelled"}]
    assert ended == ([] if comes == "before it is put" else ["ask-1"])


async def test_withdrawals_that_nobody_waits_for_do_not_pile_up() -> None:
    wire = FakeWire()
    control = Control(wire)
    for number in range(1000):
        wire.listeners["bridge.withdrawn"]({"askId": f"ask-{number}"})
    assert len(control._void) < 300


@pytest.mark.parametrize("answers", [[QuestionAnswer("q", ("A",), "and more")], None])
async def test_questions_are_answered_or_declined(answers: list[QuestionAnswer] | None) -> None:
    wire = FakeWire()

    async def answer(ask: UserAsk) -> list[QuestionAnswer] | None:
        assert [one.question_id for one in ask.questions] == ["q"]
        return answers

    Control(wire).answer_questions(answer)
    question: JsonObject = {"id": "q", "question": "?", "multiSelect": False, "planReview": False}
    params: JsonObject = {"askId": "ask-1", "sessionId": "s", "questions": [question]}
    expected = {"answers": [{"id": "q", "selected": ["A"], "custom": "and more"}]}
    result = await wire.handlers["bridge/ask_user"](params)
    assert result == ({"cancelled": True} if answers is None else expected)


CALL: JsonObject = {
    "askId": "ask-1",
    "sessionId": "c",
    "rootSessionId": "s",
    "callId": "1",
    "toolName": "mcp__tiny__add",
    "arguments": {"a": 1},
}


async def test_a_call_of_our_own_tool_is_run() -> None:
    wire = FakeWire()

    async def run(call: CallToRun) -> ToolResult:
        return ToolResult(f"{call.tool_name} {call.arguments} for {call.root_id}", is_error=True)

    Control(wire).answer_calls(run)
    result = await wire.handlers["bridge/call_tool"](CALL)
    text = "mcp__tiny__add {'a': 1} for s"
    assert result == {"content": [{"type": "text", "text": text}], "isError": True}


async def test_a_call_that_is_withdrawn_before_it_runs_is_never_run() -> None:
    wire = FakeWire()

    async def run(_call: CallToRun) -> ToolResult:
        raise AssertionError

    Control(wire).answer_calls(run)
    wire.listeners["bridge.withdrawn"]({"askId": "ask-1"})
    result = await wire.handlers["bridge/call_tool"](CALL)
    assert result == {"content": [{"type": "text", "text": ""}], "isError": True}


async def test_a_judgement_that_is_withdrawn_is_a_refusal() -> None:
    wire = FakeWire()

    async def judge(_call: CallToJudge) -> Judgement:
        raise AssertionError

    Control(wire, judge=judge)
    wire.listeners["bridge.withdrawn"]({"askId": "ask-1"})
    result = await wire.handlers["bridge/judge"]({**CALL, "cwd": "/work"})
    assert result == {"verdict": "refuse", "reason": "it was withdrawn", "sandbox": None}


async def test_notes_of_a_stream_are_read() -> None:
    wire = FakeWire()
    notes: list[tuple[SessionId, StreamNote]] = []
    Control(wire).listen_to_streams(lambda session, note: notes.append((session, note)))
    place: JsonObject = {"sessionId": "s", "turn": 1, "step": 2, "attempt": 3}
    told: list[JsonObject] = [
        {"event": "start"},
        {"event": "delta", "block": 4, "kind": "reasoning", "text": "hm"},
        {"event": "end", "outcome": "abandoned"},
        {"event": "end", "outcome": "message", "seq": 7},
    ]
    for more in told:
        wire.listeners["bridge.stream"]({**place, **more})
    assert notes == [
        ("s", StreamStarted(1, 2, 3)),
        ("s", StreamDelta(1, 2, 3, 4, "reasoning", "hm")),
        ("s", StreamEnded(1, 2, 3, "abandoned", None)),
        ("s", StreamEnded(1, 2, 3, "message", 7)),
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"event": "pause"},
        {"event": "end", "outcome": "well"},
        {"event": "delta", "block": 0, "kind": "picture", "text": ""},
    ],
)
async def test_a_word_that_is_not_known_is_an_error(more: JsonObject) -> None:
    wire = FakeWire()
    Control(wire).listen_to_streams(lambda _session, _note: None)
    with pytest.raises(RemoteProtocolError, match="a word that is known here"):
        wire.listeners["bridge.stream"](
            {"sessionId": "s", "turn": 1, "step": 1, "attempt": 1, **more}
        )


async def test_the_patch_names_a_plugin_that_lies_beside_it() -> None:
    text = await anyio.Path(PATCH_FILE).read_text()
    assert "name: ./control.mjs" in text
    assert await anyio.Path(PATCH_FILE).with_name("control.mjs").exists()
