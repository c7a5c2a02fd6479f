"""Commands that a project or the user has written: a prompt in a Markdown file. Pure.

``NAME.md`` is typed as ``/NAME``. It may begin with a head between lines of ``---`` with
``description: …`` and ``argument-hint: …``; other lines of a head are other agents' and say nothing
here. In the text ``$ARGUMENTS`` stands for all that was typed behind the name and ``$1`` to ``$9``
for its words (quotes hold words together); where neither stands, what was typed comes behind it.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

from acp_bridge.harness.project.reading import Unusable
from acp_bridge.harness.titles import one_line
from acp_bridge.vocabulary import CommandInfo

DESCRIPTION_CHARS_MAX: Final = 200
HINT_CHARS_MAX: Final = 80

REPEATED_CHARS_MAX: Final = 1024 * 1024
"""What was typed, put in again and again: a file of 64 KiB could ask for it 6,000 times."""

QUOTED_CHARS_MAX: Final = 10_000
"""Longer text is no list of words but something pasted, whose quotes are its own; to look for them
takes the square of its length."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_HEAD: Final = re.compile(r"---[ \t]*\n(?:(.*?)\n)?---[ \t]*(?:\n|\Z)", re.DOTALL)
_LINE: Final = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(.*)")
_HOLE: Final = re.compile(r"\$(?:ARGUMENTS\b|([1-9])(?![0-9]))")
_BLOCK_MARKS: Final = frozenset({"|", "|-", ">", ">-"})
_QUOTES: Final = ('"', "'")


class FileCommand(NamedTuple):
    """A command of a file: what clients are told of it, and its text with holes."""

    info: CommandInfo
    text: str
    path: Path

    @property
    def name(self) -> str:
        """What is typed, without the slash."""
        return self.info.name


def command_from_text(path: Path, text: str) -> FileCommand:
    """The command that a file holds.

    Raises:
        Unusable: it has no name that can be typed, its head has no end, or it says nothing.
    """
    name = path.stem
    if _NAME.fullmatch(name) is None:
        raise Unusable("its name is no command's: use a-z, 0-9, - and _ alone, 64 at most")
    head: dict[str, str] = {}
    if text.startswith("---\n"):
        found = _HEAD.match(text)
        if found is None:
            raise Unusable("the head that begins with --- has no end")
        head, text = _fields(found[1] or ""), text[found.end() :]
    text = text.strip()
    if not text:
        raise Unusable("it says nothing")
    description = head.get("description") or text.lstrip("#").strip().partition("\n")[0]
    hint = head.get("argument-hint")
    info = CommandInfo(
        name,
        _short(description, DESCRIPTION_CHARS_MAX),
        _short(hint, HINT_CHARS_MAX) if hint else None,
        is_prompt=True,
    )
    return FileCommand(info, text, path)


def expanded(command: FileCommand, argument: str) -> str:
    """The prompt that the command comes to; what was typed is put in once and not looked into.

    Where it is long and the text has many holes for it, those behind `REPEATED_CHARS_MAX` stay.
    """
    words = _words(argument)
    repeated = -len(argument)  # the first time is what the user typed

    def fill(hole: re.Match[str]) -> str:
        nonlocal repeated
        if hole[1] is None:
            if repeated + len(argument) > REPEATED_CHARS_MAX:
                return hole[0]
            repeated += len(argument)
            return argument
        at = int(hole[1]) - 1
        return words[at] if at < len(words) else ""

    text, holes = _HOLE.subn(fill, command.text)
    return f"{text}\n\n{argument}" if argument and not holes else text


def _fields(head: str) -> dict[str, str]:
    """The ``key: value`` lines of a head; a value may be quoted, or stand indented below."""
    fields: dict[str, str] = {}
    block: str | None = None
    for line in head.split("\n"):
        if block is not None and (line[:1] in {" ", "\t"} or not line.strip()):
            fields[block] = f"{fields[block]} {line.strip()}".strip()
            continue
        block = None
        if (found := _LINE.fullmatch(line.rstrip())) is None:
            continue
        key, value = found[1], found[2].strip()
        if value in _BLOCK_MARKS:
            block, value = key, ""
        elif len(value) > 1 and value[0] in _QUOTES and value[0] == value[-1]:
            value = value[1:-1]
        fields[key] = value
    return fields


def _words(argument: str) -> list[str]:
    if len(argument) > QUOTED_CHARS_MAX:
        return argument.split()

    import shlex  # late: few sessions have a command with words

    try:
        return shlex.split(argument)
    except ValueError:  # a quote without its other half is an apostrophe
        return argument.split()


def _short(text: str, chars_max: int) -> str:
    line = one_line(text)
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"
