"""Where a recorded session's paths go, and what must not be told: pure, but for the environment."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from acp_bridge.testing.transcript import obj, text_or_none
from acp_bridge.vocabulary import JsonObject, JsonValue
from acp_bridge.wire.trace import REDACTED, Redactor

OUTSIDE: Final = "_outside"
"""Folder of the workspace that stands for everything outside of it."""

PATH_MEMBERS: Final = ("file_path", "path", "workdir", "cd")
"""Arguments of tools that hold one path."""

_HOME = re.compile(r"/(?:home|Users)/[^/]+|/root")
_KEY = re.compile(
    r"\b(?:sk|key|ghp|gho|github_pat|xox[abp]|glpat)[-_][A-Za-z0-9_-]{16,}|\bAKIA[A-Z0-9]{16}\b"
)
"""What looks like a key wherever it stands."""


class Placer:
    """Makes values of a session fit for a scenario: no secrets, and paths below ``{{cwd}}``.

    ``store`` is the home folder that the session is stored in, which becomes ``{{home}}``.
    ``redacted`` is how many texts lost a secret; ``outside`` are the paths that were moved.
    """

    def __init__(self, cwd: str, store: Path, environment: Mapping[str, str]) -> None:
        self._cwd = PurePosixPath(cwd)
        self._redactor = Redactor(environment)
        self.redacted = 0
        self.outside: set[str] = set()
        self._moved: dict[str, str] = {str(self._cwd): "{{cwd}}"}
        self._moved.setdefault(str(store), "{{home}}")
        homes = [str(Path.home())]
        if found := _HOME.match(cwd):
            homes.append(found[0])
        for home in homes:
            self._moved.setdefault(home, "{{cwd}}/" + OUTSIDE + home)

    def learn(self, arguments: Iterable[JsonObject]) -> None:
        """Take note of the paths outside of the workspace that tools were given."""
        for members in arguments:
            for path in filter(None, (text_or_none(members.get(n)) for n in PATH_MEMBERS)):
                if (place := self._relative(path)).startswith(OUTSIDE):
                    self.outside.add(path)
                    if path[0] in "/~":
                        self._moved[path] = "{{cwd}}/" + place

    def arguments(self, tool: str, members: JsonObject) -> JsonObject:
        """A call's arguments; none of them leads out of the workspace any more."""
        names = (*PATH_MEMBERS, "pattern") if tool == "glob" else PATH_MEMBERS
        made = obj(self.value(members))
        for name in names:
            path = text_or_none(members.get(name))
            if path and (place := self._relative(path)).startswith(OUTSIDE):
                made[name] = "{{cwd}}/" + place
        return made

    def name(self, path: str) -> str:
        """A path of the session below the workspace, as its files are found there."""
        return self._relative(path)

    def value(self, value: JsonValue) -> JsonValue:
        """A value of the session for a file of the scenario."""
        cleaned = self._redactor.clean(value)
        return self._placed(cleaned)

    def text(self, text: str) -> str:
        """The same for a text."""
        return str(self.value(text))

    def secretless(self, text: str) -> str:
        """A text without secrets, its paths as they are."""
        cleaned = _KEY.sub(REDACTED, str(self._redactor.clean(text)))
        self.redacted += cleaned != text
        return cleaned

    def _placed(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self._paths().sub(lambda one: self._moved[one[0]], self.secretless(value))
        if isinstance(value, list):
            return [self._placed(item) for item in value]
        if isinstance(value, dict):
            return {key: self._placed(item) for key, item in value.items()}
        return value

    def _paths(self) -> re.Pattern[str]:
        # `/home/dev` is no part of `/home/developer`, but of `/home/dev/x` and of `/home/dev.`
        longest_first = sorted(self._moved, key=len, reverse=True)
        return re.compile("(?:" + "|".join(map(re.escape, longest_first)) + r")(?![\w-]|\.\w)")

    def _relative(self, path: str) -> str:
        if path == "~" or path.startswith("~/"):
            path = str(Path.home()) + path[1:]
        parts: list[str] = []
        for part in (self._cwd / path).parts[1:]:
            if part == "..":
                del parts[-1:]
            else:
                parts.append(part)
        whole = PurePosixPath("/", *parts)
        if whole.is_relative_to(self._cwd):
            return whole.relative_to(self._cwd).as_posix()
        return OUTSIDE + str(whole)


def arguments_of(text: JsonValue) -> JsonObject | None:
    """A call's arguments; None if they are no object."""
    try:
        value = json.loads(str(text))
    except ValueError:
        return None
    return obj(value) if isinstance(value, dict) else None
