"""What the agent may ask of an editor: documents, edits, questions, progress, a file shown.

What a client did not announce is not sent: several crash on requests that they do not know.
"""

import itertools
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import TextDocument

from acp_bridge.lsp.positions import edit_between

if TYPE_CHECKING:
    from acp_bridge.lsp.server import AgentServer

logger = logging.getLogger(__name__)

MESSAGE_CHARS_MAX: Final = 2_000
"""Editors show a message in a line or a small window."""


class Progress:
    """A piece of work as the editor shows it; without the capability it shows nothing."""

    def __init__(self, server: "AgentServer", token: str | None) -> None:
        self._server = server
        self.token = token
        self._reported = ""

    def report(self, message: str) -> None:
        """Say what goes on; one line, and the same one only once."""
        line = " ".join(message.split())[:200]
        if self.token is not None and line != self._reported:
            self._reported = line
            self._send(types.WorkDoneProgressReport(message=line, cancellable=True))

    def end(self, message: str) -> None:
        """Say how it ended; nothing comes after it."""
        if self.token is not None:
            self._send(types.WorkDoneProgressEnd(message=message))
            self.token = None

    def _send(self, value: types.WorkDoneProgressReport | types.WorkDoneProgressEnd) -> None:
        assert self.token is not None
        self._server.progress(types.ProgressParams(token=self.token, value=value))


class Editor:
    """The client of one connection."""

    def __init__(self, server: "AgentServer") -> None:
        self._server = server
        self._tokens = itertools.count(1)

    @property
    def _window(self) -> types.WindowClientCapabilities:
        return self._server.client_capabilities.window or types.WindowClientCapabilities()

    @property
    def _workspace(self) -> types.WorkspaceClientCapabilities:
        return self._server.client_capabilities.workspace or types.WorkspaceClientCapabilities()

    @property
    def asks(self) -> bool:
        """Whether it shows a question with answers to choose from."""
        return self._window.show_message is not None

    @property
    def offers_actions(self) -> bool:
        """Whether it offers code actions."""
        document = self._server.client_capabilities.text_document
        return document is not None and document.code_action is not None

    async def flow(self) -> None:
        """Wait while the client reads slower than we write."""
        await self._server.flow()

    def root_of(self, uri: str | None) -> Path:
        """The workspace folder that a document lies in, else the first one, else our own."""
        workspace = self._server.workspace
        roots = [path for folder in workspace.folders if (path := _path(folder))]
        if not roots and workspace.root_path:
            roots = [Path(workspace.root_path)]
        path = None if uri is None else _path(uri)
        inside = [root for root in roots if path is not None and path.is_relative_to(root)]
        if inside:
            return max(inside, key=lambda root: len(root.parts))
        return roots[0] if roots else Path.cwd()

    def text_of(self, path: Path) -> str | None:
        """The text of an open document, unsaved changes included; None: it is not open."""
        document = self._document(path)
        return None if document is None else document.source

    async def replace_text(self, path: Path, text: str) -> bool:
        """Change an open document to this text; False: it is not open, or cannot be changed here.

        Raises:
            OSError: the editor refused, as it does when somebody typed meanwhile.
        """
        document = self._document(path)
        if document is None or not self._workspace.apply_edit:
            return False
        edit = edit_between(document.source, text, self._server.position_encoding)
        if edit is None:
            return True
        params = types.ApplyWorkspaceEditParams(
            edit=self._workspace_edit(document, edit), label=f"Agent: change {path.name}"
        )
        try:
            result = await self._server.protocol.call(types.WORKSPACE_APPLY_EDIT, params)
        except JsonRpcException as fault:
            raise OSError(f"the editor could not apply it: {fault.message}") from fault
        if not result.applied:
            why = result.failure_reason or "its text may have changed: read it again"
            raise OSError(f"the editor refused the edit: {why}")
        return True

    def _workspace_edit(self, document: TextDocument, edit: types.TextEdit) -> types.WorkspaceEdit:
        edits = self._workspace.workspace_edit
        if edits is None or not edits.document_changes:
            return types.WorkspaceEdit(changes={document.uri: [edit]})
        place = types.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
        return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(place, [edit])])

    async def choose(self, message: str, titles: list[str]) -> str | None:
        """The title that the user chose; None: the question was dismissed or not shown."""
        params = types.ShowMessageRequestParams(
            type=types.MessageType.Info,
            message=message[:MESSAGE_CHARS_MAX],
            actions=[types.MessageActionItem(title) for title in titles],
        )
        try:
            answer = await self._server.protocol.call(types.WINDOW_SHOW_MESSAGE_REQUEST, params)
        except JsonRpcException as fault:
            logger.warning("the editor did not show a question: error %d", fault.code)
            return None
        return None if answer is None else str(answer.title)

    def tell(self, message: str, *, is_error: bool = False) -> None:
        """Show a message."""
        kind = types.MessageType.Error if is_error else types.MessageType.Info
        params = types.ShowMessageParams(kind, message[:MESSAGE_CHARS_MAX])
        self._server.window_show_message(params)

    async def begin(self, title: str) -> Progress:
        """Show that work goes on, with a way to cancel it."""
        if not self._window.work_done_progress:
            return Progress(self._server, None)
        token = f"agent/{next(self._tokens)}"
        params = types.WorkDoneProgressCreateParams(token=token)
        try:
            await self._server.protocol.call(types.WINDOW_WORK_DONE_PROGRESS_CREATE, params)
        except JsonRpcException:
            return Progress(self._server, None)
        value = types.WorkDoneProgressBegin(title=f"Agent: {title}", cancellable=True)
        self._server.progress(types.ProgressParams(token=token, value=value))
        return Progress(self._server, token)

    async def show(self, path: Path) -> None:
        """Open a file for the user; where the editor cannot, say where it is."""
        support = self._window.show_document
        if support is not None and support.support:
            params = types.ShowDocumentParams(uri=_uri(path), take_focus=False)
            try:
                answer = await self._server.protocol.call(types.WINDOW_SHOW_DOCUMENT, params)
            except JsonRpcException:
                answer = None
            if answer is not None and answer.success:
                return
        self.tell(f"The agent's transcript: {path}")

    def _document(self, path: Path) -> TextDocument | None:
        """An open document by its real path: editors spell URIs in their own ways."""
        wanted = os.path.realpath(path)
        documents: dict[str, TextDocument] = self._server.workspace.text_documents
        for document in documents.values():
            found = _path(document.uri)
            if found is not None and os.path.realpath(found) == wanted:
                return document
        return None


def _path(uri: object) -> Path | None:
    path: str | None = to_fs_path(str(uri))
    return Path(path) if path else None


def _uri(path: Path) -> str:
    uri: str | None = from_fs_path(str(path))
    assert uri is not None, "an absolute path has a URI"
    return uri
