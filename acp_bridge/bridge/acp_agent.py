"""The agent that an ACP client talks to: its requests to runtime calls, and their answers.

Each method is called in arrival order and must not block; what takes time is in the coroutine it
returns. The parameters' types are the generated ones; their meaning is checked here.
"""

import logging
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypedDict

import anyio.abc
import anyio.lowlevel

from acp_bridge.acp.agent_side import Followed
from acp_bridge.acp.base import Unknown
from acp_bridge.acp.client_side import ClientCalls
from acp_bridge.acp.converter import structure
from acp_bridge.acp.hello import (
    CONFIGURED_MODEL,
    SETUP,
    ClientTraits,
    answer_initialize,
    client_traits,
)
from acp_bridge.acp.types import (
    AuthenticateRequest,
    AuthenticateResponse,
    CancelNotification,
    CloseSessionRequest,
    CloseSessionResponse,
    DeleteSessionRequest,
    DeleteSessionResponse,
    ForkSessionRequest,
    ForkSessionResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    LogoutRequest,
    LogoutResponse,
    NewSessionRequest,
    NewSessionResponse,
    PromptRequest,
    PromptResponse,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionConfigOption,
    SessionInfo,
    SessionModeState,
    SetSelectConfigOptionRequest,
    SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse,
    SetSessionModeRequest,
    SetSessionModeResponse,
)
from acp_bridge.bridge.clients import View, view_for
from acp_bridge.bridge.config_options import (
    OPTIONS,
    config_from_options,
    modes_from_options,
)
from acp_bridge.bridge.extras import checked_folder, extras_from_acp
from acp_bridge.bridge.open_session import OpenSession, descendants_of
from acp_bridge.bridge.permissions import AcpClient
from acp_bridge.bridge.prompts import command_from_acp, prompt_from_acp
from acp_bridge.errors import (
    AuthRequiredError,
    BridgeError,
    InvalidParamsError,
    ModelFailedError,
    RuntimeFailedError,
    SessionNotFoundError,
)
from acp_bridge.ports import LiveSession, OptionName, PendingTurn, Runtime
from acp_bridge.vocabulary import (
    Descendant,
    JsonObject,
    JsonValue,
    SessionId,
    TurnEnd,
)

logger = logging.getLogger(__name__)

StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]

_STOP_REASONS: dict[str, StopReason] = {
    "completed": "end_turn",
    "max-tokens": "max_tokens",
    "step-limit": "max_turn_requests",
    "refusal": "refusal",
    "aborted": "cancelled",
}


class Choices(TypedDict, total=False):
    """Fields that the answers to new, load and resume share."""

    modes: SessionModeState
    config_options: list[SessionConfigOption]


WITHDRAWN_WAIT_S = 10.0
"""How long a prompt that the client gave up waits for its turn's end; longer than that takes."""

_OUR_FAULTS = frozenset({"STORE", "INTERNAL"})


