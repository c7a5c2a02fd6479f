"""``python -m acp_bridge`` and the ``acp-bridge`` command."""

import sys

from acp_bridge.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
