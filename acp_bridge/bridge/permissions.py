"""Asking the client: permission with the whole call; questions, files, terminals where offered.

`AcpClient` is one session's `ports.Client`. Whatever a client answers that is not one of the
offered options counts as a rejection (field report R085); a client that is gone too.
"""

import errno
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from acp_bridge.acp.client_side import ClientCalls, Unusable
from acp_bridge.acp.hello import ClientTraits
from acp_bridge.acp.types import (
    CancelledPermissionOutcome,
    PermissionOption,
    PermissionToolCall,
    RequestPermissionRequest,
)
from acp_bridge.bridge.clients import view_for
from acp_bridge.bridge.subagent_family import Asked
from acp_bridge.bridge.tool_calls import text_content
from acp_bridge.errors import RESOURCE_NOT_FOUND, PeerError, PeerGoneError
from acp_bridge.ports import (
    ClientCommand,
    CommandEnd,
    PermissionAsk,
    QuestionAnswer,
    QuestionsAsk,
)
from acp_bridge.vocabulary import Answer, JsonObject, SessionId

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

GONE_WAIT_S = 10.0
"""How long a question waits for its turn's end when the client has gone: longer than that takes."""

_ALLOW_ONCE, _ALLOW_ALWAYS, _REJECT_ONCE = "allow-once", "allow-always", "reject-once"
_ANSWERS = {
    _ALLOW_ONCE: Answer.ALLOW_ONCE,
    _ALLOW_ALWAYS: Answer.ALLOW_ALWAYS,
    _REJECT_ONCE: Answer.REJECT,
}