class AcpAgent:
    """Implements `acp.agent_side.Agent` for one connection.

    ``tasks`` own what goes on after a request was answered; they end with the connection.
    ``traits`` are what the client said in an ``initialize`` that was answered already; ``is_gone``
    tells whether the connection has ended; ``setup_command`` stores a key, in a terminal;
    ``opened`` is called when a session has been opened and the client's user begins to type;
    ``runs_here``: commands run in this process, not in the client's terminals; ``subagents`` is
    the setting of that name.
    """

    def __init__(
        self,
        *,
        runtime: Runtime,
        calls: ClientCalls,
        tasks: anyio.abc.TaskGroup,
        version: str,
        traits: ClientTraits,
        setup_command: Sequence[str],
        is_gone: Callable[[], bool],
        opened: Callable[[], None] = lambda: None,
        runs_here: bool = True,
        subagents: str = "auto",
    ) -> None:
        self._subagents = subagents
        self._opened = opened
        self._setup_command = setup_command
        self._runs_here = runs_here
        self._is_gone = is_gone
        self._runtime = runtime
        self._calls = calls
        self._tasks = tasks
        self._version = version
        self._traits = traits
        self._sessions: dict[str, OpenSession] = {}

    def initialize(self, params: JsonValue) -> JsonObject:
        """Say what we are; a client that says it again is taken at its last word."""
        answer = answer_initialize(params, version=self._version, setup_command=self._setup_command)
        self._traits = client_traits(params)
        return answer

    async def authenticate(self, params: AuthenticateRequest) -> AuthenticateResponse:
        """Look whether there is a model now; idempotent."""
        if params.method_id not in {CONFIGURED_MODEL["id"], SETUP}:
            raise InvalidParamsError(
                f"There is no auth method {params.method_id!r:.100}: use "
                f"{CONFIGURED_MODEL['id']!r}.",
                field="methodId",
            )
        self._runtime.check_model()
        return AuthenticateResponse()

    async def logout(self, _params: LogoutRequest) -> LogoutResponse:
        """Forget every stored key; sessions that are open go on with what they have."""
        self._runtime.forget_keys()
        return LogoutResponse()

    async def new_session(self, params: NewSessionRequest) -> Followed[NewSessionResponse]:
        """Open an empty session."""
        cwd = checked_folder(params.cwd, "cwd")
        extras = extras_from_acp(params)
        client = AcpClient(self._calls, self._traits)
        live = await self._runtime.new_session(cwd, client, extras=extras)
        session = self._open(live, client)
        response = NewSessionResponse(session_id=live.session_id, **self._choices(session))

        def then() -> None:
            session.tell_commands()
            self._opened()

        return Followed(response, then)

    async def load_session(self, params: LoadSessionRequest) -> Followed[LoadSessionResponse]:
        """Open a stored session and show all of it, then answer."""
        session = await self._reopen(params)
        try:
            async with session.client.showing:
                await session.replay()
            response = LoadSessionResponse(**self._choices(session))
        except BaseException:
            session.tell_running()
            raise
        return Followed(response, session.tell_reopened)

    async def resume_session(self, params: ResumeSessionRequest) -> Followed[ResumeSessionResponse]:
        """Open a stored session and show nothing of its past."""
        session = await self._reopen(params)
        response = ResumeSessionResponse(**self._choices(session))
        return Followed(response, session.tell_reopened)

    async def fork_session(self, params: ForkSessionRequest) -> Followed[ForkSessionResponse]:
        """Open a fork of a session; it is not replayed: loading it is what shows its past."""
        self._refuse_child(params.session_id)
        cwd = checked_folder(params.cwd, "cwd")
        extras = extras_from_acp(params)
        client = AcpClient(self._calls, self._traits)
        source = SessionId(params.session_id)
        live = await self._runtime.fork_session(source, cwd, client, extras=extras)
        session = self._open(live, client)
        response = ForkSessionResponse(session_id=live.session_id, **self._choices(session))
        return Followed(response, session.tell_commands)

    async def set_mode(self, params: SetSessionModeRequest) -> Followed[SetSessionModeResponse]:
        """Choose a permission mode."""
        session = self._session(params.session_id)
        await self._choose(session, "mode", params.mode_id, field="modeId")
        session.told_mode = params.mode_id
        return Followed(SetSessionModeResponse(), session.tell_options)

    async def set_config_option(
        self, params: SetSessionConfigOptionRequest
    ) -> Followed[SetSessionConfigOptionResponse]:
        """Choose a value of an option; answers with the full list."""
        no_such_type = InvalidParamsError("There is no option of this type.", field="type")
        if isinstance(params, Unknown):
            # Some say "select". The schema: with a text, an unknown type is a choice all the same.
            if not isinstance(params.raw.get("value"), str):
                raise no_such_type
            params = structure({**params.raw, "type": None}, SetSelectConfigOptionRequest)
        session = self._session(params.session_id)
        if not isinstance(params, SetSelectConfigOptionRequest):
            raise no_such_type
        option = OPTIONS.get(params.config_id)
        if option is None:
            raise InvalidParamsError(
                f"There is no option {params.config_id!r:.100}: use {', '.join(OPTIONS)}.",
                field="configId",
            )
        await self._choose(session, option, params.value, field="value")
        session.told_config = config_from_options(session.live.options())
        response = SetSessionConfigOptionResponse(config_options=session.told_config)
        return Followed(response, session.tell_options)

    async def delete_session(self, params: DeleteSessionRequest) -> DeleteSessionResponse:
        """Remove a session from the store; an unknown one is fine."""
        self._refuse_child(params.session_id)
        session = self._sessions.pop(params.session_id, None)
        if session is not None:
            session.cancels += 1
        await self._runtime.delete_session(SessionId(params.session_id))
        return DeleteSessionResponse()

    async def list_sessions(self, params: ListSessionsRequest) -> ListSessionsResponse:
        """One page of sessions, newest first."""
        cwd = None if params.cwd is None else Path(params.cwd)
        if cwd is not None and not cwd.is_absolute():
            raise InvalidParamsError(f"cwd must be an absolute path, not {cwd}.", field="cwd")
        page = await self._runtime.list_sessions(cwd, params.cursor)
        for bad in page.bad:
            logger.warning("%s is not listed: %s", bad.path, bad.reason)
        sessions = [
            SessionInfo(
                session_id=summary.session_id,
                cwd=str(summary.cwd),
                additional_directories=self._folders_of(summary.session_id),
                title=summary.title,
                updated_at=_rfc3339(summary.updated_at_ms),
            )
            for summary in page.sessions
        ]
        return ListSessionsResponse(sessions=sessions, next_cursor=page.next_token)

    def _folders_of(self, session_id: str) -> list[str] | None:
        """What the client added to an open session's workspace; that of others is not stored."""
        session = self._sessions.get(session_id)
        folders = () if session is None else session.live.folders
        return [str(folder) for folder in folders] or None

    def prompt(self, params: PromptRequest) -> Coroutine[None, None, PromptResponse]:
        """Take the prompt at once, in arrival order, so that a cancel right behind finds it."""
        session = self._session(params.session_id)
        typed = command_from_acp(params.prompt, session.live.commands)
        turn = session.live.admit(typed or prompt_from_acp(params.prompt))
        return self._answer_prompt(session, turn)

    def steer(self, params: PromptRequest) -> Coroutine[None, None, JsonObject]:
        """Put what the user says before the next step of what runs.

        Where nothing runs that takes it, the client sends a prompt if it says that it will, else
        it becomes one here: only a cancel drops the words of a user.
        """
        session = self._session(params.session_id)
        prompt = prompt_from_acp(params.prompt)
        command = command_from_acp(params.prompt, session.live.commands)
        cancels = session.cancels

        async def answer() -> JsonObject:
            if command is None and await session.live.interject(prompt):
                return {"outcome": "injected"}
            steering = (params.meta or {}).get("steering")
            if isinstance(steering, dict) and steering.get("idleBehavior") == "promptRequired":
                return {"outcome": "promptRequired", "reason": "noRunningTurn"}
            if session.cancels > cancels:
                return {"outcome": "failed"}  # it was cancelled with the turn that it was meant for
            turn = session.live.admit(command or prompt)
            self._tasks.start_soon(_tell_failure, session, turn)
            return {"outcome": "startedNewTurn"}

        return answer()

    def cancel(self, params: CancelNotification) -> None:
        """Stop the turn of a session, or of a subagent; a no-op for anything that does not run."""
        session = self._sessions.get(params.session_id)
        if session is not None:
            session.cancels += 1
            session.live.cancel()
            return
        parent = self._parent_of(params.session_id)
        if parent is not None:
            parent.cancel_child(params.session_id)

    async def close_session(self, params: CloseSessionRequest) -> CloseSessionResponse:
        """Release a session; closing one that is not open is fine."""
        self._refuse_child(params.session_id)
        session = self._sessions.pop(params.session_id, None)
        if session is not None:
            session.cancels += 1
            await session.live.close()
        return CloseSessionResponse()

    async def _answer_prompt(self, session: OpenSession, turn: PendingTurn) -> PromptResponse:
        try:
            end = await turn.ended()
        except anyio.get_cancelled_exc_class():
            if not self._is_gone():
                # By $/cancel_request: the request is unwanted, so is its turn. What that still
                # tells, as the end of its calls, comes before the answer.
                turn.withdraw()
                if turn.runs:
                    with anyio.move_on_after(WITHDRAWN_WAIT_S, shield=True):
                        await turn.ended()
                        async with session.client.showing:
                            pass
                raise
            # The connection has ended: the log says so, and who still reads gets an answer.
            with anyio.CancelScope(shield=True):
                await session.live.close()
            return PromptResponse(stop_reason="cancelled")
        async with session.client.showing:
            pass  # a replay under way still holds updates of this turn
        return PromptResponse(stop_reason=_stop_reason(end))

    def _session(self, session_id: str) -> OpenSession:
        session = self._sessions.get(session_id)
        if session is None:
            self._refuse_child(session_id)
            raise SessionNotFoundError(session_id)
        return session

    def _parent_of(self, child_id: str) -> OpenSession | None:
        """The open session that this is a subagent of, at any depth."""
        known = (s for s in self._sessions.values() if s.knows_child(child_id))
        return next(known, None)

    def _refuse_child(self, session_id: str) -> None:
        """A subagent may be cancelled, and nothing else (ACP v1, Subagents)."""
        parent = self._parent_of(session_id)
        if parent is not None:
            raise InvalidParamsError(
                f"Session {session_id:.100} is a subagent's: all a client may do to it is to "
                f"cancel it. Talk to its root session, {parent.live.session_id}.",
                field="sessionId",
            )

    async def _reopen(self, params: LoadSessionRequest | ResumeSessionRequest) -> OpenSession:
        self._refuse_child(params.session_id)
        cwd = checked_folder(params.cwd, "cwd")
        extras = extras_from_acp(params)
        client = AcpClient(self._calls, self._traits)
        session_id = SessionId(params.session_id)
        live = await self._runtime.open_session(session_id, cwd, client, extras=extras)
        session = self._known(live)
        if session is None:
            descendants = await descendants_of(live)
            session = self._known(live) or self._open(live, client, descendants)
        return session

    def _known(self, live: LiveSession) -> OpenSession | None:
        """What this session was opened as before; another request may do it at any wait."""
        known = self._sessions.get(live.session_id)
        return known if known is not None and known.live is live else None

    def _open(
        self, live: LiveSession, client: AcpClient, descendants: Sequence[Descendant] = ()
    ) -> OpenSession:
        session = OpenSession(live, client, self._calls, self._view, descendants)
        self._sessions[live.session_id] = session
        return session

    @property
    def _view(self) -> View:
        return view_for(self._traits, runs_here=self._runs_here, subagents=self._subagents)

    def _choices(self, session: OpenSession) -> Choices:
        """The part of a session's answer that says what can be chosen."""
        options = session.live.options()
        session.told_mode, session.told_config = options.mode, config_from_options(options)
        choices = Choices(modes=modes_from_options(options))
        if self._view.config_options:
            choices["config_options"] = session.told_config
        return choices

    async def _choose(
        self, session: OpenSession, option: OptionName, value: str, *, field: str
    ) -> None:
        session.being_set += 1
        try:
            await session.live.choose(option, value)
        except BaseException as failure:
            session.being_set -= 1
            session.tell_options()  # what a command changed meanwhile
            if isinstance(failure, InvalidParamsError):
                raise InvalidParamsError(failure.details, field=field) from failure
            raise
        session.being_set -= 1


async def _tell_failure(session: OpenSession, turn: PendingTurn) -> None:
    """Say why a turn failed that no prompt waits for: no answer will."""
    end = await turn.ended()
    try:
        if _stop_reason(end) != "refusal":
            return
        details = end.details or "The model refused to go on."
    except BridgeError as failure:
        details = failure.details
    session.tell_failure(details, end.code)


def _stop_reason(end: TurnEnd) -> StopReason:
    """ACP's word for a turn's end; failures are errors, never stop reasons (R046)."""
    reason = _STOP_REASONS.get(end.kind)
    if reason is not None:
        return reason
    details = end.details or "The turn failed."
    if end.code == "AUTH":
        raise AuthRequiredError(f"The model refused the key: {details}")
    if end.code in _OUR_FAULTS:
        raise RuntimeFailedError(details)
    raise ModelFailedError(f"The model call failed: {details}")


def _rfc3339(time_ms: int) -> str:
    time = datetime.fromtimestamp(time_ms / 1000, tz=UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
