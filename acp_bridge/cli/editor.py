"""``acp-bridge editor``: what to put into an editor's settings, for this installation."""

import json
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from acp_bridge.cli.editor_setups import SetUp, filled_in, set_up_named, set_ups
from acp_bridge.config import SETTINGS, Settings, resolve
from acp_bridge.errors import ConfigError

EXIT_USAGE = 2

PROGRAM = "acp-bridge"


def run(flags: Mapping[str, str | None], *, name: str | None, as_json: bool) -> int:
    """Print a set-up, or which there are; the exit code.

    The set-up alone goes to stdout, so that it can be sent into a file, and the guide to stderr.
    """
    try:
        # What cannot be used must not get into an editor's settings.
        settings, _ = resolve(flags, os.environ)
        known = set_ups()
        if name is None:
            sys.stdout.write(_list(known, as_json=as_json))
            return 0
        set_up = set_up_named(name, known)
        text, command = filled_in(set_up, program_of_this(), flag_words(flags, Path.cwd()))
    except ConfigError as error:
        sys.stderr.write(f"acp-bridge: {error.details}\n")
        return EXIT_USAGE
    if as_json:
        told = _described(set_up) | {"command": command, "text": text}
        sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
        return 0
    sys.stdout.write(text)
    sys.stdout.flush()
    sys.stderr.write(f"\n{set_up.title}: {set_up.file}\n")
    sys.stderr.writelines(f"{label}: {said}\n" for label, said in set_up.points.items())
    sys.stderr.write(_first_of_all(settings))
    return 0


def _first_of_all(settings: Settings) -> str:
    """What to do before the editor is started, else its first session only says that."""
    if settings.runtime != "embedded":
        return "First of all: `acp-bridge doctor --runtime dsh` says whether all is there for it.\n"
    from acp_bridge.cli.doctor import model_finding

    model = model_finding(settings)
    return f"First of all: {model.advice}\n" if model.state == "missing" else ""


def program_of_this() -> list[str]:
    """How an editor starts this installation: its script by full path, else its interpreter."""
    return program(
        sys.argv[0],
        [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))],
        sys.executable,
    )


def program(started_as: str, folders: Sequence[Path], interpreter: str) -> list[str]:
    """The script that we were started by, else one in a folder, else the interpreter.

    The path is kept as it was given, links and all: a link in a folder of the user's outlives
    the installation that it leads to.
    """
    for script in (Path(started_as), *(folder / PROGRAM for folder in folders)):
        if script.name == PROGRAM and script.is_file() and os.access(script, os.X_OK):
            return [os.path.abspath(script)]  # noqa: PTH100  # no links resolved
    return [interpreter, "-m", "acp_bridge"]


def flag_words(flags: Mapping[str, str | None], cwd: Path) -> list[str]:
    """Flags as words of a command line that is right in any folder: paths are made absolute."""
    words = []
    for setting in SETTINGS:
        value = flags.get(setting.name)
        if value is None:
            continue
        words.append("--" + setting.name.replace("_", "-"))
        if setting.name != "log_stderr":
            words.append(_anywhere(setting.name, value, cwd))
    return words


def _anywhere(name: str, value: str, cwd: Path) -> str:
    kind, colon, file = value.partition(":")
    match name:
        case "home" | "trace":
            return _absolute(value, cwd)
        case "dsh" if "/" in value:
            return _absolute(value, cwd)
        case "model" if kind == "scripted" and colon:
            return f"scripted:{_absolute(file, cwd)}"
        case _:
            return value


def _absolute(path: str, cwd: Path) -> str:
    return os.path.abspath(cwd / Path(path).expanduser())  # noqa: PTH100  # no links resolved


def _list(known: Sequence[SetUp], *, as_json: bool) -> str:
    if as_json:
        return "".join(json.dumps(_described(one), ensure_ascii=False) + "\n" for one in known)
    width = max(len(one.name) for one in known)
    lines = [f"{one.name:<{width}}  {one.title}\n" for one in known]
    return "".join(lines) + "\nacp-bridge editor NAME prints a set-up for this installation.\n"


def _described(set_up: SetUp) -> dict[str, object]:
    points = {label.lower().replace(" ", "_"): text for label, text in set_up.points.items()}
    return {"name": set_up.name, "title": set_up.title, "file": set_up.file, "guide": points}
