"""What people type: ``acp-bridge`` serves an editor, its sub-commands serve people.

A sub-command's module is imported when it is called; the parser is built from `config.SETTINGS`.
"""

import argparse
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from acp_bridge import __version__
from acp_bridge.config import SETTINGS

PROVIDER_NAMES = ("deepseek", "anthropic", "openai")
"""Written out, since the parser is built before anything heavy is imported; a test compares."""

_DESCRIPTION = """\
Work with an agent harness from any editor that speaks ACP (Agent Client Protocol).

Without a command it serves ACP on stdin and stdout: that is what an editor starts.
To see it work without an editor or a key: acp-bridge demo
"""

_EPILOG = """\
examples:
  acp-bridge demo                          a whole conversation, printed; no key needed
  acp-bridge setup                         store a provider's key; real models from then on
  acp-bridge --model deepseek:deepseek-flash
                                           serve with this model
  acp-bridge --model demo                  serve an editor with the built-in demo model
  acp-bridge --model scripted:answers.jsonl
                                           serve with answers from a file, for tests
  acp-bridge sessions list                 what is stored; also show, fork, verify, export, delete
  acp-bridge record ID --into FOLDER       make a keyless snapshot scenario of a session
  acp-bridge editor                        which editors there are set-ups for
  acp-bridge editor zed                    what to put into Zed's settings
  acp-bridge lsp                           serve an editor that speaks LSP alone
  acp-bridge events serve                  the event service; also tail, status
  acp-bridge worker                        run subagents of sessions on other machines
  acp-bridge config                        what is in force, and where it comes from
  acp-bridge doctor                        what is missing, and what to do about it
  acp-bridge --trace wire.jsonl            note both wire directions, for a bug report

Every flag is also a variable (--model is ACP_BRIDGE_MODEL) and, but for --home and --log-stderr,
a line of config.toml in the home folder (model = "demo"). Flags win, then variables, then the file.
"""

_RUNTIME = """\
Serve the built-in harness over the wire of the DeepSeek Harness SDK, on stdin and stdout. Give the
SDK the file acp-bridge-runtime as its dsh_bin: it starts it as BIN --profile NAME [--patch FILE].

Sessions are in the home folder: --home, else ACP_BRIDGE_HOME, else DSH_HOME, which the SDK sets.
The model is --model or that of the settings; if they name none, the one that the program names.
Nobody is asked for permission on this wire: calls that would ask are refused. See --mode.
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
        prog="acp-bridge",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"acp-bridge {__version__}")
    _add_settings(parser, default=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="hold a whole conversation with the agent and print it; no key needed",
        description="Start acp-bridge as an editor would, talk to its demo model over a real "
        "pipe in a throw-away folder, and print what an editor would show.",
    )
    demo.add_argument("--keep", action="store_true", help="keep the folder, to look at its files")
    _add_setup(commands)
    _add_runtime(commands, is_named="runtime" in words)
    _add_record(commands, is_named="record" in words)
    sessions = commands.add_parser(
        "sessions",
        help="list, show, fork, verify, export or delete stored sessions",
        description="Look at what is stored, and look after it.",
        epilog="example:\n  acp-bridge sessions list",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if "sessions" in words:
        from acp_bridge.cli.sessions_parser import add_actions

        add_actions(sessions)
    lsp = commands.add_parser(
        "lsp",
        help="serve an editor that speaks LSP and no ACP (Helix, Kate, plain Neovim or Emacs)",
        description="Serve LSP on stdin and stdout. The agent is there as code actions (work on "
        "the selection, fix a problem, do what a comment `AGENT: ...` says) and as commands "
        "(agent.prompt, agent.cancel, agent.mode, agent.open, agent.allow, agent.reject). What it "
        "says goes into a Markdown transcript.",
    )
    if "lsp" in words:
        _add_settings(lsp, default=argparse.SUPPRESS)
    _add_editor(commands, is_named="editor" in words)
    _add_events(commands, words)
    show = commands.add_parser(
        "config",
        help="print every setting in force and where it comes from",
        description="Print every setting in force and where it comes from.",
    )
    if "config" in words:
        _add_settings(show, default=argparse.SUPPRESS)
    _add_doctor(commands, is_named="doctor" in words)
    return parser


def _add_doctor(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", *, is_named: bool
) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="say what is there, what is missing, and what to do about it",
        description="Look at Python, the home folder, editors' settings, model and key; for "
        "--runtime dsh also at DeepSeek Harness itself, which is started for that. Exit code 1: "
        "something is missing.",
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
        help="serve run events to other machines, or look at them",
        description="The event service, by which children run on other machines.",
        epilog="example:\n  acp-bridge events serve",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if "events" in words:
        from acp_bridge.cli import events_parser

        events_parser.add_actions(events)
    worker = commands.add_parser(
        "worker",
        help="run subagents of sessions on other machines",
        description="Work on subagents that other machines delegate through the event service.",
    )
    if "worker" in words:
        from acp_bridge.cli import worker_parser

        worker_parser.add_flags(worker)


def _add_setup(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    setup = commands.add_parser(
        "setup",
        help="store a provider's key, for real models",
        description="Ask for a provider's key and store it in the home folder, in a file that "
        "only you can read. The key is not shown; without a terminal it is read from stdin. A key "
        "in the environment (DEEPSEEK_API_KEY, ANTHROPIC_API_KEY, OPENAI_API_KEY) wins.",
    )
    setup.add_argument("--provider", choices=PROVIDER_NAMES, help="whose key; else you are asked")
    setup.add_argument("--check", action="store_true", help="try the key before it is stored")
    setup.add_argument(
        "--forget", action="store_true", help="remove the stored key, or all without --provider"
    )
    setup.add_argument(
        "--home", metavar="DIR", default=argparse.SUPPRESS, help="folder of the key's file"
    )


def _add_record(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", *, is_named: bool
) -> None:
    record = commands.add_parser(
        "record",
        help="turn a stored session, or a trace, into a snapshot scenario that needs no key",
        description="Live through a stored session again, with a scripted model in place of the\n"
        "real one, and keep it as a snapshot scenario: steps, answers, files and what is\n"
        "to be seen. No command of it runs, and nothing outside of the scenario's folder\n"
        "is touched. It says what could not be carried over. With --trace FILE instead\n"
        "of an id it makes the steps alone, of any agent's wire.",
        epilog="example:\n  acp-bridge record ID --into snapshots/my-bug",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    record.add_argument(
        "id", nargs="?", metavar="ID", help="the session's id, or how it begins; see sessions list"
    )
    record.add_argument("--into", required=True, metavar="FOLDER", help="a new folder")
    if is_named:
        _add_settings(record, default=argparse.SUPPRESS)


def _add_runtime(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", *, is_named: bool
) -> None:
    runtime = commands.add_parser(
        "runtime",
        help="serve the built-in harness to programs that use the DeepSeek Harness SDK",
        description=_RUNTIME,
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
        _add_settings(runtime, default=argparse.SUPPRESS, but={"runtime", "execution"})


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
