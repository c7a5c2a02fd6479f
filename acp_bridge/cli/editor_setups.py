"""Set-ups of editors: the files of `editors/`, with an installation's command in place of ours.

Each folder there is an editor: a guide (README.md, five points) and one file, the set-up, which
starts ``acp-bridge --model demo``. The wheel holds a copy. Pure but for reading those files.
"""

import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from acp_bridge.errors import ConfigError

_GUIDE: Final = "README.md"

_POINT: Final = re.compile(r"^- \*\*(?P<label>[^*]+)\*\*: (?P<text>.+)$", re.MULTILINE)

_WORDS: Final = re.compile(
    r'"acp-bridge"(?P<between>(?:[^"]|"args")*?)'
    r'"--model"(?P<gap>,?\s+)"demo"(?P<rest>(?:,?\s+"[^"]*")*)'
)
"""The command as quoted words: in one list, or the program and then its arguments."""

_LINE: Final = re.compile(r'"acp-bridge --model demo"')
"""The command as one line, which a shell reads within a line that a shell reads."""


class SetUp(NamedTuple):
    """How an editor is told to start us. ``points`` are the guide's, by label, in order."""

    name: str
    title: str
    file: str
    text: str
    points: dict[str, str]


class Filled(NamedTuple):
    """A set-up for one installation: its text, and the command that it has an editor start."""

    text: str
    command: list[str]


def set_ups() -> list[SetUp]:
    """All there are, by name.

    Raises:
        ConfigError: this installation has none.
    """
    root = _root()
    if not root.is_dir():
        raise ConfigError(f"The set-ups of editors are not in {root}: install acp-bridge anew.")
    return [_read(folder) for folder in sorted(root.iterdir()) if folder.name[0] != "."]


def set_up_named(name: str, known: Sequence[SetUp]) -> SetUp:
    """The set-up of an editor.

    Raises:
        ConfigError: there is none of that name; says which there are, those that fit first.
    """
    for one in known:
        if one.name == name.lower():
            return one
    near = [one.name for one in known if name and name.lower() in one.title.lower()]
    if near:
        raise ConfigError(f"There is no set-up called {name!r:.60}, but {_listed(near)}.")
    names = _listed([one.name for one in known])
    raise ConfigError(
        f"There is no set-up called {name!r:.60}. There are {names}; any other editor starts "
        "acp-bridge if it speaks ACP, and `acp-bridge lsp` if it speaks LSP."
    )


def filled_in(set_up: SetUp, program: Sequence[str], flags: Sequence[str]) -> Filled:
    """The set-up, starting ``program`` with ``flags`` where ours has ``--model demo``.

    Raises:
        ConfigError: a word cannot stand in a settings file.
    """
    for word in (*program, *flags):
        if any(unicodedata.category(character) in {"Cc", "Cs"} for character in word):
            raise ConfigError(
                f"{word!r:.100} cannot stand in an editor's settings: it holds a character that "
                "cannot be written there. Choose another path or value."
            )
    text = set_up.text
    if (found := _WORDS.search(text)) is not None:
        command = [*program, *flags, *re.findall(r'"([^"]*)"', found["rest"])]
        gap, between = found["gap"], found["between"]
        if between.strip(" \n,"):
            mine = _quoted(command[:1], gap) + between + _quoted(command[1:], gap)
        else:
            mine = _quoted(command, gap)
    else:
        found = _LINE.search(text)
        assert found is not None, set_up.name
        command = [*program, *flags]
        mine = shlex.quote(shlex.join(command))
    return Filled(text[: found.start()] + mine + text[found.end() :], command)


def _quoted(words: Iterable[str], gap: str) -> str:
    r"""Words in double quotes, where \ and " are escaped: so say JSON, TOML, Lua and Emacs Lisp."""
    return gap.join('"' + re.sub(r'([\\"])', r"\\\1", word) + '"' for word in words)


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _read(folder: Path) -> SetUp:
    guide = (folder / _GUIDE).read_text("utf-8")
    [file] = (path for path in folder.iterdir() if path.name != _GUIDE and path.name[0] != ".")
    return SetUp(
        folder.name,
        guide.partition("\n")[0].removeprefix("# "),
        file.name,
        file.read_text("utf-8"),
        {found["label"]: found["text"] for found in _POINT.finditer(guide)},
    )


def _root() -> Path:
    package = Path(__file__).resolve().parent.parent
    installed = package / "editors"
    return installed if installed.is_dir() else package.parent / "editors"  # a checkout
