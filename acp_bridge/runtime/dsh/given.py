"""What a session is given beside its folder: by its client, and by files that people have written.

The runtime reads the instructions for the working folder by itself; those of the user for all
projects here, and of further folders, it is told of behind its system prompt, as is what the client
says. Subagents are told the same.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acp_bridge.errors import RuntimeFailedError
from acp_bridge.harness.instructions import added_text, folders_text
from acp_bridge.harness.project.instructions import Instructions, places
from acp_bridge.harness.project.lookout import Project, Sources
from acp_bridge.harness.prompts import content_of
from acp_bridge.ports import Extras
from acp_bridge.runtime.dsh.commands import COMMAND_NAMES
from acp_bridge.runtime.dsh.host import Host
from acp_bridge.vocabulary import CommandInfo, JsonObject, Prompt, SessionId

ASK_TOOL: Final = "ask_user_question"
"""The runtime's tool whose calls nobody can answer where the client takes no forms."""

NO_PROMPT: Final = (
    "DeepSeek Harness cannot be given the system prompt of your editor: its control plugin did not "
    "start, or misses what it needs (`acp-bridge doctor` says what). Leave the prompt out, or use "
    "--runtime embedded."
)


class Given:
    """Nothing, before `take` and `look`. ``home`` holds what the user has written for all projects.

    It is acp-bridge's own, not the runtime's. ``reads_instructions`` False: AGENTS.md files do not
    count. ``takes_questions``: somebody can be asked.
    """

    def __init__(
        self,
        session_id: SessionId,
        cwd: Path,
        *,
        home: Path,
        reads_instructions: bool,
        takes_questions: bool,
    ) -> None:
        self._session_id = session_id
        self._cwd = cwd
        self._home = home
        self._reads_instructions = reads_instructions
        self._withheld = () if takes_questions else (ASK_TOOL,)
        self._project = Project(self._sources)
        self._system_prompt = ""
        self._told: tuple[str, Sequence[str]] = ("", ())
        """What the runtime was told last."""
        self.folders: tuple[Path, ...] = ()
        """More roots of the workspace, as the client gave them at the last opening."""

    def take(self, extras: Extras, host: Host | None) -> list[str]:
        """What a client gives at an opening, in place of what it gave before; what to tell.

        ``host`` is the process that has the session open by now.

        Raises:
            RuntimeFailedError: it cannot be told the system prompt; nothing changed.
        """
        if host is not None and extras.system_prompt and not host.can("prompt"):
            raise RuntimeFailedError(NO_PROMPT)
        self._system_prompt = extras.system_prompt
        before, self.folders = self.folders, tuple(extras.folders)
        return [] if self.folders in {(), before} else [_folder_note(self.folders)]

    async def look(self) -> list[str]:
        """Look at the files again; what to tell."""
        await self._project.look()
        return self._project.new_notes(self._instructions())

    def reopened(self) -> None:
        """The session was opened in a process, which knows nothing of ours yet."""
        self._told = ("", ())

    async def give(self, host: Host) -> None:
        """Tell the runtime what there is, unless it knows; nothing of it changes within a turn.

        Raises:
            RuntimeFailedError: it cannot be told the client's system prompt.
            PeerError: it refuses.
        """
        wanted = (self._text(), self._withheld)
        if wanted == self._told:
            return
        if host.can("prompt"):
            assert host.control is not None
            text, withheld = wanted
            await host.control.set_prompt(self._session_id, text, withheld=withheld)
            self._told = wanted
        elif self._system_prompt:
            raise RuntimeFailedError(NO_PROMPT)

    @property
    def commands(self) -> list[CommandInfo]:
        """The commands that people have written down, as of the last look."""
        return [command.info for command in self._project.found.commands]

    def content(self, prompt: Prompt) -> Sequence[JsonObject]:
        """The prompt's blocks, with what a typed command stands for."""
        return content_of(prompt, self._project)

    def _text(self) -> str:
        said = (folders_text(self.folders), added_text(self._instructions(), self._system_prompt))
        return "\n".join(text.strip() for text in said if text)

    def _instructions(self) -> list[Instructions]:
        """Those that the runtime does not read by itself."""
        own = {place.path for place in places(None, self._cwd, ())}
        return [one for one in self._project.found.instructions if one.path not in own]

    def _sources(self) -> Sources:
        return Sources(
            home=self._home,
            cwd=self._cwd,
            folders=self.folders,
            reads_instructions=self._reads_instructions,
            taken=COMMAND_NAMES,
        )


def _folder_note(folders: Sequence[Path]) -> str:
    names = ", ".join(map(str, folders))
    return (
        f"What you let DeepSeek Harness change in the additional folders ({names}) it changes "
        "without its sandbox, which knows one folder."
    )
