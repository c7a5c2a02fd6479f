"""Which editors' settings on this machine start acp-bridge, and by which command: for the doctor.

Settings are searched as text: they are of five languages, often with comments, and only one
question is asked of them. Reading is at the rim (`settings_that_name_us`), the rest is pure.
"""

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from acp_bridge.cli.editor import PROGRAM

_BYTES_MAX: Final = 1_000_000
"""Larger files are not what people write by hand."""

_FILES_MAX: Final = 500
"""So many files of one editor are looked at."""

_PLACES: Final = (
    ("zed", "config", "zed/settings.json"),
    ("jetbrains", "home", ".jetbrains/acp.json"),
    ("vscode", "programs", "Code/User/settings.json"),
    ("vscode", "programs", "Code - Insiders/User/settings.json"),
    ("vscode", "programs", "VSCodium/User/settings.json"),
    ("neovim", "config", "nvim/**/*.lua"),
    ("emacs", "home", ".emacs"),
    ("emacs", "home", ".emacs.el"),
    ("emacs", "home", ".emacs.d/*.el"),
    ("emacs", "home", ".emacs.d/lisp/*.el"),
    ("emacs", "config", "emacs/*.el"),
    ("emacs", "config", "emacs/lisp/*.el"),
    ("helix", "config", "helix/languages.toml"),
    ("kate", "config", "kate/lspclient/settings.json"),
    ("acpx", "home", ".acpx/config.json"),
    ("acpx", "project", ".acpxrc.json"),
)
"""Editor, kind of folder, and files below it; Toad has no settings for agents.

acpx alone reads a file of the folder that it is started in, of that one and of none above it.
"""

_COMMENT: Final = re.compile(r"^\s*(//|--|;|#)")

_DOUBLE: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)"')

_EITHER: Final = re.compile(_DOUBLE.pattern + r"|'((?:[^'\\\n]|\\.)*)'")
"""Lua and TOML quote in two ways; in Lisp a single quote is another thing."""

_ESCAPE: Final = re.compile(r"\\(.)")


class Naming(NamedTuple):
    """A file of an editor's settings that names us, and the programs by which it starts us."""

    editor: str
    file: Path
    programs: list[str]


def settings_that_name_us(
    environment: Mapping[str, str], home: Path, project: Path
) -> Iterator[Naming]:
    """Look through the settings of the editors that there are set-ups for.

    ``project`` is the folder that work is done in.
    """
    folders = {
        "home": home,
        "project": project,
        "config": Path(environment.get("XDG_CONFIG_HOME") or home / ".config"),
    }
    mac = home / "Library" / "Application Support"
    folders["programs"] = mac if sys.platform == "darwin" else folders["config"]
    for editor, folder, pattern in _PLACES:
        for file in islice(sorted(folders[folder].glob(pattern)), _FILES_MAX):
            programs = programs_in(_text(file), file.suffix)
            if programs:
                yield Naming(editor, file, programs)


def programs_in(text: str, suffix: str) -> list[str]:
    """The programs by which settings start us, each once, in order.

    A name without a folder may as well be a label that somebody gave us: it counts only where
    nothing else does.
    """
    if PROGRAM not in text and "acp_bridge" not in text:
        return []
    kept = "\n".join(line for line in text.splitlines() if not _COMMENT.match(line))
    quoted = _EITHER if suffix in {".lua", ".toml"} else _DOUBLE
    strings = [_ESCAPE.sub(r"\1", found[found.lastindex or 0]) for found in quoted.finditer(kept)]
    named = list(dict.fromkeys([*_scripts(strings), *_interpreters(strings)]))
    return [program for program in named if "/" in program] or named


def _scripts(strings: Iterable[str]) -> Iterator[str]:
    for string in strings:
        if string.rpartition("/")[2] == PROGRAM:
            yield string
        elif PROGRAM in string:
            try:
                first = shlex.split(string)[0]
            except (ValueError, IndexError):
                continue
            if first.rpartition("/")[2] == PROGRAM:
                yield first


def _interpreters(strings: list[str]) -> Iterator[str]:
    """PYTHON of ``PYTHON -m acp_bridge``; between them may stand the names of keys."""
    for at, string in enumerate(strings):
        if [*strings[at - 1 : at], string] == ["-m", "acp_bridge"]:
            before = [one for one in strings[: at - 1] if one != "args"]
            yield from before[-1:]


def _text(file: Path) -> str:
    try:
        if not file.is_file() or file.stat().st_size > _BYTES_MAX:
            return ""
        return file.read_text("utf-8", errors="replace")
    except OSError:
        return ""  # not ours to judge: the editor says it when it cannot read its settings
