"""What each editor reads from its set-up: the command, by a real parser of the file's language.

Lua is read by Neovim and Emacs Lisp by Emacs, with stand-ins for the plugins; a shell's line by a
shell, with a stand-in for the program. Where one of them is not installed its tests are skipped.
"""

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.cli.editor_setups import SetUp

WAIT_S = 60

CODECOMPANION = """
local plugin = {setup = function(given) options = given end}
package.preload['codecompanion'] = function() return plugin end
package.preload['codecompanion.adapters.acp.helpers'] = function() return {} end
dofile(vim.fn.getenv('THE_FILE'))
command = options.adapters.acp.acp_bridge().commands.default
"""

AVANTE = """
local plugin = {setup = function(given) options = given end}
package.preload['avante'] = function() return plugin end
dofile(vim.fn.getenv('THE_FILE'))
local chosen = options.acp_providers[options.provider]
command = vim.list_extend({chosen.command}, chosen.args)
"""

NEOVIM_LSP = """
vim.lsp.start_client = function(config) command = config.cmd; return 1 end
vim.lsp.start = nil
vim.lsp.buf_attach_client = function() end
dofile(vim.fn.getenv('THE_FILE'))
vim.bo.filetype = 'python'
"""

AGENT_SHELL = """
(provide 'agent-shell)
(defun agent-shell-make-agent-config (&rest given) given)
(defun acp-make-client (&rest given) given)
(defun agent-shell-start (&rest given)
  (let ((client (funcall (plist-get (plist-get given :config) :client-maker) (current-buffer))))
    (setq command (cons (plist-get client :command) (plist-get client :command-params)))))
(load (getenv "THE_FILE"))
(call-interactively 'acp-bridge-shell)
"""

EGLOT = """
(provide 'eglot)
(defvar eglot-server-programs nil)
(load (getenv "THE_FILE"))
(setq command (cdr (car eglot-server-programs)))
"""


def command_in(set_up: SetUp, folder: Path) -> list[str]:
    """The command that an editor starts; the set-up's text is put into ``folder``."""
    file = folder / set_up.file
    file.write_text(set_up.text, "utf-8")
    return list(READERS[set_up.name](file))


def _json(*keys: str) -> Callable[[Path], Any]:
    def read(file: Path) -> Any:
        found = json.loads(file.read_text("utf-8"))
        for key in keys:
            found = found[key]
        return found

    return read


def _program_and_arguments(read: Callable[[Path], Any]) -> Callable[[Path], list[str]]:
    def joined(file: Path) -> list[str]:
        server = read(file)
        return [server["command"], *server["args"]]

    return joined


def _helix(file: Path) -> Any:
    languages = tomllib.loads(file.read_text("utf-8"))
    [language] = languages["language"]
    return languages["language-server"][language["language-servers"][-1]]


def _by_neovim(script: str) -> Callable[[Path], Any]:
    def read(file: Path) -> Any:
        driver = file.with_name("driver.lua")
        driver.write_text(script + "io.stdout:write(vim.fn.json_encode(command))\nvim.cmd('qall!')")
        return _told(["nvim", "--headless", "-u", "NONE", "-n", "-c", f"luafile {driver}"], file)

    return read


def _by_emacs(script: str) -> Callable[[Path], Any]:
    def read(file: Path) -> Any:
        driver = file.with_name("driver.el")
        driver.write_text(script + "(require 'json)(princ (json-encode (vconcat command)))")
        return _told(["emacs", "-Q", "--batch", "-l", str(driver)], file)

    return read


def _toad(file: Path) -> list[str]:
    """Toad gives its COMMAND to a shell."""
    stand_in = file.with_name("toad")
    stand_in.write_text("#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done\n")
    stand_in.chmod(0o755)
    env = {**os.environ, "PATH": os.pathsep.join([str(file.parent), os.environ["PATH"]])}
    done = subprocess.run(["sh", file], env=env, capture_output=True, text=True, check=True)
    first, command, *_ = done.stdout.split("\0")
    assert first == "acp"
    split = f"for word in {command}; do printf '%s\\0' \"$word\"; done"
    done = subprocess.run(["sh", "-c", split], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def _told(argv: list[str], file: Path) -> Any:
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    done = subprocess.run(
        argv,
        env={**os.environ, "THE_FILE": str(file), "LC_ALL": "C.UTF-8", "HOME": str(file.parent)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


READERS: dict[str, Callable[[Path], Any]] = {
    "acpx": _json("agents", "acp-bridge", "argv"),
    "agent-shell": _by_emacs(AGENT_SHELL),
    "avante": _by_neovim(AVANTE),
    "codecompanion": _by_neovim(CODECOMPANION),
    "eglot": _by_emacs(EGLOT),
    "helix": _program_and_arguments(_helix),
    "jetbrains": _program_and_arguments(_json("agent_servers", "ACP Bridge")),
    "kate": _json("servers", "python", "command"),
    "neovim-lsp": _by_neovim(NEOVIM_LSP),
    "toad": _toad,
    "vscode": _program_and_arguments(_json("acp.agents", "ACP Bridge")),
    "zed": _program_and_arguments(_json("agent_servers", "ACP Bridge")),
}
