"""``acp-bridge`` as it runs where the ``fast`` extra is not installed."""

import sys

sys.modules["orjson"] = None  # type: ignore[assignment]  # importing it fails from now on

from acp_bridge.cli.main import main  # noqa: E402

sys.exit(main())
