"""What a session is given beside its folder: by its client, and by files that people have written.

Instructions for the working folder are not among it: the runtime reads those by itself.
"""

from collections.abc import Sequence
from pathlib import Path

from acp_bridge.harness.project.lookout import Project, Sources
from acp_bridge.harness.typed import content_of
from acp_bridge.ports import Extras
from acp_bridge.runtime.dsh.commands import COMMAND_NAMES
from acp_bridge.vocabulary import CommandInfo, JsonObject, Prompt


class Given:
    """Nothing, before `take` and `look`. ``home`` holds what the user has written for all projects.

    It is acp-bridge's own, not the runtime's.
    """

    def __init__(self, home: Path, cwd: Path) -> None:
        self._home = home
        self._cwd = cwd
        self._project = Project(self._sources)
        self.folders: tuple[Path, ...] = ()
        """More roots of the workspace, as the client gave them at the last opening."""

    def take(self, extras: Extras) -> list[str]:
        """What a client gives at an opening, in place of what it gave before; what to tell."""
        before, self.folders = self.folders, tuple(extras.folders)
        return [] if self.folders in {(), before} else [_folder_note(self.folders)]

    async def look(self) -> None:
        """Look at the files again."""
        await self._project.look()

    @property
    def commands(self) -> list[CommandInfo]:
        """The commands that people have written down, as of the last look."""
        return [command.info for command in self._project.found.commands]

    def content(self, prompt: Prompt) -> Sequence[JsonObject]:
        """The prompt's blocks, with what a typed command stands for."""
        return content_of(prompt, self._project)

    def _sources(self) -> Sources:
        return Sources(
            home=self._home,
            cwd=self._cwd,
            folders=self.folders,
            reads_instructions=False,
            taken=COMMAND_NAMES,
        )


def _folder_note(folders: Sequence[Path]) -> str:
    names = ", ".join(map(str, folders))
    return (
        f"DeepSeek Harness is not told of the additional folders ({names}): name paths in them "
        "in full. What you let it change there it changes without its sandbox."
    )