class AcpClient:
    """Implements `ports.Client` for one session.

    ``asked`` says where a question is asked, ``waiting`` is entered while one of a subagent is
    open; both bound late, since what is shown and the client belong to each other. ``showing`` is
    held while a replay is shown.
    """

    def __init__(self, calls: ClientCalls, traits: ClientTraits) -> None:
        self._calls = calls
        self._traits = traits
        self.session_id = SessionId("")
        self.showing = anyio.Lock(fast_acquire=True)
        self.asked: Callable[[PermissionAsk | QuestionsAsk], Asked | None] = lambda _ask: None
        self.waiting: Callable[[SessionId], AbstractContextManager[object]] = nullcontext

    @property
    def reads_text(self) -> bool:
        """Whether the client offers ``fs/read_text_file``."""
        return self._traits.reads_text

    @property
    def writes_text(self) -> bool:
        """Whether the client offers ``fs/write_text_file``."""
        return self._traits.writes_text

    @property
    def runs_commands(self) -> bool:
        """Whether the client offers ``terminal/*``."""
        return self._traits.terminal

    async def flow(self) -> None:
        """Wait while the client reads slower than we write."""
        await self._calls.flow()

    async def ask_permission(self, ask: PermissionAsk) -> Answer:
        """The user's answer; anything malformed, or from an asker unknown, is a rejection."""
        asked = self._found(ask)
        if asked is None:
            return Answer.UNAVAILABLE
        request = RequestPermissionRequest(
            session_id=asked.session_id,
            tool_call=_whole_call(asked, ask),
            options=_options(ask),
            meta=asked.meta,
        )
        async with self._turn_to_ask(ask):
            return await self._answer(request)

    def _found(self, ask: PermissionAsk | QuestionsAsk) -> Asked | None:
        asked = self.asked(ask)
        if asked is None:
            asker = ask.child_id or self.session_id
            logger.error("session %s: %s asks for an unknown call", self.session_id, asker)
        return asked

    @asynccontextmanager
    async def _turn_to_ask(self, ask: PermissionAsk | QuestionsAsk) -> AsyncIterator[None]:
        """Wait until the client has the call; while it is asked, its asker waits."""
        async with self.showing:
            pass  # a replay under way has yet to show the call
        with nullcontext() if ask.child_id is None else self.waiting(ask.child_id):
            yield

    async def _answer(self, request: RequestPermissionRequest) -> Answer:
        try:
            outcome = await self._calls.request_permission(request)
        except PeerGoneError:
            # The session is about to be closed: the turn ends there, without another model call.
            await anyio.sleep(GONE_WAIT_S)
            return Answer.UNAVAILABLE
        match outcome:
            case CancelledPermissionOutcome():
                return Answer.CANCELLED
            case Unusable(reason=reason):
                logger.warning("session %s: permission refused: %s", self.session_id, reason)
                return Answer.REJECT
            case _:
                return _ANSWERS[outcome.option_id]

    @property
    def takes_questions(self) -> bool:
        """Whether the client offers forms (``elicitation/create``)."""
        return self._traits.forms

    async def ask_questions(self, ask: QuestionsAsk) -> Sequence[QuestionAnswer] | None:
        """The user's answers; None: declined, dismissed, or answered in no usable way."""
        from acp_bridge.bridge.questions import answers_from_result, form_message, form_schema

        if not self.takes_questions or (asked := self._found(ask)) is None:
            return None
        request: JsonObject = {
            "mode": "form",
            "sessionId": asked.session_id,
            "toolCallId": asked.call.acp_id,
            "message": form_message(ask.questions, asked.asker),
            "requestedSchema": form_schema(ask.questions),
        }
        if asked.meta is not None:
            request["_meta"] = asked.meta
        try:
            async with self._turn_to_ask(ask):
                result = await self._calls.create_elicitation(request)
        except PeerGoneError:
            await anyio.sleep(GONE_WAIT_S)  # as for permission
            return None
        except PeerError as error:
            logger.warning(
                "session %s: questions were not put: error %s", self.session_id, error.peer_code
            )
            return None
        return answers_from_result(ask.questions, result)

    async def read_text(self, path: Path) -> str:
        """The file as the editor has it. Raises OSError."""
        try:
            return await self._calls.read_text_file(self.session_id, str(path))
        except (PeerError, PeerGoneError) as failure:
            if isinstance(failure, PeerError) and failure.peer_code == RESOURCE_NOT_FOUND:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from failure
            raise OSError(f"the editor could not read it: {failure.details}") from failure

    async def write_text(self, path: Path, text: str) -> None:
        """Write through the editor. Raises OSError."""
        try:
            await self._calls.write_text_file(self.session_id, str(path), text)
        except (PeerError, PeerGoneError) as failure:
            raise OSError(f"the editor could not write it: {failure.details}") from failure

    async def run_command(self, command: ClientCommand) -> CommandEnd:
        """Run it in a terminal of the client. Raises OSError."""
        from acp_bridge.bridge.terminals import ClientTerminals

        joins = view_for(self._traits).joins_arguments
        terminals = ClientTerminals(self._calls, self.session_id, joins_arguments=joins)
        try:
            return await terminals.run(command)
        except PeerGoneError as failure:
            # As for a question: the session is about to be closed.
            await anyio.sleep(GONE_WAIT_S)
            raise OSError(f"the client is gone: {failure.details}") from failure


def _whole_call(asked: Asked, ask: PermissionAsk) -> PermissionToolCall:
    """The call with all a user needs to judge it (field report R084)."""
    call = asked.call
    content = list(call.content)
    if ask.always_label is None:
        content.append(text_content(f"Needs permission each time: it {ask.reason}."))
    return PermissionToolCall(
        tool_call_id=call.acp_id,
        title=asked.title,
        name=call.name or None,
        kind=call.look.kind,
        status=call.status,
        content=content or None,
        locations=call.locations or None,
        raw_input=call.look.raw_input,
        meta=asked.meta,
    )


def _options(ask: PermissionAsk) -> list[PermissionOption]:
    options = [PermissionOption(option_id=_ALLOW_ONCE, name="Allow once", kind="allow_once")]
    if ask.always_label is not None:
        always = PermissionOption(
            option_id=_ALLOW_ALWAYS, name=ask.always_label, kind="allow_always"
        )
        options.append(always)
    options.append(PermissionOption(option_id=_REJECT_ONCE, name="Reject", kind="reject_once"))
    return options
