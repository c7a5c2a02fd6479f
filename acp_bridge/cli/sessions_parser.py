"""The words of ``acp-bridge sessions``: loaded when it is called."""

import argparse
import textwrap
from typing import NamedTuple

_HOME = "folder that holds sessions/"
_ID = "the session's id, or its first characters (4 or more) as far as no other begins so"


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
        "  acp-bridge sessions show 3f0c | less -R\n"
        "  acp-bridge sessions show 3f0c --json    the updates of session/load, one a line",
    ),
    _Action(
        "fork",
        "go on from a session without changing it",
        "Make a new session that begins with the completed turns of another, which stays as it "
        "is. Without --at it begins with all of them.",
        "  acp-bridge sessions fork 3f0c\n"
        "  acp-bridge sessions fork 3f0c --at 41      the rows up to seq 41, a turn's end\n"
        "  acp-bridge sessions fork 3f0c --for dsh    as DeepSeek Harness 0.2.1rc2 takes it",
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
        "  acp-bridge sessions export 3f0c --html talk.html    with its subagents' sessions\n"
        "  acp-bridge sessions export --all --html store.html",
    ),
    _Action(
        "delete",
        "remove a session for good",
        "Remove a session and its subagents' sessions, after asking. Nothing is removed while "
        "another program has one of them open.",
        "  acp-bridge sessions delete 3f0c\n"
        "  acp-bridge sessions delete 3f0c --yes    where nobody can be asked",
    ),
)


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Give the parser of ``acp-bridge sessions`` its actions and their flags."""
    parser.add_argument("--home", metavar="DIR", default=argparse.SUPPRESS, help=_HOME)
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
        one.add_argument("--home", metavar="DIR", default=argparse.SUPPRESS, help=_HOME)
        one.add_argument("--json", action="store_true", help="one JSON object a line")
    for name in ("show", "fork", "delete"):
        made[name].add_argument("id", metavar="ID", help=_ID)
    made["show"].add_argument("--full", action="store_true", help="do not shorten tools' output")
    made["fork"].add_argument(
        "--at", metavar="SEQ", type=int, help="the last row to copy: that of a completed turn"
    )
    made["fork"].add_argument(
        "--for", choices=("dsh",), help="make it as DeepSeek Harness 0.2.1rc2 takes it"
    )
    made["verify"].add_argument(
        "ids", metavar="ID", nargs="*", help="only these sessions: ids, or how they begin"
    )
    made["export"].add_argument("id", metavar="ID", nargs="?", help=_ID)
    made["export"].add_argument("--all", action="store_true", help="every session")
    made["export"].add_argument("--html", metavar="FILE", required=True, help="the page to write")
    made["delete"].add_argument("--yes", action="store_true", help="do not ask")
