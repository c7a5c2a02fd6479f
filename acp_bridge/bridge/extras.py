"""What a client gives beside the folder at an opening, as the runtime takes it.

Checked, never guessed at: a client must know that what it gave will not count.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from acp_bridge.acp.types import (
    ForkSessionRequest,
    LoadSessionRequest,
    NewSessionRequest,
    ResumeSessionRequest,
    SystemPrompt,
    TextContent,
)
from acp_bridge.bridge.mcp_servers import servers_from_acp
from acp_bridge.errors import InvalidParamsError
from acp_bridge.ports import Extras
from acp_bridge.vocabulary import JsonObject

Opening: TypeAlias = (
    NewSessionRequest | LoadSessionRequest | ResumeSessionRequest | ForkSessionRequest
)

FOLDERS_MAX: Final = 50
"""More roots than an editor's window holds; each is named to the model in every request."""

SYSTEM_PROMPT_CHARS_MAX: Final = 50_000
"""More would leave small models no window to work in; it goes along with every request."""


def extras_from_acp(params: Opening) -> Extras:
    """What ``session/new``, ``load``, ``resume`` or ``fork`` gives. Looks at the folders.

    Raises:
        InvalidParamsError: some of it cannot be used; names it.
    """
    return Extras(
        servers=servers_from_acp(params.mcp_servers),
        folders=_folders(params.additional_directories, Path(params.cwd)),
        system_prompt=_system_prompt(params.system_prompt, params.meta or {}),
    )


def checked_folder(text: str, field: str) -> Path:
    """A folder that a client names.

    Raises:
        InvalidParamsError: it is not absolute, or there is no such folder.
    """
    folder = Path(text)
    if not folder.is_absolute():
        raise InvalidParamsError(
            f"{field} must be an absolute path, not {text!r:.200}.", field=field
        )
    try:
        is_folder = folder.is_dir()
    except (OSError, ValueError):
        is_folder = False
    if not is_folder:
        raise InvalidParamsError(f"{field} is no folder: {text!r:.200}.", field=field)
    return folder


def _folders(texts: Sequence[str], cwd: Path) -> tuple[Path, ...]:
    """Each once, in order; what is in the working folder is in the workspace already."""
    if len(texts) > FOLDERS_MAX:
        raise InvalidParamsError(
            f"There are {len(texts)} additional directories: give {FOLDERS_MAX} at most.",
            field="additionalDirectories",
        )
    home = cwd.resolve()
    found: dict[Path, Path] = {}
    for at, text in enumerate(texts):
        folder = checked_folder(text, f"additionalDirectories[{at}]")
        found.setdefault(folder.resolve(), folder)  # a link, or "..", is no other folder
    return tuple(folder for real, folder in found.items() if not real.is_relative_to(home))


def _system_prompt(given: SystemPrompt | None, meta: JsonObject) -> str:
    """The text to stand behind our instructions, "" for none.

    Clients that do not know the field give it under ``_meta.systemPrompt``, as a text or as
    ``{"append": text}``; a text is added too, since ours says what may be done without asking.
    Anything else there is another program's business.
    """
    if given is None:
        other = meta.get("systemPrompt")
        text = other.get("append") if isinstance(other, dict) else other
        return _bounded(text, "_meta.systemPrompt") if isinstance(text, str) else ""
    if given.mode != "append":
        raise InvalidParamsError(
            f"The system prompt's mode {given.mode!r:.50} is not supported: use append.",
            field="systemPrompt.mode",
        )
    texts = []
    for at, block in enumerate(given.content):
        if not isinstance(block, TextContent):
            raise InvalidParamsError(
                "A system prompt takes text alone.", field=f"systemPrompt.content[{at}]"
            )
        texts.append(block.text)
    if not texts:
        raise InvalidParamsError(
            "The system prompt is empty: leave it out.", field="systemPrompt.content"
        )
    return _bounded("\n".join(texts), "systemPrompt")


def _bounded(text: str, field: str) -> str:
    text = text.strip()
    if len(text) > SYSTEM_PROMPT_CHARS_MAX:
        raise InvalidParamsError(
            f"The system prompt has {len(text):,} characters: give {SYSTEM_PROMPT_CHARS_MAX:,} at "
            "most.",
            field=field,
        )
    return text
