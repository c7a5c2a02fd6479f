"""What goes to and comes from the control plugin, as values; and their JSON. Pure.

Names ending in ``_params`` make what we send, ``<type>_from_<source>`` read what it sent. A reader
raises `RemoteProtocolError` that names the member at fault.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from acp_bridge.errors import RemoteProtocolError
from acp_bridge.harness.modes import MODES
from acp_bridge.harness.tools.ask import answers_value
from acp_bridge.ports import Question, QuestionAnswer, QuestionOption, Tool, ToolResult
from acp_bridge.runtime.dsh import members
from acp_bridge.vocabulary import (
    Answer,
    CallId,
    Draft,
    JsonObject,
    JsonValue,
    Mode,
    SessionId,
    StreamDelta,
)

PROTOCOL: Final = 1
"""The version of this contract: raised when one side could misread the other."""


@attrs.frozen(slots=True)
class Hello:
    """What the plugin is and can do.

    ``runtime`` is dsh's own version. ``missing`` says by feature (see `Feature`) why it is not
    there: this version of dsh lacks what it is built on. A feature is in exactly one of the two.
    """

    runtime: str
    session_format: int
    features: frozenset[str]
    missing: Mapping[str, str]

    def has(self, feature: "Feature") -> bool:
        """Whether the feature works in this runtime."""
        return feature in self.features


Feature: TypeAlias = Literal[
    "stream",
    "approve",
    "judge",
    "ask_user",
    "cancel",
    "close",
    "steer",
    "open",
    "mcp",
    "prompt",
    "record",
    "models",
    "mode",
    "title",
    "compact",
    "history",
    "fork",
]


@attrs.frozen(slots=True)
class RuntimeModel:
    """A model of the runtime. ``efforts`` lightest first; sizes in tokens."""

    provider: str
    model: str
    title: str
    context_window: int | None
    efforts: tuple[str, ...]
    default_effort: str | None
    takes_images: bool


@attrs.frozen(slots=True)
class ModelChoice:
    """Which model a session uses, and how hard it thinks (None: as the model likes)."""

    provider: str
    model: str
    effort: str | None = None


@attrs.frozen(slots=True)
class Opening:
    """How a session is opened, resumed or forked; ``cwd`` counts for new ones alone.

    Without ``model`` a resumed or forked session goes on with the one that its log names last, a
    new one with that of ``initialize``.
    """

    session_id: SessionId
    cwd: str
    model: ModelChoice | None = None


@attrs.frozen(slots=True)
class SessionState:
    """A live session as the runtime has it now.

    ``context_tokens`` is what its next request is measured to hold; ``is_planning`` may lag behind
    `Control.set_mode` until the turn ends.
    """

    is_running: bool
    cwd: str
    model: ModelChoice
    sandbox: str
    policy: str
    is_planning: bool
    title: str | None
    context_tokens: int | None
    context_window: int | None
    last_seq: int


@attrs.frozen(slots=True)
class HistoryPage:
    """A stretch of a session's log, as rows of the wire; ``next_seq`` None: that was the last."""

    header: JsonObject
    rows: list[JsonObject]
    next_seq: int | None


@attrs.frozen(slots=True)
class CallToJudge:
    """A tool call before it runs. ``root_id`` is the session whose mode counts.

    ``ask_id`` is what it is withdrawn by. ``arguments`` are the model's, parsed; ``cwd`` is where
    relative paths start; ``call_id`` of a call that a program of the model's makes is its own, not
    one of the log.
    """

    ask_id: str
    session_id: SessionId
    root_id: SessionId
    call_id: CallId
    tool_name: str
    arguments: JsonObject
    cwd: str


@attrs.frozen(slots=True)
class Judgement:
    """What becomes of a call. ``reason`` is why it asks, or what the model is told when refused.

    ``sandbox`` is the sandbox that this one call runs in, whatever the session's; None: the
    session's. A call that asks and is allowed runs in ``danger-full-access``.
    """

    verdict: Literal["run", "ask", "refuse"]
    reason: str | None = None
    sandbox: Literal["workspace-write", "danger-full-access"] | None = None


