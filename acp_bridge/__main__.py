"""``python -m acp_bridge`` and the ``acp-bridge`` command."""

import sys
from collections.abc import Mapping
from typing import Any

from acp_bridge.cli import main as command_line


def main() -> int:
    """Run the command line; the exit code."""
    return command_line.main(record=_record)


def _record(flags: Mapping[str, str | None], options: Mapping[str, Any]) -> int:
    # The command line may not know the scenario runner, which plays it: so it is handed over.
    from acp_bridge.testing.recording import command

    return command.run(flags, options)


if __name__ == "__main__":
    sys.exit(main())
