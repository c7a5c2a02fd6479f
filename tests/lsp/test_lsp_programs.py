"""Editors themselves, from Debian, work with the agent by the set-up that we give to people.

Each loads what `acp-bridge editor NAME` prints, starts the server by it, chooses the code action at
a comment, and gets the change into its buffer. Where one is not installed its test is skipped.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lsp_rig import LspDesk, call

from acp_bridge.vocabulary import JsonValue

pytestmark = [pytest.mark.process, pytest.mark.peer]

WAIT_S = 250

SMILE = "\N{GRINNING FACE}"

BEFORE = f"# {SMILE} first\nx = 1\n# AGENT: make it two\nlast = '{SMILE}'\n"

AFTER = f"# {SMILE} first\nx = 2\nlast = '{SMILE}'\n"

SCRIPT: tuple[list[JsonValue], ...] = (
    [call("r", "read", file_path="a.py")],
    [
        call(
            "e",
            "edit",
            file_path="a.py",
            old_string="x = 1\n# AGENT: make it two\n",
            new_string="x = 2\n",
        )
    ],
    [{"text": "It is two."}],
)

NEOVIM = """
local ended = false
local plain = vim.lsp.handlers['$/progress']
vim.lsp.handlers['$/progress'] = function(err, result, ...)
  if result.value.kind == 'end' then ended = result.value.message end
  return plain(err, result, ...)
end
vim.cmd('filetype on')
vim.cmd('edit a.py')
assert(vim.wait(60000, function() return next(vim.lsp.buf_get_clients(0)) ~= nil end), 'no client')
local id, client = next(vim.lsp.buf_get_clients(0))
assert(vim.wait(60000, function() return client.initialized end), 'not initialized')
vim.api.nvim_win_set_cursor(0, {3, 0})
local params = vim.lsp.util.make_range_params(0, client.offset_encoding)
params.context = {diagnostics = {}}
local answer = vim.lsp.buf_request_sync(0, 'textDocument/codeAction', params, 60000)
local action = answer[id].result[1]
client.request_sync('workspace/executeCommand', {
  command = action.command.command, arguments = action.command.arguments}, 60000, 0)
assert(vim.wait(60000, function() return ended end), 'no end of progress')
local lines = vim.api.nvim_buf_get_lines(0, 0, -1, false)
io.stdout:write(vim.fn.json_encode({
  title = action.title, ended = ended, text = table.concat(lines, '\\n') .. '\\n',
  modified = vim.bo.modified}))
vim.lsp.stop_client(id)
vim.wait(60000, function() return vim.lsp.get_client_by_id(id) == nil end)
vim.cmd('qall!')
"""

EMACS = """
(require 'json)
(defun wait-until (what holds)
  (with-timeout (60 (error "It never came: %s" what))
    (while (not (funcall holds)) (accept-process-output nil 0.05))))
(setq last-nonmenu-event ?x) ; not the mouse, which would want a window
(defun choose (title)
  "Choose the code action here whose name begins with TITLE, as a user does."
  (cl-letf (((symbol-function 'completing-read)
             (lambda (_prompt names &rest _)
               (cl-find-if (lambda (name) (string-prefix-p title name)) (mapcar #'car names)))))
    (call-interactively #'eglot-code-actions)))
(defvar asked nil)
(fset 'y-or-n-p (lambda (prompt) (setq asked prompt) t))
(find-file "a.py")
(apply #'eglot--connect (eglot--guess-contact))
(wait-until "a server" #'eglot-current-server)
(goto-char (point-min))
(search-forward "AGENT")
(choose "Agent: make it two")
(defun is-question (action) (string-prefix-p "Agent: allow" (plist-get action :title)))
(wait-until "a question" (lambda () (cl-find-if #'is-question (eglot-code-actions (point)))))
(choose "Agent: allow once: Edit `a.py`")
(wait-until "the change" (lambda () (not (string-match "AGENT" (buffer-string)))))
(defun is-cancel (action) (equal "Agent: cancel" (plist-get action :title)))
(wait-until "the end" (lambda () (not (cl-find-if #'is-cancel (eglot-code-actions (point))))))
(princ (json-encode (list :text (buffer-string) :modified (buffer-modified-p) :asked asked)))
(eglot-shutdown (eglot-current-server))
"""


def printed(desk: LspDesk, editor: str, *flags: str) -> Path:
    """The set-up for this desk's home and model, as a person gets it."""
    command = [sys.executable, "-m", "acp_bridge", "editor", editor, "--json"]
    command += ["--home", str(desk.home), "--model", f"scripted:{desk.script_file}", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    told: dict[str, str] = json.loads(done.stdout)
    file: Path = desk.workspace.parent / told["file"]
    file.write_text(told["text"])
    return file


def run(desk: LspDesk, *argv: str) -> dict[str, object]:
    """What an editor says in the end."""
    done = subprocess.run(
        argv,
        env={**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(desk.workspace.parent)},
        cwd=desk.workspace,
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.fixture
def desk(tmp_path: Path) -> LspDesk:
    made = LspDesk(tmp_path)
    (made.workspace / "a.py").write_text(BEFORE)
    made.script(*SCRIPT)
    return made


@pytest.mark.skipif(shutil.which("nvim") is None, reason="Neovim is not installed")
def test_neovim_takes_the_change_into_its_buffer(desk: LspDesk) -> None:
    init = printed(desk, "neovim-lsp", "--mode", "full")
    driver = desk.workspace.parent / "drive.lua"
    driver.write_text(NEOVIM)
    arguments = ["--headless", "-u", str(init), "-n", "-c", f"luafile {driver}"]
    assert run(desk, "nvim", *arguments) == {
        "title": "Agent: make it two",
        "ended": "done",
        "text": AFTER,
        "modified": True,
    }


def has_eglot() -> bool:
    if shutil.which("emacs") is None:
        return False
    look = ["emacs", "--batch", "--eval", "(require 'eglot)"]
    return subprocess.run(look, capture_output=True, check=False).returncode == 0


def test_emacs_takes_the_change_into_its_buffer_with_the_users_consent(desk: LspDesk) -> None:
    if not has_eglot():
        pytest.skip("Emacs with eglot is not installed")
    setup = printed(desk, "eglot")
    driver = desk.workspace.parent / "drive.el"
    driver.write_text(EMACS)
    arguments = ["--batch", "-l", str(setup)]
    told = run(desk, "emacs", *arguments, "-l", str(driver))
    assert (told["text"], told["modified"]) == (AFTER, True)
    assert "Server wants to edit" in str(told["asked"])  # eglot asks too; the guide says so
    assert desk.has_told("It is two.")
