"""How this program is started again, by its own interpreter: for clients and for the demo."""

import sys


def own_command(home: str | None, *arguments: str) -> list[str]:
    """The command line of acp-bridge with these arguments, for a home if one is named."""
    flags = [] if home is None else ["--home", home]
    return [sys.executable, "-m", "acp_bridge", *flags, *arguments]
