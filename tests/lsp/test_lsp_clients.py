"""The process that an editor starts, driven by pytest-lsp's client as several editors."""

import ast
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from lsp_rig import WAIT_S, LspDesk, call
from lsprotocol import types
from pytest_lsp import LanguageClient, client_capabilities, make_test_lsp_client

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.peer]

START_S = 60.0

TWO = {"old_string": "x = 1\n# AGENT: make it two\n", "new_string": "x = 2\n"}
"""The change that the model makes."""


def helix() -> types.ClientCapabilities:
    """By hand, after Helix 25: no message requests, UTF-8 first, documents shown."""
    return types.ClientCapabilities(
        workspace=types.WorkspaceClientCapabilities(
            apply_edit=True,
            workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
            execute_command=types.ExecuteCommandClientCapabilities(dynamic_registration=False),
        ),
        text_document=types.TextDocumentClientCapabilities(
            code_action=types.CodeActionClientCapabilities(
                code_action_literal_support=types.ClientCodeActionLiteralOptions(
                    code_action_kind=types.ClientCodeActionKindOptions(
                        value_set=["", "quickfix", "refactor", "source"]
                    )
                )
            )
        ),
        window=types.WindowClientCapabilities(
            work_done_progress=True,
            show_document=types.ShowDocumentClientCapabilities(support=True),
        ),
        general=types.GeneralClientCapabilities(position_encodings=["utf-8", "utf-32", "utf-16"]),
    )


def kate() -> types.ClientCapabilities:
    """What Kate 22.12 says: code actions and progress; no edits, no questions, no documents."""
    said = helix()
    return types.ClientCapabilities(
        workspace=types.WorkspaceClientCapabilities(workspace_folders=True),
        text_document=said.text_document,
        window=types.WindowClientCapabilities(work_done_progress=True),
    )


EDITORS: dict[str, Callable[[], types.ClientCapabilities]] = {
    "helix": helix,
    "kate": kate,
    "neovim": lambda: client_capabilities("neovim"),
    "vscode": lambda: client_capabilities("visual-studio-code"),
    "emacs": lambda: client_capabilities("emacs"),
}


class Editor:
    """A client that holds one document, and what it was told."""

    def __init__(self, client: LanguageClient, uri: str, text: str) -> None:
        self.client = client
        self.uri = uri
        self.text = text
        self.asked: list[str] = []

        def apply(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
            found = params.edit.document_changes or ()
            edits = [e for change in found for e in getattr(change, "edits", ())]
            edits += [e for many in (params.edit.changes or {}).values() for e in many]
            for edit in edits:  # whole lines, so counting characters is not needed
                lines = self.text.splitlines(keepends=True)
                lines[edit.range.start.line : edit.range.end.line] = [edit.new_text]
                self.text = "".join(lines)
            return types.ApplyWorkspaceEditResult(applied=True)

        def ask(params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
            self.asked.append(params.message)
            return params.actions[0] if params.actions else None

        client.feature(types.WORKSPACE_APPLY_EDIT)(apply)
        client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)(ask)


@asynccontextmanager
async def started(desk: LspDesk, capabilities: types.ClientCapabilities) -> AsyncIterator[Editor]:
    file = desk.workspace / "a.py"
    text = "x = 1\n# AGENT: make it two\n"
    client = make_test_lsp_client()
    arguments = ["--home", str(desk.home), "--model", f"scripted:{desk.script_file}"]
    await client.start_io(sys.executable, "-m", "acp_bridge", *arguments, "--mode", "ask", "lsp")
    editor = Editor(client, file.as_uri(), text)
    try:
        with anyio.fail_after(START_S):
            params = types.InitializeParams(capabilities, root_uri=desk.workspace.as_uri())
            await client.initialize_session(params)
        item = types.TextDocumentItem(file.as_uri(), "python", 1, text)
        client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        yield editor
    finally:
        with anyio.fail_after(WAIT_S, shield=True):
            await client.shutdown_session()
            await client.stop()  # type: ignore[no-untyped-call]


async def until(holds: Callable[[], bool]) -> None:
    """A file tells nobody that it grows: look again."""
    with anyio.fail_after(WAIT_S):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def run_action(editor: Editor, title: str) -> None:
    """Choose a code action at the comment, as an editor does."""
    place = types.Range(types.Position(1, 0), types.Position(1, 0))
    found: list[types.CodeAction | types.Command] = []
    document, context = types.TextDocumentIdentifier(editor.uri), types.CodeActionContext([])
    params = types.CodeActionParams(document, place, context)
    with anyio.fail_after(WAIT_S):
        while not found:  # the user looks again until the question is there
            actions = await editor.client.text_document_code_action_async(params)
            found = [one for one in actions or () if one.title.startswith(title)]
        # pygls' client takes an action for a command, and the real one for its name.
        command = ast.literal_eval(str(found[0].command))
        chosen = types.ExecuteCommandParams(command["command"], command["arguments"])
        await editor.client.workspace_execute_command_async(chosen)


@pytest.mark.parametrize("name", EDITORS)
async def test_each_editor_gets_its_change_with_the_users_consent(
    tmp_path: Path, name: str
) -> None:
    desk = LspDesk(tmp_path)
    desk.script(
        [call("r", "read", file_path="a.py")],
        [call("e", "edit", file_path="a.py", **TWO)],
        [{"text": "It is two."}],
    )
    capabilities = EDITORS[name]()
    window, workspace = capabilities.window, capabilities.workspace
    assert window is not None
    assert workspace is not None
    async with started(desk, capabilities) as editor:
        await run_action(editor, "Agent: make it two")
        if window.show_message is None:
            await run_action(editor, "Agent: allow once: Edit `a.py`")
        await until(lambda: desk.has_told("It is two."))
        file = desk.workspace / "a.py"  # written where the editor takes no edits
        assert (editor.text if workspace.apply_edit else file.read_text()) == "x = 2\n"
        assert bool(editor.asked) is (window.show_message is not None)
        assert bool(editor.client.progress_reports) is bool(window.work_done_progress)


async def test_a_client_that_is_no_lsp_client_is_told_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "acp_bridge", "--home", str(tmp_path / "home"), "lsp"]
    done = await anyio.run_process(command, input=b"{" * 10_000, check=False)
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"start acp-bridge without `lsp`" in done.stderr


async def test_a_bare_exit_ends_with_one_and_the_end_of_input_with_zero(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "acp_bridge", "--home", str(tmp_path / "home"), "lsp"]
    body = b'{"jsonrpc":"2.0","method":"exit"}'
    frame = b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    done = await anyio.run_process(command, input=frame, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
    done = await anyio.run_process(command, input=b"", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


async def test_a_trace_holds_each_message_without_secrets(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    command = [sys.executable, "-m", "acp_bridge", "--home", str(tmp_path / "home")]
    messages = [
        {"id": 1, "method": "initialize", "params": {"capabilities": {}, "apiToken": "hunter22"}},
        {"id": 2, "method": "shutdown"},
    ]
    bodies = [json.dumps({"jsonrpc": "2.0", **message}) for message in messages]
    given = "".join(f"Content-Length: {len(body)}\r\n\r\n{body}" for body in bodies)
    await anyio.run_process([*command, "--trace", str(trace), "lsp"], input=given.encode())
    noted = [json.loads(line) for line in (await anyio.Path(trace).read_text()).splitlines()]
    told = [(one["dir"], one["message"]["id"]) for one in noted]
    assert sorted(told) == [("in", 1), ("in", 2), ("out", 1), ("out", 2)]
    assert "hunter22" not in json.dumps(noted)
