"""``acp-bridge doctor``: what is there and what is missing, each with what to do about it.

Of editors it looks at their settings, whether they name a command that is there.

For the dsh runtime it starts a process, as a session would, and asks what works in it.
"""

import json
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from acp_bridge import __version__
from acp_bridge.cli.screen import plain
from acp_bridge.config import Settings, resolve
from acp_bridge.errors import BridgeError, ConfigError

if TYPE_CHECKING:
    from acp_bridge.harness.project.instructions import Instructions
    from acp_bridge.runtime.dsh.host import Host
    from acp_bridge.runtime.dsh.launch import Launch

EXIT_MISSING = 1
EXIT_USAGE = 2

State: TypeAlias = Literal["ok", "note", "missing"]

_MARKS: Final[dict[State, str]] = {"ok": "ok", "note": "--", "missing": "!!"}

_SLOW: Final = "Starting DeepSeek Harness, to see what works in it ..."


class Finding(NamedTuple):
    """One thing that was looked at. ``advice`` says what to do; "" where nothing need be done."""

    name: str
    state: State
    found: str
    advice: str = ""


def run(flags: Mapping[str, str | None], *, as_json: bool) -> int:
    """Look, and print what was found; exit code 1 if something is missing."""
    try:
        settings, _ = resolve(flags, os.environ)
    except ConfigError as error:
        sys.stderr.write(f"acp-bridge: {error.details}\n")
        return EXIT_USAGE
    findings = [
        *_of_this_program(settings),
        *_of_editors(),
        *_of_the_runtime(settings, quiet=as_json),
    ]
    for finding in findings:
        sys.stdout.write(_line(finding, as_json=as_json) + "\n")
    return EXIT_MISSING if any(finding.state == "missing" for finding in findings) else 0


