"""The SDK wire's requests: the table of methods, what each does, and how a refusal looks.

A prompt that names no session here makes one, and so does asking for its folder. While a session
is being opened its prompts wait with it, so that they are admitted in their order.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import anyio
import anyio.abc
import attrs

from acp_bridge.errors import BridgeError, InvalidParamsError, PlainError, RuntimeFailedError
from acp_bridge.runtime.sdk.feed import Notice
from acp_bridge.runtime.sdk.params import (
    Hello,
    hello_from_params,
    name_param,
    prompt_from_blocks,
    text_param,
)
from acp_bridge.runtime.sdk.session import HostedSession, SdkClient, SdkSession, Ticket
from acp_bridge.vocabulary import JsonObject, SessionId
from acp_bridge.wire.endpoint import Reply
from acp_bridge.wire.messages import Notification, Request

logger = logging.getLogger(__name__)

SERVER_NAME: Final = "acp-bridge"
"""What ``initialize`` answers, so that a client can tell us from the SDK's own runtime."""

METHODS: Final = {
    "initialize": "_initialize",
    "session/prompt": "_prompt",
    "session/resume": "_resume",
    "session/wait": "_wait",
    "session/working-directory/get": "_get_folder",
    "session/working-directory/set": "_set_folder",
    "shutdown": "_shutdown",
}
"""Every method of the wire (dsh section 2) and who serves it."""


class Host(Protocol):
    """What runs the sessions: the embedded runtime."""

    async def new_session(
        self, cwd: Path, client: SdkClient, session_id: SessionId
    ) -> HostedSession:
        """A session of this name with an empty log; nothing is stored before its first prompt.

        Raises:
            AuthRequiredError: there is no model to talk to.
            InvalidParamsError: no session can have this name.
            SessionConflictError: one has it already.
        """

    async def open_session(
        self, session_id: SessionId, cwd: None, client: SdkClient
    ) -> HostedSession:
        """A stored session, opened for writing in whatever folder it was made.

        Raises:
            As `ports.Runtime.open_session`.
        """

    async def close(self) -> None:
        """Close every session."""


class Peer(Protocol):
    """The connection, as far as the server uses it; an `Endpoint`."""

    def notify(self, method: str, params: object) -> None:
        """Queue a notification."""

    async def flow(self) -> None:
        """Wait while the client reads slower than we write."""

    def stop(self, cause: str) -> None:
        """End the connection."""


@attrs.define(slots=True, eq=False)
class _Opening:
    """A session on its way, and the prompts that wait for it."""

    tickets: list[Ticket] = attrs.field(factory=list)
    done: anyio.Event = attrs.field(factory=anyio.Event)
    session: SdkSession | None = None
    failure: BridgeError | None = None

    async def opened(self) -> SdkSession:
        """The session, once it is open.

        Raises:
            BridgeError: it could not be opened.
        """
        await self.done.wait()
        if self.session is None:
            assert self.failure is not None
            raise self.failure
        return self.session


