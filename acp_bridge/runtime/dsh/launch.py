"""Where the runtime is, how it is started, and which version it is."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import attrs

from acp_bridge.errors import RuntimeFailedError

VERSION: Final = "0.2.1-rc.2"
"""The version that all of this was measured on."""

INSTALL: Final = "pip install --pre 'harness-acp-bridge[dsh]'"

VERSION_WAIT_S: Final = 20.0
"""How long ``dsh --version`` may take: 0.4 s on a warm disk, seconds when it unpacks itself."""

KEY_VARIABLE: Final = "DEEPSEEK_API_KEY"

_OWN_KEYS: Final = (".credentials.yaml", ".env")
"""Files of its home in which the runtime looks for keys by itself."""


@attrs.frozen(slots=True)
class Launch:
    """How a runtime process is started.

    ``home`` is its ``DSH_HOME``; ``patches`` change its configuration, in this order; ``env`` is
    what it sees; ``key`` the model key that it gets, None: it finds its own.
    """

    command: Path
    home: Path
    env: Mapping[str, str] = attrs.field(repr=False)
    key: str | None = attrs.field(repr=False)
    patches: Sequence[Path] = ()

    @property
    def words(self) -> list[str]:
        """The command line."""
        patches = [word for patch in self.patches for word in ("--patch", str(patch))]
        return [str(self.command), "--profile", "sdk", *patches]

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment."""
        own = {} if self.key is None else {KEY_VARIABLE: self.key}
        return {**self.env, **own, "DSH_HOME": str(self.home)}


def home_of(environment: Mapping[str, str]) -> Path:
    """The runtime's home: ``DSH_HOME``, or where the program itself keeps it."""
    named = environment.get("DSH_HOME", "").strip()
    home = Path(named or "~/.dsh").expanduser()
    return Path(os.path.abspath(home))  # noqa: PTH100  # no links resolved


def has_own_key(home: Path) -> bool:
    """Whether the runtime may find a key by itself, so that ours is not needed."""
    return any((home / name).exists() for name in _OWN_KEYS)


def find_dsh(configured: str | None, environment: Mapping[str, str]) -> Path:
    """The runtime's command: as configured, else on ``PATH``, else beside our own interpreter.

    Raises:
        RuntimeFailedError: there is none; says how to get it.
    """
    if configured is not None:
        found = shutil.which(os.path.expanduser(configured), path=environment.get("PATH"))  # noqa: PTH111
        if found is None:
            raise RuntimeFailedError(
                f"DeepSeek Harness was not found: {configured!r:.200} (the setting `dsh`) is no "
                "command. Correct it, or leave it out to use the dsh on PATH."
            )
        return Path(found)
    # An editor may start us by our full path, with nothing of the virtual environment on PATH.
    beside = str(Path(sys.executable).parent)
    found = shutil.which("dsh", path=environment.get("PATH")) or shutil.which("dsh", path=beside)
    if found is None:
        raise RuntimeFailedError(
            f"DeepSeek Harness is not installed: run `{INSTALL}`, or name its command with --dsh."
        )
    return Path(found)


async def version_of(launch: Launch) -> str | None:
    """What the command says of its version; None if it does not say."""
    with anyio.move_on_after(VERSION_WAIT_S):
        try:
            done = await anyio.run_process(
                [str(launch.command), "--version"], env=launch.environment, check=False
            )
        except OSError:
            return None
        said = done.stdout.decode("utf-8", errors="replace").strip()
        return said.splitlines()[-1][:50] if done.returncode == 0 and said else None
    return None


def version_problem(version: str | None) -> str | None:
    """Why this version will not do, as a sentence; None if it will."""
    if version == VERSION:
        return None
    shown = "does not say its version" if version is None else f"is version {version}"
    return (
        f"The dsh command {shown}; this acp-bridge works with {VERSION}: run `{INSTALL}`, or name "
        "another command with --dsh."
    )
