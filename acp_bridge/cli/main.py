"""What people type: ``acp-bridge`` serves an editor, its sub-commands serve people.

A sub-command's module is imported when it is called; the parser is built from `config.SETTINGS`.
"""

import argparse
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

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
  acp-bridge sessions list                 what is stored; also show, verify, export, delete
  acp-bridge config                        what is in force, and where it comes from
  acp-bridge --trace wire.jsonl            note both wire directions, for a bug report

Every flag is also a variable (--model is ACP_BRIDGE_MODEL) and, but for --home and --log-stderr,
a line of config.toml in the home folder (model = "demo"). Flags win, then variables, then the file.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code."""
    options = vars(_parser().parse_args(arguments))
    command = options.pop("command")
    flags: dict[str, str | None] = {
        setting.name: _as_text(options.get(setting.name)) for setting in SETTINGS
    }
    match command:
        case "demo":
            from acp_bridge.cli import demo

            return demo.run(keep=options["keep"])
        case "setup":
            from acp_bridge.cli import setup

            return setup.run(
                flags,
                provider=options["provider"],
                forget=options["forget"],
                check=options["check"],
            )
        case "sessions":
            from acp_bridge.cli import sessions

            return sessions.run(flags, options)
        case "config":
            from acp_bridge.cli import show_config

            return show_config.run(flags)
        case _:
            from acp_bridge.cli import serve

            return serve.run(flags)


def _as_text(value: object) -> str | None:
    if value is True:
        return "true"
    return value if isinstance(value, str) else None


def _parser() -> argparse.ArgumentParser:
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
    _add_sessions(commands)
    show = commands.add_parser(
        "config",
        help="print every setting in force and where it comes from",
        description="Print every setting in force and where it comes from.",
    )
    _add_settings(show, default=argparse.SUPPRESS)
    return parser


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


class _Action(NamedTuple):
    """An action of ``acp-bridge sessions`` as its help teaches it."""

    name: str
    help: str
    description: str
    examples: str


_ACTIONS = (
    _Action(
        "list",
        "every stored session, newest first",
        "Print a table of every stored session, newest first, and beneath it the logs that cannot "
        "be opened, each with its reason.",
        "  acp-bridge sessions list\n"
        "  acp-bridge sessions list --json | jq -r 'select(.kind == \"fork\") | .session_id'",
    ),
    _Action(
        "show",
        "a session's transcript",
        "Print what an editor shows when it loads the session: what was said and thought, tool "
        "calls with their diffs and output, the plan, and how full the context is.",
        "  acp-bridge sessions show 3f0c… | less -R\n"
        "  acp-bridge sessions show 3f0c… --json    the updates of session/load, one a line",
    ),
    _Action(
        "verify",
        "check every log, changing nothing",
        "Read every log, or those of some sessions, and say of each whether it is sound, "
        "repairable (opening it cuts an incomplete tail or closes its last turn), unsupported, "
        "corrupt or misplaced. Nothing is locked or written. Exit code 1 if one cannot be opened.",
        "  acp-bridge sessions verify\n"
        "  acp-bridge sessions verify --json | jq 'select(.status != \"sound\")'",
    ),
    _Action(
        "export",
        "a page to read or keep",
        "Write one HTML page that needs nothing else: the tree of sessions, each transcript with "
        "its tool calls and diffs, and how the context filled.",
        "  acp-bridge sessions export 3f0c… --html talk.html    with its subagents' sessions\n"
        "  acp-bridge sessions export --all --html store.html",
    ),
    _Action(
        "delete",
        "remove a session for good",
        "Remove a session and its subagents' sessions, after asking. Nothing is removed while "
        "another program has one of them open.",
        "  acp-bridge sessions delete 3f0c…\n"
        "  acp-bridge sessions delete 3f0c… --yes    where nobody can be asked",
    ),
)


def _add_sessions(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "sessions",
        help="list, show, verify, export or delete stored sessions",
        description="Look at what is stored, and look after it.",
        epilog="example:\n  acp-bridge sessions list",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    made: dict[str, argparse.ArgumentParser] = {}
    for action in _ACTIONS:
        made[action.name] = one = actions.add_parser(
            action.name,
            help=action.help,
            description=textwrap.fill(action.description, 80),
            epilog=f"examples:\n{action.examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        one.add_argument(
            "--home", metavar="DIR", default=argparse.SUPPRESS, help="folder that holds sessions/"
        )
        if action.name in {"list", "show", "verify"}:
            one.add_argument("--json", action="store_true", help="one JSON object a line")
    for name in ("show", "delete"):
        made[name].add_argument("id", metavar="ID", help="the session's id")
    made["show"].add_argument("--full", action="store_true", help="do not shorten tools' output")
    made["verify"].add_argument("ids", metavar="ID", nargs="*", help="only these sessions")
    made["export"].add_argument("id", metavar="ID", nargs="?", help="the session's id")
    made["export"].add_argument("--all", action="store_true", help="every session")
    made["export"].add_argument("--html", metavar="FILE", required=True, help="the page to write")
    made["delete"].add_argument("--yes", action="store_true", help="do not ask")


def _add_settings(parser: argparse.ArgumentParser, *, default: object) -> None:
    for setting in SETTINGS:
        flag = "--" + setting.name.replace("_", "-")
        if setting.name == "log_stderr":
            parser.add_argument(flag, action="store_true", default=default, help=setting.help)
        elif setting.choices:
            parser.add_argument(flag, choices=setting.choices, default=default, help=setting.help)
        elif setting.name != "record_model_requests":
            metavar = {"home": "DIR", "trace": "FILE"}.get(setting.name, "NAME")
            parser.add_argument(flag, metavar=metavar, default=default, help=setting.help)
