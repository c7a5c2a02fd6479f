"""The words of ``acp-bridge events``: loaded when it is called."""

import argparse
from typing import Final

PORT: Final = 7420
"""Assigned to nobody; the same for the service and for those who look for it."""

URL_HELP: Final = (
    "where the service is; else ACP_BRIDGE_EVENTS, else events in config.toml, "
    f"else http://127.0.0.1:{PORT}"
)
_TOKEN = "the service's token; better in ACP_BRIDGE_EVENTS_TOKEN, which no process list shows"  # noqa: S105


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Give the parser of ``acp-bridge events`` its actions and their flags."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    serve = actions.add_parser(
        "serve",
        help="run the event service",
        description="Keep run events and stream them to homes and workers, until SIGTERM or\n"
        "Ctrl-C. Served beyond this machine it needs a token, and a proxy for https.",
        epilog="examples:\n"
        "  acp-bridge events serve\n"
        "  ACP_BRIDGE_EVENTS_TOKEN=… acp-bridge events serve --host 0.0.0.0\n"
        "  acp-bridge events serve --log redis://127.0.0.1:6379/0",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument(
        "--host", metavar="HOST", default="127.0.0.1", help="default 127.0.0.1, this machine alone"
    )
    serve.add_argument("--port", metavar="PORT", type=_port, default=PORT, help=f"default {PORT}")
    serve.add_argument("--token", metavar="TOKEN", help=_TOKEN)
    serve.add_argument(
        "--log",
        metavar="URL",
        help="sqlite:PATH or redis://HOST:PORT/NUMBER; default events.sqlite in the home folder",
    )
    serve.add_argument(
        "--home", metavar="DIR", default=argparse.SUPPRESS, help="folder of the default log"
    )
    tail = actions.add_parser(
        "tail",
        help="print runs' events as they come",
        description="Print the events of some runs, those that are there and those that come,\n"
        "until Ctrl-C.",
        epilog="examples:\n"
        "  acp-bridge events tail 3f0c\n"
        "  acp-bridge events tail run-1 run-2 --json | jq .payload",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tail.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="a run's id: that of the subagent's session, its first characters being enough",
    )
    tail.add_argument(
        "--home",
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="folder that holds sessions/ and config.toml",
    )
    tail.add_argument(
        "--since", metavar="N", type=int, default=0, help="only sequences above this one"
    )
    status = actions.add_parser(
        "status",
        help="what is open at the service",
        description="Print the service's log, how many streams are open, and how many runs wait\n"
        "or have a worker.",
        epilog="examples:\n"
        "  acp-bridge events status\n"
        "  acp-bridge events status --events https://events.example",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    status.add_argument(
        "--home", metavar="DIR", default=argparse.SUPPRESS, help="folder that holds config.toml"
    )
    for one in (tail, status):
        one.add_argument("--events", metavar="URL", help=URL_HELP)
        one.add_argument("--token", metavar="TOKEN", help=_TOKEN)
        one.add_argument("--json", action="store_true", help="one JSON object a line")


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65_535:  # noqa: PLR2004
        raise argparse.ArgumentTypeError("a port is a number from 0 (any) to 65535")
    return number
