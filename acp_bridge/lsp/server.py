"""The server that pygls runs: which methods and commands there are, and what their values mean."""

import logging
from collections.abc import Callable, Sequence
from threading import Event
from typing import Protocol

import anyio
import attrs
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams
from pygls.io_ import run_async
from pygls.lsp.server import LanguageServer

from acp_bridge.errors import InvalidParamsError, RemoteProtocolError
from acp_bridge.lsp import actions
from acp_bridge.lsp.actions import COMMANDS, Standing, actions_at
from acp_bridge.lsp.positions import Encoding
from acp_bridge.lsp.protocol import AgentProtocol
from acp_bridge.lsp.stream import MessageReader, MessageWriter
from acp_bridge.vocabulary import JsonObject, JsonValue
from acp_bridge.wire.endpoint import ByteStream
from acp_bridge.wire.writer import Writer

logger = logging.getLogger(__name__)

FINISH_S = 2.0
"""How long the last answers may take to be read."""


@attrs.frozen(slots=True)
class Ask:
    """Work for the agent: what to do, and the place it is about.

    Lines count from 0; ``last_line`` is included. ``is_comment``: the text is a comment there.
    """

    text: str
    uri: str | None = None
    first_line: int | None = None
    last_line: int | None = None
    is_comment: bool = False


class Agent(Protocol):
    """What an editor may want. Each call returns at once; results come as messages."""

    def prompt(self, ask: Ask) -> None:
        """Work on this, after what was asked before."""

    def cancel(self, token: str | None = None) -> None:
        """Stop what runs and waits; with a progress token, the work that it shows."""

    def set_mode(self, mode: str | None) -> None:
        """Choose a permission mode; None: say which there are."""

    def open(self, session_id: str | None) -> None:
        """Show the transcript; with an id, go on with that stored session."""

    def answer(self, question_id: str | None, *, allow: bool, always: bool) -> None:
        """Answer an open question, the oldest without an id."""

    def standing(self) -> Standing:
        """What there is to offer besides new work."""


class AgentServer(LanguageServer):
    """An agent behind LSP. Set `agent` before `serve`."""

    protocol: AgentProtocol

    def __init__(self, version: str) -> None:
        # Whole documents: pygls splits lines where LSP does not, and edits of its own would slip.
        super().__init__(
            "acp-bridge",
            version,
            text_document_sync_kind=types.TextDocumentSyncKind.Full,
            protocol_cls=AgentProtocol,
        )
        # It logs whole messages, and so what people write.
        logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)
        self.agent: Agent
        self._writer: Writer | None = None
        self._scope = anyio.CancelScope()
        self.exit_code = 0
        """0 after ``shutdown`` and at the end of the input, 1 after a bare ``exit``."""
        _register(self)

    @property
    def position_encoding(self) -> Encoding:
        """How this client counts characters."""
        return self.server_capabilities.position_encoding or "utf-16"

    async def serve(self, stream: ByteStream) -> None:
        """Serve until the client is gone or says so.

        Raises:
            RemoteProtocolError: what comes is no LSP.
        """
        self._writer = writer = Writer(stream.send, lambda _fault: self.end(self.exit_code))
        self.protocol.set_writer(MessageWriter(writer))
        reader = MessageReader(stream)
        refused: RemoteProtocolError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            try:
                with self._scope:
                    await run_async(Event(), reader, self.protocol, error_handler=self._unreadable)
            except RemoteProtocolError as error:
                refused = error  # kept, since a task group would wrap it
            finally:
                with anyio.CancelScope(shield=True):
                    writer.release()
                    await writer.finish(FINISH_S)
                    await stream.aclose()
        if refused is not None:
            raise refused

    def end(self, exit_code: int) -> None:
        """Stop serving."""
        self.exit_code = exit_code
        self._scope.cancel()

    def stop(self, reason: str) -> None:
        """End as if the client were gone."""
        logger.info("stopped: %s", reason)
        self.end(self.exit_code)

    async def flow(self) -> None:
        """Wait while the client reads slower than we write."""
        if self._writer is not None:
            await self._writer.flow()

    def report_server_error(self, error: Exception, source: object) -> None:
        """Note a fault by its kind alone: texts may hold what people write."""
        logger.error("%s: %s", getattr(source, "__name__", source), type(error).__name__)

    def _unreadable(self, fault: Exception, _source: object) -> None:
        logger.warning("a message could not be handled: %s", type(fault).__name__)
        self.protocol.refuse_unreadable(fault)


