"""What counts for one session now: looked at when it is opened, and around each prompt.

A look costs a few stats; what has not changed since is not read again.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import anyio
import anyio.to_thread

from acp_bridge.harness.project.instructions import (
    Instructions,
    cut_note,
    places,
    repository_of,
    resolved,
    shares,
)
from acp_bridge.harness.project.reading import (
    BadFile,
    FileText,
    Stamp,
    Unusable,
    read_text,
    stamp_of,
)

if TYPE_CHECKING:
    from acp_bridge.harness.project.commands import FileCommand

logger = logging.getLogger(__name__)

COMMAND_BYTES_MAX: Final = 64 * 1024
"""A longer file is no prompt; half of one would be another prompt, so it is not cut."""

COMMANDS_MAX: Final = 100
"""Commands of one folder: editors show them in a menu."""

PROJECT_COMMANDS = Path(".acp-bridge") / "commands"
"""A project's commands, below the working folder."""

USER_COMMANDS = "commands"
"""The user's commands, below the home."""


class Sources(NamedTuple):
    """Where to look. ``home`` holds what is the user's; ``taken`` are names of our own commands.

    ``reads_instructions`` False: AGENTS.md files do not count.
    """

    home: Path | None
    cwd: Path
    folders: Sequence[Path] = ()
    reads_instructions: bool = True
    taken: Collection[str] = ()


class Found(NamedTuple):
    """What counts, in order, and the files that cannot be used."""

    instructions: tuple[Instructions, ...] = ()
    commands: "tuple[FileCommand, ...]" = ()
    bad: tuple[BadFile, ...] = ()


_Made: TypeAlias = "FileText | FileCommand | BadFile"
_Key: TypeAlias = tuple[Path, Path | None, int]


class Project:
    """One session's view. ``found`` is replaced by `look`, as a whole; ``sources`` None: nothing.

    ``sources`` is asked anew at each look.
    """

    def __init__(self, sources: Callable[[], Sources] | None = None) -> None:
        self._sources = sources
        self._looking = anyio.Lock()
        self._reader = Reader()
        self._noted: set[tuple[Path, int]] = set()
        """The files that are too long, by path and size, of which the user was told."""
        self.found = Found()

    async def look(self) -> None:
        """Look at the files again; what cannot be used is logged when it is new."""
        if self._sources is None:
            return
        async with self._looking:
            before = self.found
            try:
                self.found = await anyio.to_thread.run_sync(self._reader.look, self._sources())
            except OSError as fault:  # of a folder that goes away meanwhile
                logger.warning("what is written down is not looked at: %s", fault.strerror)
            for bad in self.found.bad:
                if bad not in before.bad:
                    logger.warning("%s is not used: %s", bad.path, bad.reason)

    def new_notes(self, instructions: Iterable[Instructions]) -> list[str]:
        """What the user is told of those that are too long, of each size of a file once."""
        fresh = [
            one for one in instructions if one.is_cut and (one.path, one.size) not in self._noted
        ]
        self._noted |= {(one.path, one.size) for one in fresh}
        return [cut_note(one) for one in fresh]

    def command(self, name: str) -> "FileCommand | None":
        """The command of this name."""
        return next((one for one in self.found.commands if one.name == name), None)


class Reader:
    """Reads what `Sources` name, and remembers it. Blocking; one look at a time."""

    def __init__(self) -> None:
        self._known: dict[_Key, tuple[Stamp, _Made]] = {}
        self._used: set[_Key] = set()

    def look(self, sources: Sources) -> Found:
        """What is there now."""
        self._used = set()
        bad: list[BadFile] = []
        instructions = self._instructions(sources, bad) if sources.reads_instructions else []
        commands = self._commands(sources, bad)
        self._known = {key: known for key, known in self._known.items() if key in self._used}
        return Found(tuple(instructions), tuple(commands), tuple(bad))

    def _instructions(self, sources: Sources, bad: list[BadFile]) -> list[Instructions]:
        there = []
        for place in places(sources.home, sources.cwd, sources.folders):
            stamp = stamp_of(place.path)
            if stamp is not None:
                there.append((place, stamp))
        while True:
            wanted = shares([stamp[2] for _, stamp in there])
            made = [
                self._made(place.path, stamp, place.inside, share, lambda text: text)
                for (place, stamp), share in zip(there, wanted, strict=True)
            ]
            unusable = [one for one in made if isinstance(one, BadFile)]
            if not unusable:
                break
            # What cannot be used takes nothing from what all may have.
            bad += unusable
            pairs = zip(there, made, strict=True)
            there = [here for here, one in pairs if not isinstance(one, BadFile)]
        return [
            Instructions(place.path, one.text.strip(), one.size, one.is_cut)
            for (place, _), one in zip(there, made, strict=True)
            if isinstance(one, FileText) and (one.is_cut or one.text.strip())
        ]

    def _commands(self, sources: Sources, bad: list[BadFile]) -> "list[FileCommand]":
        """A name counts once: ours before the project's before the user's."""
        inside = resolved(repository_of(sources.cwd))
        found: dict[str, FileCommand] = {}
        folders: list[tuple[Path, Path | None]] = [(sources.cwd / PROJECT_COMMANDS, inside)]
        if sources.home is not None:
            folders.append((sources.home / USER_COMMANDS, None))
        for folder, bound in folders:
            for path in _markdown_files(folder, bad):
                made = self._command(path, bound)
                if isinstance(made, BadFile):
                    bad.append(made)
                elif made.name in sources.taken:
                    bad.append(BadFile(path, f"/{made.name} is a command of acp-bridge"))
                elif made.name in found:
                    bad.append(BadFile(path, f"/{made.name} is {found[made.name].path} here"))
                else:
                    found[made.name] = made
        return sorted(found.values(), key=lambda command: command.name)

    def _command(self, path: Path, inside: Path | None) -> "FileCommand | BadFile":
        stamp = stamp_of(path)
        if stamp is None:
            return BadFile(path, "it is a link to nothing, or cannot be read")

        from acp_bridge.harness.project.commands import command_from_text  # few have any

        def make(text: FileText) -> "FileCommand":
            if text.is_cut:
                raise Unusable(f"it has more than {COMMAND_BYTES_MAX:,} bytes")
            return command_from_text(path, text.text)

        made = self._made(path, stamp, inside, COMMAND_BYTES_MAX, make)
        assert not isinstance(made, FileText)
        return made

    def _made(
        self,
        path: Path,
        stamp: Stamp,
        inside: Path | None,
        bytes_max: int,
        make: "Callable[[FileText], FileText | FileCommand]",
    ) -> _Made:
        key = (path, inside, bytes_max)
        self._used.add(key)
        known = self._known.get(key)
        if known is not None and known[0] == stamp:
            return known[1]
        made: _Made
        try:
            made = make(read_text(path, inside=inside, bytes_max=bytes_max))
        except Unusable as why:
            made = BadFile(path, str(why))
        self._known[key] = (stamp, made)
        return made


def _markdown_files(folder: Path, bad: list[BadFile]) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(one.name for one in entries if one.name.endswith(".md"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as fault:
        bad.append(BadFile(folder, f"it cannot be read: {(fault.strerror or '').lower()}"))
        return []
    names = [name for name in names if not name.startswith(".")]
    if len(names) > COMMANDS_MAX:
        bad.append(BadFile(folder, f"it holds {len(names)} commands: {COMMANDS_MAX} are used"))
    return [folder / name for name in names[:COMMANDS_MAX]]
