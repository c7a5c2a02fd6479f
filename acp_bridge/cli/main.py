"""What people type: ``acp-bridge`` serves an editor, its sub-commands serve people.

A sub-command's module is imported when it is called; the parser is built from `config.SETTINGS`.
"""

import argparse
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from acp_bridge import __version__
from acp_bridge.config import RUNTIMES, SETTINGS

_PROGRAM = "acp-bridge"

PROVIDER_NAMES = ("deepseek", "anthropic", "openai")
"""Written out, since the parser is built before anything heavy is imported; a test compares."""

_DESCRIPTION = """\
Work with an agent harness from any editor that speaks ACP (Agent Client Protocol).

New here?  acp-bridge demo      see it work, without an editor or a key
           acp-bridge setup     store a key, for real models
           acp-bridge editor    what to put into your editor's settings
           acp-bridge doctor    what is missing, and what to do about it

Without a command it serves ACP on stdin and stdout: that is what an editor starts, not you.
"""

_EPILOG = """\
examples:
  acp-bridge demo
  acp-bridge editor zed --model demo       what to put into Zed's settings, to try it keyless
  acp-bridge sessions list                 what is stored; also show, fork, verify, export, delete
  acp-bridge --model deepseek:deepseek-flash
                                           serve with this model
  acp-bridge --trace wire.jsonl            serve, and note the wire for a bug report

Each command has a --help of its own, with examples.

Every flag is also a variable (--model is ACP_BRIDGE_MODEL) and, but for --home and --log-stderr,
a line of config.toml in the home folder (model = "demo"). Flags win, then variables, then the file:
`acp-bridge config` says what is in force.
"""

_RUNTIME = """\
Serve the built-in harness over the wire of the DeepSeek Harness SDK, on stdin and stdout. Give the
SDK the file acp-bridge-runtime as its dsh_bin: it starts it as BIN --profile NAME [--patch FILE].

Sessions are in the home folder: --home, else ACP_BRIDGE_HOME, else DSH_HOME, which the SDK sets.
The model is --model or that of the settings; if they name none, the one that the program names.
Nobody is asked for permission on this wire: calls that would ask are refused. See --mode.
"""


_LSP = """\
Serve LSP on stdin and stdout: an editor starts this, not you. Write a comment `AGENT: what to do`
there, put the cursor on it and ask for code actions; others work on the selection or fix a
problem. There are commands too: agent.prompt, agent.cancel, agent.mode, agent.open, agent.allow
and agent.reject. What the agent says goes into a Markdown transcript, which agent.open shows.
"""

_EDITOR = """\
Print what to put into an editor's settings so that it starts this installation, by its full path.
The text alone goes to stdout; where it belongs, how to start and what to expect, to stderr.

The flags that you give here are those that the editor will give. Without any, acp-bridge takes the
model and all else from config.toml and the key that `acp-bridge setup` stored.
"""

_EDITOR_EXAMPLES = """\
examples:
  acp-bridge editor                        which editors there are set-ups for
  acp-bridge editor zed --model demo       Zed, with the built-in demo model
  acp-bridge editor zed --runtime dsh      Zed, with DeepSeek Harness
  acp-bridge editor acpx > .acpxrc.json    a file of its own, for acpx in a project
"""


Command = Callable[[Mapping[str, str | None], Mapping[str, Any]], int]
"""A command that is handed over: it gets the settings' flags and its own options."""


def main(arguments: Sequence[str] | None = None, *, record: Command | None = None) -> int:
    """Run a command line; the exit code. ``record`` is the command of that name, if it is there."""
    words = sys.argv[1:] if arguments is None else arguments
    options = vars(_parser(words).parse_args(words))
    command = options.pop("command")
    flags: dict[str, str | None] = {
        setting.name: _as_text(options.get(setting.name)) for setting in SETTINGS
    }
    match command:
        case "demo":
            from acp_bridge.cli import demo

            code = demo.run(keep=options["keep"])
        case "setup":
            from acp_bridge.cli import setup

            code = setup.run(
                flags,
                provider=options["provider"],
                forget=options["forget"],
                check=options["check"],
            )
        case "sessions":
            from acp_bridge.cli import sessions

            code = sessions.run(flags, options)
        case "runtime":
            from acp_bridge.cli import runtime

            code = runtime.run(flags, patches=options["patch"] or ())
        case "lsp":
            from acp_bridge.cli import lsp

            code = lsp.run(flags)
        case "events":
            from acp_bridge.cli import events

            code = events.run(flags, options)
        case "worker":
            from acp_bridge.cli import worker

            code = worker.run(flags, options)
        case "editor":
            from acp_bridge.cli import editor

            code = editor.run(flags, name=options["name"], as_json=options["json"])
        case "record":
            assert record is not None, "acp-bridge itself hands it over"
            code = record(flags, options)
        case "doctor":
            from acp_bridge.cli import doctor

            code = doctor.run(flags, as_json=options["json"])
        case "config":
            from acp_bridge.cli import show_config

            code = show_config.run(flags)
        case _:
            from acp_bridge.cli import serve

            code = serve.run(flags)
    return code