def ask_from_arguments(arguments: Sequence[JsonValue]) -> Ask:
    """The work that ``agent.prompt`` names: a text, or an object as the code actions give.

    Raises:
        InvalidParamsError: it is neither; names the field.
    """
    given = arguments[0] if arguments else None
    if isinstance(given, str):
        given = {"text": given}
    if not isinstance(given, dict):
        raise InvalidParamsError(
            "agent.prompt wants a text or an object with `text`.", field="arguments[0]"
        )
    text, uri = given.get("text"), given.get("uri")
    if not isinstance(text, str) or not text.strip():
        raise InvalidParamsError("Say what to do in `text`.", field="arguments[0].text")
    if uri is not None and not isinstance(uri, str):
        raise InvalidParamsError("`uri` is a text.", field="arguments[0].uri")
    first, last = _line(given, "firstLine"), _line(given, "lastLine")
    return Ask(text, uri, first, last, is_comment=given.get("isComment") is True)


def _line(given: JsonObject, name: str) -> int | None:
    line = given.get(name)
    if line is None:
        return None
    if isinstance(line, bool) or not isinstance(line, int) or line < 0:
        raise InvalidParamsError(f"`{name}` counts from 0.", field=f"arguments[0].{name}")
    return line


def _text(arguments: Sequence[JsonValue], place: int) -> str | None:
    if place >= len(arguments) or arguments[place] is None:
        return None
    value = arguments[place]
    if not isinstance(value, str):
        raise InvalidParamsError("The argument is a text.", field=f"arguments[{place}]")
    return value


def _register(server: AgentServer) -> None:
    """Tell pygls every method and command; handlers return at once."""

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=["quickfix", "refactor", "source"]),
    )
    def code_action(params: types.CodeActionParams) -> list[types.CodeAction | types.Command]:
        document = server.workspace.text_documents.get(params.text_document.uri)
        text = None if document is None else document.source
        capabilities = server.client_capabilities.text_document
        literals = capabilities is not None and (
            capabilities.code_action is not None
            and capabilities.code_action.code_action_literal_support is not None
        )
        return actions_at(params, text, server.agent.standing(), literals=literals)

    @server.feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)
    def cancel_progress(params: types.WorkDoneProgressCancelParams) -> None:
        server.agent.cancel(str(params.token))

    for name in COMMANDS:
        server.command(name)(_command(server, name))


def _command(server: AgentServer, name: str) -> Callable[[Sequence[JsonValue]], None]:
    def command(arguments: Sequence[JsonValue]) -> None:
        try:
            _run_command(server.agent, name, arguments)
        except InvalidParamsError as refusal:
            raise JsonRpcInvalidParams(
                message=refusal.details, data={"field": refusal.field}
            ) from refusal

    return command


def _run_command(agent: Agent, name: str, arguments: Sequence[JsonValue]) -> None:
    match name:
        case actions.PROMPT:
            agent.prompt(ask_from_arguments(arguments))
        case actions.CANCEL:
            agent.cancel()
        case actions.MODE:
            agent.set_mode(_text(arguments, 0))
        case actions.OPEN:
            agent.open(_text(arguments, 0))
        case actions.ALLOW:
            always = _text(arguments, 1) == "always"
            agent.answer(_text(arguments, 0), allow=True, always=always)
        case _:
            agent.answer(_text(arguments, 0), allow=False, always=False)


__all__ = ["Agent", "AgentServer", "Ask", "ask_from_arguments"]
