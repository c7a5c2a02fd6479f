"""pygls' protocol with what an agent's server owes its client: every request gets an answer.

Different from pygls 2.1 (facts: jsonrpc-and-lsp, section 2): bad JSON and bad parameters are
answered, so are requests before ``initialize`` and after ``shutdown``; no traceback crosses the
wire; ``exit`` ends our scope, not the process; a request to the client can be cancelled.
"""

import asyncio
import json
import uuid
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError, JsonRpcInvalidParams
from pygls.protocol import LanguageServerProtocol, lsp_method
from pygls.protocol.json_rpc import MsgId, RPCMessage, RPCRequest

from acp_bridge.errors import FAULT

if TYPE_CHECKING:
    from acp_bridge.lsp.server import AgentServer

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NOT_INITIALIZED: Final = -32002


class AgentProtocol(LanguageServerProtocol):
    """One connection's messages."""

    _server: "AgentServer"

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_args: object) -> Generator[Any, Any, None]:
        """The client is done: 0 after ``shutdown``, else 1 (LSP 3.17, Exit Notification)."""
        self._server.end(0 if self._shutdown else 1)
        yield from ()  # pygls looks for a generator

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    def lsp_workspace__execute_command(
        self, params: types.ExecuteCommandParams
    ) -> Generator[Any, Any, None]:
        """Run a command with its arguments as they came: each names what is wrong with them."""
        command = self.fm.commands.get(params.command)
        if command is None:
            raise JsonRpcInvalidParams(message=f"There is no command {params.command!r:.80}.")
        command(params.arguments or [])
        yield from ()

    def structure_message(self, data: dict[str, Any]) -> object:
        """A message of its type. What does not fit is dropped, but whoever waits hears of it."""
        try:
            return super().structure_message(data)
        except JsonRpcException:
            if "method" in data and "id" in data:
                text = f"The parameters of {str(data['method'])!r:.80} have the wrong shape."
                self.refuse(data["id"], INVALID_PARAMS, text)
            elif (asked := self._request_futures.pop(data.get("id", ""), None)) is not None:
                asked.set_exception(JsonRpcInternalError("The answer has the wrong shape."))
            raise

    def handle_message(self, message: RPCMessage) -> None:
        """Hand a message on, if it may come now."""
        if isinstance(message, RPCRequest):
            if self._shutdown:
                self.refuse(message.id, INVALID_REQUEST, "The server is shutting down.")
                return
            if self._workspace is None and message.method != types.INITIALIZE:
                self.refuse(message.id, NOT_INITIALIZED, "Send initialize first.")
                return
        super().handle_message(message)

    def refuse_unreadable(self, fault: Exception) -> None:
        """Answer bytes that are no JSON; what was readable has had its answer."""
        if isinstance(fault, json.JSONDecodeError | UnicodeDecodeError):
            # By hand: the library's type leaves a null id out.
            error = {"code": PARSE_ERROR, "message": "The message is no JSON."}
            self._send_data({"jsonrpc": self.VERSION, "id": None, "error": error})

    def refuse(self, message_id: MsgId, code: int, text: str) -> None:
        """Answer a request with an error."""
        self._send_response(message_id, error=types.ResponseError(code=code, message=text))

    def _send_response(
        self,
        msg_id: MsgId,
        result: object = None,
        error: types.ResponseError | None = None,
    ) -> None:
        if error is not None and error.code == INTERNAL_ERROR:
            error = types.ResponseError(code=INTERNAL_ERROR, message=FAULT)
        super()._send_response(msg_id, result, error)

    async def call(self, method: str, params: object) -> Any:  # noqa: ANN401  # by method
        """Ask the client; a cancelled wait tells it so, and its late answer goes nowhere.

        Raises:
            JsonRpcException: the client answered with an error, or with what is no answer.
        """
        message_id = str(uuid.uuid4())
        answer = self.send_request(method, params, msg_id=message_id)
        try:
            return await asyncio.shield(asyncio.wrap_future(answer))
        except asyncio.CancelledError:
            if self._request_futures.pop(message_id, None) is not None:
                answer.cancel()
                self.notify(types.CANCEL_REQUEST, types.CancelParams(id=message_id))
            raise