@attrs.frozen(slots=True)
class ApprovalAsk:
    """The runtime asks whether a call may run. ``root_id`` is the session of the user's.

    ``arguments`` is the call's raw JSON text, whole; None when the log has no such call. ``place``
    is its turn and step. ``parent_id`` is set for a subagent.
    """

    ask_id: str
    session_id: SessionId
    root_id: SessionId
    parent_id: SessionId | None
    call_id: CallId | None
    tool_name: str
    arguments: str | None
    place: tuple[int, int] | None
    reason: str


@attrs.frozen(slots=True)
class CallToRun:
    """A call of a tool that was given with ``bridge/set_tools``. ``root_id`` is whose tool it is.

    ``call_id`` as in `CallToJudge`.
    """

    ask_id: str
    session_id: SessionId
    root_id: SessionId
    call_id: CallId
    tool_name: str
    arguments: JsonObject


@attrs.frozen(slots=True)
class UserAsk:
    """The model asks its user. Children never do: the runtime refuses them.

    ``reviews_plan``: it is one question, whose ``detail`` is the plan of ``exit_plan_mode``; its
    first option approves the plan, its last one does not.
    """

    ask_id: str
    session_id: SessionId
    call_id: CallId | None
    questions: tuple[Question, ...]
    reviews_plan: bool = False


@attrs.frozen(slots=True)
class StreamStarted:
    """A model call began. ``attempt`` counts from 1 in its step."""

    turn: int
    step: int
    attempt: int


@attrs.frozen(slots=True)
class StreamEnded:
    """A model call is over, and the row that tells of it (``seq``) has been on the wire before.

    ``message``: the deltas became an ``assistant/message``, whole or interrupted. ``attempt``: it
    failed, and what was shown of it does not count. ``abandoned``: nothing was written.
    """

    turn: int
    step: int
    attempt: int
    outcome: Literal["message", "attempt", "abandoned"]
    seq: int | None


StreamNote: TypeAlias = StreamStarted | StreamDelta | StreamEnded


@attrs.frozen(slots=True)
class PluginFault:
    """Something failed inside the plugin, which went on: where, and the error's text."""

    where: str
    message: str


# --- what we send -------------------------------------------------------------------------------


def hello_params(*, judges: bool) -> JsonObject:
    """Params of ``bridge/hello``."""
    return {"protocol": PROTOCOL, "judge": judges}


def opening_params(opening: Opening) -> JsonObject:
    """The params that open, resume and fork share."""
    params: JsonObject = {
        "sessionId": opening.session_id,
        "cwd": opening.cwd,
    }
    if opening.model is not None:
        params["model"] = choice_params(opening.model)
    return params


def choice_params(choice: ModelChoice) -> JsonObject:
    """A model choice as the plugin takes it."""
    return {"provider": choice.provider, "model": choice.model, "effort": choice.effort}


def mode_params(session_id: SessionId, mode: Mode) -> JsonObject:
    """Params of ``bridge/set_mode``: what the mode is called in the log (`harness.modes`)."""
    info = MODES[mode]
    return {
        "sessionId": session_id,
        "sandbox": info.sandbox,
        "policy": info.policy,
        "planning": mode == "plan",
    }


def tools_params(session_id: SessionId, tools: Iterable[Tool]) -> JsonObject:
    """Params of ``bridge/set_tools``."""
    specs: list[JsonValue] = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in tools
    ]
    return {"sessionId": session_id, "tools": specs}


def record_params(session_id: SessionId, row: Draft) -> JsonObject:
    """Params of ``bridge/record``."""
    return {"sessionId": session_id, "type": row.type, "data": row.data}