def _as_text(value: object) -> str | None:
    if value is True:
        return "true"
    return value if isinstance(value, str) else None


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser, with the flags of a command only where it is named: a start takes them all."""
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        usage=f"{_PROGRAM} [FLAG ...] [COMMAND ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"acp-bridge {__version__}")
    _add_settings(parser, default=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog=_PROGRAM)
    demo = commands.add_parser(
        "demo",
        help="hold a whole conversation with the agent and print it; no key needed",
        description="Start acp-bridge as an editor would, talk to its demo model over a real\n"
        "pipe in a throw-away folder, and print what an editor would show.",
        epilog="examples:\n"
        "  acp-bridge demo\n"
        "  acp-bridge demo --keep    its folder stays, to look at",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument("--keep", action="store_true", help="keep the folder, to look at its files")
    _add_setup(commands)
    _add_editor(commands, is_named="editor" in words)
    _add_doctor(commands, is_named="doctor" in words)
    _add_config(commands, is_named="config" in words)
    _add_sessions(commands, is_named="sessions" in words)
    _add_record(commands)
    _add_lsp(commands, is_named="lsp" in words)
    _add_runtime(commands, is_named="runtime" in words)
    _add_events(commands, words)
    return parser


def _add_config(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", *, is_named: bool
) -> None:
    show = commands.add_parser(
        "config",
        help="print every setting in force and where it comes from",
        description="Print every setting in force and where it comes from: a flag, a variable,\n"
        "config.toml in the home folder, or the default. To change one for good, write\n"
        'it into that file: mode = "accept-edits"',
        epilog="examples:\n"
        "  acp-bridge config\n"
        "  acp-bridge config --mode plan    what this flag would do",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if is_named:
        _add_settings(show, default=argparse.SUPPRESS)


def _add_sessions(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", *, is_named: bool
) -> None:
    sessions = commands.add_parser(
        "sessions",
        help="list, show, fork, verify, export or delete stored sessions",
        description="Look at what is stored, and look after it.",
        epilog="examples:\n"
        "  acp-bridge sessions list\n"
        "  acp-bridge sessions show 3f0c              by an id's first characters\n"
        "  acp-bridge sessions list --home ~/.dsh     what DeepSeek Harness has stored",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if is_named:
        from acp_bridge.cli.sessions_parser import add_actions

        add_actions(sessions)


def _add_lsp(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", *, is_named: bool
) -> None:
    lsp = commands.add_parser(
        "lsp",
        help="serve an editor that speaks LSP and no ACP (Helix, Kate, plain Neovim or Emacs)",
        description=_LSP,
        epilog="examples:\n"
        "  acp-bridge editor helix     what to put into Helix' settings, which starts this\n"
        "  acp-bridge lsp --model demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if is_named:
        _add_settings(lsp, default=argparse.SUPPRESS)


def _add_doctor(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", *, is_named: bool
) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="say what is there, what is missing, and what to do about it",
        description="Look at Python, the home folder, editors' settings, model and key, MCP\n"
        "servers, and at what a session in this folder is given: AGENTS.md files, commands\n"
        "of your own. For --runtime dsh also at DeepSeek Harness itself, which is started\n"
        "for that. Exit code 1: something is missing.",
        epilog="examples:\n"
        "  acp-bridge doctor\n"
        "  acp-bridge doctor --runtime dsh    is DeepSeek Harness there and able to work?",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    doctor.add_argument("--json", action="store_true", help="one JSON object a line")
    if is_named:
        _add_settings(doctor, default=argparse.SUPPRESS)


def _add_editor(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", *, is_named: bool
) -> None:
    editor = commands.add_parser(
        "editor",
        help="print what to put into an editor's settings",
        description=_EDITOR,
        epilog=_EDITOR_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    editor.add_argument("name", metavar="NAME", nargs="?", help="which; none: say which there are")
    editor.add_argument("--json", action="store_true", help="one JSON object a line")
    if is_named:
        _add_settings(editor, default=argparse.SUPPRESS)


def _add_events(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", words: Sequence[str]
) -> None:
    """The commands by which sessions and their subagents are on several machines."""
    events = commands.add_parser(
        "events",
        help="let subagents work on other machines: serve the events, or look at them",
        description="The event service, by which subagents work on other machines: sessions hand\n"
        "them over here (--delegation remote), workers take them (acp-bridge worker), and\n"
        "what happens is kept until the session's editor has seen it.",
        epilog="examples:\n"
        "  acp-bridge events serve     in one terminal\n"
        "  acp-bridge worker           in another\n"
        "  acp-bridge events status",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if "events" in words:
        from acp_bridge.cli import events_parser

        events_parser.add_actions(events)
    worker = commands.add_parser(
        "worker",
        help="work on subagents that sessions on other machines hand over",
        description="Work on subagents that other machines delegate through the event service.",
    )
    if "worker" in words:
        from acp_bridge.cli import worker_parser

        worker_parser.add_flags(worker)


def _add_setup(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    setup = commands.add_parser(
        "setup",
        help="store a provider's key, for real models",
        description="Ask for a provider's key and store it in the home folder, in a file that\n"
        "only you can read. The key is not shown; without a terminal it is read from\nstdin. A key "
        "in the environment (DEEPSEEK_API_KEY, ANTHROPIC_API_KEY,\nOPENAI_API_KEY) wins.",
        epilog="examples:\n"
        "  acp-bridge setup\n"
        "  acp-bridge setup --provider deepseek --check    is the key good?\n"
        "  acp-bridge setup --provider deepseek < key.txt\n"
        "  acp-bridge setup --forget",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    setup.add_argument("--provider", choices=PROVIDER_NAMES, help="whose key; else you are asked")
    setup.add_argument("--check", action="store_true", help="try the key before it is stored")
    setup.add_argument(
        "--forget", action="store_true", help="remove the stored key, or all without --provider"
    )
    setup.add_argument(
        "--home", metavar="DIR", default=argparse.SUPPRESS, help="folder of the key's file"
    )


def _add_record(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    record = commands.add_parser(
        "record",
        help="turn a stored session, or a trace, into a snapshot scenario that needs no key",
        description="Live through a stored session again, with a scripted model in place of the\n"
        "real one, and keep it as a snapshot scenario: steps, answers, files and what is\n"
        "to be seen. No command of it runs, and nothing outside of the scenario's folder\n"
        "is touched. It says what could not be carried over. With --trace FILE instead\n"
        "of an id it makes the steps alone, of any agent's wire.",
        epilog="examples:\n"
        "  acp-bridge record 3f0c --into snapshots/my-bug\n"
        "  acp-bridge record 3f0c --into snapshots/my-bug --runtime dsh    one of its sessions\n"
        "  acp-bridge record --trace wire.jsonl --into scenarios/mine",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    record.add_argument(
        "id", nargs="?", metavar="ID", help="the session's id, or how it begins; see sessions list"
    )
    record.add_argument("--into", required=True, metavar="FOLDER", help="a new folder")
    record.add_argument(
        "--trace",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="a wire that `acp-bridge --trace FILE` noted, in place of an id",
    )
    record.add_argument(
        "--runtime",
        choices=RUNTIMES,
        default=argparse.SUPPRESS,
        help="whose session it is: ours (embedded, the default), or DeepSeek Harness'",
    )
    record.add_argument("--home", metavar="DIR", default=argparse.SUPPRESS, help="where ours are")


def _add_runtime(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", *, is_named: bool
) -> None:
    runtime = commands.add_parser(
        "runtime",
        help="serve the built-in harness to programs that use the DeepSeek Harness SDK",
        description=_RUNTIME,
        epilog="examples, in Python:\n"
        '  DeepSeekHarness(dsh_bin=".venv/bin/acp-bridge-runtime", cwd=".", ...)',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    runtime.add_argument(
        "--profile", metavar="NAME", help="taken because the SDK gives it; there are no profiles"
    )
    runtime.add_argument(
        "--patch",
        metavar="FILE",
        action="append",
        help="taken because the SDK gives it; not read: use the settings of acp-bridge",
    )
    if is_named:
        _add_settings(runtime, default=argparse.SUPPRESS, but={"runtime", "execution", "dsh"})


def _add_settings(
    parser: argparse.ArgumentParser, *, default: object, but: Collection[str] = ()
) -> None:
    for setting in SETTINGS:
        if setting.name in but or setting.is_secret:
            continue
        flag = "--" + setting.name.replace("_", "-")
        if setting.name == "log_stderr":
            parser.add_argument(flag, action="store_true", default=default, help=setting.help)
        elif setting.choices:
            parser.add_argument(flag, choices=setting.choices, default=default, help=setting.help)
        elif setting.name != "record_model_requests":
            named = {"home": "DIR", "trace": "FILE", "dsh": "COMMAND", "events": "URL"}.get(
                setting.name, "NAME"
            )
            metavar = "N" if setting.is_count else named
            parser.add_argument(flag, metavar=metavar, default=default, help=setting.help)