def _line(finding: Finding, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(finding._asdict(), ensure_ascii=False)
    found = plain(finding.found).replace("\n", "␊")  # a file's name may hold anything
    line = f"{_MARKS[finding.state]}  {finding.name:<10}  {found}"
    return f"{line}\n    {'':<10}  {finding.advice}" if finding.advice else line


def _of_this_program(settings: Settings) -> list[Finding]:
    return [
        Finding("python", "ok", f"{platform.python_version()} ({sys.executable})"),
        Finding("acp-bridge", "ok", __version__),
        _home(settings.home),
        Finding("runtime", "ok", settings.runtime),
    ]


def _home(home: Path) -> Finding:
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return Finding("home", "ok", str(home))
    advice = "Choose a folder that can be written, with --home."
    return Finding("home", "missing", f"{home} cannot be written", advice)


def _of_editors() -> list[Finding]:
    """What an editor needs: the command, and settings that name one which is there."""
    from acp_bridge.cli.editor_settings import settings_that_name_us

    findings = [_command()]
    for editor, file, programs in settings_that_name_us(os.environ, Path.home(), Path.cwd()):
        for program in programs:
            found = shutil.which(Path(program).expanduser())
            said = f"{editor}: {file} starts {program}"
            if found is None:
                advice = f"No such command: `acp-bridge editor {editor}` tells one that works."
                findings.append(Finding("editor", "missing", said, advice))
            else:
                findings.append(Finding("editor", "ok", said))
    if len(findings) == 1:
        advice = "Choose one: `acp-bridge editor` lists those that there are set-ups for."
        findings.append(Finding("editor", "note", "no settings name acp-bridge", advice))
    return findings


def _command() -> Finding:
    from acp_bridge.cli.editor import PROGRAM, program_of_this

    mine = program_of_this()
    found = shutil.which(PROGRAM)
    if found is None:
        advice = "Editors need its full path: `acp-bridge editor` prints set-ups with it."
        return Finding("command", "note", f"{' '.join(mine)}; not on PATH", advice)
    if len(mine) == 1 and not Path(found).samefile(mine[0]):
        advice = f"That is another one than this, which is {mine[0]}."
        return Finding("command", "note", f"{found} on PATH", advice)
    return Finding("command", "ok", found)


def _of_the_runtime(settings: Settings, *, quiet: bool) -> Sequence[Finding]:
    if settings.runtime == "dsh":
        return _of_dsh(settings, quiet=quiet)
    rg = shutil.which("rg")
    no_rg = "Searches are slower without ripgrep: install it if they are too slow."
    return [
        model_finding(settings),
        Finding("ripgrep", "ok", rg) if rg else Finding("ripgrep", "note", "not found", no_rg),
        *_of_mcp(settings),
        *_of_this_folder(settings),
    ]


def _of_mcp(settings: Settings) -> list[Finding]:
    """The library, and whether the commands of the user's own servers are there."""
    if find_spec("mcp") is None:
        advice = "For MCP servers: pip install 'harness-acp-bridge[mcp]'"
        return [Finding("mcp", "missing" if settings.mcp_servers else "note", "none", advice)]
    findings = [Finding("mcp", "ok", f"mcp {version('mcp')}")]
    for name, server in settings.mcp_servers.items():
        if server.command is not None and shutil.which(server.command) is None:
            advice = f"Install {server.command}, or set its full path in config.toml."
            findings.append(Finding("mcp server", "missing", f"{name}: no such command", advice))
    return findings


def _of_this_folder(settings: Settings) -> list[Finding]:
    """What a session in the current folder is given of what people have written down."""
    from acp_bridge.harness.commands import COMMAND_NAMES
    from acp_bridge.harness.project.lookout import Reader, Sources

    cwd = Path.cwd()
    is_on = settings.instructions == "auto"
    sources = Sources(settings.home, cwd, reads_instructions=is_on, taken=COMMAND_NAMES)
    found = Reader().look(sources)
    findings = [_instructions(one) for one in found.instructions]
    if not findings:
        none = f"none for {cwd}" if is_on else "not read: instructions is off"
        findings.append(Finding("AGENTS.md", "ok", none))
    typed = ", ".join(f"/{command.name}" for command in found.commands)
    findings.append(Finding("slash", "ok", typed or f"no commands written down for {cwd}"))
    advice = "Mend it, or take it away."
    return [
        *findings,
        *(Finding("not used", "note", f"{b.path}: {b.reason}", advice) for b in found.bad),
    ]


def _instructions(one: "Instructions") -> Finding:
    what = f"{one.path}, {one.size:,} bytes"
    if not one.is_cut:
        return Finding("AGENTS.md", "ok", what)
    kept = len(one.text.encode())
    return Finding("AGENTS.md", "note", what, f"The model is given the first {kept:,}: shorten it.")


def model_finding(settings: Settings) -> Finding:
    """The model that a session would begin with, of the embedded runtime."""
    from acp_bridge.models.catalog import Catalog

    catalog = Catalog(
        home=settings.home,
        environment=os.environ,
        configured=settings.model,
        models=settings.models,
    )
    try:
        return Finding("model", "ok", catalog.open(None).info.model_id)
    except BridgeError as error:
        return Finding("model", "missing", "none can be used", error.details)


def _of_dsh(settings: Settings, *, quiet: bool) -> list[Finding]:
    from acp_bridge.cli.assemble import dsh_models, dsh_runtime
    from acp_bridge.runtime.dsh.launch import home_of

    findings = [Finding("dsh home", "ok", str(home_of(os.environ)))]
    try:
        models = dsh_models(settings)
        findings.append(Finding("model", "ok", models.available()[0].model_id))
        models.check()
        own = "found" if models.find_key() else "left to DeepSeek Harness, which has its own"
        findings.append(Finding("key", "ok", own))
    except BridgeError as error:
        findings.append(Finding("key", "missing", "none can be used", error.details))
    findings.append(_sandbox())
    try:
        launch = dsh_runtime(settings).launch()
    except BridgeError as error:
        return [*findings, Finding("dsh", "missing", "not found", error.details)]
    findings.append(Finding("dsh", "ok", str(launch.command)))
    if not quiet:
        sys.stderr.write(_SLOW + "\n")
    return [*findings, *_started(launch)]


def _sandbox() -> Finding:
    bwrap = shutil.which("bwrap")
    if bwrap is not None:
        return Finding("sandbox", "ok", bwrap)
    advice = (
        "Commands that you allow run without one, and so does all in the mode `full`; no other "
        "command runs. DeepSeek Harness by itself would need bubblewrap."
    )
    return Finding("sandbox", "note", "no bubblewrap", advice)


def _started(launch: "Launch") -> list[Finding]:
    """Version and plugin, as a process of the runtime tells them."""
    import anyio

    from acp_bridge.runtime.dsh.control_types import ModelChoice
    from acp_bridge.runtime.dsh.host import Host
    from acp_bridge.runtime.dsh.models import PROVIDER

    async def ask() -> list[Finding]:
        host = Host(
            launch,
            model=ModelChoice(PROVIDER, "deepseek-flash"),
            is_subagent=lambda _session_id: False,
            flow=anyio.lowlevel.checkpoint,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(host.serve)
            try:
                await host.ready()
                found = _told(host)
            except BridgeError as error:
                found = [Finding("start", "missing", "failed", error.details)]
            finally:
                with anyio.CancelScope(shield=True):
                    await host.shut_down()
        return found

    return anyio.run(ask)


def _told(host: "Host") -> list[Finding]:
    from acp_bridge.runtime.dsh.launch import VERSION, version_problem

    hello = host.hello
    if hello is None:
        advice = (
            "Answers come whole, nothing can be asked, and a cancel restarts the runtime: install "
            f"acp-bridge anew; its log says more. It said: {host.last_words or 'nothing'}"
        )
        return [
            Finding("version", "ok", VERSION),
            Finding("plugin", "missing", "did not start", advice),
        ]
    lacking = "; ".join(f"{feature}: {why}" for feature, why in hello.missing.items())
    return [
        Finding(
            "version",
            "ok" if hello.runtime == VERSION else "note",
            hello.runtime,
            version_problem(hello.runtime) or "",
        ),
        Finding("plugin", "note", "lacks something", lacking)
        if lacking
        else Finding("plugin", "ok", ", ".join(sorted(hello.features))),
    ]