def judgement_result(judgement: Judgement) -> JsonObject:
    """The answer to ``bridge/judge``."""
    return {
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "sandbox": judgement.sandbox,
    }


def approval_result(answer: Answer) -> JsonObject:
    """The answer to ``bridge/approve``. The runtime knows no "always": that is ours to keep."""
    return {"outcome": _OUTCOMES[answer]}


def call_result(result: ToolResult) -> JsonObject:
    """The answer to ``bridge/call_tool``: the result of an MCP ``tools/call``."""
    # The runtime begins the text of a failure in the same way.
    text = result.text.removeprefix("Error: ") if result.is_error else result.text
    return {"content": [{"type": "text", "text": text}], "isError": result.is_error}


def answers_result(answers: Sequence[QuestionAnswer] | None) -> JsonObject:
    """The answer to ``bridge/ask_user``; None: the user would not answer."""
    if answers is None:
        return {"cancelled": True}
    return {"answers": answers_value(answers)}


_OUTCOMES: Final = {
    Answer.ALLOW_ONCE: "allowed-once",
    Answer.ALLOW_ALWAYS: "allowed-once",
    Answer.REJECT: "rejected",
    Answer.CANCELLED: "cancelled",
    Answer.UNAVAILABLE: "unavailable",
}


# --- what it sends ------------------------------------------------------------------------------


def hello_from_result(result: JsonValue) -> Hello:
    """Read the answer to ``bridge/hello``."""
    value = members.as_object(result, "result")
    features = members.as_object(value.get("features"), "features")
    return Hello(
        runtime=members.text(value, "runtime"),
        session_format=members.number(value, "sessionFormat"),
        features=frozenset(name for name, state in features.items() if state is True),
        missing={name: state for name, state in features.items() if isinstance(state, str)},
    )


def model_from_object(value: JsonObject) -> RuntimeModel:
    """Read one of ``models``."""
    return RuntimeModel(
        provider=members.text(value, "provider"),
        model=members.text(value, "model"),
        title=members.text(value, "title"),
        context_window=members.optional_number(value, "contextWindow"),
        efforts=members.texts(value, "efforts"),
        default_effort=members.optional_text(value, "defaultEffort"),
        takes_images=members.flag(value, "takesImages"),
    )


def choice_from_object(value: JsonObject) -> ModelChoice:
    """Read a model choice."""
    return ModelChoice(
        provider=members.text(value, "provider"),
        model=members.text(value, "model"),
        effort=members.optional_text(value, "effort"),
    )


def state_from_result(result: JsonValue) -> SessionState:
    """Read the answer to ``bridge/state``."""
    value = members.as_object(result, "result")
    return SessionState(
        is_running=members.flag(value, "running"),
        cwd=members.text(value, "cwd"),
        model=choice_from_object(members.as_object(value.get("model"), "model")),
        sandbox=members.text(value, "sandbox"),
        policy=members.text(value, "policy"),
        is_planning=members.flag(value, "planning"),
        title=members.optional_text(value, "title"),
        context_tokens=members.optional_number(value, "contextTokens"),
        context_window=members.optional_number(value, "contextWindow"),
        last_seq=members.number(value, "lastSeq"),
    )


def page_from_result(result: JsonValue) -> HistoryPage:
    """Read the answer to ``bridge/history``."""
    value = members.as_object(result, "result")
    return HistoryPage(
        header=members.as_object(value.get("header"), "header"),
        rows=members.objects(value, "events"),
        next_seq=members.optional_number(value, "next"),
    )


def call_from_params(params: JsonObject) -> CallToJudge:
    """Read the params of ``bridge/judge``."""
    return CallToJudge(
        ask_id=members.text(params, "askId"),
        session_id=SessionId(members.text(params, "sessionId")),
        root_id=SessionId(members.text(params, "rootSessionId")),
        call_id=CallId(members.text(params, "callId")),
        tool_name=members.text(params, "toolName"),
        arguments=members.as_object(params.get("arguments"), "arguments"),
        cwd=members.text(params, "cwd"),
    )


