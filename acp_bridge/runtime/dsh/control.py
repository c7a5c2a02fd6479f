"""The Python face of the control plugin: what the runtime's SDK wire lacks, on that same wire.

``control.mjs`` is inserted into the runtime by `PATCH_FILE` and answers these requests beside the
runtime's own (``initialize``, ``session/prompt`` and so on, which stay with the client). A session
that was opened here is one to them as well: prompts and waits go on by the SDK wire.

======================  =========================================================  ================
request to it           params                                                     result
======================  =========================================================  ================
``bridge/hello``        protocol, judge                                            `Hello`
``bridge/open``         `Opening`                                                  cwd
``bridge/resume``       `Opening`                                                  cwd
``bridge/fork``         sourceSessionId, throughSeq, `Opening`                     throughSeq
``bridge/cancel``       sessionId, alone                                           wasRunning
``bridge/close``        sessionId                                                  wasOpen
``bridge/steer``        sessionId, contentBlocks, wakes                            messageId
``bridge/set_mode``     sessionId, sandbox, policy, planning                       (nothing)
``bridge/set_model``    sessionId, model                                           (nothing)
``bridge/set_tools``    sessionId, tools                                           (nothing)
``bridge/set_prompt``   sessionId, text, withheld                                  (nothing)
``bridge/record``       sessionId, type, data                                      seq
``bridge/state``        sessionId                                                  `SessionState`
``bridge/models``       (nothing)                                                  models
``bridge/rename``       sessionId, title                                           title
``bridge/log_command``  sessionId, type, data                                      (nothing)
``bridge/compact``      sessionId, argument                                        kind, text
``bridge/history``      sessionId, from                                            `HistoryPage`
======================  =========================================================  ================

It asks us ``bridge/judge`` (before every tool call, if hello said so), ``bridge/approve``,
``bridge/ask_user`` and ``bridge/call_tool`` (one of those that were set), and tells
``bridge.stream``, ``bridge.withdrawn`` (an ask is void) and ``bridge.fault``. An error answer is
one sentence of the runtime's or the plugin's own.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import anyio

from acp_bridge.errors import PeerError, RuntimeFailedError
from acp_bridge.ports import QuestionAnswer, Tool, ToolResult
from acp_bridge.runtime.dsh import control_types as shapes
from acp_bridge.runtime.dsh import members
from acp_bridge.runtime.dsh.control_types import (
    ApprovalAsk,
    CallToJudge,
    CallToRun,
    Hello,
    HistoryPage,
    Judgement,
    ModelChoice,
    Opening,
    PluginFault,
    RuntimeModel,
    SessionState,
    StreamNote,
    UserAsk,
)
from acp_bridge.runtime.dsh.wire import Wire
from acp_bridge.vocabulary import Answer, Draft, JsonObject, JsonValue, Mode, SessionId

PATCH_FILE: Final = Path(__file__).with_name("patch.yml")
"""For ``dsh --profile sdk --patch``: inserts the plugin, which lies beside it."""

HELLO_TIMEOUT_S: Final = 30.0
"""Hello does no work; it waits at most behind a busy event loop of a loaded machine."""

_T = TypeVar("_T")

_VOID_MAX = 256
"""Withdrawn asks that are remembered: far more than can be on their way at once."""

_UNKNOWN_METHOD = "unknown DeepSeek Harness SDK runtime method"

Judge: TypeAlias = Callable[[CallToJudge], Awaitable[Judgement]]
Approver: TypeAlias = Callable[[ApprovalAsk], Awaitable[Answer]]
Answerer: TypeAlias = Callable[[UserAsk], Awaitable[Sequence[QuestionAnswer] | None]]
Caller: TypeAlias = Callable[[CallToRun], Awaitable[ToolResult]]


class Control:
    """One runtime process's control plugin. Hello first, after ``initialize`` was answered.

    Every request raises PeerError with a sentence when the runtime refuses (`Wire.request`), and
    RemoteProtocolError when the plugin's answer has another shape. Handlers must be given before
    hello. ``judge`` None: the runtime's own rules decide what asks.
    """

    def __init__(self, wire: Wire, *, judge: Judge | None = None) -> None:
        self._wire = wire
        self._judge = judge
        self._asking: dict[str, anyio.CancelScope] = {}
        self._void: dict[str, None] = {}
        """Asks that were withdrawn before their handler ran, or just as they were answered."""
        wire.listen("bridge.withdrawn", self._withdraw)
        if judge is not None:
            wire.serve("bridge/judge", self._serve_judge)

    # --- handlers ---------------------------------------------------------------------------

    def answer_approvals(self, approver: Approver) -> None:
        """Who answers ``bridge/approve``; cancelled when the runtime withdraws the ask.

        CANCELLED does not end the turn by itself: the model is told and goes on, so whoever gives
        that answer also calls `cancel`. Nothing here bounds the wait: people take their time.
        """

        async def serve(params: JsonObject) -> JsonValue:
            ask = shapes.ask_from_params(params)
            answer = await self._unless_withdrawn(ask.ask_id, lambda: approver(ask))
            return shapes.approval_result(Answer.CANCELLED if answer is None else answer)

        self._wire.serve("bridge/approve", serve)

    def answer_questions(self, answerer: Answerer) -> None:
        """Who answers ``bridge/ask_user`` with one answer per question, or None to decline.

        Declining a plan review ends the turn; the model is told of any other.
        """

        async def serve(params: JsonObject) -> JsonValue:
            ask = shapes.user_ask_from_params(params)
            answers = await self._unless_withdrawn(ask.ask_id, lambda: answerer(ask))
            return shapes.answers_result(answers)

        self._wire.serve("bridge/ask_user", serve)

    def answer_calls(self, caller: Caller) -> None:
        """Who runs the tools of `set_tools`; cancelled when the runtime gives a call up."""

        async def serve(params: JsonObject) -> JsonValue:
            call = shapes.call_to_run_from_params(params)
            result = await self._unless_withdrawn(call.ask_id, lambda: caller(call))
            return shapes.call_result(ToolResult("", is_error=True) if result is None else result)

        self._wire.serve("bridge/call_tool", serve)

    def listen_to_streams(self, listener: Callable[[SessionId, StreamNote], None]) -> None:
        """Tell what models say as they say it, of every session and subagent.

        A model call's notes: its start, deltas (merged over some 20 ms), the log row (on the SDK
        wire), its end. Everything is on one wire, so this order holds.
        """
        self._wire.listen(
            "bridge.stream", lambda params: listener(*shapes.note_from_params(params))
        )

    def listen_to_faults(self, listener: Callable[[PluginFault], None]) -> None:
        """Tell what went wrong inside the plugin without any request to blame."""

        def tell(params: JsonObject) -> None:
            where, message = members.text(params, "where"), members.text(params, "message")
            listener(PluginFault(where, message))

        self._wire.listen("bridge.fault", tell)

    # --- requests ---------------------------------------------------------------------------

    async def hello(self) -> Hello | None:
        """What the plugin can do; None when it is not there (its start failed, see stderr).

        Raises:
            RuntimeFailedError: no answer within `HELLO_TIMEOUT_S`, or another protocol.
        """
        params = shapes.hello_params(judges=self._judge is not None)
        try:
            with anyio.fail_after(HELLO_TIMEOUT_S):
                result = await self._wire.request("bridge/hello", params)
        except TimeoutError as late:
            raise RuntimeFailedError(
                f"The dsh runtime did not answer bridge/hello within {HELLO_TIMEOUT_S:.0f} s: "
                "it hangs; start it again."
            ) from late
        except PeerError as refusal:
            if _UNKNOWN_METHOD in refusal.details:
                return None
            raise
        return shapes.hello_from_result(result)

    async def open_session(self, opening: Opening) -> str:
        """Make a session that has no log yet; its working folder."""
        return await self._opened("bridge/open", shapes.opening_params(opening))

    async def resume_session(self, opening: Opening) -> str:
        """Open a stored session; its working folder."""
        return await self._opened("bridge/resume", shapes.opening_params(opening))

    async def fork_session(
        self, source: SessionId, opening: Opening, *, through_seq: int | None = None
    ) -> int:
        """A new, open session that begins with the source's rows up to ``through_seq``.

        Without it, up to the end of the last completed turn. The source may be open here, busy or
        cold. The fork names no parent. The last inherited seq.
        """
        params = shapes.opening_params(opening)
        params |= {"sourceSessionId": source, "throughSeq": through_seq}
        return members.number(await self._object("bridge/fork", params), "throughSeq")

    async def cancel(self, session_id: SessionId, *, alone: bool = False) -> bool:
        """End the turn of a session and of all its subagents, and drop what waits in their inboxes.

        Subagents first, so that none of their notices starts a turn. Returns when all are quiet:
        True if something ran. A subagent's id ends that one alone, and its parent is told. Jobs in
        the background go on. Send the next prompt when this has returned: one that comes before
        may be dropped with the rest. With ``alone`` its subagents go on, and what they have told it
        stays.
        """
        params: JsonObject = {"sessionId": session_id, "alone": alone}
        result = await self._object("bridge/cancel", params)
        return members.flag(result, "wasRunning")

    async def close(self, session_id: SessionId) -> bool:
        """Cancel, end the session's subagents, write everything, free the lock.

        False if it was not open. It can be resumed at once, here or elsewhere.
        """
        result = await self._object("bridge/close", {"sessionId": session_id})
        return members.flag(result, "wasOpen")

    async def steer(
        self, session_id: SessionId, content: Sequence[JsonObject], *, wakes: bool = False
    ) -> str | None:
        """Put a user message into the running turn, before its next step; the message's id.

        ``content`` as in ``session/prompt``: text and image blocks. None: no turn runs, or it is
        being cancelled, and nothing was taken. With ``wakes`` a session that is idle but has
        subagents at work takes it into a turn of its own.
        """
        params: JsonObject = {"sessionId": session_id, "contentBlocks": list(content)}
        params["wakes"] = wakes
        return members.optional_text(await self._object("bridge/steer", params), "messageId")

    async def set_mode(self, session_id: SessionId, mode: Mode) -> None:
        """Put a session and its subagents into a mode; holds from the next call on.

        Plan mode's own row may follow at the end of the running turn.
        """
        await self._object("bridge/set_mode", shapes.mode_params(session_id, mode))

    async def set_model(self, session_id: SessionId, choice: ModelChoice) -> None:
        """Choose the model from the next step on, also of a running turn, and log the choice."""
        params: JsonObject = {"sessionId": session_id, "model": shapes.choice_params(choice)}
        await self._object("bridge/set_model", params)

    async def set_tools(self, session_id: SessionId, tools: Iterable[Tool]) -> None:
        """What a session and its subagents may call of ours, in place of what was.

        Holds from the next request on, also of a running turn; for subagents yet to come too.
        """
        await self._object("bridge/set_tools", shapes.tools_params(session_id, tools))

    async def set_prompt(
        self, session_id: SessionId, text: str, *, withheld: Iterable[str] = ()
    ) -> None:
        """What a session and its subagents are told behind the runtime's own system prompt.

        In place of what was; ``withheld`` are names of tools that their models are not offered.
        Holds from the next step on.
        """
        params: JsonObject = {"sessionId": session_id, "text": text, "withheld": list(withheld)}
        await self._object("bridge/set_prompt", params)

    async def record(self, session_id: SessionId, row: Draft) -> None:
        """Append a row of our own (``plugin:acp-bridge/…``) to the log of an open session.

        It is ignorable, and told on the wire before this returns.
        """
        await self._object("bridge/record", shapes.record_params(session_id, row))

    async def state(self, session_id: SessionId) -> SessionState:
        """What a live session is doing and has chosen."""
        return shapes.state_from_result(
            await self._wire.request("bridge/state", {"sessionId": session_id})
        )

    async def models(self) -> list[RuntimeModel]:
        """The models that the runtime's providers list."""
        result = await self._object("bridge/models", {})
        return [shapes.model_from_object(one) for one in members.objects(result, "models")]

    async def rename(self, session_id: SessionId, title: str) -> str:
        """Give an open session a title; as the runtime made it (one line, bounded)."""
        params: JsonObject = {"sessionId": session_id, "title": title}
        return members.text(await self._object("bridge/rename", params), "title")

    async def log_command(self, session_id: SessionId, row: Draft) -> None:
        """Append the ``command/run`` or ``command/done`` of a command that we run.

        It is told on the wire before this returns.
        """
        await self._object("bridge/log_command", shapes.record_params(session_id, row))

    async def compact(self, session_id: SessionId, argument: str) -> bool:
        """Run the runtime's own ``/compact``, which logs itself; whether it went well.

        `cancel` ends it.
        """
        params: JsonObject = {"sessionId": session_id, "argument": argument}
        return members.text(await self._object("bridge/compact", params), "kind") == "success"

    async def history(self, session_id: SessionId, *, from_seq: int = 0) -> HistoryPage:
        """A page of a session's log, open or cold; pages are cut by size (about 1 MB)."""
        params: JsonObject = {"sessionId": session_id, "from": from_seq}
        return shapes.page_from_result(await self._wire.request("bridge/history", params))

    # --- inside -----------------------------------------------------------------------------

    async def _opened(self, method: str, params: JsonObject) -> str:
        return members.text(await self._object(method, params), "cwd")

    async def _object(self, method: str, params: JsonObject) -> JsonObject:
        return members.as_object(await self._wire.request(method, params), "result")

    async def _serve_judge(self, params: JsonObject) -> JsonValue:
        judge = self._judge
        assert judge is not None
        call = shapes.call_from_params(params)
        judgement = await self._unless_withdrawn(call.ask_id, lambda: judge(call))
        return shapes.judgement_result(judgement or Judgement("refuse", reason="it was withdrawn"))

    async def _unless_withdrawn(self, ask_id: str, ask: Callable[[], Awaitable[_T]]) -> _T | None:
        if ask_id in self._void:
            del self._void[ask_id]
            return None
        with anyio.CancelScope() as scope:
            self._asking[ask_id] = scope
            try:
                return await ask()
            finally:
                del self._asking[ask_id]
        return None

    def _withdraw(self, params: JsonObject) -> None:
        ask_id = members.text(params, "askId")
        if (scope := self._asking.get(ask_id)) is not None:
            scope.cancel()
            return
        self._void[ask_id] = None
        if len(self._void) > _VOID_MAX:
            del self._void[next(iter(self._void))]
