"""Tool output that was too long for a log lies in ``<home>/spill`` and is kept for a week."""

import logging
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""Long enough to come back to a session after a weekend; a log only names these files."""


def prune_spill(folder: Path, now_ms: int) -> None:
    """Remove what is older than `KEPT_MS`. Blocking; what cannot be removed stays, with a note."""
    try:
        files = [path for path in folder.iterdir() if path.is_file()]
    except FileNotFoundError:
        return
    except OSError as fault:
        logger.warning("the folder %s cannot be read: %s", folder, fault)
        return
    for path in files:
        try:
            if now_ms - path.stat().st_mtime * 1000 > KEPT_MS:
                path.unlink()
        except OSError as fault:
            logger.warning("old tool output %s stays: %s", path, fault)
