"""The words of ``acp-bridge worker``: loaded when it is called."""

import argparse
from typing import Final

from acp_bridge.cli.events_parser import URL_HELP

LIMIT: Final = 4
"""Runs at once: a run mostly waits for its model, but its commands share the machine."""

LIMIT_MAX: Final = 1_000

_DESCRIPTION = """\
Work on subagents that sessions on other machines delegate (acp-bridge --events URL
--delegation remote), until SIGTERM or Ctrl-C. It waits at the event service, takes a run, lets
the subagent work here, and tells its home everything; questions are put to the user there.

A subagent works in the folder that its home names, which must exist here at the same path. Tools,
keys of models and MCP servers are those of this machine and this home folder. Its log is the
home's: here is a copy, for as long as it works.

Whoever has the service's token can have commands run here, as the user that this runs as: the
permission mode is the session's at home.
"""

_EPILOG = """\
examples:
  acp-bridge worker                                    the service on this machine
  ACP_BRIDGE_EVENTS_TOKEN=… acp-bridge worker --events https://events.example --limit 8
  acp-bridge worker --model demo                       keyless, to see it work

The first signal lets the subagents that work here settle as failed, which their parents are told;
a message lets them go on elsewhere. A second one ends at once.
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Give the parser of ``acp-bridge worker`` its flags."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--events",
        metavar="URL",
        default=argparse.SUPPRESS,
        help=URL_HELP,
    )
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help="the service's token; better in ACP_BRIDGE_EVENTS_TOKEN, which no process list shows",
    )
    parser.add_argument(
        "--limit", metavar="N", type=_limit, default=LIMIT, help=f"runs at once; default {LIMIT}"
    )
    parser.add_argument(
        "--name", metavar="NAME", help="what it is called at the service; default HOST-PID"
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="the model of its subagents; else the one that each home names",
    )
    parser.add_argument(
        "--home",
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="folder of keys, settings and logs",
    )
    parser.add_argument(
        "--log-stderr", action="store_true", default=argparse.SUPPRESS, help="log to stderr too"
    )


def _limit(text: str) -> int:
    number = int(text)
    if not 1 <= number <= LIMIT_MAX:
        raise argparse.ArgumentTypeError(f"a limit is a number from 1 to {LIMIT_MAX}")
    return number