class SdkServer:
    """Serves one connection: ``Endpoint(stream, server.admit)``. An async context manager.

    ``name_model`` makes a model the preferred one by provider and name, as ``initialize`` names
    them, and gives the effort to use of the one that is named; ``new_id`` makes ids of messages.
    """

    def __init__(
        self,
        host: Host,
        peer: Peer,
        *,
        name_model: Callable[[str, str, str | None], str | None],
        new_id: Callable[[], str],
        version: str,
    ) -> None:
        self._host = host
        self._peer = peer
        self._name_model = name_model
        self._new_id = new_id
        self._version = version
        self._hello: Hello | None = None
        self._sessions: dict[SessionId, SdkSession] = {}
        self._opening: dict[SessionId, _Opening] = {}
        self._closing = False
        self._tasks = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._closing = True
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, fault, traceback)

    def admit(self, message: Request | Notification) -> Reply | Awaitable[Reply] | None:
        """Take one call, in arrival order. Notifications mean nothing on this wire.

        Raises:
            PlainError: the call is refused.
        """
        if isinstance(message, Notification):
            logger.debug("ignored notification %.100s", message.method)
            return None
        try:
            outcome = self._call(message)
        except BridgeError as refused:
            raise PlainError(refused.details) from refused
        return outcome if isinstance(outcome, Reply) else _in_plain_words(outcome)

    def _call(self, request: Request) -> Reply | Coroutine[None, None, Reply]:
        name = METHODS.get(request.method)
        if name is None:
            raise PlainError(
                f"There is no method {request.method!r:.100} on this wire: "
                f"use {', '.join(METHODS)}."
            )
        params = {} if request.params is None else request.params
        if not isinstance(params, dict):
            raise InvalidParamsError("params must be an object, not an array.", field="params")
        if self._closing:
            raise PlainError("The runtime is shutting down: start another one.")
        serve: Callable[[JsonObject], Reply | Coroutine[None, None, Reply]] = getattr(self, name)
        return serve(params)

    # --- the methods ----------------------------------------------------------------------------

    def _initialize(self, params: JsonObject) -> Reply:
        """May come again: it holds for sessions that are new from then on."""
        hello = hello_from_params(params)
        try:
            cwd = Path(hello.cwd).absolute()
            is_folder = cwd.is_dir()
        except (OSError, ValueError):
            is_folder = False
        if not is_folder:
            raise InvalidParamsError(f"cwd is no folder: {hello.cwd!r:.200}.", field="cwd")
        effort = self._name_model(hello.provider, hello.model, hello.effort)
        if hello.tokens_max is not None:
            logger.warning("maxTokens is not used: config.toml sets output_tokens_max of a model")
        self._hello = attrs.evolve(hello, cwd=str(cwd), effort=effort)
        return Reply({"serverInfo": {"name": SERVER_NAME, "version": self._version}})

    def _prompt(self, params: JsonObject) -> Coroutine[None, None, Reply]:
        """Answered when the log has the message, or at once while others are before it."""
        session_id = self._session_id(params)
        message_id = self._new_id()
        ticket = Ticket(prompt_from_blocks(params.get("contentBlocks"), message_id), message_id)
        session = self._sessions.get(session_id)
        if session is None:
            self._new_or_opening(session_id).tickets.append(ticket)
        else:
            session.admit(ticket)
        return _receipt(ticket)

    def _resume(self, params: JsonObject) -> Coroutine[None, None, Reply]:
        session_id = self._session_id(params)
        if session_id in self._sessions or session_id in self._opening:
            raise PlainError(f"Session {session_id:.100} is open already: prompt it.")
        client = SdkClient(self._peer.flow)
        opening = self._begin(
            session_id, partial(self._host.open_session, session_id, None, client)
        )
        return _resumed(opening)

    def _wait(self, params: JsonObject) -> Coroutine[None, None, Reply]:
        session_id = self._session_id(params)
        if session_id not in self._sessions and session_id not in self._opening:
            raise PlainError(f"Session {session_id:.100} is not open: prompt or resume it first.")
        return self._waited(session_id)

    def _get_folder(self, params: JsonObject) -> Coroutine[None, None, Reply]:
        return self._folder(self._session_id(params), lambda live: live.working_folder())

    def _set_folder(self, params: JsonObject) -> Coroutine[None, None, Reply]:
        path = text_param(params, "path")
        return self._folder(self._session_id(params), lambda live: live.move(path))

    async def _shutdown(self, _params: JsonObject) -> Reply:
        """Close every session, answer, end. What their ends add to the logs is not told."""
        self._closing = True
        await self._host.close()
        return Reply({}, lambda: self._peer.stop("The client asked for the end."))

    # --- sessions -------------------------------------------------------------------------------

    def _session_id(self, params: JsonObject) -> SessionId:
        if self._hello is None:
            raise PlainError("The runtime is not initialized: send initialize first.")
        return SessionId(name_param(params, "sessionId"))

    async def _waited(self, session_id: SessionId) -> Reply:
        await (await self._opened(session_id)).wait()
        return Reply({})

    async def _folder(
        self, session_id: SessionId, ask: Callable[[HostedSession], Awaitable[Path]]
    ) -> Reply:
        session = await self._opened(session_id)
        return Reply({"cwd": str(await ask(session.live))})

    async def _opened(self, session_id: SessionId) -> SdkSession:
        """The session of this id, a new one if the connection has none open."""
        session = self._sessions.get(session_id)
        return session or await self._new_or_opening(session_id).opened()

    def _new_or_opening(self, session_id: SessionId) -> _Opening:
        opening = self._opening.get(session_id)
        return opening or self._begin(session_id, partial(self._make, session_id))

    async def _make(self, session_id: SessionId) -> HostedSession:
        hello = self._hello
        assert hello is not None
        client = SdkClient(self._peer.flow)
        live = await self._host.new_session(Path(hello.cwd), client, session_id)
        if hello.effort is not None:
            try:
                await live.choose("effort", hello.effort)
            except BaseException:
                await live.close()  # nobody knows of it yet
                raise
        return live

    def _begin(
        self, session_id: SessionId, make: Callable[[], Awaitable[HostedSession]]
    ) -> _Opening:
        opening = self._opening[session_id] = _Opening()
        self._tasks.start_soon(self._open, session_id, make, opening)
        return opening

    async def _open(
        self,
        session_id: SessionId,
        make: Callable[[], Awaitable[HostedSession]],
        opening: _Opening,
    ) -> None:
        try:
            live = await make()
        except BridgeError as failure:
            opening.failure = failure
        except Exception:
            logger.exception("session %s could not be opened", session_id)
            opening.failure = RuntimeFailedError(
                f"Session {session_id:.100} could not be opened; the log file has the details."
            )
        else:
            opening.session = SdkSession(live, tell=self._tell, tasks=self._tasks)
            self._sessions[session_id] = opening.session
        del self._opening[session_id]
        opening.done.set()
        for ticket in opening.tickets:
            if opening.session is None:
                ticket.settle(opening.failure)
            else:
                opening.session.admit(ticket)

    def _tell(self, notice: Notice) -> None:
        if not self._closing:
            self._peer.notify(*notice)


async def _in_plain_words(outcome: Awaitable[Reply]) -> Reply:
    try:
        return await outcome
    except BridgeError as refused:
        raise PlainError(refused.details) from refused


async def _receipt(ticket: Ticket) -> Reply:
    return Reply({"messageId": await ticket.receipt()})


async def _resumed(opening: _Opening) -> Reply:
    await opening.opened()
    return Reply({})
