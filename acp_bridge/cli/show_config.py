"""``acp-bridge config``: every setting in force, and where it comes from."""

import os
import sys
from collections.abc import Mapping

from acp_bridge.config import SETTINGS, resolve
from acp_bridge.errors import ConfigError


def run(flags: Mapping[str, str | None]) -> int:
    """Print the settings; the exit code."""
    try:
        _, sourced = resolve(flags, os.environ)
    except ConfigError as error:
        sys.stderr.write(f"acp-bridge: {error.details}\n")
        return 2
    secrets = {setting.name for setting in SETTINGS if setting.is_secret}
    width = max(len(name) for name in sourced)
    for name, (value, source) in sourced.items():
        shown = "-" if value is None else "(set)" if name in secrets else value
        sys.stdout.write(f"{name:<{width}}  {shown}  ({source})\n")
    return 0