def call_to_run_from_params(params: JsonObject) -> CallToRun:
    """Read the params of ``bridge/call_tool``."""
    return CallToRun(
        ask_id=members.text(params, "askId"),
        session_id=SessionId(members.text(params, "sessionId")),
        root_id=SessionId(members.text(params, "rootSessionId")),
        call_id=CallId(members.text(params, "callId")),
        tool_name=members.text(params, "toolName"),
        arguments=members.as_object(params.get("arguments"), "arguments"),
    )


def ask_from_params(params: JsonObject) -> ApprovalAsk:
    """Read the params of ``bridge/approve``."""
    parent, call_id = (members.optional_text(params, key) for key in ("parentSessionId", "callId"))
    turn, step = (members.optional_number(params, key) for key in ("turn", "step"))
    return ApprovalAsk(
        ask_id=members.text(params, "askId"),
        session_id=SessionId(members.text(params, "sessionId")),
        root_id=SessionId(members.text(params, "rootSessionId")),
        parent_id=None if parent is None else SessionId(parent),
        call_id=None if call_id is None else CallId(call_id),
        tool_name=members.text(params, "toolName"),
        arguments=members.optional_text(params, "arguments"),
        place=None if turn is None or step is None else (turn, step),
        reason=members.text(params, "reason"),
    )


def user_ask_from_params(params: JsonObject) -> UserAsk:
    """Read the params of ``bridge/ask_user``."""
    call_id = members.optional_text(params, "callId")
    asked = members.objects(params, "questions")
    return UserAsk(
        ask_id=members.text(params, "askId"),
        session_id=SessionId(members.text(params, "sessionId")),
        call_id=None if call_id is None else CallId(call_id),
        questions=tuple(_question(one) for one in asked),
        reviews_plan=len(asked) == 1 and members.flag(asked[0], "planReview"),
    )


def _question(value: JsonObject) -> Question:
    options = () if value.get("options") is None else members.objects(value, "options")
    return Question(
        question_id=members.text(value, "id"),
        text=members.text(value, "question"),
        header=members.optional_text(value, "header"),
        detail=members.optional_text(value, "detail"),
        options=tuple(
            QuestionOption(members.text(one, "label"), members.optional_text(one, "description"))
            for one in options
        ),
        takes_many=members.flag(value, "multiSelect"),
    )


def note_from_params(params: JsonObject) -> tuple[SessionId, StreamNote]:
    """Read a ``bridge.stream`` notification: the session, and what happened."""
    session_id = SessionId(members.text(params, "sessionId"))
    turn, step, attempt = (members.number(params, key) for key in ("turn", "step", "attempt"))
    match members.text(params, "event"):
        case "delta":
            return session_id, StreamDelta(
                turn, step, attempt, members.number(params, "block"), _kind(params), _text(params)
            )
        case "start":
            return session_id, StreamStarted(turn, step, attempt)
        case "end":
            seq = members.optional_number(params, "seq")
            return session_id, StreamEnded(turn, step, attempt, _outcome(params), seq)
        case other:
            raise _unknown("event", other)


def _text(params: JsonObject) -> str:
    return members.text(params, "text")


def _kind(params: JsonObject) -> Literal["text", "reasoning"]:
    match members.text(params, "kind"):
        case "text":
            return "text"
        case "reasoning":
            return "reasoning"
        case other:
            raise _unknown("kind", other)


def _outcome(params: JsonObject) -> Literal["message", "attempt", "abandoned"]:
    match members.text(params, "outcome"):
        case "message":
            return "message"
        case "attempt":
            return "attempt"
        case "abandoned":
            return "abandoned"
        case other:
            raise _unknown("outcome", other)


def _unknown(name: str, word: str) -> RemoteProtocolError:
    return members.refusal(name, f"a word that is known here ({word[:40]!r})")
