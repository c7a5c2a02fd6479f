"""What a project that uses the plugin has said: which agent, which scenarios, held to what."""

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from acp_bridge.testing.demands import DEMANDS, Demands
from acp_bridge.testing.launch import Launcher, command
from acp_bridge.testing.scenario import folders

MARK = "acp_agent"


@attrs.frozen(slots=True)
class Project:
    """The ini options, with the mark of one test laid over them. ``root``: where the ini file is.

    Errors are `pytest.UsageError` and name the option.
    """

    config: pytest.Config
    root: Path
    argv: tuple[str, ...]
    scenarios: Path
    demands: Demands
    wait_s: float
    ids: tuple[str, ...]

    @classmethod
    def of(cls, item: pytest.Item) -> "Project":
        """Of a test, or of the function that will become tests."""
        config = item.config
        root = config.rootpath if config.inipath is None else config.inipath.parent
        mark = item.get_closest_marker(MARK)
        said = {} if mark is None else dict(mark.kwargs)
        if mark is not None and mark.args:
            said["command"] = mark.args[0]
        if unknown := said.keys() - {"command", "scenarios", "checks", "wait_s", "ids"}:
            raise pytest.UsageError(f"@pytest.mark.{MARK} takes no {min(unknown)!r}")
        line = said.get("command", config.getini("acp_agent"))
        argv = shlex.split(line) if isinstance(line, str) else [str(part) for part in line]
        return cls(
            config=config,
            root=root,
            argv=tuple(argv),
            scenarios=root / str(said.get("scenarios", config.getini("acp_scenarios"))),
            demands=_demands(str(said.get("checks", config.getini("acp_checks")))),
            wait_s=_seconds(said.get("wait_s", config.getini("acp_wait_s"))),
            ids=_patterns(said.get("ids", config.getini("acp_ids"))),
        )

    def folders(self) -> list[Path]:
        """The folders of the scenarios; at least one."""
        found = folders(self.scenarios) if self.scenarios.is_dir() else []
        if not found:
            raise pytest.UsageError(
                f"there is no scenario below {self.scenarios}: make NAME/input.json there, or set "
                "acp_scenarios to the folder of yours"
            )
        return found

    def launcher(self) -> Launcher:
        """What starts the agent."""
        if not self.argv:
            raise pytest.UsageError(
                "no agent is named: set acp_agent to its command line in pytest's ini file, or "
                'mark the test: @pytest.mark.acp_agent("my-agent --acp")'
            )
        program, *rest = self.argv
        return command([self._program(program), *(self._argument(part) for part in rest)])

    def _program(self, name: str) -> str:
        """A program of this very environment, of the project, or of the system."""
        if name in {"python", "python3"}:
            return sys.executable
        beside = Path(sys.executable).parent / name
        for path in (self.root / name, beside):
            if path.is_file():
                return str(path)
        found = shutil.which(name)
        if found is None:
            raise pytest.UsageError(
                f"acp_agent: there is no program {name!r} in {self.root}, in {beside.parent} or on "
                "PATH"
            )
        return found

    def _argument(self, part: str) -> str:
        # An agent starts in a folder of its own, so the project's files need their whole path.
        path = self.root / part
        return str(path) if part and path.exists() else part


def _demands(name: str) -> Demands:
    if name not in DEMANDS:
        raise pytest.UsageError(f"acp_checks is {name!r}, and can be {', '.join(DEMANDS)}")
    return DEMANDS[name]


def _seconds(value: object) -> float:
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = 0
    if seconds <= 0:
        raise pytest.UsageError(f"acp_wait_s is {value!r}, and must be a number of seconds")
    return seconds


def _patterns(values: Sequence[str]) -> tuple[str, ...]:
    for value in values:
        try:
            re.compile(value)
        except re.error as error:
            raise pytest.UsageError(
                f"acp_ids: {value!r} is no regular expression: {error}"
            ) from None
    return tuple(values)
